"""Writes tables of any size to files for other programs: JSON lines, CSV and Parquet.

NaN and Inf are values: in Parquet as such, in CSV `nan`, `inf`, `-inf`, in JSON, which has no such
numbers, the texts "nan", "inf", "-inf". Unknown values are null, in CSV empty. Columns of several
types and nested values are JSON text in CSV and Parquet, and as recorded in JSON lines.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping
from json.encoder import encode_basestring_ascii
from typing import Any, BinaryIO, TextIO

from albor_core.history.columns import json_text, plain
from albor_core.history.tables import Table
from albor_core.run.errors import AlborError

FORMATS = ("jsonl", "csv", "parquet")


def write_jsonl(table: Table, file: TextIO) -> int:
    """Write one JSON object per line; return the number of rows."""
    rows = 0
    heads = [f"{encode_basestring_ascii(name)}:" for name in table.kinds]
    for page in table.pages:
        file.writelines([_line(heads, row) for row in page])
        rows += len(page)
    return rows


def _line(heads: list[str], row: Any) -> str:
    parts = [
        head + _JSON.get(type(one), json_text)(one) for head, one in zip(heads, row, strict=True)
    ]
    return f"{{{','.join(parts)}}}\n"


def _float(value: float) -> str:
    return float.__repr__(value) if math.isfinite(value) else f'"{value}"'


_JSON: Mapping[type, Callable[[Any], str]] = {  # those of most cells, without a call more
    str: encode_basestring_ascii,
    int: int.__repr__,
    float: _float,
    bool: lambda value: "true" if value else "false",
    type(None): lambda _: "null",
}


def write_csv(table: Table, file: TextIO) -> int:
    """Write a header, then one row per line; return the number of rows. Lists of texts are JSON."""
    rows = 0
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([plain("text")(name) for name in table.kinds])
    odd = [
        (place, _CELLS[kind]) for place, kind in enumerate(table.kinds.values()) if kind in _CELLS
    ]
    for page in table.pages:
        writer.writerows(page if not odd else [_cells(row, odd) for row in page])
        rows += len(page)
    return rows


def _cells(row: Any, odd: list[tuple[int, Callable[[Any], Any]]]) -> list[Any]:
    cells = [*row]
    for place, made in odd:
        if cells[place] is not None:
            cells[place] = made(cells[place])
    return cells


_CELLS: Mapping[str, Callable[[Any], Any]] = {  # what the csv module would write otherwise
    "bool": json_text,
    "texts": json_text,
    "text": plain("text"),
    "name": plain("name"),
    "json": plain("json"),
    "mixed": plain("mixed"),
}


def write_parquet(table: Table, file: BinaryIO) -> int:
    """Write each page of rows as a row group as it comes; return the number of rows. Raises
    OSError."""
    from albor_core.history.arrow import write_parquet as write  # noqa: PLC0415  loads pyarrow

    return write(table.kinds, table.pages, file, table.schema)


def need_parquet() -> None:
    """Raise AlborError with the command that installs pyarrow, if it is missing, before any file is
    written."""
    try:
        import pyarrow  # noqa: F401, PLC0415
    except ModuleNotFoundError as error:
        raise AlborError(
            "cannot write Parquet: pyarrow is not installed",
            hint="pip install 'pyarrow>=21', or --format csv or jsonl",
        ) from error


TEXT_FORMATS: Mapping[str, Callable[[Table, TextIO], int]] = {
    "jsonl": write_jsonl,
    "csv": write_csv,
}
