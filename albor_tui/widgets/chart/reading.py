"""What the cursor of a chart reads: the step and the exact value of each line there. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from albor_tui.look import quantity
from albor_tui.widgets.chart.data import Look, Mark, Trace
from albor_tui.widgets.chart.lines import DOTS, bucket_steps, bucketed, smoothed, visible
from albor_tui.widgets.chart.ticks import Range

Piece = tuple[str, str]  # words, tone
MOST_EXTREMES = 20
_NEAR = 50  # of so many parts of a line one holds one extreme at the most
_AROUND = 12  # points on either side that say what is usual at a place
_NOISE = 3.0  # of what a value usually lies from the one before it: nearer is not an extreme
_LEAST = 4  # points beside an end that say what is usual there


class Extreme(NamedTuple):
    """A place where a line lies far from its usual values: steps (one, or those of a bucket), and
    the value."""

    first: float
    last: float
    value: float


def extremes_in(trace: Trace) -> tuple[Extreme, ...]:
    """The extremes of a line, the farthest out first; what is not finite is farther than any."""
    count = len(trace.x)
    sides = tuple((side, _noise(side)) for side in (trace.low or trace.y, trace.high or trace.y))
    far = [(*known, i) for i in range(count) if (known := _distance(trace, i, sides)) is not None]
    chosen: list[int] = []
    found: list[Extreme] = []
    apart = max(1, count // _NEAR)
    for _, value, i in sorted(far, key=lambda one: (-one[0], one[2])):
        if len(found) == MOST_EXTREMES:
            break
        if all(abs(i - other) > apart for other in chosen):
            chosen.append(i)
            end = trace.x[i + 1] - 1 if trace.low and i + 1 < count else trace.x[i]
            found.append(Extreme(trace.x[i], max(end, trace.x[i]), value))
    return tuple(found)


_Side = tuple[tuple[float, ...], float]  # the values of a line's lower or upper edge, their noise


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
    return trace.x[at], last, not (trace.low and last > trace.x[at])


def exact(value: float) -> str:
    """A value as it was logged, to six significant digits; NaN and Inf are words."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if value == int(value) and abs(value) < 1e9:
        return f"{int(value):,}"
    return f"{value:,.6g}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")


def reading(
    traces: Sequence[Trace], marks: Sequence[Mark], look: Look, x: Range, size: tuple[int, int]
) -> tuple[Piece, ...]:
    """The line under a chart whose cursor is on. `size`: columns of the canvas, cells to fill.

    Where there is no room names go first, then what happened there, then values from the right.
    """
    if look.cursor is None or not traces:
        return ()
    columns, room = size
    named = [_value(trace, look, x, columns) for trace in traces]
    for trace, pieces in zip(traces[1:], named[1:], strict=True):
        pieces += _elsewhere(trace, traces[0], look.cursor)
    values = [piece for pieces in named for piece in pieces]
    words: list[Piece] = [(mark.words, mark.kind) for mark in marks]
    urgent = [piece for piece in words if piece[1] not in ("checkpoint", "phase")]
    bare = [piece for piece in values if piece[1] != "label"]
    for places in (_places(traces[0], look), _places(traces[0], look)[:1]):
        for shown in ([*values, *words], [*values, *urgent], [*bare, *words], [*bare, *urgent]):
            if _length(line := [*places, *shown]) <= room:
                return _joined(line)
    return _joined([(quantity.count(look.cursor), "label"), *bare, *urgent[:1]])


def _places(trace: Trace, look: Look) -> list[Piece]:
    """The step, or the steps of the bucket, and where that lies on another x axis."""
    assert look.cursor is not None
    i = trace.nearest(look.cursor)
    step = look.cursor if i is None else trace.x[i]
    text = f"{'second' if trace.unit == 'seconds' else 'step'} {quantity.count(step)}"
    if i is not None and trace.low and i + 1 < len(trace.x) and trace.x[i + 1] - step > 1:
        text += f"..{quantity.count(trace.x[i + 1] - 1)}"
    pieces: list[Piece] = [(text, "label")]
    place = trace.x_at(step, look.axis)
    if look.axis == "tokens" and "tokens" in trace.rulers:
        pieces.append((f"{quantity.si(place)} tok", "label"))
    elif look.axis == "time" and "time" in trace.rulers:
        pieces.append((quantity.duration(place), "label"))
    return pieces


def _value(trace: Trace, look: Look, x: Range, columns: int) -> list[Piece]:
    assert look.cursor is not None
    i = trace.nearest(look.cursor)
    if i is None:
        return []
    pieces: list[Piece] = [(trace.label, "label")] if trace.label else []
    is_smooth = trace.is_noisy and look.weight > 0
    has_range = bool(trace.low) and trace.high[i] > trace.low[i]
    if has_range:
        pieces.append(("mean", "label"))
    pieces.append((exact(trace.y[i]), "value-raw" if is_smooth else trace.tone))
    if has_range:
        pieces.append((f"min {exact(trace.low[i])}  max {exact(trace.high[i])}", "label"))
    if is_smooth:
        cut = visible(trace, look, x)
        packed = bucketed(cut, bucket_steps(cut, columns * DOTS))
        smooth = smoothed(replace(packed, low=(), high=()), look, x, look.weight)
        k = smooth.nearest(look.cursor)
        if k is not None:
            pieces += [("smoothed", "label"), (exact(smooth.y[k]), trace.tone)]
    return pieces


def _elsewhere(trace: Trace, first: Trace, cursor: float) -> list[Piece]:
    """The step of a value that is not of the step the line begins with."""
    i, k = trace.nearest(cursor), first.nearest(cursor)
    if i is None or k is None or trace.x[i] == first.x[k]:
        return []
    return [(f"at {quantity.count(trace.x[i])}", "label")]


def _length(pieces: Sequence[Piece]) -> int:
    return sum(len(words) + 2 for words, _ in pieces) - 2


def _joined(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    found: list[Piece] = []
    for words, tone in pieces:
        found += [("  ", "label")] if found else []
        found.append((words, tone))
    return tuple(found)
