"""Decides which of two curves ended better, or that this is unknown. Pure, deterministic, no numpy.

Method  Both curves are cut to the x range they share; the last quarter of it is compared, as the
        differences of points at the same x, which cancels what both runs saw alike (the same
        batches, the same schedule). Curves that share too few x are first averaged over the same
        stretches of x. The mean difference is held against its standard error, which noise that
        remembers makes larger than the points let expect: they are taken for an AR(1) series (as
        in the prewhitening of Andrews and Monahan 1992, Econometrica 60(4), 953-966), whose
        correlation is corrected for its bias (Kendall 1954, Biometrika 41, 403-404), the more the
        fewer the points. Noise that remembers longer than its neighbours show, such as white noise
        over a slow wave, is seen by the means of 64 batches of the points: where the same estimate
        of them says much more, theirs counts. What the estimate itself is worth, by the delta
        method, is that of `points / (2 memory) - 1.75` degrees of freedom, for Student's t. No
        interval of a pair reaches further from its middle than 8 times the differences' scatter.
Level   An interval without 0 decides. It is made for 3.5 % (LEVEL) of pairs that differ by noise
        alone, so that no more than 5 of 100 (1 - CONFIDENCE) are called different;
        benchmarks/watching/verdicts.py measures that for AR(1) noise of correlations up to 0.97
        from 25 differences on, and what is found of real gaps beside a test that knows the true
        standard error. Of eight differences 12 of 100 pairs at a correlation of 0.97, 2 at 0.9
        (simulated, 1,000 pairs). A last point alone decides nothing.
Trend   Where one run still gains on the other, the differences drift, and a drift looks like noise
        that remembers for ever. So differences that leave 0 undecided are also held against the
        straight line through them: one that is at both ends of the window more than 8 times their
        scatter about it away from 0 (of 20 differences or more; 20 times of eight), on one side,
        decides, and the interval is what the line passes through.
Many    Of several runs compared with one, chance makes one of them look different the more often
        the more there are: `judge.corrected` calls them different by Holm's method alone, and
        widens the interval of each to the level that it was held to.
Limits  The interval is about these two runs, not about their recipes: it knows the noise along a
        curve, not the noise between seeds. Where the window holds fewer than 26 memories of
        the noise, a real gap of five standard errors may stay undecided.

Single  A figure that a peer kept in single precision says no more than 24 bits: values that agree
        in these do not differ.

Where there is no such interval:

    fewer than MIN_POINTS finite differences, or no x in common    no verdict, and a reason; a
                                                                   difference of 0 where none is
    more than half of one run's window is NaN or Inf               that run is worse, no interval
    more than half of both windows is NaN or Inf                   no verdict
    some points are                                                left out, and counted in detail
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby, pairwise
from typing import Any, Literal

from albor_core.run.values.directions import Direction
from albor_core.run.values.lenient import strict_json
from albor_core.store.diff.student import two_sided

Outcome = Literal["better", "worse", "indistinguishable", "contradictory"]
Reason = Literal[
    "no_common_metric", "unknown_direction", "too_few_points", "no_common_steps", "not_finite"
]
MIN_POINTS = 8
WINDOW = 0.25
CONFIDENCE = 0.95
LEVEL = 0.7 * (1 - CONFIDENCE)  # the rest is for the error of the estimates; see `_STUDENT`
_METHOD = "Student's t, standard error of AR(1) noise (Andrews and Monahan 1992)"
_SCATTERS, _FULL_LINE = 8.0, 20  # fewer points than that need a clearer line
_BY_LINE = (
    "a straight line through the differences, "
    f"{_SCATTERS:g} times their scatter from 0 at both ends"
)
_MAX_CORRELATION = 0.99  # beyond, no window a person would wait for decides anything
_FEW = 30.0  # how much the correlation of few points is raised: _FEW * (0.3 + rho) / points^2
_BATCHES = 64
# of evidence for the standard error: half of what is left of the points, by simulation less
_LOST, _LEAST_FREEDOM = 1.75, 0.7
# Student's two-sided quantiles at LEVEL by degrees of freedom; between them straight in logarithms
_STUDENT = (
    *(
        (0.7, 60.1),
        (0.8, 36.2),
        (0.9, 24.7),
        (1.0, 18.17),
        (1.25, 10.67),
        (1.5, 7.65),
        (2.0, 5.205),
    ),
    *((2.5, 4.201), (3.0, 3.67), (4.0, 3.137), (5.0, 2.87), (7.0, 2.605), (10.0, 2.437)),
    *((15.0, 2.316), (25.0, 2.228), (50.0, 2.166), (100.0, 2.137), (1e4, 2.109)),
)
_SINGLE = 2.0**-23  # half a unit in the last place of single precision, twice
_LARGEST = 1e150  # the squares of larger numbers are not floats: as good as Inf
_Point = tuple[float, float]


@dataclass(frozen=True)
class OrderedSeries:
    """A series in order of `x` (steps or tokens)."""

    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True)
class Unjudged:
    """The metric that was asked about, where it could not be judged, and why not."""

    metric: str
    reason: Reason | None
    detail: str


@dataclass(frozen=True)
class Verdict:
    """`outcome` is about the second curve as compared with the first; None where nothing can be
    judged, and `reason` says in a word why.

    `interval` bounds second minus first; `difference` is its middle. None where there is none.
    `metric` is what they are of; `unknown` names what is not known to be the same of both runs
    (config, code, command), where they look alike otherwise. `unjudged` is what was asked about
    where `metric` was taken instead. `chance` is how likely differences so far from 0 are where the
    curves differ by noise alone; None where no interval decided. `freedom` are the degrees of
    freedom of the interval's error, None where it has none. `comparisons` is for how many the
    outcome and the interval are corrected.
    """

    outcome: Outcome | None
    interval: tuple[float, float] | None
    difference: float | None
    method: str
    detail: str
    reason: Reason | None = None
    metric: str = ""
    unknown: tuple[str, ...] = ()
    unjudged: Unjudged | None = None
    chance: float | None = None
    freedom: float | None = None
    comparisons: int = 1

    def to_json(self) -> dict[str, Any]:
        interval = (
            None if self.interval is None else [strict_json(bound) for bound in self.interval]
        )
        return {
            "outcome": self.outcome,
            "reason": self.reason,
            "metric": self.metric or None,
            "interval": interval,
            "confidence": CONFIDENCE,
            "comparisons": self.comparisons,
            "difference": strict_json(self.difference),
            "method": self.method,
            "detail": self.detail,
            "unknown": [*self.unknown],
            "unjudged": None if self.unjudged is None else asdict(self.unjudged),
        }


def verdict(
    a: OrderedSeries, b: OrderedSeries, *, goal: Direction | None = "min", unit: str = "step"
) -> Verdict:
    """How `b` ended as compared with `a`; `unit` names the x-axis in the detail.

    Without a `goal` there is an interval and no outcome.
    """
    if not a.x or not b.x:
        return no_verdict(
            "too_few_points", f"{len(a.x)} and {len(b.x)} points; needs {MIN_POINTS} of each"
        )
    start, end = max(a.x[0], b.x[0]), min(a.x[-1], b.x[-1])
    if start > end:
        return no_verdict("no_common_steps", f"the curves share no {unit}s")
    low = end - WINDOW * (end - start)
    where = f"{unit}s {low:,.0f} to {end:,.0f}"
    windows = [_window(curve, low, end) for curve in (a, b)]
    sane = [[point for point in window if abs(point[1]) < _LARGEST] for window in windows]
    first, second = (2 * len(kept) < len(w) for kept, w in zip(sane, windows, strict=True))
    if first or second:
        return _diverged(first, second, f"in more than half of {where}")
    differences, what = _differences(sane[0], sane[1])
    count = f"{len(differences)} {what[len(differences) != 1]}"
    if len(differences) < MIN_POINTS:
        found = no_verdict("too_few_points", f"{count} in {where}; needs {MIN_POINTS}")
        return replace(found, difference=0.0) if _is_same(*windows) else found
    detail = f"{count}, {where}"
    if left_out := sum(map(len, windows)) - sum(map(len, sane)):
        detail += f", {left_out} of NaN or Inf left out"
    return _judged(differences, detail, goal)


def _judged(differences: list[float], detail: str, goal: Direction | None) -> Verdict:
    """The verdict on differences in order of x."""
    middle, half, known = _interval(differences)
    interval, method, freedom = (middle - half, middle + half), _METHOD, None if not half else known
    errors = abs(middle) / half * half_in_errors(known) if half else math.copysign(math.inf, middle)
    chance = two_sided(errors, known) if middle else 1.0
    if _holds_zero(interval) and (passed := _line_clear_of_zero(differences)) is not None:
        interval, middle, method, chance = passed, (passed[0] + passed[1]) / 2, _BY_LINE, 0.0
        freedom = None
    if goal is None:
        return Verdict(None, interval, middle, method, detail, "unknown_direction")
    outcome = _outcome(interval, goal)
    return Verdict(outcome, interval, middle, method, detail, chance=chance, freedom=freedom)


def broken_from(curve: OrderedSeries) -> float | None:
    """The x from which a curve is NaN or Inf to its end; None if its end is finite, or if it was
    non-finite for as long before and recovered.
    """
    streaks = [
        (is_finite, len([*some])) for is_finite, some in groupby(map(math.isfinite, curve.y))
    ]
    if not streaks or streaks[-1][0]:
        return None
    tail = streaks[-1][1]
    before = max((length for is_finite, length in streaks[:-1] if not is_finite), default=0)
    return curve.x[-tail] if tail > before else None


def no_verdict(reason: Reason, detail: str) -> Verdict:
    """None, and why."""
    return Verdict(None, None, None, "none", detail, reason)


def same_run() -> Verdict:
    """A run beside itself."""
    return Verdict("indistinguishable", (0.0, 0.0), 0.0, "none", "the same run")


def _window(curve: OrderedSeries, low: float, high: float) -> list[_Point]:
    return [point for point in zip(curve.x, curve.y, strict=True) if low <= point[0] <= high]


def _diverged(first: bool, second: bool, where: str) -> Verdict:
    if first and second:
        return no_verdict("not_finite", f"both are NaN or Inf {where}")
    which = "it is" if second else "the other is"
    detail = f"{which} NaN or Inf {where}"
    return Verdict("worse" if second else "better", None, None, "none", detail)


def _outcome(interval: tuple[float, float], goal: Direction) -> Outcome:
    if _holds_zero(interval):
        return "indistinguishable"
    return "better" if (interval[1] < 0.0) == (goal == "min") else "worse"


def apart(first: float, second: float) -> float:
    """Second minus first; 0 where single precision would not tell them apart."""
    gap = second - first
    return 0.0 if abs(gap) <= _SINGLE * min(abs(first), abs(second)) else gap


def _is_same(a: Sequence[_Point], b: Sequence[_Point]) -> bool:
    """Whether two windows have the same x and values; NaN is the same as NaN."""
    if not a or [x for x, _ in a] != [x for x, _ in b]:
        return False
    return all(
        first == second or (first != first and second != second) or apart(first, second) == 0.0
        for (_, first), (_, second) in zip(a, b, strict=True)
    )


def _holds_zero(interval: tuple[float, float]) -> bool:
    return interval[0] <= 0.0 <= interval[1]


def _differences(a: Sequence[_Point], b: Sequence[_Point]) -> tuple[list[float], tuple[str, str]]:
    """Second minus first in order of x, and what one of them and several are differences of."""
    before = dict(a)
    pairs = [apart(before[x], y) for x, y in b if x in before]
    if 2 * len(pairs) >= min(len(a), len(b)):
        return pairs, ("paired point", "paired points")
    return _by_stretches(a, b), ("stretch averaged", "stretches averaged")


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


def _interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean, half the width of the interval about it, the degrees of freedom of its error."""
    variance, freedom = _variance_of_mean(values)
    size = len(values) // _BATCHES
    if size > 1:
        newest = values[len(values) - size * _BATCHES :]
        batches = [_mean(newest[i : i + size]) for i in range(0, len(newest), size)]
        larger, other = _variance_of_mean(batches)
        if larger > variance * math.exp(1.5 * math.sqrt(2 / other)):  # by more than its error
            variance, freedom = larger, other
    mean = _mean(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    widest = _SCATTERS * math.sqrt(squares / (len(values) - 1))
    return mean, min(half_in_errors(freedom) * math.sqrt(variance), widest), freedom


def _variance_of_mean(values: Sequence[float]) -> tuple[float, float]:
    """The variance of the mean of AR(1) noise, and the degrees of freedom of that estimate."""
    count, mean = len(values), _mean(values)
    centered = [value - mean for value in values]
    squares = math.fsum(c * c for c in centered)
    if squares == 0.0:
        return 0.0, _STUDENT[-1][0]
    plain = math.fsum(p * q for p, q in pairwise(centered)) / squares
    rho = min(max((plain + 1 / count) / (1 - 3 / count), 0.0), _MAX_CORRELATION)
    rho = min(rho + _FEW * (0.3 + rho) / count**2, _MAX_CORRELATION)
    # of a series of variance 1, the variance of the mean of `count` points
    share = (1 + rho) / (1 - rho) / count - 2 * rho * (1 - rho**count) / (count * (1 - rho)) ** 2
    # centring took the mean's share of the variance away
    variance = squares / count / max(1 - share, 0.05) * share
    return variance, max(0.5 / share - _LOST, _LEAST_FREEDOM)


def half_in_errors(freedom: float) -> float:
    """How many standard errors wide half an interval is."""
    for (low, first), (high, second) in pairwise(_STUDENT):
        if freedom <= high:
            place = math.log(freedom / low) / math.log(high / low)
            return float(first * (second / first) ** place)
    return _STUDENT[-1][1]


def _line_clear_of_zero(values: Sequence[float]) -> tuple[float, float] | None:
    """The ends of the line through `values`; None if it is not far from 0."""
    count = len(values)
    center, mean = (count - 1) / 2, _mean(values)
    spread = count * (count * count - 1) / 12  # of 0, 1, ... count - 1
    slope = math.fsum((i - center) * (y - mean) for i, y in enumerate(values)) / spread
    rest = math.fsum((y - mean - slope * (i - center)) ** 2 for i, y in enumerate(values))
    scatter = math.sqrt(rest / (count - 2))
    ends = sorted((mean - slope * center, mean + slope * center))
    is_far = min(map(abs, ends)) > _SCATTERS * max(1.0, _FULL_LINE / count) * scatter
    return (ends[0], ends[1]) if is_far and not _holds_zero((ends[0], ends[1])) else None
