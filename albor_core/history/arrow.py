"""Converts columns to Arrow tables and Parquet files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from albor_core.history.columns import Columns, plain

_TYPES = {
    "bool": pa.bool_(),
    "int": pa.int64(),
    "float": pa.float64(),
    "texts": pa.list_(pa.string()),
    "name": pa.dictionary(pa.int32(), pa.string()),
}


def table(columns: Columns) -> pa.Table:
    """The columns as an Arrow table, each of one type; see `columns.plain`."""
    return pa.table({name: _array(kind, values) for name, (kind, values) in columns.items()})


def write_parquet(
    kinds: Mapping[str, str], pages: Iterable[Sequence[Sequence[Any]]], file: BinaryIO, name: str
) -> int:
    """Write each page of rows as a row group as it comes; return the number of rows. `name` is the
    schema of a row, stored as `albor.schema`. Raises OSError.
    """
    schema = pa.schema(
        [(column, _TYPES.get(kind, pa.string())) for column, kind in kinds.items()],
        metadata={"albor.schema": name},
    )
    rows = 0
    with pq.ParquetWriter(file, schema) as writer:
        for page in pages:
            arrays = [
                _array(kind, column)
                for kind, column in zip(kinds.values(), zip(*page, strict=True), strict=True)
            ]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
            rows += len(page)
    return rows


def _array(kind: str, values: Sequence[Any]) -> pa.Array:
    if kind in ("bool", "int"):
        return pa.array(values, _TYPES[kind])
    if kind == "float":
        return pa.array(values, _TYPES[kind])
    return pa.array(map(plain(kind), values), _TYPES.get(kind, pa.string()))
