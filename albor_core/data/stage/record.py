"""The record of a corpus: how it was made, from what, what was left out, step by step.

    OUT/part-00000.parquet ... OUT/manifest.json     or FILE.parquet, the record in its footer

It is written last, so its presence is the claim that the corpus is whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from albor_core.data.stage.corpus import Corpus
from albor_core.data.stage.counts import Counts, from_json
from albor_core.outputs.identity import hash_of_file, identity_of
from albor_core.run.errors import DataError

CORPUS_SCHEMA = "albor.corpus/1"
RECORD_NAME = "manifest.json"
FOOTER_KEY = b"albor.corpus"


@dataclass(frozen=True)
class CorpusRecord:
    """The record of the last step of a corpus, and those of the steps before."""

    step: str
    settings: Mapping[str, Any]
    """All that the output depends on beside the input."""
    identity: str
    """SHA-256 of step, settings and input: equal identities make equal bytes."""
    data_hash: str
    """SHA-256 over the parts' hashes, in order."""
    documents: int
    bytes: int
    """UTF-8 bytes of text."""
    counts: Counts
    history: tuple[Mapping[str, Any], ...]
    """Of the steps before, oldest first: each a record without its own history."""

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": CORPUS_SCHEMA,
            "step": self.step,
            "settings": dict(self.settings),
            "identity": self.identity,
            "data_hash": self.data_hash,
            "documents": self.documents,
            "bytes": self.bytes,
            **self.counts.to_json(),
            "history": [dict(one) for one in self.history],
        }

    def steps(self) -> tuple[Mapping[str, Any], ...]:
        """All steps, oldest first, the last included."""
        last = {key: value for key, value in self.to_json().items() if key != "history"}
        return (*self.history, last)


def read_record(path: Path) -> CorpusRecord | None:
    """Of the corpus at `path`; None where it has none (it was not made here). Raises DataError for
    a damaged record.
    """
    if path.is_dir():
        file = path / RECORD_NAME
        if not file.exists():
            return None
        text = file.read_bytes()
    else:
        try:
            kept = pq.read_schema(path).metadata or {}
        except (pa.ArrowException, OSError):  # who opens the corpus says what is wrong with it
            return None
        if FOOTER_KEY not in kept:
            return None
        file, text = path, kept[FOOTER_KEY]
    try:
        return _from_json(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(
            f"{file}: not a record of a corpus: {error}",
            hint="make the corpus again, with --force",
        ) from error


def _from_json(document: dict[str, Any]) -> CorpusRecord:
    if document["schema"] != CORPUS_SCHEMA:
        raise ValueError(f"schema {document['schema']!r}, not {CORPUS_SCHEMA}")
    return CorpusRecord(
        document["step"],
        document["settings"],
        document["identity"],
        document["data_hash"],
        document["documents"],
        document["bytes"],
        from_json(document),
        tuple(document["history"]),
    )


def content_hash(corpus: Corpus) -> str:
    """The identity of a corpus: its record's data_hash, or the BLAKE3 of its files' bytes."""
    record = read_record(corpus.path)
    if record is not None:
        return record.data_hash
    digest = hashlib.sha256()
    for file in corpus.files:
        digest.update(bytes.fromhex(hash_of_file(file, threads=-1)))
    return digest.hexdigest()


def corpus_identity(step: str, settings: Mapping[str, Any], inputs: Mapping[str, str]) -> str:
    """The identity of an output from everything it depends on; `inputs`: a name -> the hash of what
    is read."""
    document = {"step": step, "settings": dict(settings), "inputs": dict(inputs)}
    return identity_of(document, "sha256")
