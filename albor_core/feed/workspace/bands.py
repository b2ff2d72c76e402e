"""The curves of several runs as one: their mean, and a band of one standard deviation. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence

from albor_core.run.light_dataclass import dataclass
from albor_core.store.file.axis import STEP
from albor_core.store.query.group import band
from albor_core.store.rows.series import Series


@dataclass(frozen=True)
class CurveBand:
    """The mean of curves over their steps, the mean less and plus their sample standard deviation,
    and of how many runs each is. Of one run the band is its curve; where none has a value all
    three are NaN.
    """

    steps: tuple[float, ...] = ()
    mean: tuple[float, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    n: tuple[int, ...] = ()


def curve_band(curves: Sequence[Series], *, most: int | None = None) -> CurveBand:
    """The band of curves at all of their steps, or at `most` of these, the first and last among
    them.

    Each run counts between its first and its last step, by linear interpolation: never beyond
    them, nor beside a point that is not finite. Of curves over steps and over seconds those count
    whose axis more of them have.
    """
    axes = Counter(curve.axis for curve in curves if not curve.is_empty)
    axis = max(axes, key=lambda name: (axes[name], name == STEP), default=STEP)
    counted = [curve for curve in curves if curve.axis == axis and not curve.is_empty]
    steps = _thinned(sorted({float(step) for curve in counted for step in curve.steps}), most)
    found: list[list[float]] = [[] for _ in steps]
    for curve in counted:
        for index, value in _values_at(curve, steps):
            found[index].append(value)
    bands = [band(values) for values in found]
    means = tuple(math.nan if one.mean is None else one.mean for one in bands)
    spreads = [one.std or 0.0 for one in bands]
    return CurveBand(
        tuple(steps),
        means,
        tuple(mean - spread for mean, spread in zip(means, spreads, strict=True)),
        tuple(mean + spread for mean, spread in zip(means, spreads, strict=True)),
        tuple(one.n for one in bands),
    )


def _thinned(steps: list[float], most: int | None) -> list[float]:
    if most is None or len(steps) <= max(most, 2):
        return steps
    last, gaps = len(steps) - 1, max(most, 2) - 1
    return [steps[index * last // gaps] for index in range(gaps + 1)]


def _values_at(curve: Series, steps: Sequence[float]) -> Iterator[tuple[int, float]]:
    """The index of each of these steps at which a curve has a finite value, and that value."""
    values = dict(zip(map(float, curve.steps), curve.mean or curve.last, strict=True))
    own = [*values]
    before = 0  # the last own step that is not beyond the step
    for index in range(bisect_left(steps, own[0]), bisect_right(steps, own[-1])):
        step = steps[index]
        while before + 1 < len(own) and own[before + 1] <= step:
            before += 1
        value = values[own[before]]
        if own[before] != step:
            width = own[before + 1] - own[before]
            value += (values[own[before + 1]] - value) * ((step - own[before]) / width)
        if math.isfinite(value):
            yield index, value
