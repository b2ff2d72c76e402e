"""Checks what any tokenizer does with text: round trips, bytes, patterns, fertility.

Only those over bytes promise that any text survives: ByteLevel ones (GPT-2, Llama 3, Qwen and our
own bpe and unigram) whose text is not normalised first. Other tokenizers may change a text: that is
reported and not an error.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Encoding, Tokenizer, pre_tokenizers

from albor_core.data.pack.foreign_tokenizer import in_words, not_applied
from albor_core.data.pack.special_tokens import (
    END_OF_TEXT,
    end_of_text,
    special_ids,
    tokenizer_file,
)
from albor_core.data.pack.tokenizer import decode_document, load_tokenizer, vocabulary_size
from albor_core.data.pack.work.encode import read_documents, text_units
from albor_core.data.stage.corpus import open_corpus
from albor_core.run.errors import DataError, Problem

PATTERNS = ("def", "return", "self", "import", "class", "for", "if", "in")
"""Words of Python that a vocabulary for it holds whole."""
RANDOM_TEXTS = 256
_RANDOM_LENGTH = 64
_SOURCE_BYTES, _SAMPLE_BYTES, _SAMPLE_UNITS = 256 << 10, 4 << 20, 32
_SHOWN = 80
_NORMALISED = ("NFC", "NFD", "NFKC", "NFKD")
_HINT = "train another with: albor tokenizer apply CORPUS --vocab-size N --out FILE"

# Each once broke a tokenizer somewhere: combining marks, joiners, surrogate-range neighbours,
# right-to-left, lone CR, runs of blanks, an unassigned code point, text that looks like a special.
TRICKY_TEXTS = (
    "def f(x):\n    return x ** 2\n",
    "\tif a:\r\n\t\tpass\r",
    "   \n\n\n  \t  ",
    "e\u0301 \u00e9 \u1e9b\u0323 \ufb01",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1ea\U0001f1f8",
    "\u0645\u0631\u062d\u0628\u0627 \u202e abc \u4f60\u597d\u3002",
    "\ud7ff\ue000\uffff\U0010ffff\U000e0fff",
    "\ufeff\u0000\u0001\u007f\u0085\u2028",
    "0123456789 1_000_000 0x1F 1e-5",
    END_OF_TEXT + " is text here",
)


@dataclass
class Fertility:
    """Tokens that text takes; words are what white space separates."""

    documents: int = 0
    bytes: int = 0
    words: int = 0
    tokens: int = 0

    def add(self, text: str, tokens: int) -> None:
        self.documents += 1
        self.bytes += len(text.encode())
        self.words += len(text.split())
        self.tokens += tokens

    def to_json(self) -> dict[str, Any]:
        return {
            "documents": self.documents,
            "bytes": self.bytes,
            "words": self.words,
            "tokens": self.tokens,
            "tokens_per_byte": self.tokens / self.bytes if self.bytes else None,
            "tokens_per_word": self.tokens / self.words if self.words else None,
        }


def check_tokenizer(path: Path, corpus: Path | None = None) -> dict[str, Any]:
    """Facts about a tokenizer, as strict JSON values; `problems` is empty when it is fit for use.

    Encodes and decodes TRICKY_TEXTS, random Unicode and, given a corpus, some 4 MiB of it, up to
    256 KiB of each source, from which fertility comes (null without one). Raises what
    `load_tokenizer` and `open_corpus` do.
    """
    file = tokenizer_file(path)
    tokenizer = load_tokenizer(path)
    document = json.loads(file.read_bytes())
    tokenizer.encode_special_tokens = True  # documents are data: a sentinel in them is plain text
    trial = [*TRICKY_TEXTS, *random_texts()]
    sampled = list(_sample(corpus)) if corpus else []
    samples = [*trial, *(text for _, text in sampled)]
    encoded, decoded = in_words(lambda: _there_and_back(tokenizer, samples, file), file)
    failed = [text for text, back in zip(samples, decoded, strict=True) if back != text]
    whole, sources = Fertility(), dict[str, Fertility]()
    for (source, text), encoding in zip(sampled, encoded[len(trial) :], strict=True):
        for one in (whole, sources.setdefault(source, Fertility())):
            one.add(text, len(encoding.ids))
    ids = special_ids(tokenizer, path)
    promises = promises_round_trip(document)
    covered = byte_tokens(tokenizer, document)
    missing = [word for word in PATTERNS if not _is_whole(tokenizer, word)]
    problems = _problems(tokenizer, path, failed if promises else [], covered)
    return {
        "path": str(file),
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "kind": document.get("model", {}).get("type"),
        "vocab_size": vocabulary_size(tokenizer),
        "specials": _specials(tokenizer),
        "roles": {"eos": ids.eos, "bos": ids.bos, "pad": ids.pad},
        "promises_round_trip": promises,
        "samples": len(samples),
        "failed": [text[:_SHOWN] for text in failed],
        "byte_tokens": covered,
        "patterns": {"of": len(PATTERNS), "covered": len(PATTERNS) - len(missing),
                     "missing": missing},
        "bytes_per_token": whole.bytes / whole.tokens if whole.tokens else None,
        "fertility": None if corpus is None else {
            "all": whole.to_json(),
            "sources": {name: one.to_json() for name, one in sorted(sources.items())},
        },
        "not_applied": not_applied(path),
        "problems": [str(problem) for problem in problems],
    }  # fmt: skip


def _there_and_back(
    tokenizer: Tokenizer, samples: list[str], file: Path
) -> tuple[list[Encoding], list[str]]:
    """(what they become, what comes back of that). Raises DataError where a text has no tokens."""
    try:
        encoded = tokenizer.encode_batch(samples, add_special_tokens=False)
        ids = [one.ids for one in encoded]
        return encoded, tokenizer.decode_batch(ids, skip_special_tokens=False)
    except Exception as error:  # tokenizers raises bare Exception
        raise DataError(f"{file}: cannot encode every text: {error}", hint=_HINT) from error


def random_texts() -> list[str]:
    """Code points of all of Unicode but surrogates, the same every time."""
    draw = random.Random(0)  # noqa: S311  a sample, not a secret
    planes = (0x80, 0x800, 0x10000, 0x110000)  # as long in UTF-8: 1, 2, 3 and 4 bytes
    found = []
    for _ in range(RANDOM_TEXTS):
        points = [draw.randrange(draw.choice(planes)) for _ in range(_RANDOM_LENGTH)]
        found.append("".join(chr(one) for one in points if not 0xD800 <= one < 0xE000))
    return found


def promises_round_trip(document: Mapping[str, Any]) -> bool:
    """Whether a tokenizer.json works on bytes, unchanged from the text."""
    kinds = {*_types(document.get("pre_tokenizer")), *_types(document.get("decoder"))}
    changes = {*_types(document.get("normalizer"))}
    return "ByteLevel" in kinds and not changes & {*_NORMALISED}


def byte_tokens(tokenizer: Tokenizer, document: Mapping[str, Any]) -> int | None:
    """Bytes of 256 that have a token; None for a kind that does not work on bytes."""
    kinds = {*_types(document.get("pre_tokenizer")), *_types(document.get("decoder"))}
    if "ByteLevel" in kinds:
        names = pre_tokenizers.ByteLevel.alphabet()
    elif "ByteFallback" in kinds:
        names = [f"<0x{number:02X}>" for number in range(256)]
    else:
        return None
    return sum(tokenizer.token_to_id(name) is not None for name in names)


def _types(part: Any) -> Iterator[str]:
    """The types of a normalizer, pre-tokenizer or decoder, which may be a sequence of several."""
    if isinstance(part, dict):
        yield str(part.get("type"))
        for key in ("normalizers", "pretokenizers", "decoders"):
            for one in part.get(key) or []:
                yield from _types(one)


def _is_whole(tokenizer: Tokenizer, word: str) -> bool:
    """One token, at the start of a text or after a space."""
    return any(
        len(tokenizer.encode(text, add_special_tokens=False).ids) == 1
        for text in (word, f" {word}")
    )


def _specials(tokenizer: Tokenizer) -> dict[str, int]:
    added = tokenizer.get_added_tokens_decoder()
    return {token.content: number for number, token in sorted(added.items()) if token.special}


def _sample(path: Path) -> Iterator[tuple[str, str]]:
    """Documents as (source, text) from all over a corpus."""
    units = text_units([open_corpus(path)])
    chosen = sorted({number * len(units) // _SAMPLE_UNITS for number in range(_SAMPLE_UNITS)})
    share = max(_SAMPLE_BYTES // len(chosen), 1)
    taken: dict[str, int] = {}
    for number in chosen:
        left = share
        for _, source, data, _ in read_documents(units[number]):
            text = decode_document(data)
            if text is None or taken.get(source, 0) >= _SOURCE_BYTES:
                continue
            yield source, text
            taken[source] = taken.get(source, 0) + len(data)
            left -= len(data)
            if left <= 0:
                break


def _problems(
    tokenizer: Tokenizer, path: Path, failed: list[str], covered: int | None
) -> Iterator[Problem]:
    file = str(tokenizer_file(path))
    try:
        end_of_text(tokenizer, path)
    except DataError as error:
        yield Problem("end of text", error.message, error.hint)
    if covered is not None and covered < 256:
        yield Problem("bytes", f"{256 - covered} of 256 bytes have no token", _HINT, file)
    if failed:
        message = f"{len(failed)} samples change when encoded and decoded"
        yield Problem("round trip", message, _HINT, file)
