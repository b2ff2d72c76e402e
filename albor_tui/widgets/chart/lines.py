"""From series over steps to lines on an axis: buckets, smoothing, log. Pure.

Buckets are powers of two of steps on the grid of all steps, so a new point changes the last bucket
and no other, and what is drawn of an old one stays where it is while the axis does. A bucket keeps
minimum and maximum: a spike of one step is drawn at every zoom.
"""

from __future__ import annotations

import itertools
import math
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from albor_core.run.light_dataclass import dataclass
from albor_tui.widgets.chart.data import Look, Trace
from albor_tui.widgets.chart.plot import FAINT, MANY, MOST_KEPT, PlotLine
from albor_tui.widgets.chart.smoothing import smoothed
from albor_tui.widgets.chart.ticks import Range

DOTS = 2  # across a cell of braille
GAP = 8.0  # times the usual distance of neighbours: nothing was logged there
BESIDE = 0.5  # of a window on either side, where smoothing still reads
TAIL = 0.01  # of the values, at either end
_STANDS_OUT = 8.0  # times as far from the smoothed line as is usual
_SHARE = 0.1  # of how far the smoothed line goes: nearer to it is not a spike


@dataclass(frozen=True)
class DrawnLines:
    """Lines ready for the canvas, which of them are points and not smoothed, and the places on the
    x axis where a value was not finite."""

    lines: tuple[PlotLine, ...]
    points: tuple[PlotLine, ...]
    broken: tuple[float, ...]


class PointBeyond(NamedTuple):
    """A point beyond the y axis: its place on the x axis, whether it lies above, its tone."""

    place: float
    is_above: bool
    tone: str


class _Drawn(NamedTuple):
    """What one trace comes to."""

    raw: PlotLine
    smooth: PlotLine | None
    broken: tuple[float, ...]
    spikes: PlotLine | None = None  # the points that the smoothed line hides


def project(
    traces: Sequence[Trace], look: Look, x: Range, columns: int, lifted: str = ""
) -> DrawnLines:
    """The traces as `look` wants them, on a canvas `columns` cells wide over `x`. Of many noisy
    ones only the smoothed lines are drawn, and the points that stand out of them; of the one that
    is `lifted` all points. It lies on top, the others are faint."""
    is_many = len(traces) > MANY
    make = _memory.drawn if is_many else _drawn
    found = [make(trace, look, x, columns) for trace in traces]
    noisy = sum(one.smooth is not None for one in found)
    lines: list[PlotLine] = []
    over: list[PlotLine] = []
    points: list[PlotLine] = []
    for trace, (raw, smooth, _, spikes) in zip(traces, found, strict=True):
        if smooth is not None:
            over.append(smooth)
            if noisy > MANY and not (lifted and trace.label == lifted):
                shown = [smooth] if spikes is None else [smooth, spikes]
                lines += shown[1:]
                points += shown
                continue
            # the smoothed line tells which it is
            raw = replace(raw, tone="raw" if noisy == 1 else faint(trace.tone), dash=0, letter="")
        lines.append(raw)
        points.append(raw)
    ordered = (*lines, *over) if noisy > 1 else _under(lines, over)
    if lifted and any(line.label == lifted for line in ordered):
        ordered = _lift(ordered, lifted)
    broken = [place for one in found for place in one.broken]
    return DrawnLines(ordered, tuple(points), tuple(broken))


def faint(tone: str) -> str:
    """The tone of a line that lies under others."""
    return tone if tone.endswith(FAINT) else f"{tone}-faint"


def _lift(lines: Sequence[PlotLine], label: str) -> tuple[PlotLine, ...]:
    bands = [line for line in lines if line.is_band]
    rest = [line for line in lines if line.label != label and not line.is_band]
    lifted = [line for line in lines if line.label == label and not line.is_band]
    return (*bands, *(replace(line, tone=faint(line.tone)) for line in rest), *lifted)


def _drawn(trace: Trace, look: Look, x: Range, columns: int) -> _Drawn:
    cut = visible(trace, look, x)
    width = bucket_steps(cut, columns * DOTS)
    packed = bucketed(cut, width)
    raw = _on_scale(_placed(packed, look, x), look.is_log)
    tone = faint(trace.tone) if trace.is_band else trace.tone
    raw = replace(raw, tone=tone, letter=trace.letter, dash=trace.dash, is_band=trace.is_band)
    smooth = spikes = None
    if trace.is_noisy and look.weight:
        level = smoothed_line(trace, look, x, columns)
        line = replace(_placed(level, look, x), dash=trace.dash, letter=trace.letter)
        smooth = _on_scale(line, look.is_log)
        if (far := _standing_out(packed, level)) is not None:
            spikes = _on_scale(_placed(far, look, x), look.is_log)
    return _Drawn(raw, smooth, tuple(_broken(packed, look, x)), spikes)


def _standing_out(packed: Trace, smooth: Trace) -> Trace | None:
    """The points of a trace that lie far from its smoothed line, each with its neighbours, and
    nothing between them; None where there are none."""
    levels = dict(zip(smooth.x, smooth.y, strict=True))
    edges = zip(packed.x, packed.low or packed.y, packed.high or packed.y, strict=True)
    far = [max(high - levels.get(x, math.nan), levels.get(x, math.nan) - low)
           for x, low, high in edges]  # fmt: skip
    known = sorted(away for away in far if math.isfinite(away))
    finite = [y for y in smooth.y if math.isfinite(y)]
    if not known or not finite:
        return None
    least = max(_STANDS_OUT * known[len(known) // 2], _SHARE * (max(finite) - min(finite)))
    out = [i for i, away in enumerate(far) if math.isfinite(away) and away > least]
    if not out:
        return None
    kept = {i for at in out for i in (at - 1, at, at + 1)}

    def only(values: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(value if i in kept else math.nan for i, value in enumerate(values))

    return replace(packed, y=only(packed.y), low=only(packed.low), high=only(packed.high))


def smoothed_line(trace: Trace, look: Look, x: Range, columns: int) -> Trace:
    """The smoothed line of a trace, also of what is known of it beside the window: at the edges of
    the canvas it is what it is inside."""
    width = bucket_steps(visible(trace, look, x), columns * DOTS)
    wide = visible(trace, look, x, beside=BESIDE)
    packed = bucketed(replace(wide, nonfinite=()), width)
    return smoothed(replace(packed, low=(), high=()), look, x, look.weight)


class _Memory:
    """What each of many traces came to, the latest last: of a line that comes or goes among a
    hundred the others need not be made again. Any thread."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], tuple[Trace, _Drawn]] = {}
        self._lock = threading.Lock()

    def drawn(self, trace: Trace, look: Look, x: Range, columns: int) -> _Drawn:
        key = (id(trace), look.axis, look.smoothing, look.is_log, look.window, x, columns)
        with self._lock:
            known = self._known.pop(key, None)
        if known is None or known[0] is not trace:
            known = trace, _drawn(trace, look, x, columns)
        with self._lock:
            self._known[key] = known
            if len(self._known) > MOST_KEPT:
                del self._known[next(iter(self._known))]
        return known[1]


_memory = _Memory()


def _under(lines: list[PlotLine], over: list[PlotLine]) -> tuple[PlotLine, ...]:
    """The smoothed line right above its raw one, which is the lowest."""
    return (*lines[:1], *over, *lines[1:]) if lines and lines[0].tone == "raw" else (*lines, *over)


def visible(trace: Trace, look: Look, x: Range, beside: float = 0.0) -> Trace:
    """The part of a trace in the window, and that share of the window on either side, with the
    neighbour there, for the line to reach the edges."""
    if look.window is None or not trace.x:
        return trace
    room = x.span * beside
    first = max(0, bisect_left(trace.x, trace.step_at(x.low - room, look.axis)) - 1)
    end = bisect_right(trace.x, trace.step_at(x.high + room, look.axis)) + 1
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
    values = _values(lines)
    return (min(values), max(values)) if values else None


def usual(lines: Sequence[PlotLine]) -> tuple[float, float] | None:
    """The first and the last hundredth of the values drawn, so that a few do not press all others
    into a row."""
    values = sorted(_values(lines))
    if not values:
        return None
    last = len(values) - 1
    low, high = values[math.ceil(last * TAIL)], values[math.floor(last * (1 - TAIL))]
    return (low, high) if low <= high else (values[0], values[-1])


def _values(lines: Sequence[PlotLine]) -> list[float]:
    return [
        v
        for line in lines
        for part in (line.y, line.low, line.high)
        for v in part
        if math.isfinite(v)
    ]


def points_beyond(lines: Sequence[PlotLine], y: Range) -> tuple[PointBeyond, ...]:
    """The points that lie beyond the limits, where each is drawn at the edge."""
    found = []
    for line in lines:
        if not line.y or (min(line.low or line.y) >= y.low and max(line.high or line.y) <= y.high):
            continue
        edges = zip(line.x, line.low or line.y, line.high or line.y, strict=True)
        for place, low, high in edges:
            found += [PointBeyond(place, True, line.tone)] if y.high < high < math.inf else []
            found += [PointBeyond(place, False, line.tone)] if -math.inf < low < y.low else []
    return tuple(found)
