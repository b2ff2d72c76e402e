"""Points of runs as Parquet; other formats, and what the columns mean: store/query/export.py."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

_TEXT = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema(
    [
        ("run", _TEXT),
        ("experiment", _TEXT),
        ("key", _TEXT),
        ("step", pa.int64()),
        ("wall", pa.float64()),
        ("value", pa.float64()),
    ],
    metadata={"albor.schema": "albor.runs.export.row/1"},
)


def write_parquet(pages: Iterable[Sequence[Sequence[Any]]], file: BinaryIO) -> int:
    """A row group per page of rows, as it comes; returns the number of rows. Raises OSError."""
    rows = 0
    with pq.ParquetWriter(file, SCHEMA) as writer:
        for page in pages:
            columns = zip(zip(*page, strict=True), SCHEMA.types, strict=True)
            arrays = [pa.array(column, kind) for column, kind in columns]
            writer.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA))
            rows += len(page)
    return rows
