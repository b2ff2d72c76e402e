"""A chart to look into: smoothing, log, other x axes, zoom, pan and an exact cursor.

Keys and pointer change its `look`; whoever shows several charts hears of it and shares it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from textual import events
from textual.binding import Binding
from textual.message import Message

from albor_core.run.light_dataclass import dataclass
from albor_tui.widgets.chart.canvas import ChartCanvas
from albor_tui.widgets.chart.data import ChartData, Look, Trace
from albor_tui.widgets.chart.extremes import Extreme, farthest, next_place, place_of, places_in
from albor_tui.widgets.chart.reading import FEW
from albor_tui.widgets.chart.ticks import Range

if TYPE_CHECKING:
    from albor_core.feed.workspace.overlay import OverlayFeed

__all__ = ["Chart", "ChartData", "Look"]

FINE_POINTS = 10_000
"""Of a line in a file, half of them in the window; beyond it buckets, which keep each spike."""
FinerLines = Callable[["OverlayFeed"], tuple[Trace, ...]]
"""Reads the lines of a chart with more points. For any thread."""

ZOOM = 0.5
WHEEL = 0.75
PAN = 0.25  # of the window per key
NARROWEST = 64.0  # steps of the window round an extreme


class Chart(ChartCanvas, can_focus=True):
    """A chart with keys and pointer."""

    ALLOW_MAXIMIZE = True
    BINDINGS = [
        Binding("plus,equals_sign", "zoom(1)", "Zoom in", show=False, tooltip="Zoom in"),
        Binding("minus", "zoom(-1)", "Zoom out", show=False, tooltip="Zoom out"),
        Binding("left", "shift(-1)", "Left", show=False, tooltip="Pan, or move the cursor, left"),
        Binding("right", "shift(1)", "Right", show=False, tooltip="Pan, or move the cursor, right"),
        Binding("0", "whole", "Whole", show=False, tooltip="The whole run again"),
        Binding(
            "v", "cursor", "Cursor", show=False, tooltip="Cursor with exact values, on and off"
        ),
        Binding(
            "e",
            "extreme(1)",
            "Extreme",
            show=False,
            tooltip="Cursor to the next spike, NaN, alert, restart",
        ),
        Binding(
            "b", "extreme(-1)", "Extreme before", show=False, tooltip="Cursor to the one before"
        ),
        Binding("y", "log", "Log", show=False, tooltip="Logarithmic y axis of this chart"),
        Binding(
            "Y",
            "robust",
            "Robust",
            show=False,
            tooltip="y axis from p1 to p99; spikes lie at its edge",
        ),
        Binding("X", "axis", "X axis", show=False, tooltip="x is step, tokens or time"),
        Binding(
            "full_stop,greater_than_sign",
            "smooth(1)",
            "Smoother",
            show=False,
            tooltip="Smoother, by 1/1000 of the axis",
        ),
        Binding("comma,less_than_sign", "smooth(-1)", "Rougher", show=False, tooltip="Less smooth"),
        Binding("E", "picture", "Picture", show=False, tooltip="This chart as SVG, PNG or CSV"),
    ]

    @dataclass
    class Looked(Message):
        """The user changed the view of this chart."""

        chart: Chart
        look: Look

    @dataclass
    class PictureAsked(Message):
        """What this chart shows is wanted as a file; who knows how it is read finer adds that."""

        chart: Chart
        finer: FinerLines | None = None

    class NoExtreme(Message):
        """The answer to the key where no point stands out."""

    _grabbed: tuple[int, Range] | None = None  # the column and window where dragging began
    _places: tuple[Extreme, ...] = ()  # of the whole, as it was at the first key
    _place: Extreme | None = None  # which of them the cursor was moved to
    _awaits_finer = False  # whether finer data are asked for, which tell its step
    brings_finer = False
    """Whether a narrower window brings finer data."""

    def watch_data(self, old: ChartData, new: ChartData) -> None:
        super().watch_data(old, new)
        if old.subject != new.subject:
            self._forget_extremes()
        elif self._awaits_finer and self._place is not None and self.look.cursor is not None:
            self._stand_on(self._place)

    def action_extreme(self, direction: int) -> None:
        """The cursor to the next place where something happened, or to the one before; without a
        cursor to the one that stands out most. In a window in which its own step can be told."""
        if not self._places or self.look.window is None:
            self._places = places_in(self.data, self.lifted)
        step = self.look.cursor if self.look.is_pinned else None
        place = farthest(self._places)
        if step is not None:
            place = next_place(self._places, step, direction)
        if place is not None:
            self._place = place
            self._stand_on(place)
        elif self.data.has_points:
            self.post_message(self.NoExtreme())

    def action_picture(self) -> None:
        """Have what is shown written to a file."""
        self.post_message(self.PictureAsked(self))

    def _forget_extremes(self) -> None:
        self._places, self._place, self._awaits_finer = (), None, False

    @property
    def place(self) -> Extreme | None:
        place, step = self._place, self.look.cursor
        is_here = place is not None and step is not None and place.first <= step <= place.last
        return place if is_here else None

    def _trace_of(self, one: Extreme) -> Trace | None:
        """The line that has a place; of a mark the one that stands for the chart."""
        own = [trace for trace in self.data.traces if not trace.is_band]
        if one.value is not None:
            own = [trace for trace in own if trace.label == one.line]
        ruled = self.ruled
        return ruled if ruled in own else next(iter(own), ruled)

    def _stand_on(self, one: Extreme) -> None:
        """Move the cursor to the point that has the value, as precisely as the data allow."""
        trace = self._trace_of(one)
        if trace is None:
            return
        first, last, is_told = place_of(trace, one)
        look = replace(self.look, cursor=first, is_pinned=True)
        self._awaits_finer = self.brings_finer and not is_told
        if self._awaits_finer:
            half, middle = max(NARROWEST, last - first + 1) / 2, (first + last) / 2
            low, high = (  # no step before the first
                self.x_at(max(step, trace.x[0])) for step in (middle - half, middle + half)
            )
            look = replace(look, window=Range(low, high) if high > low else None)
        elif look.window and not look.window.low <= self.x_at(first) <= look.window.high:
            look = replace(look, window=None)
        self.set_look(look)

    def has_grown(self, old: ChartData) -> None:
        """A window at the newest point follows it."""
        if self.look.window is not None:
            before = self.x_at(old.newest)
            self.set_look(self.look.following(before, self._newest_x, self.whole))

    def set_look(self, look: Look) -> None:
        """Change the look and say so."""
        if look != self.look:
            self.look = look
            self.post_message(self.Looked(self, look))

    def action_smooth(self, by: int) -> None:
        self.set_look(self.look.smoothed(by))

    def action_log(self) -> None:
        self.set_look(replace(self.look, is_log=not self.look.is_log))

    def action_robust(self) -> None:
        self.set_look(replace(self.look, is_robust=not self.look.is_robust))

    def action_axis(self) -> None:
        """The next x axis that is known; the window shows the same steps."""
        axes, shown = self.axes, self.steps_shown
        axis = axes[(axes.index(self.axis) + 1) % len(axes)]
        window = None
        if shown is not None and self.ruled is not None:
            low, high = (self.ruled.x_at(step, axis) for step in shown)
            window = Range(low, high) if high > low else None
        self.set_look(replace(self.look, axis=axis, window=window))

    def action_whole(self) -> None:
        self._forget_extremes()
        self.set_look(replace(self.look, window=None))

    def action_zoom(self, direction: int) -> None:
        """Zoom around the cursor; without one the newest point keeps its position, initially the
        right end."""
        look, whole = self.look, self.whole
        if look.window is None and direction > 0 and self._newest_x > whole.low:
            look = replace(look, window=Range(whole.low, min(self._newest_x, whole.high)))
        factor = ZOOM if direction > 0 else 1 / ZOOM
        self.set_look(look.zoomed(whole, factor, self._focus_share(look.window or whole)))

    def _focus_share(self, x: Range) -> float:
        for place in (self.look.cursor, None):
            at = self._newest_x if place is None else self.x_at(place)
            if x.low <= at <= x.high:
                return (at - x.low) / x.span
        return 0.5

    @property
    def _newest_x(self) -> float:
        return self.x_at(self.data.newest)

    def action_shift(self, direction: int) -> None:
        self._awaits_finer = False
        if self.look.cursor is not None:
            self._step_cursor(direction)
        else:
            self.set_look(self.look.panned(self.whole, PAN * direction))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "shift":  # otherwise the arrows are free for whoever holds this chart
            return self.look.cursor is not None or self.look.window is not None
        return True

    def action_cursor(self) -> None:
        if self.look.cursor is not None and self.look.is_pinned:
            self.set_look(replace(self.look, cursor=None, is_pinned=False))
        elif self.frame is not None:
            step = self.look.cursor
            if step is None:
                step = self._nearest(self.frame.x_of(self.frame.canvas_width * 0.5))
            self.set_look(replace(self.look, cursor=step, is_pinned=True))

    def _nearest(self, x: float) -> float | None:
        """The logged step closest to a place on the axis."""
        trace = self.ruled
        if trace is None:
            return None
        i = trace.nearest(trace.step_at(x, self.axis))
        return None if i is None else trace.x[i]

    def _step_cursor(self, direction: int) -> None:
        """Move the cursor to the next point at least one column away; beyond the edge the window
        follows."""
        trace, frame, old = self.ruled, self.frame, self.look.cursor
        if trace is None or frame is None or old is None:
            return
        column = frame.column(self.x_at(old))
        here = trace.nearest(old)
        if here is None:
            return
        i = here + direction
        while 0 <= i < len(trace.x) and column is not None:
            if frame.column(self.x_at(trace.x[i])) != column:
                break
            i += direction
        i = min(max(i, 0), len(trace.x) - 1)
        look = replace(self.look, cursor=trace.x[i])
        if frame.column(self.x_at(trace.x[i])) is None:
            look = look.panned(self.whole, PAN * direction)
        self.set_look(look)

    def _column_under(self, event: events.MouseEvent) -> int | None:
        frame = self.frame
        if frame is None:
            return None
        column = event.x - self.gutter.left - frame.gutter
        return column if 0 <= column < frame.canvas_width else None

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._wheel(event, WHEEL)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._wheel(event, 1 / WHEEL)

    def _wheel(self, event: events.MouseEvent, factor: float) -> None:
        """Zooms a chart that was chosen; over another one the page scrolls as ever."""
        column = self._column_under(event)
        if self.frame is None or column is None or not (self.has_focus or event.ctrl):
            return
        event.stop()
        event.prevent_default()
        share = column / max(1, self.frame.canvas_width - 1)
        self.set_look(self.look.zoomed(self.whole, factor, share))

    def on_mouse_down(self, event: events.MouseDown) -> None:
        column = self._column_under(event)
        if self.look.window is not None and column is not None:
            self._grabbed = column, self.look.window
            self.capture_mouse()

    def on_mouse_up(self) -> None:
        if self._grabbed is not None:
            self._grabbed = None
            self.release_mouse()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if self.frame is None:
            return
        if self._grabbed is not None:
            start, window = self._grabbed
            moved = event.x - self.gutter.left - self.frame.gutter - start
            look = replace(self.look, window=window)
            self.set_look(look.panned(self.whole, -moved / self.frame.canvas_width))
            return
        column = self._column_under(event)
        if len(self.data.lines) > FEW:
            row = event.y - self.gutter.top
            self.point_at("" if column is None else self.line_at(column, row))
        if not self.look.is_pinned:
            step = None if column is None else self._nearest(self.frame.x_of(column))
            self.set_look(replace(self.look, cursor=step))

    def on_leave(self) -> None:
        self.point_at("")
        if not self.look.is_pinned:
            self.set_look(replace(self.look, cursor=None))
