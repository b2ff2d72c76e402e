"""The manifest of one split: which shards, how many bytes, which hashes, made from what.

It is written last, so its presence is the claim that everything it names is complete; `data_hash`
covers every field that says what the rows are, so it is also the identity a checkpoint remembers.
What is told of where they are from (`TOLD`) has a hash of its own.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from albor_core.outputs.identity import identity_of
from albor_core.run.errors import DataError, NotFoundError
from albor_core.run.files.publish import publish_json

SCHEMA = "albor.shards/1"
DATASET_SCHEMA = "albor.dataset/1"
"""Of the manifest over the splits of a data set."""
MANIFEST_NAME = "manifest.json"
_MAX_BYTES = 64 << 20
TOLD = ("sources", "histogram", "history", "packing")
_TOLD_HASH = "told_sha256"
_SHARD_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,254}")
_HINT = (
    "pack it again: albor data pretokenize CORPUS --tokenizer FILE --seq-len N --out DIR --force"
)


@dataclass(frozen=True)
class Shard:
    """One Parquet file of a split."""

    file: str
    bytes: int
    sha256: str
    """Of the whole file; of its last 64 KiB (the footer) where the manifest is a scan."""
    sequences: int


@dataclass(frozen=True)
class Manifest:
    """A split directory in numbers. Fields a scan cannot know are None."""

    directory: Path
    split: str
    seq_len: int
    """Tokens per row; in a scan the mean, rounded down."""
    vocab_size: int | None
    max_id: int | None
    sequences: int
    tokens: int
    documents: int | None
    dropped_tokens: int | None
    """The remainder that did not fill a last sequence."""
    tokenizer_sha256: str | None
    corpus_sha256: str | None
    shards: tuple[Shard, ...]
    data_hash: str
    scanned: bool = False
    eos_token_id: int | None = None
    """What ends each document; None in a scan and in shards that say nothing of it."""
    bos_token_id: int | None = None
    """The tokenizer's; it is not packed."""
    sources: Mapping[str, Mapping[str, int]] | None = None
    """Source -> documents, bytes and tokens (with the end of each text, and the remainder); None in
    a scan and in older shards, as are the next two.
    """
    histogram: Mapping[str, Any] | None = None
    """Of document lengths, as `LengthHistogram` tells it."""
    history: tuple[Mapping[str, Any], ...] | None = None
    """Records of the steps that made them, oldest first."""
    packing: Mapping[str, Any] | None = None
    """Its name, documents that were cut (and how many are longer than a row), rows that begin with
    a document; None in a scan and in older shards, which are `concat`.
    """

    def paths(self) -> list[Path]:
        """The shard files in order."""
        return [self.directory / shard.file for shard in self.shards]

    def sequences_at(self, seq_len: int) -> int:
        """Sequences of `seq_len` when every row is cut into as many as fit."""
        return self.sequences * (self.seq_len // seq_len)


def data_hash(fields: dict[str, Any]) -> str:
    """SHA-256 of the canonical JSON of the fields of a manifest that say what the rows are."""
    beside = {"data_hash", _TOLD_HASH, *TOLD}
    told = {key: value for key, value in fields.items() if key not in beside}
    return identity_of(told, "sha256")


def combined_hash(hashes: Iterable[str]) -> str:
    """The identity of several splits, in any order; that of one alone is its own."""
    ordered = sorted(hashes)
    if len(ordered) == 1:
        return ordered[0]
    return hashlib.sha256("\n".join(ordered).encode()).hexdigest()


def write_manifest(
    directory: Path, fields: dict[str, Any], told: dict[str, Any] | None = None
) -> Manifest:
    """Seal `fields` (all but schema and hashes) and what is `TOLD` as `directory`/manifest.json,
    atomically.
    """
    document = {"schema": SCHEMA, **fields}
    document["data_hash"] = data_hash(document)
    if told is not None:
        document |= {**told, _TOLD_HASH: identity_of(told, "sha256")}
    publish_json(directory / MANIFEST_NAME, document)
    return load_manifest(directory)


def load_manifest(directory: Path) -> Manifest:
    """Read and check a split's manifest; touches no shard.

    Raises NotFoundError when there is none, DataError (file, cause, next command) when it is
    damaged, edited or of another schema.
    """
    file = directory / MANIFEST_NAME
    document = _read_json(file)
    if document.get("schema") == DATASET_SCHEMA:
        names = [str(name) for name in document.get("splits") or ("train",)]
        raise DataError(
            f"{directory}: holds a whole data set, not one split",
            hint=f"name the split: {directory / ('train' if 'train' in names else names[0])}",
        )
    if document.get("schema") != SCHEMA:
        raise DataError(f"{file}: schema {document.get('schema')!r}, not {SCHEMA}", hint=_HINT)
    told = {key: document[key] for key in TOLD if key in document}
    is_told_whole = not told or document.get(_TOLD_HASH) == identity_of(told, "sha256")
    if document.get("data_hash") != data_hash(document) or not is_told_whole:
        raise DataError(f"{file}: its content does not match its data_hash", hint=_HINT)
    try:
        return _from_json(directory, document)
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"{file}: field missing or wrong: {error}", hint=_HINT) from error


def shard_fields(shards: tuple[Shard, ...]) -> list[dict[str, Any]]:
    """Shards as a manifest stores them."""
    return [asdict(shard) for shard in shards]


def _read_json(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as stream:
            data = stream.read(_MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFoundError(
            f"{file}: no manifest; the packing was not finished, or never started", hint=_HINT
        ) from error
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}", hint=_HINT) from error
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        raise DataError(f"{file}: not JSON: {error}", hint=_HINT) from error
    if not isinstance(document, dict):
        raise DataError(f"{file}: not a JSON object", hint=_HINT)
    return document


def _from_json(directory: Path, document: dict[str, Any]) -> Manifest:
    def number(source: dict[str, Any], key: str) -> int:
        value = source[key]
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise ValueError(f"{key} is {value!r}, not a count")
        return value

    def token(key: str) -> int | None:
        return None if document.get(key) is None else number(document, key)

    def text(source: dict[str, Any], key: str) -> str:
        value = source[key]
        if not isinstance(value, str):
            raise TypeError(f"{key} is {value!r}, not a string")
        return value

    def shard(entry: dict[str, Any]) -> Shard:
        name = text(entry, "file")
        if not _SHARD_NAME.fullmatch(name):  # no separators: a manifest may not point elsewhere
            raise ValueError(f"shard name {name!r}")
        return Shard(
            name, number(entry, "bytes"), text(entry, "sha256"), number(entry, "sequences")
        )

    return Manifest(
        directory=directory,
        split=text(document, "split"),
        seq_len=number(document, "seq_len"),
        vocab_size=number(document, "vocab_size"),
        max_id=number(document, "max_id"),
        sequences=number(document, "sequences"),
        tokens=number(document, "tokens"),
        documents=number(document, "documents"),
        dropped_tokens=number(document, "dropped_tokens"),
        tokenizer_sha256=text(document, "tokenizer_sha256"),
        corpus_sha256=text(document, "corpus_sha256"),
        shards=tuple(shard(entry) for entry in document["shards"]),
        data_hash=text(document, "data_hash"),
        eos_token_id=token("eos_token_id"),
        bos_token_id=token("bos_token_id"),
        sources=document.get("sources"),
        histogram=document.get("histogram"),
        history=tuple(document["history"]) if "history" in document else None,
        packing=document.get("packing"),
    )
