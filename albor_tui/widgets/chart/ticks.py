"""Axes that read well and rarely move: round ticks, and limits that stay while the data fits.

Bytes on the link are the cost of a chart, not CPU: a limit that moves redraws every cell, so the
limits hold until the data leaves them or fills less than half of them.

An axis is of a kind: "linear", "log" (its limits and positions are powers of ten) or "time" (they
are seconds).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

from albor_core.run.light_dataclass import dataclass
from albor_core.run.values.quantity import COUNT_UNITS
from albor_tui.look import quantity


@dataclass(frozen=True)
class Range:
    """A closed interval with low < high."""

    low: float
    high: float

    @property
    def span(self) -> float:
        return self.high - self.low


def nice_step(span: float, count: int) -> float:
    """The smallest of 1, 2, 2.5, 5 times a power of ten that cuts `span` into at most `count`
    parts."""
    rough = span / max(1, count)
    power = 10.0 ** math.floor(math.log10(rough))
    return next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * (1 - 1e-9))


_TIMES = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200)
_DAY = 86_400.0
_MOST_DIGITS = 6
_SMALLEST, _LARGEST = 1e-290, 1e300  # beyond them a span or its tenth is not a float


def ticks(limits: Range, count: int, kind: str = "linear") -> list[float]:
    """Round positions inside the limits, about `count` of them."""
    if kind == "log":
        return _log_ticks(limits, count)
    step = _time_step(limits.span, count) if kind == "time" else nice_step(limits.span, count)
    first = math.ceil(limits.low / step - 1e-9)
    last = math.floor(limits.high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def _time_step(span: float, count: int) -> float:
    rough = span / max(1, count)
    if rough < 1:
        return nice_step(span, count)
    fitting = next((float(step) for step in _TIMES if step >= rough * (1 - 1e-9)), 0.0)
    return fitting or _DAY * max(1.0, nice_step(span / _DAY, count))


def _log_ticks(limits: Range, count: int) -> list[float]:
    """Decades where there are enough of them, with 2 and 5 where there is room; round numbers of a
    linear axis below that."""
    first, last = math.floor(limits.low), math.ceil(limits.high)
    for inside in ((1.0, 2.0, 5.0), (1.0, 3.0), (1.0,)):
        found = [
            power + math.log10(digit)
            for power in range(first, last + 1)
            for digit in inside
            if limits.low - 1e-9 <= power + math.log10(digit) <= limits.high + 1e-9
        ]
        if 2 <= len(found) <= count:
            return found
    if limits.span < 2:
        low, high = 10.0**limits.low, 10.0**limits.high
        return [math.log10(p) for p in ticks(Range(low, high), count) if p > 0]
    stride = max(1, math.ceil((last - first) / max(1, count)))
    return [float(p) for p in range(first, last + 1, stride) if limits.low <= p <= limits.high]


def labels(positions: list[float], kind: str = "linear") -> list[str]:
    """One text per tick, all with the same decimals: 2.0 2.5 3.0, 10k 20k, 2e-4 3e-4."""
    if kind == "log":
        return _apart(_power_label, [10.0 ** min(max(p, -300.0), 300.0) for p in positions])
    if kind == "time":
        return [_time_label(p) for p in positions]
    if not positions:
        return []
    largest = max(abs(p) for p in positions)
    step = min((abs(b - a) for a, b in itertools.pairwise(positions)), default=largest)
    if largest >= 10_000:
        return _scaled_labels(positions, largest, step)
    if 0 < largest < 0.01:
        return _apart(_short_exponent, positions)
    decimals = max(0, -math.floor(math.log10(step) + 1e-9)) if step else 0
    if step and abs(step * 10**decimals - round(step * 10**decimals)) > 1e-6:
        decimals += 1  # steps of 2.5 need one digit more than their power of ten
    return [f"{p + 0.0:.{min(decimals, 9)}f}" for p in positions]


def _scaled_labels(positions: list[float], largest: float, step: float) -> list[str]:
    """Large numbers in one unit and with just the decimals that tell them apart: 0 20k 40k."""
    unit, scale = next((u, s) for u, s in COUNT_UNITS if largest >= s)
    if largest >= 1e15:
        return _apart(_short_exponent, positions)
    rest = step / scale
    decimals = next((d for d in range(6) if abs(rest * 10**d - round(rest * 10**d)) < 1e-6), 6)
    return [f"{p / scale:.{decimals}f}{unit}" if p else "0" for p in positions]


def _apart(label: Callable[[float, int], str], values: list[float]) -> list[str]:
    """Texts with as few digits behind the point as tell all of them apart."""
    for digits in range(1, _MOST_DIGITS):
        texts = [label(value, digits) for value in values]
        if len(set(texts)) == len(set(values)):
            return texts
    return [label(value, _MOST_DIGITS) for value in values]


def _power_label(value: float, digits: int) -> str:
    if 1000 <= value < 1e15:
        unit, scale = next((u, s) for u, s in COUNT_UNITS if value >= s * (1 - 1e-9))
        return f"{value / scale:.4g}{unit}"
    return f"{value:.4g}" if 0.01 <= value < 1e15 else _short_exponent(value, digits)


def _time_label(seconds: float) -> str:
    """The two largest units without a trailing zero: 30s, 5m, 1h, 1h30m, 2d."""
    if 0 < seconds < 1:
        return f"{seconds:g}s"
    text = quantity.duration(seconds) if seconds else "0"
    for zero in ("00s", "00m", "00h"):
        text = text.removesuffix(zero) if len(text) > len(zero) else text
    return text


def _short_exponent(value: float, digits: int) -> str:
    if value == 0:
        return "0"
    mantissa, power = f"{value:.{digits}e}".split("e")
    return f"{mantissa.rstrip('0').removesuffix('.')}e{int(power)}"


def hold(previous: Range | None, low: float, high: float, kind: str = "linear") -> Range:
    """Limits for values in [low, high]: the previous ones while they fit and are at least half
    used, else fresh round ones."""
    low, high = max(low, -_LARGEST), min(high, _LARGEST)
    if previous is not None and previous.low <= low and high <= previous.high:
        used = (high - low) / previous.span
        if used >= 0.5:
            return previous
    return around(low, high, kind)


def around(low: float, high: float, kind: str = "linear") -> Range:
    """Round limits just outside [low, high]; a flat series gets room on both sides."""
    if not high - low > max(abs(low), abs(high), _SMALLEST) * 1e-9:
        room = 0.1 if kind == "log" else abs(low) * 0.1
        room = room if room > _SMALLEST else 1.0
        low, high = low - room, high + room
    step = nice_step(high - low, 8)
    return Range(math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step)


def reach(last: float, first: float = 0.0) -> Range:
    """The x-axis of a growing run: its end is a quarter-power of two, so that old points stay on
    their columns while new ones arrive."""
    length = max(last - first, 8.0)
    power = 2.0 ** math.floor(math.log2(length))
    end = next(power * m for m in (1, 1.25, 1.5, 1.75, 2) if power * m >= length)
    return Range(first, first + end)
