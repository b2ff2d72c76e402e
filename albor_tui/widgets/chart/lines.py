"""From series over steps to lines on an axis: buckets, smoothing, log. Pure.

Buckets are powers of two of steps on the grid of all steps, so a new point changes the last bucket
and no other, and what is drawn of an old one stays where it is while the axis does. A bucket keeps
minimum and maximum: a spike of one step is drawn at every zoom.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace

from albor_core.run.light_dataclass import dataclass
from albor_tui.widgets.chart.data import Look, Trace
from albor_tui.widgets.chart.plot import PlotLine
from albor_tui.widgets.chart.ticks import Range

DOTS = 2  # across a cell of braille
GAP = 8.0  # times the usual distance of neighbours: nothing was logged there
_PER_MILLE = 1000.0


@dataclass(frozen=True)
class DrawnLines:
    """Lines ready for the canvas, and the places on the x axis where a value was not finite."""

    lines: tuple[PlotLine, ...]
    broken: tuple[float, ...]


def project(traces: Sequence[Trace], look: Look, x: Range, columns: int) -> DrawnLines:
    """The traces as `look` wants them, on a canvas `columns` cells wide over `x`."""
    lines: list[PlotLine] = []
    over: list[PlotLine] = []
    broken: list[float] = []
    is_shared = sum(trace.is_noisy for trace in traces) > 1
    for trace in traces:
        cut = visible(trace, look, x)
        width = bucket_steps(cut, columns * DOTS)
        packed = bucketed(cut, width)
        broken += _broken(packed, look, x)
        raw = replace(_placed(packed, look, x), letter=trace.letter, dash=trace.dash)
        weight = look.weight
        if not trace.is_noisy or not weight:
            lines.append(raw)
            continue
        faint = "raw" if not is_shared else f"{trace.tone}-faint"
        lines.append(replace(raw, tone=faint, dash=0))  # the smoothed line tells which it is
        smooth = smoothed(replace(packed, low=(), high=()), look, x, weight)
        over.append(replace(_placed(smooth, look, x), dash=trace.dash))
    ordered = (*lines, *over) if is_shared else _under(lines, over)
    return DrawnLines(tuple(_on_scale(line, look.is_log) for line in ordered), tuple(broken))


def _under(lines: list[PlotLine], over: list[PlotLine]) -> tuple[PlotLine, ...]:
    """The smoothed line right above its raw one, which is the lowest."""
    return (*lines[:1], *over, *lines[1:]) if lines and lines[0].tone == "raw" else (*lines, *over)


def visible(trace: Trace, look: Look, x: Range) -> Trace:
    """The part of a trace in the window and the neighbour on either side, for the line to reach
    the edges."""
    if look.window is None or not trace.x:
        return trace
    first = max(0, bisect_left(trace.x, trace.step_at(x.low, look.axis)) - 1)
    end = bisect_right(trace.x, trace.step_at(x.high, look.axis)) + 1
    return replace(
        trace,
        x=trace.x[first:end],
        y=trace.y[first:end],
        low=trace.low[first:end],
        high=trace.high[first:end],
        nonfinite=trace.nonfinite[first:end],
    )


def bucket_steps(trace: Trace, places: int) -> int:
    """Steps per bucket for at most `places` buckets; 1 where the points are few enough."""
    if len(trace.x) <= places:
        return 1
    return int(2 ** max(0, math.ceil(math.log2((trace.x[-1] - trace.x[0] + 1) / places))))


def bucketed(trace: Trace, width: int) -> Trace:
    """The trace in buckets of `width` steps, each at its first point; it is itself at width 1."""
    if width <= 1:
        return trace
    lows, highs = trace.low or trace.y, trace.high or trace.y
    xs, ys, low, high, bad = [], [], [], [], []
    for i, j in _places(trace.x, width):
        finite = [y for y in trace.y[i:j] if math.isfinite(y)]
        xs.append(trace.x[i])
        ys.append(sum(finite) / len(finite) if finite else math.nan)
        low.append(min((v for v in lows[i:j] if v == v), default=math.nan))
        high.append(max((v for v in highs[i:j] if v == v), default=math.nan))
        lost = (j - i) - len(finite)
        bad.append(lost + sum(trace.nonfinite[i:j]))
    return replace(
        trace,
        x=tuple(xs),
        y=tuple(ys),
        low=tuple(low),
        high=tuple(high),
        nonfinite=tuple(bad),
    )


def _places(steps: Sequence[float], width: int) -> Iterator[tuple[int, int]]:
    i = 0
    while i < len(steps):
        j = bisect_left(steps, (steps[i] // width + 1) * width, i)
        yield i, j
        i = j


def smoothed(trace: Trace, look: Look, x: Range, weight: float) -> Trace:
    """Exponential moving average, bias-corrected (Kingma & Ba 2015, section 3) so that it starts at
    the first value; `weight` is kept over each thousandth of the axis. Values that are not finite
    do not enter, and there the line pauses."""
    total = share = 0.0
    before: float | None = None
    ys = []
    for step, value in zip(trace.x, trace.y, strict=True):
        if not math.isfinite(value):
            ys.append(math.nan)
            continue
        place = trace.x_at(step, look.axis)
        gone = 1.0 if before is None else max(0.0, (place - before) / x.span * _PER_MILLE)
        keep = weight**gone
        total, share = keep * total + (1 - keep) * value, keep * share + (1 - keep)
        before = place
        ys.append(total / share if share else value)
    return replace(trace, y=tuple(ys), nonfinite=())


def _placed(trace: Trace, look: Look, x: Range) -> PlotLine:
    """The line on the x axis, cut at the axis's ends, with a break at each gap."""
    xs = [trace.x_at(step, look.axis) for step in trace.x]
    points: list[tuple[float, float, float, float]] = []
    widest = _widest(trace.x)
    for i, (place, y) in enumerate(zip(xs, trace.y, strict=True)):
        low = trace.low[i] if trace.low else y
        high = trace.high[i] if trace.high else y
        if i and trace.x[i] - trace.x[i - 1] > widest:
            points.append(((place + xs[i - 1]) / 2, math.nan, math.nan, math.nan))
        elif i and (crossing := _crossings(xs[i - 1], trace.y[i - 1], place, y, x)):
            points += [(at, value, value, value) for at, value in crossing]
        if x.low <= place <= x.high:
            points.append((place, y, low, high))
    if not points:
        return PlotLine(trace.tone, (), (), trace.label)
    columns = [tuple(column) for column in zip(*points, strict=True)]
    if trace.low:
        return PlotLine(trace.tone, columns[0], columns[1], trace.label, columns[2], columns[3])
    return PlotLine(trace.tone, columns[0], columns[1], trace.label)


def _widest(steps: Sequence[float]) -> float:
    """The longest distance of neighbours that is not a gap."""
    if len(steps) < 8:
        return math.inf
    distances = sorted(b - a for a, b in itertools.pairwise(steps))
    return max(distances[len(distances) // 2] * GAP, (steps[-1] - steps[0]) / 50)


def _crossings(
    x0: float, y0: float, x1: float, y1: float, limits: Range
) -> list[tuple[float, float]]:
    """The points at which the line between two points crosses the ends of the axis."""
    return [
        (edge, y0 + (y1 - y0) * (edge - x0) / (x1 - x0))
        for edge in (limits.low, limits.high)
        if x0 < edge < x1 and math.isfinite(y0 + y1)
    ]


def _broken(trace: Trace, look: Look, x: Range) -> list[float]:
    """Places where something was not finite: a NaN among others in a bucket counts too."""
    found = []
    for i, y in enumerate(trace.y):
        ends = (trace.low[i], trace.high[i]) if trace.low else ()
        counted = bool(trace.nonfinite and trace.nonfinite[i])
        if counted or not math.isfinite(y) or any(math.isinf(end) for end in ends):
            place = trace.x_at(trace.x[i], look.axis)
            if x.low <= place <= x.high:
                found.append(place)
    return found


def _on_scale(line: PlotLine, is_log: bool) -> PlotLine:
    """Values as the y axis counts them; what has no logarithm is not drawn."""
    if not is_log:
        return line
    return replace(
        line,
        y=tuple(map(_log, line.y)),
        low=tuple(map(_log, line.low)),
        high=tuple(map(_log, line.high)),
    )


def _log(value: float) -> float:
    return math.log10(value) if value > 0 and math.isfinite(value) else math.nan


def snapped(line: PlotLine, x: Range, y: Range, columns: int, rows: int) -> PlotLine:
    """The line with its places on a grid four times finer than the dots of a canvas: it looks the
    same, and news that changes no dot makes an equal line, which need not be drawn."""
    across, up = x.span / (columns * DOTS * 4), y.span / (rows * 16)

    def snap(value: float, low: float, grain: float) -> float:
        return low + round((value - low) / grain) * grain if math.isfinite(value) else math.nan

    def snap_y(values: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(snap(value, y.low, up) for value in values)

    return replace(
        line,
        # the grid's last place may round to just beyond the axis, where nothing is drawn
        x=tuple(min(snap(value, x.low, across), x.high) for value in line.x),
        y=snap_y(line.y),
        low=snap_y(line.low),
        high=snap_y(line.high),
    )


def extremes(lines: Sequence[PlotLine]) -> tuple[float, float] | None:
    """The lowest and highest finite value drawn."""
    values = [
        v
        for line in lines
        for part in (line.y, line.low, line.high)
        for v in part
        if math.isfinite(v)
    ]
    return (min(values), max(values)) if values else None
