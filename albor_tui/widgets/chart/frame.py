"""Where things are on a chart, and its rows of cells: axes, canvas, marks, cursor. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from albor_core.run.light_dataclass import dataclass
from albor_tui.look import glyphs
from albor_tui.widgets.base.cells import Row, cells_of, row_of
from albor_tui.widgets.chart import ticks
from albor_tui.widgets.chart.data import Mark
from albor_tui.widgets.chart.lines import PointBeyond
from albor_tui.widgets.chart.plot import Canvas
from albor_tui.widgets.chart.ticks import Range

_ROOM_FOR_AXIS = 7  # rows: below that a line of its own for the axis costs too much of the canvas
_ENOUGH = 6  # parts of an axis: the round step above that is less than half of it
_APART = 3  # columns between two checkpoints or phases
_RANK = {kind: rank for rank, kind in enumerate(("checkpoint", "phase", "rewind", "restart"))}
_RANK |= {"warning": 8, "alert": 9}


@dataclass(frozen=True)
class ChartFrame:
    """Sizes in cells, limits, labels by row of the canvas and by column of it."""

    width: int
    height: int
    gutter: int
    has_axis_line: bool
    x: Range
    y: Range
    rows: tuple[tuple[int, str], ...] = ()
    columns: tuple[tuple[int, str], ...] = ()
    unit: str = ""
    scale: str = ""

    @property
    def canvas_width(self) -> int:
        return self.width - self.gutter

    @property
    def canvas_height(self) -> int:
        return self.height - (2 if self.has_axis_line else 1)

    def column(self, x: float) -> int | None:
        """The column of the canvas where a place on the axis is drawn; None beside it."""
        if not self.x.low <= x <= self.x.high:
            return None
        return round((x - self.x.low) / self.x.span * (self.canvas_width - 1))

    def x_of(self, column: float) -> float:
        """The place on the axis that a column of the canvas stands for."""
        return self.x.low + column / max(1, self.canvas_width - 1) * self.x.span


def measure(
    size: tuple[int, int], x: Range, y: Range, *, axis: str, is_log: bool, has_marks: bool
) -> ChartFrame:
    """The frame of a chart of `size` (width, height) cells over these limits."""
    width, height = size
    has_line = has_marks and height >= _ROOM_FOR_AXIS
    rows = _row_labels(y, height - (2 if has_line else 1), "log" if is_log else "linear")
    scale = "log" if is_log else ""
    unit = "tok" if axis == "tokens" else ""  # times carry theirs, steps need none
    least = max(1, len(unit), len(scale) if has_line else 0)
    gutter = max([len(text) for _, text in rows] + [least]) + 1
    columns = _column_labels(x, width - gutter, "time" if axis == "time" else "linear")
    return ChartFrame(width, height, gutter, has_line, x, y, rows, columns, unit, scale)


def _row_labels(y: Range, height: int, kind: str) -> tuple[tuple[int, str], ...]:
    positions = ticks.ticks(y, max(3 if height >= 5 else 2, height // 2), kind)
    last = max(1, height - 1)
    placed = {
        round((y.high - position) / y.span * last): text
        for position, text in zip(positions, ticks.labels(positions, kind), strict=True)
    }
    return tuple(sorted(placed.items()))


def _column_labels(x: Range, width: int, kind: str) -> tuple[tuple[int, str], ...]:
    """About one label in 12 columns, and two where two have room: one alone says nothing of how
    far it is to either end."""
    count = max(2, width // 12)
    found = _placed(x, width, kind, count)
    while len(found) < 2 and count < _ENOUGH:
        count += 1
        found = _placed(x, width, kind, count)
    return found


def _placed(x: Range, width: int, kind: str, count: int) -> tuple[tuple[int, str], ...]:
    positions = ticks.ticks(x, count, kind)
    placed: list[tuple[int, str]] = []
    free = 0
    for position, text in zip(positions, ticks.labels(positions, kind), strict=True):
        centre = round((position - x.low) / x.span * (width - 1))
        start = min(max(0, centre - len(text) // 2), max(0, width - len(text)))
        if start >= free:
            placed.append((start, text))
            free = start + len(text) + 2
    return tuple(placed)


@dataclass(frozen=True)
class Overlay:
    """What lies over the lines: places that were not finite, marks at their places, the cursor's
    place and what it reads, points beyond the y axis."""

    broken: tuple[float, ...] = ()
    marks: tuple[tuple[float, Mark], ...] = ()
    cursor: float | None = None
    reading: tuple[tuple[str, str], ...] = ()
    clips: tuple[PointBeyond, ...] = ()


def compose(frame: ChartFrame, canvas: Canvas, overlay: Overlay) -> list[Row]:
    """The rows of the whole chart."""
    labels = dict(frame.rows)
    rows = [_canvas_row(frame, canvas, y, labels.get(y)) for y in range(frame.canvas_height)]
    marks = _mark_cells(frame, overlay.marks)
    bottom = _label_row(frame)
    if frame.has_axis_line:
        rows.append(_axis_row(frame))
    for column, cell in marks.items():
        row, at = (rows[-1] if frame.has_axis_line else bottom), frame.gutter + column
        if frame.has_axis_line or all(c == " " for c, _ in row[at - 1 : at + 2]):
            row[at] = cell
    _draw_clips(frame, rows[: frame.canvas_height], overlay.clips)
    for place in overlay.broken:
        spot = frame.column(place)
        if spot is not None and rows:
            rows[0][frame.gutter + spot] = (glyphs.current.broken, "broken")
    if overlay.cursor is not None:
        _draw_cursor(frame, rows, overlay.cursor)
        bottom = row_of(frame.width, *overlay.reading)
    return [*rows, bottom]


def _canvas_row(frame: ChartFrame, canvas: Canvas, y: int, label: str | None) -> Row:
    g = glyphs.current
    cells = cells_of((label or "").rjust(frame.gutter - 1), "label")
    cells.append((g.axis if label is None else g.axis_tick, "axis"))
    ground = (g.grid, "grid") if label is not None and g.grid else (" ", "")
    for run in canvas[y] if y < len(canvas) else ():
        if run.tone:
            cells += [(character, run.tone) for character in run.text]
        else:
            cells += [ground] * len(run.text)
    return cells + [ground] * (frame.width - len(cells))


def _axis_row(frame: ChartFrame) -> Row:
    g = glyphs.current
    head = (frame.scale if len(frame.scale) < frame.gutter else "").rjust(frame.gutter - 1)
    line = g.axis_line * frame.canvas_width
    return row_of(frame.width, (head, "label"), (g.axis_corner, "axis"), (line, "axis"))


def _label_row(frame: ChartFrame) -> Row:
    line = [" "] * frame.canvas_width
    for column, text in frame.columns:
        line[column : column + len(text)] = text
    unit = frame.unit.rjust(frame.gutter - 1) + " "
    return row_of(frame.width, (unit, "unit"), ("".join(line), "label"))


def _mark_cells(
    frame: ChartFrame, marks: Sequence[tuple[float, Mark]]
) -> dict[int, tuple[str, str]]:
    """One cell per column, the most urgent mark of it; those that come often keep their distance,
    the newest first."""
    placed: dict[int, Mark] = {}
    for place, mark in sorted(marks, key=lambda pair: (-_RANK.get(pair[1].kind, 0), -pair[0])):
        column = frame.column(place)
        if column is None or column in placed:
            continue
        is_calm = mark.kind in ("checkpoint", "phase")
        if is_calm and not frame.has_axis_line:
            continue  # the labels need the room
        if is_calm and any(abs(column - other) < _APART for other in placed):
            continue
        placed[column] = mark
    return {column: (_mark_glyph(mark.kind), mark.kind) for column, mark in placed.items()}


def _mark_glyph(kind: str) -> str:
    g = glyphs.current
    if kind in ("alert", "warning"):
        return g.alert
    if kind == "restart":
        return g.restarting
    return {"rewind": g.mark_rewind, "phase": g.mark_phase}.get(kind, g.mark_checkpoint)


def _draw_clips(frame: ChartFrame, rows: list[Row], clips: Sequence[PointBeyond]) -> None:
    g = glyphs.current
    for clip in clips if rows else ():
        column = frame.column(clip.place)
        if column is not None:
            tone = "clip" if clip.tone == "raw" else clip.tone.removesuffix("-faint")
            row, glyph = (rows[0], g.arrow_up) if clip.is_above else (rows[-1], g.arrow_down)
            row[frame.gutter + column] = (glyph, tone)


def _draw_cursor(frame: ChartFrame, rows: list[Row], place: float) -> None:
    column = frame.column(place)
    if column is None:
        return
    at = frame.gutter + column
    for row in rows[: frame.canvas_height]:
        character, tone = row[at]
        if tone in ("", "grid"):
            row[at] = (glyphs.current.hair, "hair")
        elif tone != "broken":
            row[at] = (character, "hair")
