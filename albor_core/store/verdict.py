"""Which of two curves ended better, or that nobody can tell. Pure, deterministic, no numpy.

Method  Both curves are cut to the x range they share; the last quarter of it is compared, as the
        differences of points at the same x, which cancels what both runs saw alike (the same
        batches, the same schedule). Curves that share too few x are first averaged over the same
        stretches of x. The differences are averaged in 4 to 16 consecutive blocks, each at least
        twice as long as the noise remembers, and Student's t of the block means gives a 95 %
        interval of the mean difference (Ibragimov and Mueller 2010, Journal of Business and
        Economic Statistics 28(4), 453-468). Where there is no room for such long blocks the
        interval is widened by what blocks of an AR(1) series understate. How long noise remembers
        is an estimate: two standard errors are added to the correlation of neighbours.
Trend   Where one run still gains on the other, the differences drift, and to the blocks a drift
        looks like noise that remembers for ever. So 25 or more differences that leave 0 undecided
        are also held against the straight line through them: one that is at both ends of the
        window more than 8 times their scatter about it away from 0, on one side, decides, and
        the interval is what the line passes through. Of 1,000 pairs of AR(1) noise it called
        none different at correlations up to 0.9, and 1 at 0.95 (simulated).
Level   An interval without 0 decides; of 100 pairs of runs that differ by noise along the curve
        alone at most 5 are called different. tests/core/store/test_verdict_calibration.py holds
        it to that for correlations up to 0.9 from 25 differences on; of 8 differences with a
        correlation of 0.9 it was 7 (simulated, 1,000 pairs). A last point alone decides nothing.
Limits  The interval is about these two runs, not about their recipes: it knows the noise along a
        curve, not the noise between seeds.

Where there is no such interval:

    fewer than MIN_POINTS finite differences, or no x in common    not_comparable
    more than half of one run's window is NaN or Inf               that run is worse, no interval
    more than half of both windows is                              not_comparable
    some points are                                                left out, and counted in detail
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from albor_core.run.state import finite

Outcome = Literal["better", "worse", "indistinguishable", "not_comparable"]
MIN_POINTS = 8
WINDOW = 0.25
CONFIDENCE = 0.95
_METHOD = "Student's t of block means (Ibragimov and Mueller 2010)"
_BY_LINE = "a straight line through the differences, 8 times their scatter from 0 at both ends"
_LINE_POINTS, _LINE_SCATTERS = 25, 8.0
_MIN_BLOCKS, _MAX_BLOCKS = 4, 16
_MAX_CORRELATION = 0.99  # beyond, no window a person would wait for decides anything
# Student's 97.5 % quantiles for 3 to 15 degrees of freedom: one less than there are blocks
_STUDENT = (
    *(3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262),
    *(2.228, 2.201, 2.179, 2.160, 2.145, 2.131),
)
_LARGEST = 1e150  # the squares of larger numbers are no floats: as good as Inf
_Point = tuple[float, float]


@dataclass(frozen=True)
class Curve:
    """A series in order of `x` (steps or tokens)."""

    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True)
class Verdict:
    """`outcome` is about the second curve as compared with the first.

    `interval` bounds second minus first; `difference` is its middle. None where there is none.
    """

    outcome: Outcome
    interval: tuple[float, float] | None
    difference: float | None
    method: str
    detail: str

    def to_json(self) -> dict[str, Any]:
        interval = None if self.interval is None else [finite(bound) for bound in self.interval]
        return {
            "outcome": self.outcome,
            "interval": interval,
            "confidence": CONFIDENCE,
            "difference": finite(self.difference),
            "method": self.method,
            "detail": self.detail,
        }


def verdict(a: Curve, b: Curve, *, lower_is_better: bool = True, unit: str = "step") -> Verdict:
    """How `b` ended as compared with `a`; `unit` names the x-axis in the detail."""
    if not a.x or not b.x:
        return not_comparable(f"{len(a.x)} and {len(b.x)} points; needs {MIN_POINTS}")
    start, end = max(a.x[0], b.x[0]), min(a.x[-1], b.x[-1])
    if start > end:
        return not_comparable(f"the curves share no {unit}s")
    low = end - WINDOW * (end - start)
    where = f"{unit}s {low:,.0f} to {end:,.0f}"
    windows = [_window(curve, low, end) for curve in (a, b)]
    sane = [[point for point in window if abs(point[1]) < _LARGEST] for window in windows]
    first, second = (2 * len(kept) < len(w) for kept, w in zip(sane, windows, strict=True))
    if first or second:
        return _diverged(first, second, where)
    differences, what = _differences(sane[0], sane[1])
    if len(differences) < MIN_POINTS:
        return not_comparable(f"{len(differences)} {what} in {where}; needs {MIN_POINTS}")
    detail = f"{len(differences)} {what}, {where}"
    if left_out := sum(map(len, windows)) - sum(map(len, sane)):
        detail += f", {left_out} of NaN or Inf left out"
    middle, half = _interval(differences)
    interval, method = (middle - half, middle + half), _METHOD
    if _holds_zero(interval) and (passed := _line_clear_of_zero(differences)) is not None:
        interval, middle, method = passed, (passed[0] + passed[1]) / 2, _BY_LINE
    return Verdict(_outcome(interval, lower_is_better), interval, middle, method, detail)


def not_comparable(detail: str) -> Verdict:
    """No verdict, and why."""
    return Verdict("not_comparable", None, None, "none", detail)


def same_run() -> Verdict:
    """A run beside itself."""
    return Verdict("indistinguishable", (0.0, 0.0), 0.0, "none", "the same run")


def _window(curve: Curve, low: float, high: float) -> list[_Point]:
    return [point for point in zip(curve.x, curve.y, strict=True) if low <= point[0] <= high]


def _diverged(first: bool, second: bool, where: str) -> Verdict:
    if first and second:
        return not_comparable(f"both are NaN or Inf in {where}")
    which = "it is" if second else "the other is"
    detail = f"{which} NaN or Inf in more than half of {where}"
    return Verdict("worse" if second else "better", None, None, "none", detail)


def _outcome(interval: tuple[float, float], lower_is_better: bool) -> Outcome:
    if _holds_zero(interval):
        return "indistinguishable"
    return "better" if (interval[1] < 0.0) == lower_is_better else "worse"


def _holds_zero(interval: tuple[float, float]) -> bool:
    return interval[0] <= 0.0 <= interval[1]


def _differences(a: Sequence[_Point], b: Sequence[_Point]) -> tuple[list[float], str]:
    """Second minus first in order of x, and what they are differences of."""
    before = dict(a)
    pairs = [y - before[x] for x, y in b if x in before]
    if 2 * len(pairs) >= min(len(a), len(b)):
        return pairs, "paired points"
    return _by_stretches(a, b), "stretches averaged"


def _by_stretches(a: Sequence[_Point], b: Sequence[_Point]) -> list[float]:
    """Differences of means over equal stretches of x, those left out that one curve is not in."""
    low, high = min(a[0][0], b[0][0]), max(a[-1][0], b[-1][0])
    count = min(len(a), len(b))
    per_stretch = count / (high - low) if high > low else 0.0
    found: list[dict[int, list[float]]] = []
    for points in (a, b):
        stretches: dict[int, list[float]] = {}
        for x, y in points:
            stretches.setdefault(min(int((x - low) * per_stretch), count - 1), []).append(y)
        found.append(stretches)
    first, second = found
    return [_mean(second[i]) - _mean(first[i]) for i in range(count) if i in first and i in second]


def _mean(values: Iterable[float]) -> float:
    kept = list(values)
    return math.fsum(kept) / len(kept)


def _interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and half the width of the interval about it."""
    count, correlation = len(values), correlation_bound(values)
    memory = (1 + correlation) / (1 - correlation)  # points that tell as much as one alone would
    blocks = max(_MIN_BLOCKS, min(_MAX_BLOCKS, int(count / (2 * memory))))
    size = count // blocks
    newest = values[count - blocks * size :]
    means = [_mean(newest[i : i + size]) for i in range(0, len(newest), size)]
    middle = _mean(means)
    variance = math.fsum((m - middle) ** 2 for m in means) / (blocks - 1) / blocks
    variance *= _understated(correlation, blocks, size)
    return middle, _STUDENT[blocks - 1 - 3] * math.sqrt(variance)


def _line_clear_of_zero(values: Sequence[float]) -> tuple[float, float] | None:
    """From where to where the line through `values` goes; None if it is not far from 0."""
    count = len(values)
    if count < _LINE_POINTS:
        return None
    center, mean = (count - 1) / 2, _mean(values)
    spread = count * (count * count - 1) / 12  # of 0, 1, ... count - 1
    slope = math.fsum((i - center) * (y - mean) for i, y in enumerate(values)) / spread
    rest = math.fsum((y - mean - slope * (i - center)) ** 2 for i, y in enumerate(values))
    scatter = math.sqrt(rest / (count - 2))
    ends = sorted((mean - slope * center, mean + slope * center))
    is_far = min(map(abs, ends)) > _LINE_SCATTERS * scatter
    return (ends[0], ends[1]) if is_far and not _holds_zero((ends[0], ends[1])) else None


def correlation_bound(values: Sequence[float]) -> float:
    """The correlation of neighbours at most: the estimate and two standard errors, in [0, 0.99].

    The plain estimate is low by (1 + 3 rho) / n (Kendall 1954, Biometrika 41), its error is
    sqrt((1 - rho^2) / n) (Bartlett 1946).
    """
    count, mean = len(values), _mean(values)
    centered = [value - mean for value in values]
    variance = math.fsum(c * c for c in centered)
    if variance == 0.0:
        return 0.0
    plain = math.fsum(p * q for p, q in pairwise(centered)) / variance
    rho = min(max((plain + 1 / count) / (1 - 3 / count), 0.0), _MAX_CORRELATION)
    return min(rho + 2 * math.sqrt((1 - rho * rho) / count), _MAX_CORRELATION)


def _understated(rho: float, blocks: int, size: int) -> float:
    """How many times the variance of an AR(1) series' mean is what its block means let expect.

    1 for independent blocks. From the sums of rho^|i - j| within and between blocks.
    """
    if rho <= 0.0:
        return 1.0
    scale = (size * (1 - rho)) ** 2
    own = (size * (1 - rho * rho) - 2 * rho * (1 - rho**size)) / scale
    next_one = rho * (1 - rho**size) ** 2 / scale
    between = sum((blocks - k) * next_one * rho ** ((k - 1) * size) for k in range(1, blocks))
    of_mean = (blocks * own + 2 * between) / blocks**2
    expected = (own - 2 * between / (blocks * (blocks - 1))) / blocks
    return of_mean / expected
