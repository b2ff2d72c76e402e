"""Every metric of a run as a grid of charts: the Charts tab.

Only the charts on the screen exist, ask for data and draw; paging gives them other keys. `keys`,
`curves` and `view` are set by the screen; the grid says in `Wanted` what curves it lacks, again
whenever that changes, and the screen brings them at its own pace. All charts are looked at alike:
one window, one cursor, one smoothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Input

from albor_core.feed.view import RunView
from albor_core.store.rows.ruler import Ruler
from albor_core.store.rows.series import Series
from albor_tui.look import glyphs
from albor_tui.messages import PinAsked
from albor_tui.widgets.base import styled
from albor_tui.widgets.chart.chart import Chart
from albor_tui.widgets.chart.curves import RULER_KEYS, extent, metric_chart, rulers, unit_of
from albor_tui.widgets.chart.data import ChartData, Look
from albor_tui.widgets.chart_grid.head import ChartHead, HeadFacts

CHART_WIDTH, CHART_HEIGHT = 38, 8  # the least that can be read
MOST_COLUMNS = 5
POINTS = (128, 800)  # per curve: the least and the most that is asked for
_TONES = {"train": "main", "val": "val", "optim": "second", "perf": "third"}


class ChartGrid(Widget, can_focus=True):
    """Draws `curves` of the keys that fit; pinned keys first, then in the order of `keys`."""

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
    keys: reactive[tuple[str, ...]] = reactive((), init=False, repaint=False)
    is_read: reactive[bool] = reactive(False, init=False, repaint=False)
    """Whether it is known which keys there are."""
    curves: reactive[Mapping[str, Series]] = reactive({}, init=False, repaint=False)
    view: reactive[RunView | None] = reactive(None, init=False, repaint=False)

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
        self._look = Look()
        self._words = self._sought = ""
        self._at = self._first = self._page = 0
        self._is_solo = False
        self._slots: list[Chart] = []
        self._extent: tuple[float, float] | None = None
        self._unit = "step"  # of the extent
        self._rulers: dict[str, Ruler] = {}

    def compose(self) -> ComposeResult:
        yield ChartHead(id="chart-head")
        yield Input(id="chart-find", placeholder="part of a metric's name")
        yield Container(id="charts")

    def on_mount(self) -> None:
        self.watch(self.screen, "maximized", self._maximized, init=False)

    @property
    def order(self) -> tuple[str, ...]:
        """The keys that the search keeps, pinned ones first."""
        return self._ordered(self.pinned)

    def _ordered(self, pins: tuple[str, ...]) -> tuple[str, ...]:
        pinned = [key for key in pins if key in self.keys]
        found = (*pinned, *(key for key in self.keys if key not in pinned))
        return tuple(key for key in found if self._words.lower() in key.lower())

    @property
    def pinned(self) -> tuple[str, ...]:
        view = self.view
        return () if view is None else tuple(one.name for one in view.metrics if one.is_pinned)

    @property
    def shown(self) -> tuple[str, ...]:
        """The keys on the screen."""
        return self.order[self._first : self._first + self._capacity]

    @property
    def current(self) -> str | None:
        """The key of the chosen chart."""
        order = self.order
        return order[min(self._at, len(order) - 1)] if order else None

    @property
    def look(self) -> Look:
        """How all charts are looked at."""
        return self._look

    @property
    def _shape(self) -> tuple[int, int]:
        width, height = self.query_one("#charts").size
        return (1, 1) if self._is_solo else shape(width, height, len(self.order))

    @property
    def _capacity(self) -> int:
        columns, rows = self._shape
        return columns * rows

    def watch_keys(self, old: tuple[str, ...], new: tuple[str, ...]) -> None:
        if old != new:
            chosen = old[self._at] if self._at < len(old) and not self._words else None
            if chosen in self.order and not self.pinned:
                self._at = self.order.index(chosen)
            self._arrange()
            if self._sought:
                self.go_to(self._sought)

    def watch_is_read(self) -> None:
        self._fill()

    def watch_curves(self) -> None:
        self._learn()
        self._fill()

    def watch_view(self, old: RunView | None, new: RunView | None) -> None:
        if new is not None and (old is None or old.id != new.id):
            self._extent, self._rulers = None, {}
            self._fill()
        elif old is not None and new is not None and old.metrics != new.metrics:
            self._repin(old)

    def _repin(self, old: RunView) -> None:
        """The chosen metric stays chosen where other pins move it."""
        before = tuple(one.name for one in old.metrics if one.is_pinned)
        if before == self.pinned:
            return
        key = self._ordered(before)[self._at : self._at + 1]
        if key and key[0] in self.order:
            self._at = self.order.index(key[0])
        self._arrange()

    def _learn(self) -> None:
        """Remember what reaches beyond a window: the run's extent and its other measures."""
        if self.view is None:
            return
        found = extent(self.view, self.curves)
        if found is not None:
            unit = unit_of(self.curves)
            old = (self._extent if unit == self._unit else None) or found
            self._unit, self._extent = unit, (min(old[0], found[0]), max(old[1], found[1]))
        for name, ruler in rulers(self.view, self.curves).items():
            known = self._rulers.get(name)
            if known is None or (
                ruler.steps[1] <= known.steps[1] and ruler.steps[-1] >= known.steps[-1]
            ):
                self._rulers = {**self._rulers, name: ruler}

    def on_resize(self) -> None:
        self.call_after_refresh(self._arrange)

    def on_focus(self) -> None:
        self._choose(is_here=True)  # Textual marks the grid as focused only after this

    def _arrange(self) -> None:
        """As many charts as fit, each with its key."""
        if not self.is_attached:
            return
        columns, rows = self._shape
        count = len(self.order)
        self._at = min(max(0, self._at), max(0, count - 1))
        self._first = first_shown(self._at, self._first, columns, rows, count)
        body = self.query_one("#charts")
        body.styles.grid_size_columns, body.styles.grid_size_rows = columns, rows
        missing = min(columns * rows, max(1, count)) - len(self._slots)
        if missing > 0:
            fresh = [Chart(classes="-keys") for _ in range(missing)]
            for chart in fresh:
                chart.brings_finer = True
            self._slots += fresh
            body.mount(*fresh)
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
            self._slots[0].data = ChartData(empty=self._why_empty())
        self._show_head()
        self._ask()

    def _give(self, chart: Chart, key: str) -> None:
        chart.entitle(self._title(key))
        chart.look = self._look
        if self.view is None:
            chart.data = ChartData(empty="", subject=key)
            return
        made = metric_chart(self.view, key, self.curves, _TONES.get(key.split("/")[0], "fourth"))
        lines = tuple(replace(line, rulers=self._rulers) for line in made.traces)
        chart.data = replace(made, lines=lines, extent=self._extent)

    def _title(self, key: str) -> Content:
        name = styled.text(key)
        pin = Content.styled(f"{glyphs.current.pin} ", "$warning")
        return pin + name if key in self.pinned else name

    def _why_empty(self) -> str:
        if not self.is_read:
            return "loading"
        if self._words:
            return f"no metric's name contains {self._words}"
        if self.view is None:
            return ""
        comes = self.view.is_active or self.view.status == "queued"
        return "no metrics yet" if comes else "no metrics"

    def _show_head(self) -> None:
        order = self.order
        window = self._slots[0].steps_shown if self._slots else None
        self.query_one(ChartHead).facts = HeadFacts(
            first=min(self._first + 1, len(order)),
            last=min(self._first + self._capacity, len(order)),
            found=len(order),
            total=len(self.keys) if self.is_read else None,
            words=self._words,
            axis=self._slots[0].x_word if self._slots else "step",
            look=self._look,
            window=window,
        )

    def _ask(self) -> None:
        shown = self.shown
        if not shown or not self._slots:
            return
        lo, hi = self._margins()
        width = max(chart.content_size.width for chart in self._slots)
        points = min(max(POINTS[0], -(-4 * width // 64) * 64), POINTS[1])
        wanted = self.Wanted((*shown, *(k for k in RULER_KEYS if k not in shown)), lo, hi, points)
        if wanted != self.wanted:
            self.wanted = wanted
            self.post_message(wanted)

    def _margins(self) -> tuple[int | None, int | None]:
        """The window and half of it on either side, so that panning finds something there."""
        window = self._slots[0].steps_shown
        if window is None:
            return None, None
        low, high = window
        room = (high - low) / 2
        return max(0, math.floor(low - room)), math.ceil(high + room)

    def _choose(self, *, is_here: bool = False) -> None:
        """Focus the chosen chart, if the focus is here."""
        slot = self._at - self._first
        is_here = is_here or self.has_focus or any(chart.has_focus for chart in self._slots)
        if is_here and 0 <= slot < len(self._slots):
            self._slots[slot].focus()

    @on(events.DescendantFocus)
    def _follow_focus(self, event: events.DescendantFocus) -> None:
        if event.widget in self._slots:
            self._at = self._first + self._slots.index(event.widget)

    @on(Chart.Looked)
    def _share_look(self, message: Chart.Looked) -> None:
        message.stop()
        self._look = message.look
        for chart in self._slots:
            chart.look = message.look
        self._show_head()
        self._ask()

    def action_move(self, columns: int, rows: int) -> None:
        self._at = min(max(0, self._at + columns + rows * self._shape[0]), len(self.order) - 1)
        self._arrange()

    def go_to(self, key: str) -> None:
        """Choose the chart of a metric; where it is not known yet, once it is."""
        self._sought = key
        if key in self.keys:
            self._words = self._sought = ""
            self._at = self.order.index(key)
            self._arrange()
            self._choose(is_here=True)

    def action_page(self, pages: int) -> None:
        self._at = min(max(0, self._at + pages * self._capacity), max(0, len(self.order) - 1))
        columns, rows = self._shape
        row = self._first // columns + pages * rows
        self._first = min(max(0, row), math.ceil(len(self.order) / columns)) * columns
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
            self._page = self._first
        else:
            self._first = self._page
        self.call_after_refresh(self._arrange)

    def action_pin(self) -> None:
        if (key := self.current) is not None:
            self.post_message(PinAsked(key))

    def action_find(self) -> None:
        self.add_class("-searching")
        self.query_one("#chart-find", Input).focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "leave":
            return bool(self._words) or self._is_searching
        return True

    @property
    def _is_searching(self) -> bool:
        return self.query_one("#chart-find", Input).has_focus

    def action_leave(self) -> None:
        self.query_one("#chart-find", Input).value = ""
        self._end_search()

    @on(Input.Changed, "#chart-find")
    def _search(self, message: Input.Changed) -> None:
        message.stop()
        self._words = message.value.strip()
        self._at = self._first = 0
        self._arrange()

    @on(Input.Submitted, "#chart-find")
    def _end_search(self, message: Input.Submitted | None = None) -> None:
        if message is not None:
            message.stop()
        self._choose(is_here=True)
        # a box that is hidden while it has the focus would let the screen choose who is next
        self.call_after_refresh(self.remove_class, "-searching")


def shape(width: int, height: int, count: int) -> tuple[int, int]:
    """Columns and rows for `count` charts: as many as can be read, and no more columns than it
    takes to show them all."""
    most = max(1, min(width // CHART_WIDTH, round(width / 44), MOST_COLUMNS))
    rows = max(1, min(height // CHART_HEIGHT, round(height / 9.5)))
    columns = next((c for c in range(1, most) if c * rows >= count), most)
    return columns, min(rows, max(1, math.ceil(count / columns)))


def first_shown(at: int, first: int, columns: int, rows: int, count: int) -> int:
    """The first key on the screen, at the start of a row: moved as little as shows `at`, and no
    empty row at the end."""
    row, top = at // columns, first // columns
    top = min(max(top, row - rows + 1), row)
    return min(top, max(0, math.ceil(count / columns) - rows)) * columns
