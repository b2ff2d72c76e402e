"""A smoothed line that is centred on its points: it does not lag behind what it smooths. Pure.

At each point it is the value there of the straight line that fits best, where a point a thousandth
of the axis away counts `weight` times as much: a straight line is its own smoothed line, up to both
ends (local linear regression, Cleveland 1979).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from albor_tui.widgets.chart.data import Look, Trace
from albor_tui.widgets.chart.ticks import Range

_PER_MILLE = 1000.0
_FARTHEST = 1e6  # thousandths: nothing counts from there, and its square is a number
_Sums = tuple[float, float, float, float, float]  # of w, wd, wdd, wy, wdy
_NONE: _Sums = (0.0, 0.0, 0.0, 0.0, 0.0)


def smoothed(trace: Trace, look: Look, x: Range, weight: float) -> Trace:
    """The trace smoothed; values that are not finite do not enter, and there the line pauses."""
    known = [i for i, value in enumerate(trace.y) if math.isfinite(value)]
    places = [trace.x_at(trace.x[i], look.axis) / x.span * _PER_MILLE for i in known]
    values = [trace.y[i] for i in known]
    ys = [math.nan] * len(trace.y)
    for i, value in zip(known, fitted(places, values, weight), strict=True):
        ys[i] = value
    return replace(trace, y=tuple(ys), nonfinite=())


def fitted(places: Sequence[float], values: Sequence[float], weight: float) -> list[float]:
    """The fit at each of the places, which do not fall, in two passes over them; at the ends it
    goes no farther than the values do."""
    if not values:
        return []
    before = _sums_before(places, values, weight)
    mirrored = [-place for place in reversed(places)]
    after = _sums_before(mirrored, values[::-1], weight)[::-1]
    low, high = min(values), max(values)
    found = [_fit(value, *pair) for value, *pair in zip(values, before, after, strict=True)]
    return [min(max(value, low), high) for value in found]


def _sums_before(places: Sequence[float], values: Sequence[float], weight: float) -> list[_Sums]:
    """At each place the sums over the points before it, whose distances d are positive."""
    found = [_NONE]
    w = wd = wdd = wy = wdy = 0.0
    for (a, b), value in zip(itertools.pairwise(places), values, strict=False):
        w, wy = w + 1.0, wy + value  # the point at `a`
        d = min(max(b - a, 0.0), _FARTHEST)
        kept = weight**d
        wdd = kept * (wdd + 2 * d * wd + d * d * w)
        wd = kept * (wd + d * w)
        wdy = kept * (wdy + d * wy)
        w, wy = kept * w, kept * wy
        found.append((w, wd, wdd, wy, wdy))
    return found


def _fit(value: float, before: _Sums, after: _Sums) -> float:
    w, wy = before[0] + after[0] + 1.0, before[3] + after[3] + value
    wd, wdd, wdy = after[1] - before[1], after[2] + before[2], after[4] - before[4]
    spread = w * wdd - wd * wd
    found = (wdd * wy - wd * wdy) / spread if spread > 0 else wy / w
    return found if math.isfinite(found) else value
