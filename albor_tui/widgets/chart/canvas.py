"""A line chart that draws itself: axes, canvas, marks and cursor, and no more often than it must.

The one widget that knows of plotting. `data` goes in, the plotting thread draws, and the cells that
differ are refreshed. News is drawn at a pace, what the user asked for at once. Points that are
NaN or infinite break their line and leave a mark at the top edge: they are events, not gaps.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

from textual import log, on
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.timer import Timer

from albor_core.run.light_dataclass import dataclass
from albor_tui.look import glyphs, quantity
from albor_tui.look.run_colours import RUN_TONES
from albor_tui.widgets.base.cells import CellWidget, words_in_the_middle
from albor_tui.widgets.chart import plot, ticks
from albor_tui.widgets.chart.data import X_AXES, ChartData, Look, Trace
from albor_tui.widgets.chart.extremes import Extreme
from albor_tui.widgets.chart.frame import ChartFrame, Overlay, compose, measure
from albor_tui.widgets.chart.lines import (
    DrawnLines,
    PointBeyond,
    extremes,
    points_beyond,
    project,
    snapped,
    usual,
)
from albor_tui.widgets.chart.plot import MANY, Canvas, PlotJob
from albor_tui.widgets.chart.reading import reading
from albor_tui.widgets.chart.ticks import Range

TONES = ("raw", *RUN_TONES)
KINDS = ("alert", "warning", "restart", "rewind", "checkpoint", "phase")
PACE_S = 2.0  # between two drawings of news: each costs about 1 KB on the link
NEAR_ROWS = 1.5  # from a line to the pointer that lifts it
BURST = 3  # drawings of a new subject that do not wait: its history comes in pieces


class ChartCanvas(CellWidget):
    """Draws `data` as `look` says; colours come from the component classes `chart--<tone>`."""

    PREFIX = "chart"
    COMPONENT_CLASSES = {f"chart--{name}" for name in (*TONES, *KINDS)} | {
        *(f"chart--{tone}-faint" for tone in TONES),
        *("chart--axis", "chart--label", "chart--grid", "chart--hair", "chart--unit"),
        *("chart--broken", "chart--empty", "chart--value-raw", "chart--clip"),
    }
    data: reactive[ChartData] = reactive(ChartData(), init=False, repaint=False)
    look: reactive[Look] = reactive(Look(), init=False, repaint=False)

    @dataclass
    class Painted(Message):
        """A canvas has come back from the plotting thread."""

        job: PlotJob
        frame: ChartFrame
        drawn: DrawnLines
        canvas: Future[Canvas]

    @dataclass
    class LinesReady(Message):
        """The lines of many traces have come from the plotting thread."""

        drawn: Future[DrawnLines]

    def __init__(
        self, heading: str = "", *, id: str | None = None, classes: str | None = None
    ) -> None:
        super().__init__(id=id, classes=classes)
        self._title = Content(heading)
        self._scale = Content("")
        self.border_title = Content(heading)
        self._job: PlotJob | None = None
        self._painted: PlotJob | None = None
        self._drawing: Future[Canvas] | None = None
        self._drawn_for: tuple[Size, ChartData, Look] | None = None
        self.frame: ChartFrame | None = None
        self._canvas: Canvas = ()
        self._awaited: Future[DrawnLines] | None = None
        self._broken: tuple[float, ...] = ()
        self._clips: tuple[PointBeyond, ...] = ()
        self._y: Range | None = None
        self._pointed = ""
        self._drawings, self._newest = 0, -math.inf
        self._timer: Timer | None = None

    def entitle(self, title: Content) -> None:
        """Set the border title, once: setting it repaints the whole chart."""
        if not title.is_same(self._title):
            self._title = title
            self.border_title = Content.assemble(title)

    def _subtitle(self) -> None:
        """Say on the lower border how the y axis counts, and what it leaves out, once."""
        words = scale_note(self.look, self._clips)
        if not words.is_same(self._scale):
            self._scale = words
            self.border_subtitle = Content.assemble(words)

    @property
    def is_painted(self) -> bool:
        """Whether the screen shows the newest data."""
        if self._timer is not None or self._awaited is not None:
            return False
        return self._painted is self._job if self.data.has_points else self.frame is None

    @property
    def axis(self) -> str:
        """The x axis in use: steps where the one asked for is not known."""
        return self.look.axis if self.look.axis in self.axes else "step"

    @property
    def x_word(self) -> str:
        """The unit of the x axis: seconds, if the drawn curves have no steps."""
        units = {trace.unit for trace in self.data.traces}
        return "seconds" if self.axis == "step" and units == {"seconds"} else self.axis

    @property
    def axes(self) -> tuple[str, ...]:
        """The x axes that these data have."""
        known = {name for trace in self.data.traces for name in trace.rulers}
        return tuple(name for name in X_AXES if name == "step" or name in known)

    def watch_data(self, old: ChartData, new: ChartData) -> None:
        if old.subject != new.subject:
            self._drawings, self._y, self._pointed = 0, None, ""
        elif old.lines and new.lines:
            self.has_grown(old)
        if not new.draws_alike(old):
            self._drawings = 0  # what the user asked for comes at once
        wait = PACE_S - (time.monotonic() - self._newest)
        if self._drawings < BURST or wait <= 0 or not old.has_points:
            self._draw_news()
        elif self._timer is None:
            self._timer = self.set_timer(wait, self._draw_news)

    def has_grown(self, old: ChartData) -> None:
        """The data went on from `old`: where a subclass moves the look along."""

    def _draw_news(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        self._drawings, self._newest = self._drawings + 1, time.monotonic()
        self._request()

    def watch_look(self, old: Look, new: Look) -> None:
        if replace(old, cursor=None) != replace(new, cursor=None):
            if (old.is_log, old.is_robust) != (new.is_log, new.is_robust):
                self._y = None
            self._drawings = 0  # what the user asked for comes at once
            self._request()
        else:
            self._show()

    def on_resize(self) -> None:
        self._drawings = 0
        if self._drawn_for != (self.content_size, self.data, self.look):  # else shown again
            self._request()

    def _request(self) -> None:
        try:
            self._ask_for_canvas()
        except Exception as error:  # the barrier: one broken chart must not take the cockpit down
            log.error(f"chart cannot draw: {error!r}")
            self._forget(f"cannot draw: {type(error).__name__}: {error}")

    def _ask_for_canvas(self) -> None:
        self._drawn_for = self.content_size, self.data, self.look
        self._awaited = None
        width, height = self.content_size
        if width < 12 or height < 3 or not self.data.has_points:
            self._forget("" if self.data.has_points else self.data.empty)
            return
        look = replace(self.look, axis=self.axis)
        x = look.window or self.whole
        traces = self.data.traces
        if len(traces) > MANY:  # as long as a frame or longer: not here
            self._await_lines(partial(project, traces, look, x, width, self.lifted))
            return
        guess = width - (self.frame.gutter if self.frame else 6)
        drawn = project(traces, look, x, guess, self.lifted)
        frame = self._framed(drawn, look, x)
        if frame is not None and frame.canvas_width != guess:  # labels are not as wide as thought
            drawn = project(traces, look, x, frame.canvas_width, self.lifted)
            frame = self._framed(drawn, look, x)
        self._ask(drawn, frame)

    def _await_lines(self, make: Callable[[], DrawnLines]) -> None:
        def tell(drawn: Future[DrawnLines]) -> None:  # in the plotting thread
            if not drawn.cancelled():
                self.post_message(self.LinesReady(drawn))

        self._awaited = plot.work(make)
        self._awaited.add_done_callback(tell)

    @on(LinesReady)
    def _take_lines(self, message: LinesReady) -> None:
        message.stop()
        if message.drawn is not self._awaited:
            return
        self._awaited = None
        if (error := message.drawn.exception()) is not None:
            self._forget(f"cannot draw: {type(error).__name__}: {error}")
            return
        drawn, look = message.drawn.result(), replace(self.look, axis=self.axis)
        self._ask(drawn, self._framed(drawn, look, look.window or self.whole))

    def _ask(self, drawn: DrawnLines, frame: ChartFrame | None) -> None:
        """Have lines drawn in their frame, if they are not the ones that are shown."""
        if frame is None:
            self._forget("nothing above 0: no logarithm")
            return
        if extremes(drawn.lines) is not None:
            self._y = frame.y
        x, y, size = frame.x, frame.y, (frame.canvas_width, frame.canvas_height)
        lines = drawn.lines
        if len(lines) <= 2 * MANY:
            lines = tuple(snapped(line, x, y, *size) for line in lines)
        job = PlotJob(lines, *size, x, y, glyphs.current.is_ascii)
        if job != self._job:
            self._job = job
            self._paint(job, frame, drawn)
        elif self._painted is self._job:
            self._show_frame(frame, drawn)

    def _framed(self, drawn: DrawnLines, look: Look, x: Range) -> ChartFrame | None:
        """The frame of lines; None without anything that `look` can show."""
        ends = usual(drawn.points) if look.is_robust else extremes(drawn.lines)
        kind = "log" if look.is_log else "linear"
        if ends is None and look.is_log and look.window is None:
            return None
        held, marks = self._y, bool(self.data.marks)
        y = ticks.hold(held, *ends, kind) if ends is not None else held or Range(0.0, 1.0)
        is_log, size = look.is_log, self.content_size
        return measure(size, x, y, axis=look.axis, is_log=is_log, has_marks=marks)

    @property
    def lifted(self) -> str:
        """The label of the lines that lie on top of all: of what the pointer is at, or of what the
        data say."""
        return self._pointed or self.data.lifted

    @property
    def place(self) -> Extreme | None:
        """The extreme at which the cursor stands, where it was moved to one."""
        return None

    def point_at(self, label: str) -> None:
        """Lift the lines of this label while the pointer is there; "" lifts none."""
        if label != self._pointed:
            self._pointed = label
            self._drawings = 0
            self._request()
            self._show()  # what the cursor reads of it

    def _forget(self, words: str) -> None:
        """Nothing to draw but words."""
        self._job, self._painted, self.frame, self._canvas = None, None, None, ()
        self._clips = ()
        self._subtitle()
        width, height = self.content_size
        self.show_rows(words_in_the_middle(words, width, height) if height else [])

    def _paint(self, job: PlotJob, frame: ChartFrame, drawn: DrawnLines) -> None:
        if self._drawing is not None:
            self._drawing.cancel()  # if it has not begun

        def tell(canvas: Future[Canvas]) -> None:  # in the plotting thread
            if not canvas.cancelled():
                self.post_message(self.Painted(job, frame, drawn, canvas))

        self._drawing = plot.submit(job)
        self._drawing.add_done_callback(tell)

    @on(Painted)
    def _take(self, message: Painted) -> None:
        message.stop()
        if message.job is not self._job:
            return
        error = message.canvas.exception()
        if error is not None:
            self._forget(f"cannot draw: {type(error).__name__}")
            return
        self._painted, self._canvas = message.job, message.canvas.result()
        self._show_frame(message.frame, message.drawn)

    def _show_frame(self, frame: ChartFrame, drawn: DrawnLines) -> None:
        self.frame, self._broken = frame, drawn.broken
        self._clips = points_beyond(drawn.points, frame.y) if self.look.is_robust else ()
        self._subtitle()
        self._show()

    def _show(self) -> None:
        """The rows as they are now; only what differs is sent."""
        if self.frame is None:
            return
        self.show_rows(compose(self.frame, self._canvas, self._overlay(self.frame)))

    def _overlay(self, frame: ChartFrame) -> Overlay:
        look, traces = replace(self.look, axis=self.axis), self.data.traces
        places = tuple((self.x_at(mark.step), mark) for mark in self.data.marks)
        if look.cursor is None:
            return Overlay(self._broken, places, clips=self._clips)
        at = self.x_at(look.cursor)
        here = frame.column(at)
        near = [mark for place, mark in places if here is not None and frame.column(place) == here]
        room = frame.canvas_width, frame.width
        words = reading(traces, near, look, frame.x, room, self.lifted, self.place)
        return Overlay(self._broken, places, at, words, self._clips)

    def line_at(self, column: int, row: int) -> str:
        """The label of the line that is drawn nearest to a cell of the canvas; "" beside all."""
        if self._job is None or self.frame is None:
            return ""
        place = self.frame.x_of(column)
        rows = self.frame.canvas_height
        near: list[tuple[float, int, str]] = []
        for order, line in enumerate(self._job.lines):
            level = line.level_at(place) if line.label and not line.is_band else None
            if level is not None:
                drawn = (self._job.y.high - level) / self._job.y.span * (rows - 1)
                near.append((abs(drawn - row), -order, line.label))
        distance, _, label = min(near, default=(math.inf, 0, ""))
        return label if distance <= NEAR_ROWS else ""

    @property
    def ruled(self) -> Trace | None:
        """The trace whose measure of steps stands for the chart."""
        traces, axis = self.data.traces, self.axis
        known = (trace for trace in traces if axis in trace.rulers)
        return next(known, next(iter(traces), None))

    def x_at(self, step: float) -> float:
        """The position of a step on the current x axis."""
        ruled = self.ruled
        return step if ruled is None else ruled.x_at(step, self.axis)

    @property
    def whole(self) -> Range:
        """The x axis without a window, in its own unit."""
        axis = self.axis
        ends = [t.x_at(step, axis) for t in self.data.traces if t.x for step in (t.x[0], t.x[-1])]
        if self.data.extent is not None:
            ends += [self.x_at(step) for step in self.data.extent]
        return whole_axis(min(ends, default=0.0), max(ends, default=1.0), self.data.is_growing)

    @property
    def steps_shown(self) -> tuple[float, float] | None:
        """First and last step of the window; None for the whole."""
        window = self.look.window
        if window is None or self.ruled is None:
            return None
        axis = self.axis
        return self.ruled.step_at(window.low, axis), self.ruled.step_at(window.high, axis)


def scale_note(look: Look, clips: Sequence[PointBeyond]) -> Content:
    """What a y axis is that is not just any: log, p1-p99 ^ 1 clipped."""
    g = glyphs.current
    parts = [Content.styled("log", "$ink")] if look.is_log else []
    if look.is_robust:
        parts.append(Content.styled("p1-p99", "$ink"))
    above = sum(clip.is_above for clip in clips)
    marked = [(g.arrow_up, above), (g.arrow_down, len(clips) - above)]
    if counts := [f"{glyph} {quantity.count(n)}" for glyph, n in marked if n]:
        parts.append(Content.styled(f"{' '.join(counts)} clipped", "$warning"))
    return Content("  ").join(parts)


def whole_axis(first: float, last: float, is_growing: bool) -> Range:
    """The range of the whole axis: from 0, or, if only the newest part is known, from a round value
    that stays, to the end or so far beyond it that it rarely changes."""
    start = 0.0
    if first > last / 2:
        grain = 2.0 ** math.floor(math.log2(max(last - first, 1.0)))
        start = math.floor(first / grain) * grain
    if is_growing:
        return ticks.reach(last, start)
    return Range(start, last if last > start else start + 1)
