"""Counts the tokens of documents, with a tokenizer that is loaded where it is used."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

_BATCH = 2 << 20  # characters encoded together, at about 100 bytes of memory each
_PIECE = 1 << 20  # characters of a longer document that are encoded at once


@dataclass(frozen=True)
class TokenCounter:
    """A tokenizer's file and its loader; picklable."""

    file: Path
    """tokenizer.json."""
    load: Callable[[Path], Any]
    """Gives a tokenizers.Tokenizer; a function at the top of its module."""
    sha256: str

    def count(self, texts: Sequence[str], most: int | None = None) -> Iterator[int]:
        """The number of tokens of each text, without added special tokens. A text of more than 2^20
        characters is encoded in pieces, each of which may add a token, and only until the count
        exceeds `most`.
        """
        tokenizer = _loaded(self.load, self.file)
        batch: list[str] = []
        size = 0
        for text in texts:
            if len(text) > _PIECE or size + len(text) > _BATCH:
                yield from _encode(tokenizer, batch)
                batch, size = [], 0
            if len(text) > _PIECE:
                yield _count_long(tokenizer, text, most)
            else:
                batch.append(text)
                size += len(text)
        yield from _encode(tokenizer, batch)


def token_counter(file: Path, load: Callable[[Path], Any]) -> TokenCounter:
    """The counter for an existing tokenizer.json."""
    return TokenCounter(file, load, hashlib.sha256(file.read_bytes()).hexdigest())


@cache
def _loaded(load: Callable[[Path], Any], file: Path) -> Any:
    tokenizer = load(file)
    tokenizer.encode_special_tokens = True  # documents are data: a sentinel in them is plain text
    return tokenizer


def _encode(tokenizer: Any, texts: list[str]) -> Iterator[int]:
    yield from map(len, tokenizer.encode_batch(texts, add_special_tokens=False))


def _count_long(tokenizer: Any, text: str, most: int | None) -> int:
    total = 0
    for at in range(0, len(text), _PIECE):
        total += len(tokenizer.encode(text[at : at + _PIECE], add_special_tokens=False))
        if most is not None and total > most:
            break
    return total
