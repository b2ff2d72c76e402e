"""A line chart with round ticks, drawn only where it changed.

The one widget that knows of plotting. `data` goes in, the plotting thread draws, and the rows whose
cells differ are refreshed. Points that are NaN or infinite break their line and leave a mark at the
top edge: they are events, not gaps.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field

from rich.segment import Segment
from rich.style import Style
from textual import on, work
from textual.content import Content
from textual.geometry import Region
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip
from textual.widget import Widget
from textual.worker import Worker, WorkerState

from albor_tui import glyphs, plot, ticks
from albor_tui.plot import Canvas, Job, Line, Run
from albor_tui.ticks import Range
from albor_tui.widgets.dirty import Cell, changed_runs

TONES = ("raw", "main", "val", "second", "third", "fourth")


@dataclass(frozen=True)
class ChartData:
    """Lines from the bottom layer to the top; a growing chart reserves room at its right."""

    lines: tuple[Line, ...] = ()
    is_growing: bool = True
    empty: str = "no points yet"


@dataclass(frozen=True)
class _Frame:
    """Where things are: size, limits, ticks by row and by column."""

    width: int
    height: int
    gutter: int
    x: Range
    y: Range
    rows: dict[int, str] = field(default_factory=dict)
    columns: tuple[tuple[int, str], ...] = ()
    broken: tuple[int, ...] = ()


class Chart(Widget, can_focus=True):
    """Draws `data`; colours come from the component classes `chart--<tone>`."""

    ALLOW_MAXIMIZE = True
    COMPONENT_CLASSES = {f"chart--{tone}" for tone in TONES} | {
        "chart--axis",
        "chart--label",
        "chart--grid",
        "chart--broken",
        "chart--empty",
    }
    data: reactive[ChartData] = reactive(ChartData(), init=False, repaint=False)

    @dataclass
    class Painted(Message):
        """A canvas has come back from the plotting thread."""

        job: Job
        frame: _Frame
        canvas: Canvas

    def __init__(self, heading: str = "", *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.border_title = Content(heading)
        self._job: Job | None = None
        self._painted: Job | None = None
        self._frame: _Frame | None = None
        self._canvas: Canvas = ()
        self._limits: tuple[Range | None, Range | None] = (None, None)

    @property
    def is_painted(self) -> bool:
        """Whether the screen shows the newest data."""
        return self._painted is self._job if self._has_points() else self._frame is None

    def watch_data(self) -> None:
        self._request()

    def on_resize(self) -> None:
        self._request()

    def _has_points(self) -> bool:
        return any(math.isfinite(y) for line in self.data.lines for y in line.y)

    def _request(self) -> None:
        width, height = self.content_size
        if width < 12 or height < 3 or not self._has_points():
            self._job, self._frame, self._canvas = None, None, ()
            self.refresh()
            return
        frame = self._measure(width, height)
        lines = self.data.lines
        job = Job(
            lines,
            frame.width - frame.gutter,
            frame.height - 1,
            frame.x,
            frame.y,
            glyphs.current.is_ascii,
        )
        if job != self._job:
            self._job = job
            self._paint(job, frame)

    @work(exclusive=True, group="paint", exit_on_error=False)
    async def _paint(self, job: Job, frame: _Frame) -> None:
        canvas = await asyncio.wrap_future(plot.submit(job))
        self.post_message(self.Painted(job, frame, canvas))

    @on(Painted)
    def _show(self, message: Painted) -> None:
        message.stop()
        if message.job is not self._job:
            return
        old, old_frame = self._canvas, self._frame
        self._canvas, self._frame = message.canvas, message.frame
        self._painted = message.job
        if old_frame is None or not _same_axes(old_frame, message.frame):
            self.refresh()
            return
        left = message.frame.gutter
        changed = [
            Region(left + a, y, b - a, 1)
            for y, (before, after) in enumerate(zip(old, self._canvas, strict=True))
            if before != after
            for a, b in changed_runs(_cells(before), _cells(after))
        ]
        if old_frame.broken != message.frame.broken:
            changed.append(Region(0, 0, message.frame.width, 1))
        if changed:
            self.refresh(*changed)

    @on(Worker.StateChanged)
    def _report(self, event: Worker.StateChanged) -> None:
        if event.state is WorkerState.ERROR:
            self.border_subtitle = Content(f"cannot draw: {type(event.worker.error).__name__}")

    def _measure(self, width: int, height: int) -> _Frame:
        xs = [x for line in self.data.lines for x in (line.x[:1] + line.x[-1:])]
        lows, highs = _extremes(self.data.lines)
        x = self._x_range(min(xs), max(xs))
        y = ticks.hold(self._limits[1], lows, highs)
        self._limits = (x, y)
        rows = _row_labels(y, height - 1)
        gutter = max((len(text) for text in rows.values()), default=1) + 1
        columns = _column_labels(x, width - gutter)
        broken = _broken_columns(self.data.lines, x, width - gutter)
        return _Frame(width, height, gutter, x, y, rows, columns, broken)

    def _x_range(self, first: float, last: float) -> Range:
        start = 0.0
        if first > last / 2:  # only the newest part is known: start at a round place that stays
            grain = 2.0 ** math.floor(math.log2(max(last - first, 1.0)))
            start = math.floor(first / grain) * grain
        if self.data.is_growing:
            return ticks.reach(last, start)
        return Range(start, last if last > start else start + 1)

    def render_line(self, y: int) -> Strip:
        width = self.content_size.width
        if self._frame is None or self._frame.width != width:
            return self._empty_line(y, width)
        frame = self._frame
        if y < len(self._canvas):
            return Strip(self._canvas_line(y, frame)).adjust_cell_length(width, self._style())
        return Strip(self._label_line(frame)).adjust_cell_length(width, self._style())

    def _style(self, name: str = "") -> Style:
        return self.get_component_rich_style(f"chart--{name}") if name else self.rich_style

    def _canvas_line(self, y: int, frame: _Frame) -> list[Segment]:
        g = glyphs.current
        label = frame.rows.get(y)
        axis = g.axis_tick if label is not None else g.axis
        segments = [
            Segment((label or "").rjust(frame.gutter - 1), self._style("label")),
            Segment(axis, self._style("axis")),
        ]
        ground = g.grid if label is not None and g.grid else ""
        for run in self._canvas[y]:
            if run.tone:
                segments.append(Segment(run.text, self._style(run.tone)))
            elif ground:
                segments.append(Segment(ground * len(run.text), self._style("grid")))
            else:
                segments.append(Segment(run.text, self._style()))
        if y == 0 and frame.broken:
            return self._with_marks(segments, frame)
        return segments

    def _with_marks(self, segments: list[Segment], frame: _Frame) -> list[Segment]:
        strip = Strip(segments)
        mark = Strip([Segment(glyphs.current.broken, self._style("broken"))])
        pieces, start = [], 0
        for column in frame.broken:
            at = frame.gutter + column
            pieces += [strip.crop(start, at), mark]
            start = at + 1
        pieces.append(strip.crop(start, frame.width))
        return list(Strip.join(pieces))

    def _label_line(self, frame: _Frame) -> list[Segment]:
        line = [" "] * frame.width
        for column, text in frame.columns:
            line[frame.gutter + column : frame.gutter + column + len(text)] = text
        return [Segment("".join(line), self._style("label"))]

    def _empty_line(self, y: int, width: int) -> Strip:
        text = self.data.empty if y == self.content_size.height // 2 else ""
        shown = "" if self._has_points() else text[:width].center(width)
        return Strip([Segment(shown.ljust(width), self._style("empty"))])


def _cells(row: tuple[Run, ...]) -> list[Cell]:
    return [(character, run.tone) for run in row for character in run.text]


def _same_axes(a: _Frame, b: _Frame) -> bool:
    return (a.width, a.height, a.x, a.y) == (b.width, b.height, b.x, b.y)


def _extremes(lines: tuple[Line, ...]) -> tuple[float, float]:
    values = [
        v
        for line in lines
        for part in (line.y, line.low, line.high)
        for v in part
        if math.isfinite(v)
    ]
    return min(values), max(values)


def _row_labels(y: Range, height: int) -> dict[int, str]:
    positions = ticks.ticks(y, max(2, int(height / 2.5)))
    texts = ticks.labels(positions)
    last = max(1, height - 1)
    placed: dict[int, str] = {}
    for position, text in zip(positions, texts, strict=True):
        placed[round((y.high - position) / y.span * last)] = text
    return placed


def _column_labels(x: Range, width: int) -> tuple[tuple[int, str], ...]:
    positions = ticks.ticks(x, max(2, width // 12))
    placed: list[tuple[int, str]] = []
    free = 0
    for position, text in zip(positions, ticks.labels(positions), strict=True):
        centre = round((position - x.low) / x.span * (width - 1))
        start = min(max(0, centre - len(text) // 2), width - len(text))
        if start >= free:
            placed.append((start, text))
            free = start + len(text) + 2
    return tuple(placed)


def _broken_columns(lines: tuple[Line, ...], x: Range, width: int) -> tuple[int, ...]:
    found = {
        round((at - x.low) / x.span * (width - 1))
        for line in lines
        for at, value in zip(line.x, line.y, strict=True)
        if not math.isfinite(value) and x.low <= at <= x.high
    }
    return tuple(sorted(found))
