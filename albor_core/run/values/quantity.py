"""How a quantity reads wherever it is shown: the plan, the CLI, the report and the cockpit.

Bytes are binary (9.27 GiB), counts decimal with B for 10^9 (1.31M, 7.24B), durations one or two
whole units (2m 05s, 3h 10m, 4d). None is UNKNOWN, never 0; NaN and infinities are words, since they
are data. What is beyond all units has an exponent, so that no column is as wide as a forged number.
"""

from __future__ import annotations

import math
import sys
from typing import TypeGuard

UNKNOWN = "-"
COUNT_UNITS = (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3))
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86400
_MOST = sys.float_info.max
_EXPONENT_FROM = 1e15  # a figure in full is at most this large
_LARGEST = 0.9995e15  # beyond any unit: a mistake, shown as such


def byte_size(value: float | None, *, unknown: str = UNKNOWN) -> str:
    """Three significant digits: 123 B, 9.27 GiB, 0.98 TiB, 512 MiB."""
    if not is_finite(value):
        return unknown if value is None else odd(value)
    size = float(value)
    for unit in _BYTE_UNITS:
        if abs(size) < 999.5:
            return f"{size:.0f} {unit}" if unit == "B" else f"{three_digits(size)} {unit}"
        if unit != _BYTE_UNITS[-1]:
            size /= 1024
    return f"{size:,.0f} TiB" if abs(size) < 9_999.5 else f"{extreme(size)} TiB"


def counted(number: int, noun: str, *verb: str) -> str:
    """A number with its noun, whose plural is regular: 1 run, 3,001 runs, 2 entries. With two forms
    of a verb the one that agrees follows: `counted(3, "run", "is", "are")` is "3 runs are".
    """
    if number != 1 and noun.endswith("y") and noun[-2] not in "aeiou":
        noun = f"{noun[:-1]}ie"
    words = f"{number:,} {noun}{'s' * (number != 1)}"
    return f"{words} {verb[number != 1]}" if verb else words


def figure(value: float | None, key: str = "") -> str:
    """A value of metric `key` for people. Whole numbers are whole, others have five significant
    digits, a loss four decimals, bytes their unit; no exponent from 0.0001 to 10^15.
    """
    if not is_finite(value):
        return odd(value)
    size = abs(value)
    if key.endswith("_bytes"):
        return byte_size(value)
    if "loss" in key and (size == 0 or 1e-3 <= size < 1e6):
        return f"{value:,.4f}"
    if value == int(value) and size < _EXPONENT_FROM:
        return f"{int(value):,}"
    if not 1e-4 <= size < _EXPONENT_FROM:
        return f"{value:.5g}"
    if size >= 1e3:
        return f"{value:,.{max(0, 4 - int(math.log10(size)))}f}"
    return f"{value:.5g}"


def duration(seconds: float | None) -> str:
    """45s, 2m 05s, 3h 10m, 4d 06h, 4d, 250d; negative is not a duration, hence unknown."""
    if not is_finite(seconds):
        return odd(seconds)
    if seconds >= _DAY_S * 1e6:
        return f"{extreme(seconds / _DAY_S)}d"
    whole = round(seconds)
    if whole < 0:
        return UNKNOWN
    if whole < _MINUTE_S:
        return f"{whole}s"
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S}m {whole % _MINUTE_S:02d}s"
    if whole < _DAY_S:
        return f"{whole // _HOUR_S}h {whole % _HOUR_S // _MINUTE_S:02d}m"
    days, hours = whole // _DAY_S, whole % _DAY_S // _HOUR_S
    return f"{days}d {hours:02d}h" if hours and days < 100 else f"{days}d"


def age(seconds: float | None) -> str:
    """How long ago: the first unit of the duration, 8s, 12m, 3h, 5d."""
    return duration(seconds).split()[0]


def milliseconds(value: float | None) -> str:
    """A time given in milliseconds: 0.02 ms, 0.4 ms, 103 ms, 12.5 s."""
    if not is_finite(value):
        return odd(value)
    if abs(value) >= 1e9:
        return f"{extreme(value / 1000)} s"
    if value >= 10_000:
        return f"{value / 1000:.1f} s"
    if 0 < value < 0.0005:
        return "<0.001 ms"
    return f"{fine(value, 1 if value < 100 else 0)} ms"


def fine(value: float, decimals: int) -> str:
    """A finite number with so many decimals, or as many more as it takes not to read as 0."""
    told = f"{value:.{decimals}f}"
    if value == 0 or float(told):
        return told
    more = 1 - math.floor(math.log10(abs(value)))  # two digits that are not 0
    return f"{value:.{more}f}".rstrip("0")


def count(value: float | None) -> str:
    """A whole number in full: 15,280."""
    if not is_finite(value):
        return odd(value)
    return f"{round(value):,}" if abs(value) < _LARGEST else extreme(value)


def short_count(value: float | None) -> str:
    """Three significant digits: 912k, 1.31M, 7.24B."""
    if not is_finite(value):
        return odd(value)
    size = abs(value)
    if size >= _LARGEST:
        return extreme(value)
    for unit, scale in COUNT_UNITS:
        if size >= scale * 0.9995:
            return three_digits(value / scale) + unit
    return three_digits(value) if size < 10 and value != int(value) else f"{value:.0f}"


def rate(value: float | None, what: str) -> str:
    """A rate per second: 845k tokens/s."""
    return f"{short_count(value)} {what}/s"


def percent(share: float | None, digits: int = 0) -> str:
    """A share 0..1: 41%, 12.3%."""
    if not is_finite(share):
        return odd(share)
    size = abs(share)
    if size >= 9_999.995:
        mantissa, power = f"{share:.0e}".split("e")
        return f"{mantissa}e{int(power) + 2}%"  # a hundred times 1e308 is not a float
    return f"{share * 100:.{digits if size < 10 else 0}f}%"


def odd(value: float | None) -> str:
    """The text of what is not a finite number: UNKNOWN, NaN, inf, -inf."""
    if value is None or isinstance(value, str):
        return UNKNOWN
    if value != value:
        return "NaN"
    return "inf" if value > 0 else "-inf"


def extreme(value: float) -> str:
    """A number beyond all units: 1e308, 5e-300."""
    return f"{value:.0e}".replace("e+0", "e").replace("e+", "e")


def three_digits(value: float) -> str:
    """A number below 1,000 with three significant digits: 9.27, 61.2, 512, 0.98."""
    size = abs(value)
    return f"{value:.{2 if size < 9.995 else 1 if size < 99.95 else 0}f}"


def signed(value: float, spec: str) -> str:
    """A difference as a format says it, without the sign where the digits shown are all zeros."""
    said = format(value, spec)
    return said if any(one in "123456789" for one in said.split("e")[0]) else said.lstrip("+-")


def is_finite(value: object) -> TypeGuard[float]:
    """Also of an integer beyond all floats, which math.isfinite refuses."""
    return isinstance(value, int | float) and -_MOST <= value <= _MOST  # false of NaN
