"""JSON that any program may have written, each value taken for its type: what is not what it should
be is unknown. And the way out: data as strict JSON, which lacks NaN and Inf.

`..._of` takes a value, the others a document and the name of its field.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeGuard

Document = Mapping[str, Any]
NOTHING: Document = {}
# one NaN object: equal to itself
NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def real(number: float | int) -> float:
    """`number` as a float: an integer beyond them is the infinity of its sign, as 1e400 is."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def is_number(value: Any) -> TypeGuard[int | float]:
    """A boolean is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def number_of(value: Any) -> float | None:
    """A number or None; the journal's names for numbers that JSON lacks are understood."""
    if isinstance(value, str):
        return NOT_FINITE.get(value)
    return real(value) if is_number(value) else None


def finite_of(value: Any) -> float | None:
    """A finite number, or None for anything else."""
    if type(value) is not float:  # most are: the index asks a million times
        if not is_number(value):
            return None
        value = real(value)
    return value if math.isfinite(value) else None


def whole_of(value: Any) -> int | None:
    """An integer, or None for anything else, a whole float too."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def text_of(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def mapping_of(value: Any) -> Document:
    return value if isinstance(value, Mapping) else NOTHING


def parsed(text: str) -> float | None:
    """The number that a text is."""
    try:
        return float(text)
    except ValueError:
        return None


def number(document: Document, key: str) -> float | None:
    """The number under a key, as `number_of`."""
    return number_of(document.get(key))


def finite(document: Document, key: str) -> float | None:
    return finite_of(document.get(key))


def integer(document: Document, key: str) -> int | None:
    """A finite number without its fraction."""
    value = number(document, key)
    return None if value is None or not math.isfinite(value) else int(value)


def whole(document: Document, key: str) -> int | None:
    return whole_of(document.get(key))


def text(document: Document, key: str) -> str:
    return text_of(document.get(key)) or ""


def mapping(document: Document, key: str) -> Document:
    return mapping_of(document.get(key))


def sequence(document: Document, key: str) -> list[Any]:
    value = document.get(key)
    return value if isinstance(value, list) else []


def history(document: Document, key: str) -> tuple[float, ...]:
    """A list of numbers in which null is a value that was not finite."""
    return tuple(
        math.nan if (point := finite_of(value)) is None else point
        for value in sequence(document, key)
    )


def strict_json(value: Any) -> Any:
    """The same data with NaN and Inf as null, so that it is JSON; so are integers beyond floats."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): strict_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [strict_json(item) for item in value]
    return None if isinstance(value, int) and math.isinf(real(value)) else value


def number_word(value: float | int) -> float | int | str:
    """A number as a journal has it: "nan", "inf" or "-inf" where JSON has none."""
    if isinstance(value, int):
        return int(value)  # a truth is 0 or 1
    found = float(value)
    if math.isfinite(found):
        return found
    return "nan" if math.isnan(found) else ("inf" if found > 0 else "-inf")
