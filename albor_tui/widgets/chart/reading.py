"""What the cursor of a chart reads: the step and the exact value of each line there. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from albor_tui.look import quantity
from albor_tui.widgets.chart.data import Look, Mark, Trace
from albor_tui.widgets.chart.lines import DOTS, bucket_steps, bucketed, smoothed, visible
from albor_tui.widgets.chart.ticks import Range

Piece = tuple[str, str]  # words, tone


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
