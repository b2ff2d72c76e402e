"""One piece of a source, read into a part of the corpus."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from albor_core.data.read import git, parquet_rows, rows, tree
from albor_core.data.read.inputs import Asked, Document, InputSource, InputUnit
from albor_core.data.stage.corpus import CorpusHash
from albor_core.data.stage.counts import Counts
from albor_core.data.stage.output import sample_of, stream_part

BATCH_BYTES = 7 << 20  # of text, below a row group's 8 MiB
BATCH_ROWS = 20_000
MAX_ELSEWHERE, MAX_COLUMN_CHARS = 20, 100  # columns of a piece that are told, and of a name
SCHEMA = pa.schema(
    [
        pa.field("text", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("file", pa.string(), nullable=False),
        pa.field("commit", pa.string()),
        pa.field("licence", pa.string()),
    ]
)


def units_of(
    source: InputSource, asked: Asked, counts: Counts, apart: frozenset[str]
) -> Iterator[tuple[int, int, Any]]:
    """Documents, bytes and description of each piece of a source, in order. What is left out
    already here is added to `counts`; `apart`: where the import itself writes.
    """
    match source.kind:
        case "folder" | "git" | "package":
            own = git.listed(source.path) if source.kind == "git" else source.files
            walk = tree.SourceTree(source, asked, counts, own, apart)
            return tree.file_units(walk.entries(), asked.max_bytes)
        case "bare":
            return git.blob_units(source, asked, counts)
        case "jsonl":
            return rows.json_units(source.path)
        case "csv":
            return rows.csv_units(source.path)
        case "parquet":
            return parquet_rows.parquet_units(source.path, str(source.column))
    return tree.file_units(tree.text_entry(source.path), asked.max_bytes)


def documents_of(source: InputSource, what: Any, asked: Asked) -> Iterator[Document]:
    """The documents of one piece, in order."""
    column, most = str(source.column), asked.max_bytes
    match source.kind:
        case "folder" | "git" | "package":
            return tree.files(source.path, what, most)
        case "bare":
            return git.blobs(source.path, what, most)
        case "jsonl":
            return rows.json_documents(source.path, what, column, most)
        case "csv":
            return rows.csv_documents(source.path, what, column, most)
        case "parquet":
            return parquet_rows.parquet_documents(source.path, what, column, most)
    return tree.files(source.path.parent, what, most)


@dataclass(frozen=True)
class TakeIn:
    """Reads a piece by its number, in whichever process.

    In `folder`: parts/ (none, where `is_dry`), and keys/NUMBER with what the corpus' hash takes of
    its documents.
    """

    sources: Sequence[InputSource]
    asked: Asked
    units: Path
    """A line of JSON each, which begins at its offset."""
    offsets: Sequence[int]
    folder: Path
    is_dry: bool
    is_joined: bool = False
    """The parts will be one file."""
    sampled: Collection[int] = ()
    """Pieces of which, where it `is_dry`, the first documents tell how they pack."""

    def __call__(self, number: int) -> dict[str, Any]:
        unit = read_unit(self.units, self.offsets[number])
        part, sample = None, None
        with self.keys(number).open("wb") as keys:
            piece = _Piece(self.sources[unit.source], unit.what, self.asked, keys)
            if self.is_dry:
                documents: Iterator[Any] = piece.batches()
                if number in self.sampled:
                    documents = piece.tables()
                    sample = next(map(sample_of, documents), None)
                deque(documents, maxlen=0)
            else:
                part = stream_part(
                    self.folder / "parts", number, piece.tables(), is_final=not self.is_joined
                )
                # the result is kept as durably: one without the other would go on to a wrong hash
                keys.flush()
                os.fsync(keys.fileno())
        return {"part": part, "counts": piece.counts.to_json(), "sample": sample}

    def keys(self, number: int) -> Path:
        """The file of keys of one piece."""
        return self.folder / "keys" / f"{number:05d}"


def _name(column: str) -> str:
    """A column's name as a record can hold it."""
    return column[:MAX_COLUMN_CHARS].encode("utf-8", "replace").decode()


def read_unit(units: Path, offset: int) -> InputUnit:
    with units.open("rb") as stream:
        stream.seek(offset)
        return InputUnit(*json.loads(stream.readline()))


class _Piece:
    """One piece: its documents in batches, and what is counted of them on the way."""

    def __init__(self, source: InputSource, what: Any, asked: Asked, keys: BinaryIO) -> None:
        self._source, self._what, self._asked, self._keys = source, what, asked, keys
        self.counts = Counts()

    def tables(self) -> Iterator[pa.Table]:
        """About 7 MiB of text each."""
        for batch in self.batches():
            many = len(batch)
            text = pa.array([one.text for one in batch], pa.binary()).cast(pa.string())
            source = pa.repeat(pa.scalar(self._source.name), many)
            commit = pa.repeat(pa.scalar(self._source.commit_column, pa.string()), many)
            licence = [one.licence or self._source.licence for one in batch]
            arrays = [text, source, pa.array([one.name for one in batch]), commit,
                      pa.array(licence, pa.string())]  # fmt: skip
            yield pa.Table.from_arrays(arrays, schema=SCHEMA)

    def batches(self) -> Iterator[list[Document]]:
        name = self._source.name
        count = self.counts.source(name)
        batch: list[Document] = []
        pending = 0
        for document in documents_of(self._source, self._what, self._asked):
            size = len(document.text)
            count.documents_in += 1
            count.bytes_in += size
            if document.reason:
                self.counts.drop(name, f"{name}/{document.name}", document.reason)
                column = _name(document.elsewhere)
                if column and (column in count.elsewhere or len(count.elsewhere) < MAX_ELSEWHERE):
                    count.elsewhere[column] += 1
                continue
            count.documents += 1
            count.bytes += size
            self._keys.write(CorpusHash.entry(f"{name}/{document.name}", document.text))
            if batch and (pending + size > BATCH_BYTES or len(batch) == BATCH_ROWS):
                yield batch
                batch, pending = [], 0
            batch.append(document)
            pending += size
        if batch:
            yield batch
