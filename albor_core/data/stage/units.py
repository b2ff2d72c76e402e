"""A corpus as units of work: row groups of about 16 MiB of text, the same for every process."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from albor_core.data.stage.corpus import IMPORT_HINT, Corpus, leaves_of, read_footer
from albor_core.run.errors import DataError

UNIT_BYTES = 16 << 20


@dataclass(frozen=True)
class Unit:
    """Consecutive row groups of one file."""

    number: int
    file: Path
    first_group: int
    groups: int
    first_row: int
    """Of the file."""
    rows: int
    column: str = "text"
    """Where its text is."""


def units_of(corpus: Corpus) -> tuple[Unit, ...]:
    """The units in the corpus' order; a function of the files' footers alone."""
    units: list[Unit] = []
    for file in corpus.files:
        footer = read_footer(file)
        text = leaves_of(footer).index(corpus.column)
        first = row = pending_rows = pending_bytes = 0
        for group in range(footer.num_row_groups):
            pending_rows += footer.row_group(group).num_rows
            pending_bytes += footer.row_group(group).column(text).total_uncompressed_size
            if pending_bytes >= UNIT_BYTES or group == footer.num_row_groups - 1:
                groups = group + 1 - first
                units.append(
                    Unit(len(units), file, first, groups, row, pending_rows, corpus.column)
                )
                first, row = group + 1, row + pending_rows
                pending_rows = pending_bytes = 0
    return tuple(units)


def read_unit(unit: Unit) -> pa.Table:
    """All columns; `text`, whatever the corpus calls it, `source` and `file` are strings and always
    there: where the corpus has no names, the source is the file's stem and the file is the text's
    SHA-256. A null text is empty. Raises DataError naming a file that cannot be decoded.
    """
    try:
        reader = pq.ParquetFile(
            unit.file, memory_map=True, pre_buffer=False, page_checksum_verification=True
        )
        groups = range(unit.first_group, unit.first_group + unit.groups)
        table = reader.read_row_groups(list(groups), use_threads=False)
        return _named(table, unit)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{unit.file}: cannot be read as Parquet: {error}", hint=IMPORT_HINT
        ) from error


def _named(table: pa.Table, unit: Unit) -> pa.Table:
    raw = table.column(unit.column).cast(pa.large_binary()).to_pylist()
    # A careless writer can put invalid UTF-8 into a string column.
    texts = pa.array([(one or b"").decode("utf-8", "replace") for one in raw], pa.string())
    table = table.set_column(
        table.schema.get_field_index(unit.column),
        pa.field("text", pa.string(), nullable=False),
        texts,
    )
    if {"source", "file"} <= set(table.column_names):
        return table
    names = pa.array([hashlib.sha256(one or b"").hexdigest() for one in raw], pa.string())
    kept = table.drop_columns([name for name in ("source", "file") if name in table.column_names])
    kept = kept.append_column(
        pa.field("source", pa.string(), nullable=False), pa.array([unit.file.stem] * len(raw))
    )
    return kept.append_column(pa.field("file", pa.string(), nullable=False), names)
