"""Detects a loss that has stopped falling, taking its noise into account. Pure.

Window   The newer half of the logged points, as means of up to 48 batches of points.
Slope    Theil-Sen: the median of the slopes of all pairs of batch means. Spikes and other outliers
         up to 29 % of the batches do not move it. A line through the loss or through its
         logarithm, whichever lies closer to the batches.
Share    From the line's first value to its last, as a share of the first: from 10 to 1 is 90 %.
Interval From the order statistics of the same slopes by Kendall's variance (Sen 1968), 95 %, made
         wider by sqrt((1 + r) / (1 - r)) for noise that remembers, where r is the correlation of
         neighbouring batch means about the line.
Verdict  A plateau is an interval whose upper end is below LEAST (1 %) of the loss. A power law with
         an exponent of 0.1 and a third of the loss reducible still falls by 2.4 % while the steps
         double.
Source   Theil 1950; Sen 1968, J. Am. Stat. Assoc. 63(324), 1379-1389.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

LEAST = 0.01
_BATCHES, _LEAST_POINTS, _MOST_POINTS = 48, 192, 2048
_Z = 1.959963984540054


@dataclass(frozen=True)
class Trend:
    """The improvement of a loss over a window, as shares of its start; positive is better."""

    improvement: float
    low: float
    high: float
    first_step: float
    last_step: float

    @property
    def is_plateau(self) -> bool:
        return self.high < LEAST

    @property
    def words(self) -> str:
        """A description: "fell by 0.1 % (95 % interval -0.1 to 0.2 %) over steps 8,000 to
        12,000"."""
        span = f"over steps {self.first_step:,.0f} to {self.last_step:,.0f}"
        word, shares = "fell", (self.improvement, self.low, self.high)
        if self.improvement < 0:
            word, shares = "rose", (-self.improvement, -self.high, -self.low)
        by, low, high = (_short(100 * share + 0.0) for share in shares)  # no -0
        return f"{word} by {by} % (95 % interval {low} to {high} %) {span}"


def _short(number: float) -> str:
    """A number with two digits if it is small, all if it is large: never 1e+02."""
    return f"{number:,.0f}" if abs(number) >= 99.5 else f"{number:.2g}"


def trend(steps: Sequence[float], values: Sequence[float]) -> Trend | None:
    """The trend over all given points, in order of steps; None for too few, or a loss of 0."""
    points = [(t, y) for t, y in zip(steps, values, strict=True) if math.isfinite(y)]
    batches = _means(points, _BATCHES)
    if len(batches) < 8:
        return None
    if statistics.median(y for _, y in batches) <= 0:
        return None
    lines = [_line(batches, is_log=False)]
    if all(y > 0 for _, y in batches):
        lines.append(_line(batches, is_log=True))
    line = min(lines, key=lambda one: one.away)
    first, last = points[0][0], points[-1][0]
    found = [line.share(slope, first, last) for slope in line.slopes]
    shares = [share for share in found if share is not None]
    if len(shares) < len(found):
        return None
    return Trend(shares[0], shares[1], shares[2], first, last)


@dataclass(frozen=True)
class _Line:
    """Slopes (the median, and the least and the largest improvement) of a loss or of its logarithm,
    and the distance of the batches from the median line.
    """

    slopes: tuple[float, float, float]
    is_log: bool
    batches: Sequence[tuple[float, float]]
    away: float

    def share(self, slope: float, first: float, last: float) -> float | None:
        """The share of its first value by which a line of this slope falls; None if it begins at 0
        or below.
        """
        if self.is_log:
            return -math.expm1(min(slope * (last - first), 700.0))
        begin = statistics.median(y + slope * (first - t) for t, y in self.batches)
        return None if begin <= 0 else min(1.0, slope * (first - last) / begin)


def _line(loss: Sequence[tuple[float, float]], *, is_log: bool) -> _Line:
    batches = [(t, math.log(y) if is_log else y) for t, y in loss]
    slopes = sorted(
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for number, later in enumerate(batches)
        for earlier in batches[:number]
    )
    n, count = len(batches), len(slopes)
    slope = statistics.median(slopes)
    reach = _Z * math.sqrt(n * (n - 1) * (2 * n + 5) / 18) * _memory(batches, slope)
    low = slopes[max(0, math.floor((count - reach) / 2))]
    high = slopes[min(count - 1, math.ceil((count + reach) / 2))]
    level = statistics.median(y - slope * t for t, y in batches)
    fit = [level + slope * t for t, _ in batches]
    as_loss = [math.exp(min(y, 700.0)) for y in fit] if is_log else fit
    away = sum(abs(y - there) for (_, y), there in zip(loss, as_loss, strict=True))
    return _Line((slope, high, low), is_log, batches, away)


def _means(points: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    count = min(most, len(points))
    cuts = [round(len(points) * k / count) for k in range(count + 1)] if count else []
    return [
        (statistics.fmean(t for t, _ in points[a:b]), statistics.fmean(y for _, y in points[a:b]))
        for a, b in pairwise(cuts)
    ]


def _memory(batches: Sequence[tuple[float, float]], slope: float) -> float:
    """The factor by which correlated noise widens an interval."""
    rest = [y - slope * t for t, y in batches]
    middle = statistics.median(rest)
    rest = [y - middle for y in rest]
    squares = sum(y * y for y in rest)
    if squares <= 0:
        return 1.0
    r = sum(a * b for a, b in pairwise(rest)) / squares
    r = min(0.9, max(0.0, r + (1 + 3 * max(r, 0.0)) / len(rest)))
    return math.sqrt((1 + r) / (1 - r))


class PlateauWatch:
    """The trend of the newer half of a run, updated each time the run has grown by a 20th."""

    def __init__(self) -> None:
        self._steps: list[float] = []
        self._values: list[float] = []
        self._next = _LEAST_POINTS
        self._stride, self._skipped = 1, 0
        self.newest: Trend | None = None

    def take(self, step: float, loss: float) -> Trend | None:
        """Add a logged loss; return the trend if it was updated, else None."""
        if self._steps and step <= self._steps[-1]:  # a rollback
            kept = sum(one < step for one in self._steps)
            del self._steps[kept:], self._values[kept:]
        self._skipped += 1
        if self._skipped < self._stride:
            return None
        self._skipped = 0
        self._steps.append(step)
        self._values.append(loss)
        if len(self._steps) >= _MOST_POINTS:  # thinned: memory does not grow with the run
            self._steps, self._values = self._steps[::2], self._values[::2]
            self._stride *= 2
            self._next = len(self._steps)
        if len(self._steps) < self._next:
            return None
        self._next = math.ceil(1.05 * len(self._steps)) + 1
        first = len(self._steps) // 2
        self.newest = trend(self._steps[first:], self._values[first:]) or self.newest
        return self.newest

    def to_json(self) -> dict[str, Any]:
        return {
            "steps": list(self._steps),
            "values": [value if math.isfinite(value) else None for value in self._values],
            "next": self._next,
            "stride": self._stride,
        }

    def load(self, saved: Mapping[str, Any]) -> None:
        """Restore the state that `to_json` returned."""
        self._steps = [float(step) for step in saved["steps"]]
        self._values = [math.nan if v is None else float(v) for v in saved["values"]]
        self._next, self._stride = int(saved["next"]), int(saved["stride"])
