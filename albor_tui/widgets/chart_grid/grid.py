"""Every metric of a run, or of many, as a grid of charts.

Only the charts on the screen exist, ask for data and draw; paging gives them other keys. The screen
sets `picture`; the grid says in `Wanted` what curves it lacks, again whenever that changes, and the
screen brings them at its own pace. All charts are looked at alike: one window, one cursor, one
smoothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Input

from albor_tui.look import glyphs
from albor_tui.messages import PinAsked
from albor_tui.widgets.chart.chart import Chart
from albor_tui.widgets.chart.data import ChartData, Look
from albor_tui.widgets.chart_grid.head import ChartHead, HeadFacts
from albor_tui.widgets.chart_grid.pages import GridPages, shape
from albor_tui.widgets.chart_grid.picture import GridPicture

POINTS = (128, 800)  # per curve: the least and the most that is asked for


class ChartGrid(Widget, can_focus=True):
    """Draws the charts of `picture` that fit; pinned keys first, then in the order of its keys."""

    ALLOW_MAXIMIZE = True
    BINDINGS = [
        Binding("enter,z", "full", "Full", tooltip="One metric on the whole screen, and back"),
        Binding("slash", "find", "Find", key_display="/", tooltip="Metrics whose name contains"),
        Binding("space,P", "pin", "Pin", tooltip="Let this metric stand for the run, and back"),
        Binding("escape", "leave", "Back", show=False, tooltip="End the search"),
        Binding("up,k", "move(0,-1)", "Up", show=False, tooltip="The chart above"),
        Binding("down,j", "move(0,1)", "Down", show=False, tooltip="The chart below"),
        Binding("left,shift+left", "move(-1,0)", "Previous", show=False, tooltip="Previous chart"),
        Binding("right,shift+right", "move(1,0)", "Next", show=False, tooltip="Next chart"),
        Binding("pageup", "page(-1)", "Page up", show=False, tooltip="Charts before these"),
        Binding("pagedown", "page(1)", "Page down", show=False, tooltip="Charts after these"),
        Binding("home", "page(-1000)", "First", show=False, tooltip="The first charts"),
        Binding("end", "page(1000)", "Last", show=False, tooltip="The last charts"),
    ]
    picture: reactive[GridPicture | None] = reactive(
        None, init=False, repaint=False, always_update=True
    )

    @dataclass
    class Wanted(Message):
        """Curves that the charts on the screen need: steps lo..hi (None: from the first, to the
        newest), in at most `points` buckets. Holds until the next one."""

        keys: tuple[str, ...]
        lo: int | None
        hi: int | None
        points: int

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.wanted: ChartGrid.Wanted | None = None
        self.look = Look()  # at all charts alike
        self._pages = GridPages()
        self._is_solo, self._first_before = False, 0
        self._slots: list[Chart] = []

    def compose(self) -> ComposeResult:
        yield ChartHead(id="chart-head")
        yield Input(id="chart-find", placeholder="part of a metric's name")
        yield Container(id="charts")

    def on_mount(self) -> None:
        self.watch(self.screen, "maximized", self._maximized, init=False)

    @property
    def order(self) -> tuple[str, ...]:
        """The keys that the search keeps, pinned ones first."""
        return self._pages.order

    @property
    def shown(self) -> tuple[str, ...]:
        """The keys on the screen."""
        return self._pages.shown(math.prod(self._shape))

    @property
    def current(self) -> str | None:
        """The key of the chosen chart."""
        return self._pages.current

    @property
    def _shape(self) -> tuple[int, int]:
        width, height = self.query_one("#charts").size
        return (1, 1) if self._is_solo else shape(width, height, len(self.order))

    @property
    def keys(self) -> tuple[str, ...]:
        """Every key of the picture."""
        return () if self.picture is None else self.picture.keys

    def watch_picture(self, old: GridPicture | None, new: GridPicture | None) -> None:
        if new is None:
            return
        if old is None or old.subject != new.subject:
            self._pages.pins = new.pins
        is_same = (new.keys, new.pins) == (self._pages.keys, self._pages.pins)
        self._pages.pin(new.pins)
        self._pages.replace_keys(new.keys)
        if is_same:
            self._fill()
        else:
            self._arrange()
            self._find_sought()

    def on_resize(self) -> None:
        self.call_after_refresh(self._arrange)

    def on_focus(self) -> None:
        self._choose(is_here=True)  # Textual marks the grid as focused only after this

    def _arrange(self) -> None:
        """Arrange as many charts as fit, each with its key."""
        if not self.is_attached:
            return
        columns, rows = self._shape
        self._pages.fit(columns, rows)
        body = self.query_one("#charts")
        body.styles.grid_size_columns, body.styles.grid_size_rows = columns, rows
        missing = min(columns * rows, max(1, len(self.order))) - len(self._slots)
        if missing > 0:
            fresh = [Chart(classes="-keys") for _ in range(missing)]
            for chart in fresh:
                chart.brings_finer = True
            self._slots += fresh
            body.mount(*fresh)
            self.call_after_refresh(self._ask)  # by their widths
        self._fill()
        self._choose()

    def _fill(self) -> None:
        """Give every slot its key, its curve and the common look."""
        if not self.is_attached:
            return
        shown = self.shown
        for i, chart in enumerate(self._slots):
            chart.display = i < max(1, len(shown))
            if i < len(shown):
                self._give(chart, shown[i])
        if not shown and self._slots:
            self._slots[0].entitle(Content(""))
            words = "" if self.picture is None else self.picture.why_empty(self._pages.words)
            self._slots[0].data = ChartData(empty=words)
        self._show_head()
        self._ask()

    def _give(self, chart: Chart, key: str) -> None:
        if self.picture is not None:
            pin = f"{glyphs.current.pin} " if key in self._pages.pins else ""
            chart.entitle(Content.styled(pin, "$warning") + self.picture.title(key))
            chart.look = self.look
            chart.data = self.picture.chart(key)

    def _show_head(self) -> None:
        found, first = len(self.order), self._pages.first
        window = self._slots[0].steps_shown if self._slots else None
        self.query_one(ChartHead).facts = HeadFacts(
            first=min(first + 1, found),
            last=min(first + math.prod(self._shape), found),
            found=found,
            total=len(self.keys) if self.picture and self.picture.is_read else None,
            words=self._pages.words,
            axis=self._slots[0].x_word if self._slots else "step",
            look=self.look,
            window=window,
        )

    def _ask(self) -> None:
        shown = self.shown
        if not shown or not self._slots:
            return
        lo, hi = margins(self._slots[0].steps_shown)
        width = max(chart.content_size.width for chart in self._slots)
        points = min(max(POINTS[0], -(-4 * width // 64) * 64), POINTS[1])
        wanted = self.Wanted(shown, lo, hi, points)
        if wanted != self.wanted:
            self.wanted = wanted
            self.post_message(wanted)

    def _choose(self, *, is_here: bool = False) -> None:
        """Focus the chosen chart, if the focus is here."""
        slot = self._pages.at - self._pages.first
        is_here = is_here or self.has_focus or any(chart.has_focus for chart in self._slots)
        if is_here and 0 <= slot < len(self._slots):
            self._slots[slot].focus()

    @on(events.DescendantFocus)
    def _follow_focus(self, event: events.DescendantFocus) -> None:
        if event.widget in self._slots:
            self._pages.at = self._pages.first + self._slots.index(event.widget)

    @on(Chart.Looked)
    def _share_look(self, message: Chart.Looked) -> None:
        message.stop()
        self.look = message.look
        for chart in self._slots:
            chart.look = message.look
        self._show_head()
        self._ask()

    def action_move(self, columns: int, rows: int) -> None:
        self._pages.move(columns + rows * self._shape[0])
        self._arrange()

    def go_to(self, key: str) -> None:
        """Choose the chart of a metric; where it is not known yet, once it is."""
        self._pages.sought = key
        self._find_sought()

    def _find_sought(self) -> None:
        if self._pages.find_sought():
            self._arrange()
            self._choose(is_here=True)

    def action_page(self, pages: int) -> None:
        self._pages.turn(pages, *self._shape)
        self._arrange()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.action_move(0, 1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.action_move(0, -1)

    def on_click(self, event: events.Click) -> None:
        if event.chain == 2 and event.widget in self._slots:
            self.action_full()

    def action_full(self) -> None:
        if self.screen.maximized is self:
            self.screen.minimize()
        else:
            self.screen.maximize(self, container=False)

    def _maximized(self, widget: Widget | None) -> None:
        """The screen gave this grid all of itself, or took it back: escape does that as well."""
        if (widget is self) == self._is_solo:
            return
        self._is_solo = widget is self
        if self._is_solo:
            self._first_before = self._pages.first
        else:
            self._pages.first = self._first_before
        self.call_after_refresh(self._arrange)

    def action_pin(self) -> None:
        if (key := self.current) is not None:
            self.post_message(PinAsked(key))

    def action_find(self) -> None:
        self.add_class("-searching")
        self.query_one("#chart-find", Input).focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "leave":
            return bool(self._pages.words) or self.query_one("#chart-find", Input).has_focus
        return True

    def action_leave(self) -> None:
        self.query_one("#chart-find", Input).value = ""
        self._end_search()

    @on(Input.Changed, "#chart-find")
    def _search(self, message: Input.Changed) -> None:
        message.stop()
        self._pages.search(message.value.strip())
        self._arrange()

    @on(Input.Submitted, "#chart-find")
    def _end_search(self, message: Input.Submitted | None = None) -> None:
        if message is not None:
            message.stop()
        self._choose(is_here=True)
        # a box that is hidden while it has the focus would let the screen choose who is next
        self.call_after_refresh(self.remove_class, "-searching")


def margins(window: tuple[float, float] | None) -> tuple[int | None, int | None]:
    """The window and half of it on either side, so that panning finds something there."""
    if window is None:
        return None, None
    low, high = window
    room = (high - low) / 2
    return max(0, math.floor(low - room)), math.ceil(high + room)
