"""Tables as JSON: `{"columns": [...], "data": [[...], ...]}`, a row for each list."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import orjson

from albor_core.run.files.media_file import INLINE_BYTES
from albor_core.run.values.metrics import as_json, as_text, printable
from albor_core.track.encode.medium import Limits, Medium, RefusedError

_MAX_COLUMNS, _MAX_ROWS = 1000, 1_000_000
_PIECE = 1000  # rows that are encoded at once: a table that is too large is noticed on the way
_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS


def table_of(value: Any, columns: Sequence[str] | None, limits: Limits) -> Medium:
    """A table of any of the forms that `Run.table` takes. Raises RefusedError."""
    names, rows = _parts(value, columns)
    if len(names) > _MAX_COLUMNS:
        raise RefusedError("media_too_large", f"{len(names):,} columns, and 1,000 are allowed")
    heads = [printable(as_text(name)) for name in names]
    pieces, size, count = [], 0, 0
    lines = iter(rows)
    while piece := list(islice(lines, _PIECE)):
        if any(len(row) != len(heads) for row in piece):
            raise RefusedError("media_unreadable", f"a row that has not {len(heads)} cells")
        body = _encoded(piece)[1:-1]
        size, count = size + len(body) + 1, count + len(piece)
        if size > limits.max_bytes:
            raise RefusedError.too_large(size, limits.max_bytes)
        if count > _MAX_ROWS:
            raise RefusedError("media_too_large", f"more than {_MAX_ROWS:,} rows")
        pieces.append(body)
    content = b'{"columns":%b,"data":[%b]}' % (orjson.dumps(heads), b",".join(pieces))
    inline = json.loads(content) if len(content) <= INLINE_BYTES else None
    return Medium("json", content, {"rows": count, "columns": len(heads)}, inline=inline)


def _encoded(rows: list[Any]) -> bytes:
    try:
        return orjson.dumps(rows, default=as_text, option=_OPTIONS)
    except TypeError:  # an integer beyond 64 bits, a lone surrogate, a list inside itself
        return json.dumps(as_json(rows), separators=(",", ":")).encode()


def _parts(value: Any, columns: Sequence[str] | None) -> tuple[list[Any], Iterable[Any]]:
    """(names of columns, rows as lists)."""
    to_pydict = getattr(value, "to_pydict", None)  # pyarrow
    if callable(to_pydict):
        return _of_columns(to_pydict())
    if hasattr(value, "columns") and callable(getattr(value, "rows", None)):  # polars
        return list(value.columns), value.rows()
    if hasattr(value, "columns") and callable(getattr(value, "itertuples", None)):  # pandas
        return list(value.columns), value.itertuples(index=False, name=None)
    if isinstance(value, Mapping):
        return _of_columns(value)
    if callable(getattr(value, "collect", None)):  # polars, not read yet
        raise RefusedError("media_unreadable", "a lazy frame: give what its collect() returns")
    rows = _rows(value)
    if columns is None:
        if rows and all(isinstance(row, Mapping) for row in rows):
            names = list(dict.fromkeys(key for row in rows for key in row))
            return names, ([row.get(name) for name in names] for row in rows)
        width = len(rows[0]) if rows else 0
        columns = [f"column {place + 1}" for place in range(width)]
    return list(columns), rows


def _of_columns(found: Mapping[Any, Any]) -> tuple[list[Any], Iterable[Any]]:
    held = [_column(value) for value in found.values()]
    if len({len(column) for column in held}) > 1:
        raise RefusedError("media_unreadable", "columns of different lengths")
    return list(found), list(map(list, zip(*held, strict=True)))


def _column(value: Any) -> Sequence[Any]:
    tolist: Callable[[], Any] | None = getattr(value, "tolist", None)
    found = tolist() if callable(tolist) else value
    if not isinstance(found, list | tuple):
        raise RefusedError("media_unreadable", f"a column that is {type(value).__name__!r}")
    return found


def _rows(value: Any) -> list[Any]:
    tolist = getattr(value, "tolist", None)  # an array of two dimensions
    found = tolist() if callable(tolist) else value
    if not isinstance(found, list | tuple):
        raise RefusedError("media_unreadable", f"{type(value).__name__!r} is not a table")
    if not all(isinstance(row, Mapping | list | tuple) for row in found):
        raise RefusedError("media_unreadable", "a row that is not a list")
    return [list(row) if isinstance(row, tuple) else row for row in found]
