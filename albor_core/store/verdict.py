"""Which of two curves ended better, or that nobody can tell. Pure, deterministic, no numpy.

Method  Both curves are cut to the x range they share; the last quarter of it is compared. Where
points
        share their x, the paired differences are resampled, which cancels what both runs saw alike
        (the same batches, the same schedule); otherwise each window is resampled by itself.
        Moving-block bootstrap (Kuensch 1989, Annals of Statistics 17(3)): neighbouring steps are
        correlated, so blocks longer than the measured correlation are drawn instead of points. The
        95 % interval of the mean difference decides; one that holds 0 means indistinguishable. A
        last point alone never decides anything.
Limits  The interval is about these two runs, not about their recipes: it knows the noise along a
curve, not the
        noise between seeds. Fewer than MIN_POINTS finite points in a window are not comparable.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from albor_core.run.state import finite

Outcome = Literal["better", "worse", "indistinguishable", "not_comparable"]
MIN_POINTS = 8
WINDOW = 0.25
_MAX_POINTS = 400  # more are averaged pairwise: the mean stays, the cost is bounded
_RESAMPLES = 1000
_CONFIDENCE = 0.99  # of 100 pairs that differ by noise alone one should be called different


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
            "confidence": _CONFIDENCE,
            "difference": finite(self.difference),
            "method": self.method,
            "detail": self.detail,
        }


def verdict(a: Curve, b: Curve, *, lower_is_better: bool = True, unit: str = "step") -> Verdict:
    """How `b` ended as compared with `a`; `unit` names the x-axis in the detail."""
    left, right = _finite_points(a), _finite_points(b)
    if len(left) < MIN_POINTS or len(right) < MIN_POINTS:
        return not_comparable(f"{len(left)} and {len(right)} finite points; needs {MIN_POINTS}")
    start, end = max(left[0][0], right[0][0]), min(left[-1][0], right[-1][0])
    if start > end:
        return not_comparable(f"the curves share no {unit}s")
    low = end - WINDOW * (end - start)
    window_a = [(x, y) for x, y in left if low <= x <= end]
    window_b = [(x, y) for x, y in right if low <= x <= end]
    where = f"{unit}s {low:,.0f} to {end:,.0f}"
    before = dict(window_a)
    pairs = [y - before[x] for x, y in window_b if x in before]
    if len(pairs) >= MIN_POINTS and 2 * len(pairs) >= min(len(window_a), len(window_b)):
        means = _resampled_means(pairs)
        middle, method = _mean(pairs), "paired moving-block bootstrap (Kuensch 1989)"
        detail = f"{len(pairs)} paired points, {where}"
    elif len(window_a) >= MIN_POINTS and len(window_b) >= MIN_POINTS:
        ya, yb = [y for _, y in window_a], [y for _, y in window_b]
        means = [
            q - p for p, q in zip(_resampled_means(ya), _resampled_means(yb, seed=1), strict=True)
        ]
        middle, method = _mean(yb) - _mean(ya), "moving-block bootstrap (Kuensch 1989), unpaired"
        detail = f"{len(ya)} and {len(yb)} points, {where}"
    else:
        return not_comparable(f"fewer than {MIN_POINTS} points in {where}")
    interval = _interval(means)
    return Verdict(_outcome(interval, lower_is_better), interval, middle, method, detail)


def not_comparable(detail: str) -> Verdict:
    """No verdict, and why."""
    return Verdict("not_comparable", None, None, "none", detail)


def _finite_points(curve: Curve) -> list[tuple[float, float]]:
    return [(x, y) for x, y in zip(curve.x, curve.y, strict=True) if math.isfinite(y)]


def _outcome(interval: tuple[float, float], lower_is_better: bool) -> Outcome:
    low, high = interval
    if low <= 0.0 <= high:
        return "indistinguishable"
    return "better" if (high < 0.0) == lower_is_better else "worse"


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _resampled_means(values: Sequence[float], seed: int = 0) -> list[float]:
    """Means of moving-block resamples, spread about the mean of `values`."""
    while len(values) > _MAX_POINTS:
        odd = len(values) % 2  # the newest points stay
        values = [(values[i] + values[i + 1]) / 2 for i in range(odd, len(values) - 1, 2)]
    count, wanted = len(values), block_length(values)
    block = min(wanted, count // 4)  # four blocks at least
    sums = [0.0]
    for value in values:
        sums.append(sums[-1] + value)
    starts = count - block + 1
    block_means = [(sums[i + block] - sums[i]) / block for i in range(starts)]
    center, mean = _mean(block_means), _mean(values)
    blocks = count // block
    # few blocks say little about their own spread: Student's quantile instead of the normal one
    widen = _student(blocks - 1) / _student(math.inf) * math.sqrt(blocks / (blocks - 1))
    widen *= math.sqrt(wanted / block)  # correlation longer than the blocks the window has room for
    choose = random.Random(seed).choices  # noqa: S311  (the same data, the same verdict)
    return [
        mean + widen * (math.fsum(choose(block_means, k=blocks)) / blocks - center)
        for _ in range(_RESAMPLES)
    ]


def block_length(values: Sequence[float]) -> int:
    """Points that blocks should have: n^(1/3), or twice the correlation time where longer."""
    count, mean = len(values), _mean(values)
    centered = [value - mean for value in values]
    variance = math.fsum(c * c for c in centered)
    time = total = 1.0
    if variance > 0:
        for lag in range(1, count // 4):
            pairs = zip(centered, centered[lag:], strict=False)
            correlation = math.fsum(p * q for p, q in pairs) / variance
            if lag == 1:
                # the estimate is low by about (1 + 3 rho) / n (Kendall 1954, Biometrika 41)
                rho = min(max((correlation + 1 / count) / (1 - 3 / count), 0.0), 0.99)
                time = (1 + rho) / (1 - rho)
            if correlation <= 0.05:
                break
            total += 2 * correlation
        time = max(time, total)
    return max(round(math.cbrt(count)), round(2 * time))


def _student(freedom: float) -> float:
    """The 99.5 % quantile of Student's t, by Cornish-Fisher expansion; 3 % low at 3 degrees."""
    z = 2.575829
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def _interval(means: list[float]) -> tuple[float, float]:
    ordered = sorted(means)
    tail = int(len(ordered) * (1 - _CONFIDENCE) / 2)
    return ordered[tail], ordered[-1 - tail]
