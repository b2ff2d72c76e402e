"""Axes that read well and rarely move: round ticks, and limits that stay while the data fits.

Bytes on the link are the cost of a chart, not CPU: a limit that moves redraws every cell, so the
limits hold until the data leaves them or fills less than half of them.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from albor_tui import quantity


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


def ticks(limits: Range, count: int) -> list[float]:
    """Round positions inside the limits, about `count` of them."""
    step = nice_step(limits.span, count)
    first = math.ceil(limits.low / step - 1e-9)
    last = math.floor(limits.high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def labels(positions: list[float]) -> list[str]:
    """One text per tick, all with the same decimals: 2.0 2.5 3.0, 10k 20k, 2e-4 3e-4."""
    if not positions:
        return []
    largest = max(abs(p) for p in positions)
    step = min((abs(b - a) for a, b in itertools.pairwise(positions)), default=largest)
    if largest >= 10_000:
        return [quantity.si(p) if p else "0" for p in positions]
    if 0 < largest < 0.01:
        return [_short_exponent(p) for p in positions]
    decimals = max(0, -math.floor(math.log10(step) + 1e-9)) if step else 0
    if step and abs(step * 10**decimals - round(step * 10**decimals)) > 1e-6:
        decimals += 1  # steps of 2.5 need one digit more than their power of ten
    return [f"{p + 0.0:.{decimals}f}" for p in positions]


def _short_exponent(value: float) -> str:
    if value == 0:
        return "0"
    mantissa, power = f"{value:.1e}".split("e")
    return f"{mantissa.removesuffix('.0')}e{int(power)}"


def hold(previous: Range | None, low: float, high: float) -> Range:
    """Limits for values in [low, high]: the previous ones while they fit and are at least half
    used, else fresh round ones."""
    if previous is not None and previous.low <= low and high <= previous.high:
        used = (high - low) / previous.span
        if used >= 0.5:
            return previous
    return around(low, high)


def around(low: float, high: float) -> Range:
    """Round limits just outside [low, high]; a flat series gets room on both sides."""
    if not high > low:
        room = abs(low) * 0.1 or 1.0
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
