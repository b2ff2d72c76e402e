"""Places of a chart where something happened: extremes of its lines, and marks. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from albor_tui.widgets.chart.data import ChartData, Trace

MOST_EXTREMES = 20
_NEAR = 50  # of so many parts of a line one holds one extreme at the most
_AROUND = 12  # points on either side that say what is usual at a place
_NOISE = 5.0  # of what a value usually lies from the one before it: nearer is not an extreme
_SHARE = 0.02  # of how far the farthest lies out: nearer is not worth a key
_LEAST = 4  # points beside an end that say what is usual there
_FEW = 4  # lines of which every point is looked at
_Side = tuple[tuple[float, ...], float]  # the values of a line's lower or upper edge, their noise
_KINDS = ("alert", "warning", "restart", "rewind")


class Extreme(NamedTuple):
    """A place where a line lies far from its usual values: steps (one, or those of a bucket), the
    value, and how far out that is; or where something else happened, which has no value."""

    first: float
    last: float
    value: float | None
    distance: float = 0.0
    line: str = ""


def places_in(data: ChartData, lifted: str = "") -> tuple[Extreme, ...]:
    """Where something happened in a chart, in the order of steps: the farthest extremes of its
    lines, or of those that are lifted, alerts, restarts and rewinds."""
    lines = [trace for trace in data.traces if not trace.is_band]
    lines = [trace for trace in lines if lifted and trace.label == lifted] or lines
    is_many = len(lines) > _FEW
    far = [one for trace in lines for one in extremes_in(trace, is_quick=is_many)]
    reach = max((one.distance for one in far if one.distance < math.inf), default=0.0)
    far = [one for one in far if one.distance >= reach * _SHARE]
    far = sorted(far, key=lambda one: -one.distance)[:MOST_EXTREMES]
    marks = [
        Extreme(mark.step, mark.step, None)
        for mark in data.marks
        if mark.kind in _KINDS and not any(one.first <= mark.step <= one.last for one in far)
    ]
    return tuple(sorted((*far, *marks), key=lambda one: (one.first, one.last)))


def farthest(places: Sequence[Extreme]) -> Extreme | None:
    """The place that stands out most."""
    return max(places, key=lambda one: (one.distance, -one.first), default=None)


def next_place(places: Sequence[Extreme], step: float, direction: int) -> Extreme | None:
    """The next place after a step, or before it; at the end it goes on at the other one."""
    if direction > 0:
        return next((one for one in places if one.first > step), next(iter(places), None))
    back = places[::-1]
    return next((one for one in back if one.last < step), next(iter(back), None))


def extremes_in(trace: Trace, *, is_quick: bool = False) -> tuple[Extreme, ...]:
    """The extremes of a line, the farthest out first; what is not finite is farther than any. A
    quick look leaves out points that lie on the way between their neighbours."""
    count = len(trace.x)
    sides = tuple((side, _noise(side)) for side in (trace.low or trace.y, trace.high or trace.y))
    looked = _bends(trace, sides) if is_quick else range(count)
    far = [(*known, i) for i in looked if (known := _distance(trace, i, sides)) is not None]
    chosen: list[int] = []
    found: list[Extreme] = []
    apart = max(1, count // _NEAR)
    for distance, value, i in sorted(far, key=lambda one: (-one[0], one[2])):
        if len(found) == MOST_EXTREMES:
            break
        if all(abs(i - other) > apart for other in chosen):
            chosen.append(i)
            end = trace.x[i + 1] - 1 if trace.low and i + 1 < count else trace.x[i]
            last = max(end, trace.x[i])
            found.append(Extreme(trace.x[i], last, value, distance, trace.label))
    return tuple(found)


def _bends(trace: Trace, sides: tuple[_Side, ...]) -> list[int]:
    """Points that lie farther from the middle of their neighbours than is usual, ends, and what is
    not finite."""
    last = len(trace.x) - 1
    found = {0, last} if last >= 0 else set()
    found |= {i for i, bad in enumerate(trace.nonfinite) if bad}
    for values, noise in sides:
        for i in range(1, last):
            bend = values[i] - (values[i - 1] + values[i + 1]) / 2
            if not abs(bend) <= _NOISE * noise / 2:
                found.add(i)
    return sorted(found)


def _noise(values: tuple[float, ...]) -> float:
    """How far a value usually lies from the one before it."""
    gaps = sorted(abs(b - a) for a, b in pairwise(values) if math.isfinite(b - a))
    return gaps[len(gaps) // 2] if gaps else 0.0


def _distance(trace: Trace, i: int, sides: tuple[_Side, ...]) -> tuple[float, float] | None:
    """How far a point stands out, and its value there; None: it does not."""
    for value in (trace.y[i], *_ends(trace, i)):
        if not math.isfinite(value):
            return math.inf, value
    if _has_odd(trace, i):  # among others of its bucket, which have a mean
        return math.inf, math.nan
    best = max((_outside(values, i) - _NOISE * noise, values[i]) for values, noise in sides)
    return best if best[0] > 0 else None


def _outside(values: tuple[float, ...], i: int) -> float:
    """How far a value lies beyond what is usual before it and after it: nothing where a line
    falls or rises through it. At an end, how far beyond all that is near, where that is far.
    """
    before = [y for y in values[max(0, i - _AROUND) : i] if math.isfinite(y)]
    after = [y for y in values[i + 1 : i + 1 + _AROUND] if math.isfinite(y)]
    value = values[i]
    if before and after:
        usual = sorted((statistics.median(before), statistics.median(after)))
        return max(usual[0] - value, value - usual[1], 0.0)
    near = before or after
    if len(near) < _LEAST or any(near == sorted(near, reverse=way) for way in (False, True)):
        return 0.0
    beyond = max(min(near) - value, value - max(near), 0.0)
    return beyond if beyond > max(near) - min(near) else 0.0


def _ends(trace: Trace, i: int) -> tuple[float, float]:
    return (trace.low or trace.y)[i], (trace.high or trace.y)[i]


def _has_odd(trace: Trace, i: int) -> bool:
    return not math.isfinite(trace.y[i]) or bool(trace.nonfinite and trace.nonfinite[i])


def place_of(trace: Trace, one: Extreme) -> tuple[float, float, bool]:
    """First and last step of an extreme as finely as a line tells it, and whether that is exact."""
    if one.value is None:
        at = trace.nearest(one.first)
    else:
        inside = [i for i, x in enumerate(trace.x) if one.first <= x <= one.last]
        has_it = [
            i
            for i in inside
            if one.value in (*_ends(trace, i), trace.y[i])
            or (one.value != one.value and _has_odd(trace, i))
        ]
        at = next(iter(has_it or inside), None)
    if at is None:  # it is not among the data of this window
        return one.first, one.last, False
    following = trace.x[at + 1] if at + 1 < len(trace.x) else trace.x[at] + 1
    last = max(trace.x[at], following - 1)
    if one.value is None:
        return one.first, one.last, not (trace.low and last > trace.x[at])
    return trace.x[at], last, not (trace.low and last > trace.x[at])
