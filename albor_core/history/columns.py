"""Columns of values as they were recorded, and the kind of each column.

Kinds: text, bool, int (64 bits), float, texts (lists of text), json (mappings and lists), name (a
text that many rows have), mixed (several of these, as a param may have: `lr` a number in one run
and "auto" in another). None is unknown; NaN and Inf are values. Formats with one type per column
get text of json and mixed columns.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from albor_core.run.values.lenient import number_word

_EXACT = 1 << 53  # integers up to here are floats too
_INT64 = 1 << 63


class Column(NamedTuple):
    """A column of one table."""

    kind: str
    values: Sequence[Any]


Columns = Mapping[str, Column]


def column(values: Sequence[Any], declared: str = "") -> Column:
    """A column of kind `declared` if all values are of that kind, else of the kind that they
    share."""
    types = {type(value) for value in values} - {type(None)}
    if types and types <= _TYPES.get(declared, frozenset()):
        return Column(declared, values)
    found = next((kind for kind in _TYPES if types and types <= _TYPES[kind]), "mixed")
    if not types:  # nothing is known of it
        found = declared or "text"
    elif found in ("int", "float") and int in types:
        most = max(abs(value) for value in values if type(value) is int)
        found = "mixed" if most >= (_INT64 if found == "int" else _EXACT) else found
    return Column(found, values)


_TYPES: Mapping[str, frozenset[type]] = {  # the narrowest first
    "bool": frozenset({bool}),
    "int": frozenset({int}),
    "float": frozenset({float, int}),
    "text": frozenset({str}),
    "texts": frozenset({tuple}),
    "json": frozenset({dict, list}),
}


def rows_of(columns: Columns) -> Iterator[tuple[Any, ...]]:
    """The rows of a table of columns."""
    return zip(*(one.values for one in columns.values()), strict=True)


def joined(tables: Sequence[Columns]) -> Columns:
    """Concatenate tables; the result has every column that any of them has."""
    if len(tables) == 1:
        return tables[0]
    counts = [len(next(iter(table.values())).values) for table in tables]
    found = {}
    for name in dict.fromkeys(name for table in tables for name in table):
        values: list[Any] = []
        for table, count in zip(tables, counts, strict=True):
            values += table[name].values if name in table else [None] * count
        kinds = {table[name].kind for table in tables if name in table}
        found[name] = column(values, kinds.pop() if len(kinds) == 1 else "")
    return found


def plain(kind: str) -> Callable[[Any], Any]:
    """The function that converts values of this kind to one type, text if the kind has several
    types.
    """
    return _PLAIN.get(kind, _same)


def _same(value: Any) -> Any:
    return value


def _as_float(value: float | int | None) -> float | None:
    return None if value is None else float(value)


def _as_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return None if value is None else sound(value)
    return json_text(value)


def _as_texts(value: Sequence[str] | None) -> list[str] | None:
    return None if value is None else [sound(one) for one in value]


_PLAIN: Mapping[str, Callable[[Any], Any]] = {
    "float": _as_float,
    "name": _as_text,
    "text": _as_text,
    "texts": _as_texts,
    "json": _as_text,
    "mixed": _as_text,
}


def sound(text: str) -> str:
    """The text without lone surrogates, which UTF-8 cannot encode and JSON can."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def json_text(value: Any) -> str:
    """Strict JSON: NaN and Inf are the texts "nan", "inf" and "-inf"."""
    try:
        return _encode(value)
    except ValueError:
        return _encode(_strict(value))


_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def _strict(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return number_word(value)
    if isinstance(value, dict):
        return {key: _strict(one) for key, one in value.items()}
    return [_strict(one) for one in value] if isinstance(value, list | tuple) else value
