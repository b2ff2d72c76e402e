"""The first half of packing: documents into token ids, unit by unit, in whichever process.

A unit is some 4 MiB of text. What comes of it is one file in the work folder: the ids of its
documents one after the other, each with its end of text, then a table of the documents, then what
the hash of the corpus takes in of them. Which split a document belongs to is decided later.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from tokenizers import Tokenizer

from albor_core.data.mix.draw import number as drawn
from albor_core.data.mix.fim import COLUMN as FIM
from albor_core.data.pack.special_tokens import tokenizer_file
from albor_core.data.pack.tokenizer import decode_document, load_tokenizer
from albor_core.data.stage.corpus import IMPORT_HINT, Corpus, CorpusHash, read_footer
from albor_core.run.errors import DataError
from albor_core.run.files.publish import publishing, sha256_file

UNIT_BYTES = 4 << 20
MOST_UNITS = 8  # of a row group: each reads it from its beginning
BATCH_BYTES = 1 << 20  # text per call into the tokenizer, for its threads to share
ONE_THREAD_BYTES = 1 << 18  # for one thread, less is faster: the memory is used again at once
BATCH_DOCUMENTS = 256
EXAMPLES = 8
_ROWS_PER_READ = 256

DOCUMENT = np.dtype(
    [("tokens", "<u4"), ("bytes", "<u4"), ("source", "<u4"), ("held_out", "?"), ("usable", "?")]
)
"""A document of a unit; `tokens` with its end of text, 0 where it is not usable."""


class KeyedText(NamedTuple):
    """One of a corpus; `data` is UTF-8."""

    key: str
    source: str
    data: bytes
    is_cut: bool
    """For fill-in-the-middle, by `albor data fim`."""


@dataclass(frozen=True)
class TextUnit:
    """Consecutive rows of one row group of the corpus `part`."""

    part: int
    file: Path
    column: str
    group: int
    first_row: int
    rows: int


@dataclass(frozen=True)
class SplitRule:
    """Which documents are held out, by their names alone."""

    seed: int
    val_fraction: float

    def holds_out(self, key: str) -> bool:
        """Whether the document named `key` is meant for val: blind to all others."""
        return drawn(self.seed, key) < self.val_fraction * 2**64


@dataclass(frozen=True)
class EncodedUnit:
    """The encoded documents of a unit, as written by `EncodeJob`."""

    path: Path
    part: int
    kind: str
    tokens: int
    documents: int
    sources: tuple[str, ...]

    def ids(self, first: int, last: int) -> NDArray[Any]:
        """The ids from `first` to `last`, exclusive."""
        kind = np.dtype(self.kind)
        return np.fromfile(self.path, kind, last - first, offset=first * kind.itemsize)

    def table(self) -> NDArray[Any]:
        """(documents,) `DOCUMENT`."""
        return np.fromfile(self.path, DOCUMENT, self.documents, offset=self._table_at())

    def entries(self) -> bytes:
        """For `CorpusHash`."""
        with self.path.open("rb") as stream:
            stream.seek(self._table_at() + self.documents * DOCUMENT.itemsize)
            return stream.read()

    def _table_at(self) -> int:
        return self.tokens * np.dtype(self.kind).itemsize


def text_units(corpora: Sequence[Corpus]) -> tuple[TextUnit, ...]:
    """The units in order; a function of the files' footers alone."""
    units: list[TextUnit] = []
    for part, corpus in enumerate(corpora):
        for file in corpus.files:
            footer = read_footer(file)
            paths = [footer.schema.column(i).path for i in range(footer.num_columns)]
            text = paths.index(corpus.column)
            for group in range(footer.num_row_groups):
                rows = footer.row_group(group).num_rows
                size = footer.row_group(group).column(text).total_uncompressed_size
                slices = max(1, min(-(-size // UNIT_BYTES), MOST_UNITS, rows))
                for number in range(slices):
                    first, last = (rows * (number + more) // slices for more in (0, 1))
                    one = TextUnit(part, file, corpus.column, group, first, last - first)
                    units.append(one)
    return tuple(units)


@dataclass(frozen=True)
class EncodeJob:
    """Encodes a unit by its number and keeps what comes of it in `folder`.

    `one_thread`: each process of several keeps one core busy by itself.
    """

    units: Sequence[TextUnit]
    tokenizer: Path
    tokenizer_sha256: str
    end_of_text: int
    kind: str
    """Of an id: "<u2" where the vocabulary fits."""
    rule: SplitRule | None
    sentinels: Mapping[str, int]
    """Of documents that were cut for fill-in-the-middle; elsewhere the words are text."""
    folder: Path
    one_thread: bool

    def __call__(self, number: int) -> dict[str, Any]:
        size = BATCH_BYTES
        if self.one_thread and multiprocessing.parent_process() is not None:
            os.environ["TOKENIZERS_PARALLELISM"] = "false"
            size = ONE_THREAD_BYTES
        encoder = _encoder(self.tokenizer, self.tokenizer_sha256)
        unit = self.units[number]
        found = _Found(self.rule)
        tokens = 0
        with publishing(self._path(number)) as temp, temp.open("wb") as stream:
            for batch in _batches(unit, size):
                ids = self._encode(encoder, batch, found)
                tokens += len(ids)
                stream.write(ids.tobytes())
            stream.write(np.array(found.rows, DOCUMENT).tobytes())
            stream.write(found.entries)
        return {
            "tokens": tokens,
            "documents": len(found.rows),
            "sources": list(found.sources),
            "unusable": found.unusable,
            "size": self._path(number).stat().st_size,
        }

    def made(self, number: int, result: dict[str, Any]) -> EncodedUnit:
        """The recorded result of a unit, to be read back. Raises DataError if it was lost."""
        path = self._path(number)
        if not path.is_file() or path.stat().st_size != result["size"]:
            raise DataError(
                f"{path}: not what was written there",
                hint=f"remove the folder {path.parent.parent} and run the same command again",
            )
        return EncodedUnit(
            path,
            self.units[number].part,
            self.kind,
            result["tokens"],
            result["documents"],
            tuple(result["sources"]),
        )

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:05d}.ids"

    def _encode(self, encoder: Tokenizer, batch: list[KeyedText], found: _Found) -> Any:
        pieces = [self._pieces(one) for one in batch]
        texts = [one for several in pieces for one in several if isinstance(one, str)]
        encoded = iter(encoder.encode_batch_fast(texts, add_special_tokens=False))
        flat = array("I")  # a third of the time that numpy takes to read a list of Python's
        for document, several in zip(batch, pieces, strict=True):
            before = len(flat)
            for one in several:
                if isinstance(one, str):
                    flat.extend(next(encoded).ids)
                else:
                    flat.append(one)
            if several:
                flat.append(self.end_of_text)
            found.add(document.key, document.source, document.data, len(flat) - before)
        return np.array(flat).astype(self.kind)

    def _pieces(self, document: KeyedText) -> list[str | int]:
        """The pieces to encode, sentinels as ids; empty if the document is not usable."""
        text = decode_document(document.data)
        if text is None:
            return []
        if not document.is_cut or not self.sentinels:
            return [text]
        words = "|".join(re.escape(word) for word in sorted(self.sentinels))
        parts = re.split(f"({words})", text)
        return [self.sentinels.get(part, part) for part in parts if part]


class _Found:
    """The documents of a unit."""

    def __init__(self, rule: SplitRule | None) -> None:
        self._rule = rule
        self.rows: list[tuple[int, int, int, bool, bool]] = []
        self.entries = bytearray()
        self.sources: dict[str, int] = {}
        self.unusable: list[str] = []
        """Keys, the first few."""

    def add(self, key: str, source: str, data: bytes, tokens: int) -> None:
        self.entries += CorpusHash.entry(key, data)
        held_out = self._rule is not None and self._rule.holds_out(key)
        number = self.sources.setdefault(source, len(self.sources))
        self.rows.append((tokens, len(data), number, held_out, tokens > 0))
        if not tokens and len(self.unusable) < EXAMPLES:
            self.unusable.append(key)


@lru_cache(maxsize=1)
def _encoder(path: Path, sha256: str) -> Tokenizer:
    encoder = load_tokenizer(path)
    if sha256_file(tokenizer_file(path)) != sha256:
        raise DataError(
            f"{tokenizer_file(path)}: changed while it was used",
            hint="run the same command again once nothing writes to it",
        )
    encoder.encode_special_tokens = True
    return encoder


def _batches(unit: TextUnit, most: int) -> Iterator[list[KeyedText]]:
    """Batches of about `most` bytes."""
    batch: list[KeyedText] = []
    size = 0
    for document in read_documents(unit):
        batch.append(document)
        size += len(document.data)
        if size >= most or len(batch) >= BATCH_DOCUMENTS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def read_documents(unit: TextUnit) -> Iterator[KeyedText]:
    """Every one of a unit. Raises DataError naming the file."""
    try:
        yield from _read(unit)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{unit.file}: cannot be read as Parquet: {error}", hint=IMPORT_HINT
        ) from error


def _read(unit: TextUnit) -> Iterator[KeyedText]:
    reader = pq.ParquetFile(
        unit.file, memory_map=True, pre_buffer=False, page_checksum_verification=True
    )
    named = {"source", "file"} <= set(reader.schema_arrow.names)
    columns = [unit.column, "source", "file"] if named else [unit.column]
    columns += [FIM] if FIM in reader.schema_arrow.names else []
    at, last = 0, unit.first_row + unit.rows
    for batch in reader.iter_batches(
        batch_size=_ROWS_PER_READ, row_groups=[unit.group], columns=columns, use_threads=False
    ):
        rows = range(max(unit.first_row - at, 0), min(last - at, batch.num_rows))
        if len(rows):
            yield from _rows(unit, batch.slice(rows.start, len(rows)), named)
        at += batch.num_rows
        if at >= last:
            return


def _rows(unit: TextUnit, batch: Any, named: bool) -> Iterator[KeyedText]:
    raw = batch.column(unit.column).cast(pa.large_binary()).to_pylist()
    texts = [value or b"" for value in raw]
    cut = [False] * len(texts)
    if FIM in batch.schema.names:
        cut = batch.column(FIM).is_valid().to_pylist()
    if not named:
        for text, is_cut in zip(texts, cut, strict=True):
            yield KeyedText(hashlib.sha256(text).hexdigest(), unit.file.stem, text, is_cut)
        return
    sources, files = batch.column("source").to_pylist(), batch.column("file").to_pylist()
    for source, file, text, is_cut in zip(sources, files, texts, cut, strict=True):
        yield KeyedText(f"{source}/{file}", str(source), text, is_cut)
