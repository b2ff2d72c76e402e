"""What the cursor of a chart reads: the step and the exact value of each line there. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.cells import cell_len

from albor_core.run.values.clean import clean
from albor_tui.look import quantity
from albor_tui.widgets.chart.data import Look, Mark, Trace
from albor_tui.widgets.chart.extremes import Extreme
from albor_tui.widgets.chart.lines import smoothed_line
from albor_tui.widgets.chart.ticks import Range

Piece = tuple[str, str]  # words, tone
FEW = 3  # lines of which each has its name beside its value
LABEL = 24  # characters of the name of a lifted one


def exact(value: float, digits: int = 6) -> str:
    """A value as it was logged, to so many significant digits; NaN and Inf are words."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if value == int(value) and abs(value) < 1e9:
        return f"{int(value):,}"
    return f"{value:,.{digits}g}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")


def reading(
    traces: Sequence[Trace],
    marks: Sequence[Mark],
    look: Look,
    x: Range,
    size: tuple[int, int],
    lifted: str = "",
    place: Extreme | None = None,
) -> tuple[Piece, ...]:
    """The line under a chart whose cursor is on. `size`: columns of the canvas, cells to fill.

    Where there is no room names go first, then what happened there, then values from the right. Of
    many lines each has its name and value, in its colour, from the top one down. The line of the
    extreme that the cursor was moved to comes first, and keeps its name.
    """
    if look.cursor is None or not traces:
        return ()
    columns, room = size
    words: list[Piece] = [(mark.words, mark.kind) for mark in marks]
    if len(traces) > FEW:
        return _values_of_many(traces, words, look, room, lifted, place)
    if place is not None and place.value is not None:
        traces = sorted(traces, key=lambda trace: trace.label != place.line)
    named = [_value(trace, look, x, columns) for trace in traces]
    for trace, pieces in zip(traces[1:], named[1:], strict=True):
        pieces += _elsewhere(trace, traces[0], look.cursor)
    values = [piece for pieces in named for piece in pieces]
    urgent = [piece for piece in words if piece[1] not in ("checkpoint", "phase")]
    bare = [piece for piece in values if piece[1] != "label"]
    if place is not None and named[0] and (place.line, "label") == named[0][0]:
        bare.insert(0, named[0][0])
    for places in (_places(traces[0], look), _places(traces[0], look)[:1]):
        for shown in ([*values, *words], [*values, *urgent], [*bare, *words], [*bare, *urgent]):
            if _length(line := [*places, *shown]) <= room:
                return _joined(line)
    return _joined([(quantity.count(look.cursor), "label"), *bare, *urgent[:1]])


def _values_of_many(
    traces: Sequence[Trace],
    words: Sequence[Piece],
    look: Look,
    room: int,
    lifted: str,
    place: Extreme | None,
) -> tuple[Piece, ...]:
    assert look.cursor is not None
    value = None if place is None else place.value
    first = place.line if place is not None and value is not None else None
    line: list[Piece] = [(f"step {quantity.count(look.cursor)}", "label")]
    known, extreme = [], []
    for trace in reversed(traces):
        i = None if trace.is_band else _there(trace, look.cursor)
        if i is None:
            continue
        name = trace.letter or clean(trace.label, limit=LABEL)
        if value is not None and trace.label == first:
            extreme = [(name, "label"), (exact(value), trace.tone)]
        elif lifted and trace.label == lifted:
            line += [(name, "label"), (exact(trace.y[i]), trace.tone)]
        else:
            known.append((f"{name} {exact(trace.y[i], digits=4)}", trace.tone))
    line[1:1] = extreme
    return _fitting(line, known, words, room)


def _fitting(
    line: list[Piece], values: list[Piece], words: Sequence[Piece], room: int
) -> tuple[Piece, ...]:
    """As many values as fit, and how many more there are; what happened if it has room beside."""
    for shown in range(min(len(values), room // 3), -1, -1):
        left = len(values) - shown
        rest: list[Piece] = [(f"+{left} more", "label")] if left else []
        for more in (words, ()):
            if _length(whole := [*line, *values[:shown], *rest, *more]) <= room:
                return _joined(whole)
    return _joined(line)


def _there(trace: Trace, step: float) -> int | None:
    """The place of the point at a step, where the line goes that far."""
    if not trace.x or not trace.x[0] <= step <= trace.x[-1]:
        return None
    return trace.nearest(step)


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
        smooth = smoothed_line(trace, look, x, columns)
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
    return sum(cell_len(words) + 2 for words, _ in pieces) - 2


def _joined(pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    found: list[Piece] = []
    for words, tone in pieces:
        found += [("  ", "label")] if found else []
        found.append((words, tone))
    return tuple(found)
