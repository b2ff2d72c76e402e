"""How many bytes of text each token of a vocabulary stands for, so that a loss per token can be
told in bits per byte, which vocabularies do not change.

Two kinds of tokenizers say it token by token: those over bytes (GPT-2, Llama 3, Qwen and our own),
and those over pieces of text where a space is U+2581 and what no piece holds goes byte by byte
(Llama 2, Mistral). What marks the end of a text or another special place stands for no bytes. Of
any other tokenizer a token alone does not tell.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from albor_core.data.pack.special_tokens import tokenizer_file

_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
_SPACE = "\u2581"


def bytes_of_tokens(tokenizer: Path) -> NDArray[np.int64] | None:
    """(highest id + 1,) bytes of each token; None where tokens do not tell, or nothing can be read.

    `tokenizer`: a tokenizer.json or a folder with one, read as JSON and not run.
    """
    try:
        document = json.loads(tokenizer_file(tokenizer).read_bytes())
        pieces, added = _pieces(document["model"]), document.get("added_tokens") or []
        kinds = {*_decoders(document.get("decoder"))}
        size = 1 + max((*pieces, *(int(one["id"]) for one in added)))
        found = np.zeros(size, np.int64)
        for number, piece in pieces.items():
            found[number] = _bytes(piece, kinds)
        for one in added:
            text = "" if one.get("special") else str(one["content"])
            found[int(one["id"])] = len(text.encode())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return found if kinds & {"ByteLevel", "ByteFallback"} else None


def _pieces(model: Mapping[str, Any]) -> dict[int, str]:
    """Token by id; a list in Unigram models."""
    vocabulary = model["vocab"]
    if isinstance(vocabulary, dict):
        return {int(number): str(piece) for piece, number in vocabulary.items()}
    return {number: str(piece) for number, (piece, *_) in enumerate(vocabulary)}


def _decoders(decoder: Any) -> Iterator[str]:
    if isinstance(decoder, dict):
        yield str(decoder.get("type"))
        for one in decoder.get("decoders") or []:
            yield from _decoders(one)


def _bytes(piece: str, kinds: set[str]) -> int:
    if "ByteLevel" in kinds:  # a character for each byte
        return len(piece)
    return 1 if _BYTE.fullmatch(piece) else len(piece.replace(_SPACE, " ").encode())
