"""Fields of JSON that any program may have written, each taken for its type: a field that is not
what it should be is unknown.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

Document = Mapping[str, Any]
NOTHING: Document = {}
_NAMES = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}  # one NaN object: equal to itself


def number(document: Document, key: str) -> float | None:
    """A number or None; the journal's names for numbers that JSON lacks are understood."""
    value = document.get(key)
    if isinstance(value, str):
        return _NAMES.get(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def finite(document: Document, key: str) -> float | None:
    value = number(document, key)
    return value if value is not None and math.isfinite(value) else None


def integer(document: Document, key: str) -> int | None:
    value = finite(document, key)
    return None if value is None else int(value)


def text(document: Document, key: str) -> str:
    value = document.get(key)
    return value if isinstance(value, str) else ""


def mapping(document: Document, key: str) -> Document:
    value = document.get(key)
    return value if isinstance(value, Mapping) else NOTHING


def sequence(document: Document, key: str) -> list[Any]:
    value = document.get(key)
    return value if isinstance(value, list) else []


def history(document: Document, key: str) -> tuple[float, ...]:
    """A list of numbers in which null is a value that was not finite."""
    return tuple(map(_point, sequence(document, key)))


def _point(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    return float(value) if abs(value) <= sys.float_info.max else math.nan
