"""The pieces of work of a mix, each for one process: rows of inputs with their numbers of
copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from albor_core.data.mix.draw import number
from albor_core.data.mix.portions import Edge
from albor_core.data.stage.corpus import Corpus
from albor_core.data.stage.counts import Counts, text_sizes
from albor_core.data.stage.output import write_part
from albor_core.data.stage.units import Unit, read_unit
from albor_core.run.errors import DataError
from albor_core.run.files.publish import publishing

NOT_DRAWN = "not_drawn"
"""Why a document is not in a mix that holds its corpus less than once."""
_ORDER = "albor.order"  # a column of the buckets on disk

_NAMED = [
    pa.field("text", pa.string(), nullable=False),
    pa.field("source", pa.string(), nullable=False),
    pa.field("file", pa.string(), nullable=False),
]


@dataclass(frozen=True)
class Slice:
    """A unit of one input and the rows used from it."""

    unit: Unit
    input: int
    first_row: int
    """Of the input."""
    copies: int
    edge: Edge | None
    """Draws below it are taken once more; None for none."""
    seed: int

    def read(self, schema: pa.Schema) -> tuple[pa.Table, list[str], NDArray[np.int64]]:
        """The rows, their keys, and the number of copies of each."""
        table = _conform(read_unit(self.unit), schema)
        pairs = zip(
            table.column("source").to_pylist(), table.column("file").to_pylist(), strict=True
        )
        keys = [f"{source}/{name}" for source, name in pairs]
        taken = np.full(len(keys), self.copies, np.int64)
        if self.edge is not None:
            draws = np.array([number(self.seed, key) for key in keys], np.uint64)
            rows = np.arange(len(keys)) + self.first_row
            edge, row = np.uint64(self.edge[0]), self.edge[1]
            taken += (draws < edge) | ((draws == edge) & (rows < row))
        return table, keys, taken


@dataclass(frozen=True)
class BlockJob:
    """Writes a block of a mix in order: some slices, each with the number of its copy."""

    blocks: Sequence[Sequence[tuple[Slice, int]]]
    schema: pa.Schema
    parts: Path

    def __call__(self, number: int) -> dict[str, Any]:
        table, counts = self.read(number)
        return {"part": write_part(self.parts, number, table), "counts": counts.to_json()}

    def read(self, number: int) -> tuple[pa.Table, Counts]:
        counts, tables = Counts(), []
        for one, copy in self.blocks[number]:
            table, keys, taken = one.read(self.schema)
            if copy == 0:
                _count_dropped(counts, table, keys, taken)
            tables.append(table.filter(pa.array(taken > copy)))
            _count(counts, tables[-1])
        return pa.concat_tables(tables), counts


@dataclass(frozen=True)
class ScatterJob:
    """The first pass of a shuffled mix: writes every copy of a slice's rows to its bucket, by a
    hash, in one file."""

    slices: Sequence[Slice]
    schema: pa.Schema
    folder: Path
    bits: int
    """There are 2^bits buckets."""

    def __call__(self, index: int) -> dict[str, Any]:
        one, counts = self.slices[index], Counts()
        table, keys, taken = one.read(self.schema)
        _count_dropped(counts, table, keys, taken)
        rows = np.repeat(np.arange(len(keys)), taken)
        copies = np.concatenate([np.arange(n) for n in taken]) if len(taken) else rows
        hashes = np.array(
            [
                number(one.seed, f"{one.input}\0{copy}\0{one.first_row + row}\0{keys[row]}")
                for row, copy in zip(rows.tolist(), copies.tolist(), strict=True)
            ],
            np.uint64,
        )
        order = np.argsort(hashes, kind="stable")
        rows, hashes = rows[order], hashes[order]
        ends = np.searchsorted(_bucket(hashes, self.bits), np.arange(1, (1 << self.bits) + 1))
        schema = self.schema.append(pa.field(_ORDER, pa.uint64()))
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        first = 0
        with (
            publishing(bucket_file(self.folder, index)) as temp,
            pa.ipc.new_file(temp, schema, options=options) as writer,
        ):
            for end in ends.tolist():
                piece = table.take(pa.array(rows[first:end]))
                _count(counts, piece)
                piece = piece.append_column(schema.field(_ORDER), pa.array(hashes[first:end]))
                writer.write_batch(_one_batch(piece))
                first = end
        return {"counts": counts.to_json()}


@dataclass(frozen=True)
class GatherJob:
    """The second pass of a shuffled mix: sorts one bucket of all slices."""

    slices: int
    folder: Path
    parts: Path

    def __call__(self, bucket: int) -> dict[str, Any]:
        batches = []
        for index in range(self.slices):
            with pa.memory_map(str(bucket_file(self.folder, index))) as source:
                batches.append(pa.ipc.open_file(source).get_batch(bucket))
        table = pa.Table.from_batches(batches)
        order = np.argsort(table.column(_ORDER).to_numpy(), kind="stable")
        table = table.drop_columns([_ORDER]).take(pa.array(order))
        return {"part": write_part(self.parts, bucket, table)}


def bucket_file(folder: Path, index: int) -> Path:
    """The file of a slice's buckets, which exists until the mix is complete."""
    return folder / f"{index:05d}.arrow"


def shared_schema(corpora: Sequence[Corpus]) -> pa.Schema:
    """text, source and file, then all other columns of any corpus; null if a corpus lacks one.
    Raises DataError if two have other types under one name.
    """
    found = []
    for corpus in corpora:
        for file in corpus.files:
            schema = pq.read_schema(file).remove_metadata()
            known = {*_names(), corpus.column}
            fields = [one.with_nullable(True) for one in schema if one.name not in known]
            found.append(pa.schema(fields))
    try:
        rest = pa.unify_schemas(found, promote_options="permissive")
    except pa.ArrowException as error:
        raise DataError(
            f"columns of the corpora do not agree: {error}",
            hint="import them in the same way, or leave that column out of one",
        ) from error
    return pa.schema([*_NAMED, *rest])


def _names() -> set[str]:
    return {one.name for one in _NAMED}


def _conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [
        table.column(one.name).cast(one.type)
        if one.name in table.column_names
        else pa.nulls(table.num_rows, one.type)
        for one in schema
    ]
    return pa.table(columns, schema=schema)


def _bucket(hashes: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    if bits == 0:  # a shift by all 64 bits is undefined
        return np.zeros_like(hashes)
    return hashes >> np.uint64(64 - bits)


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if batches:
        return batches[0]
    return pa.RecordBatch.from_pylist([], schema=table.schema)


def _count(counts: Counts, table: pa.Table) -> None:
    """Count the documents of the mix."""
    for source, size in zip(table.column("source").to_pylist(), text_sizes(table), strict=True):
        one = counts.source(source)
        one.documents += 1
        one.bytes += size


def _count_dropped(
    counts: Counts, table: pa.Table, keys: Sequence[str], taken: NDArray[np.int64]
) -> None:
    """Count the input documents, and those that are not in the mix."""
    sources = table.column("source").to_pylist()
    for source, key, size, times in zip(sources, keys, text_sizes(table), taken, strict=True):
        one = counts.source(source)
        one.documents_in += 1
        one.bytes_in += size
        if times == 0:
            counts.drop(source, key, NOT_DRAWN)
