"""Numbers of one column, written alike: on the point, with as many digits as tell them apart."""

from __future__ import annotations

import math
from collections.abc import Iterable

from albor_core.run.light_dataclass import dataclass
from albor_core.run.values.quantity import is_finite, odd
from albor_tui.look import glyphs, quantity

LEAST, MOST = 4, 7  # significant digits of the largest; whole numbers have all of theirs
LEAST_SMALL = 2  # of the smallest, as far as there is room
_WHOLE, _SMALL = 1e9, 1e-4  # beyond these with an exponent
_SHORT = 0.1  # values below, of one or two digits each, are settings: 3e-4


@dataclass(frozen=True)
class NumberFormat:
    """How each number of a column is written: `digits` behind the point, of the number or with
    `has_exponent` of its first factor. `is_bytes`: with a unit instead.
    """

    digits: int = 0
    has_exponent: bool = False
    is_bytes: bool = False

    def text(self, value: float | None) -> str:
        """The value in this format; NaN and infinities are words."""
        if not is_finite(value):
            return glyphs.current.missing if value is None else odd(value)
        if self.is_bytes:
            return quantity.byte_cell(value)
        if not self.has_exponent:
            return f"{value:,.{self.digits}f}"
        if value == 0:
            return "0"
        factor, power = f"{value:.{self.digits}e}".split("e")
        return f"{factor}e{int(power)}"

    def joined(self, before: NumberFormat) -> NumberFormat:
        """The one of two with more digits, so that a column does not lose any while it is scrolled;
        another kind takes its place."""
        is_alike = (self.has_exponent, self.is_bytes) == (before.has_exponent, before.is_bytes)
        return before if is_alike and before.digits > self.digits else self


def number_format(values: Iterable[float | None], key: str = "") -> NumberFormat:
    """The format that tells these values of `key` apart, as far as MOST digits do."""
    known = sorted({float(v) for v in values if is_finite(v)})
    if key.endswith("_bytes"):
        return NumberFormat(is_bytes=True)
    sizes = [abs(value) for value in known if value]
    if not sizes:
        return NumberFormat()
    largest, smallest = max(sizes), min(sizes)
    if largest < _WHOLE and all(value == int(value) for value in known):
        return NumberFormat()
    has_exponent = largest >= _WHOLE or largest < _SMALL * 10 or smallest < _SMALL / 100
    has_exponent |= largest < _SHORT and all(_has_few_digits(size) for size in sizes)
    if has_exponent:
        return NumberFormat(_needed(known, range(MOST), "e"), True)
    places, least = (math.floor(math.log10(size)) + 1 for size in (largest, smallest))
    most = max(0, MOST - places)
    first = min(most, max(0, LEAST - places, LEAST_SMALL - least))
    return NumberFormat(_needed(known, range(first, most + 1), "f"))


def _has_few_digits(size: float) -> bool:
    """Whether a number has one or two digits that are not 0 in front or behind."""
    return float(f"{size:.1e}") == size


def _needed(known: list[float], digits: range, kind: str) -> int:
    """The fewest digits that tell the values apart, or else all of them; fewer than the first where
    that many say each value whole."""
    for fewer in range(digits.start):
        if all(float(f"{value:.{fewer}{kind}}") == value for value in known):
            return fewer
    for number in digits:
        if len({f"{value:.{number}{kind}}" for value in known}) == len(known):
            return number
    return digits[-1]
