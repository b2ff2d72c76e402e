"""Every metric of a run, or of many, as a grid of charts, in sections that fold.

Only the charts on the screen exist, ask for data and draw; paging gives them other keys. The screen
sets `picture`; the grid says in `Wanted` what curves it lacks, again whenever that changes, and the
screen brings them at its own pace. All charts share one window and one cursor; how a line is
smoothed and how y is measured belongs to each chart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Input

from albor_tui.look import glyphs
from albor_tui.messages import PinAsked
from albor_tui.widgets.base import styled
from albor_tui.widgets.chart.chart import Chart
from albor_tui.widgets.chart.data import ChartData, Look
from albor_tui.widgets.chart_grid.board import Board
from albor_tui.widgets.chart_grid.head import ChartHead, HeadFacts
from albor_tui.widgets.chart_grid.heading import SectionHeading, heading_facts
from albor_tui.widgets.chart_grid.layers import highest, layer_table
from albor_tui.widgets.chart_grid.looks import Looks
from albor_tui.widgets.chart_grid.pages import GridPages, Item, Place
from albor_tui.widgets.chart_grid.picture import GridPicture
from albor_tui.widgets.chart_grid.sections import Cell, Folds, Section
from albor_tui.widgets.distribution.heat_map import HeatMap

POINTS = (128, 800)  # per curve: the least and the most that is asked for


class ChartGrid(Widget, can_focus=True):
    """Draws what fits of `picture`; pinned keys first, then its sections."""

    ALLOW_MAXIMIZE = True
    BINDINGS = [
        Binding("enter", "open", "Open", tooltip="The whole screen for a chart; opens a section"),
        Binding(
            "z", "full", "Full", show=False, tooltip="One metric on the whole screen, and back"
        ),
        Binding("f", "fold", "Fold", tooltip="Fold the section of this chart, and open it"),
        Binding("F", "fold_all", "Fold all", show=False, tooltip="Fold every section, or open all"),
        Binding("slash", "find", "Find", key_display="/", tooltip="Metrics whose name matches"),
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

    @dataclass
    class SectionsChanged(Message):
        """The user folded or opened sections: `unfolded` says which, as `Folds` keeps it."""

        unfolded: tuple[str, ...]

    @dataclass
    class SmoothingChanged(Message):
        """The user smoothed a chart more or less."""

        smoothing: int

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.wanted: ChartGrid.Wanted | None = None
        self._looks = Looks()
        self._pages = GridPages()
        self._first_before = 0
        self._places: list[tuple[Widget, Item | None]] = []
        self._titles: dict[Widget, Content] = {}  # of panels

    def compose(self) -> ComposeResult:
        with Horizontal(id="chart-top"):
            yield Input(id="chart-find", placeholder="part of a name, or a regex")
            yield ChartHead(id="chart-head")
        yield Board(id="charts")

    def on_mount(self) -> None:
        self.watch(self.screen, "maximized", self._maximized, init=False)

    @property
    def order(self) -> tuple[str, ...]:
        """The keys of all charts that are not folded away, pinned ones first."""
        return tuple(key for cell in self._pages.cells for key in cell.keys)

    @property
    def shown(self) -> tuple[str, ...]:
        """The keys on the screen."""
        return tuple(key for _, item in self._places if isinstance(item, Cell) for key in item.keys)

    @property
    def current(self) -> str | None:
        """The key of the chosen chart."""
        chosen = self._pages.chosen
        return chosen.name if isinstance(chosen, Cell) and not chosen.is_panel else None

    @property
    def look(self) -> Look:
        """The look of the chosen chart."""
        return self._looks.look(self.current or "")

    @property
    def unfolded(self) -> tuple[str, ...]:
        """The sections that were opened, and with "-" before them those that were folded."""
        return self._pages.folds.changes

    @property
    def keys(self) -> tuple[str, ...]:
        """Every key of the picture."""
        return () if self.picture is None else self.picture.keys

    def begin(self, unfolded: Iterable[str], smoothing: int | None = None) -> None:
        """Show sections and lines as they were left."""
        self._pages.folds = Folds(unfolded)
        self._looks = Looks(smoothing)
        self._arrange()

    def watch_picture(self, old: GridPicture | None, new: GridPicture | None) -> None:
        if new is None:
            return
        is_same = (new.keys, new.pins) == (self._pages.keys, self._pages.pins)
        self._pages.replace_keys(new.keys, new.pins)
        if is_same and self._places:
            self._fill()
        else:
            self._arrange()
            self._find_sought()

    def on_resize(self) -> None:
        self.call_after_refresh(self._arrange)

    def on_focus(self) -> None:
        self._choose(is_here=True)  # Textual marks the grid as focused only after this

    def _arrange(self) -> None:
        """Arrange as many lines as fit, each chart with its key."""
        if not self.is_attached or not self.is_mounted:
            return
        board = self.query_one(Board)
        is_here = self.has_focus or board.has_focus_within
        width, height = board.size
        self._pages.fit(width, height)
        items: list[tuple[Item | None, Place]] = [*self._pages.places(width, height)]
        items = items or [(None, (0, 0, width, height))]
        widgets = board.lay([(_maker(item), place) for item, place in items])
        self._places = [(widget, item) for widget, (item, _) in zip(widgets, items, strict=True)]
        if not all(widget.is_mounted for widget in widgets):
            self.call_after_refresh(self._fill)  # by their widths
        self._fill()
        self._choose(is_here=is_here)
        self.refresh_bindings()  # sections come and go

    def _fill(self) -> None:
        """Give every place its key, its curve and the common look."""
        if not self.is_attached or not self._places:
            return
        opened = self._pages.opened
        for widget, item in self._places:
            if isinstance(widget, SectionHeading) and isinstance(item, Section):
                widget.facts = heading_facts(item, is_open=item.name in opened)
            elif isinstance(widget, HeatMap) and isinstance(item, Cell):
                self._fill_panel(widget, item)
            elif isinstance(widget, Chart) and isinstance(item, Cell):
                self._give(widget, item.name)
            elif isinstance(widget, Chart):
                words = "" if self.picture is None else self.picture.why_empty(self._pages.words)
                widget.entitle(Content(""))
                widget.data = ChartData(empty=words)
        self._show_head()
        self._ask()

    def _give(self, chart: Chart, key: str) -> None:
        if self.picture is not None:
            pin = f"{glyphs.current.pin} " if key in self._pages.pins else ""
            chart.entitle(Content.styled(pin, "$warning") + self.picture.title(key))
            chart.look = self._looks.look(key)
            chart.data = self.picture.chart(key)

    def _fill_panel(self, panel: HeatMap, cell: Cell) -> None:
        if self.picture is None:
            return
        curves = [self.picture.key_curves(key) for key in cell.keys]
        count = (f"  {len(cell.keys)}", "$ink-muted")
        title = Content.assemble(styled.text(cell.name), count)
        if (top := highest(cell, curves)) is not None:
            row, value = top
            title += Content.assemble(
                ("  highest ", "$ink-muted"), styled.text(f"{row} {value:.3g}")
            )
        if not title.is_same(self._titles.get(panel, Content(""))):
            self._titles[panel] = panel.border_title = title  # setting it repaints all of it
        gutter = max(map(len, cell.rows)) + 1
        columns = max(1, panel.content_size.width - gutter)
        panel.data = layer_table(cell, curves, columns, self._window)

    @property
    def _charts(self) -> list[Chart]:
        """The charts on the screen."""
        return [widget for widget, _ in self._places if isinstance(widget, Chart)]

    @property
    def _window(self) -> tuple[float, float] | None:
        """First and last step of the window; None for the whole."""
        if charts := [chart for chart in self._charts if chart.data.has_points]:
            return charts[0].steps_shown
        look = self._looks.shared
        if look.window is None or look.axis != "step":
            return None
        return look.window.low, look.window.high

    def _show_head(self) -> None:
        every, shown = (
            self._pages.cells,
            [item for _, item in self._places if isinstance(item, Cell)],
        )
        first = every.index(shown[0]) + 1 if shown else 0
        picture, charts = self.picture, self._charts
        self.query_one(ChartHead).facts = HeadFacts(
            first=first,
            last=first + len(shown) - 1 if shown else 0,
            found=len(every),
            folded=0 if self._pages.words else len({*self.keys} - {*self.order}),
            total=len(self.keys) if picture is not None and picture.is_read else None,
            words=self._pages.words,
            problem=self._pages.problem,
            axis=charts[0].x_word if charts else "step",
            look=self.look,
            window=self._window,
        )

    def _ask(self) -> None:
        shown = self.shown
        if not shown:
            return
        lo, hi = margins(self._window)
        width = max(w.content_size.width for w, item in self._places if isinstance(item, Cell))
        points = min(max(POINTS[0], -(-4 * width // 64) * 64), POINTS[1])
        wanted = self.Wanted(shown, lo, hi, points)
        if wanted != self.wanted:
            self.wanted = wanted
            self.post_message(wanted)

    def _choose(self, *, is_here: bool) -> None:
        """Focus what is chosen, if the focus is here."""
        if is_here and self._places:
            chosen = (widget for widget, item in self._places if item == self._pages.chosen)
            next(chosen, self._places[0][0]).focus()

    @on(events.DescendantFocus)
    def _follow_focus(self, event: events.DescendantFocus) -> None:
        for widget, item in self._places:
            if event.widget is widget and item is not None and item != self._pages.chosen:
                self._pages.choose(item)
                self._show_head()

    @on(Chart.Looked)
    def _share_look(self, message: Chart.Looked) -> None:
        message.stop()
        new, key = message.look, self._key_at(message.chart)
        old = self._looks.look(key)
        self._looks.change(key, new)
        if new.smoothing != old.smoothing:
            self.post_message(self.SmoothingChanged(new.smoothing))
        for widget, item in self._places:
            if isinstance(widget, Chart) and isinstance(item, Cell):
                widget.look = self._looks.look(item.name)
            elif (
                isinstance(widget, HeatMap) and isinstance(item, Cell) and new.window != old.window
            ):
                self._fill_panel(widget, item)
        self._show_head()
        self._ask()

    def _key_at(self, chart: Chart) -> str:
        return next((item.name for widget, item in self._places if widget is chart and item), "")

    def action_move(self, columns: int, rows: int) -> None:
        self._pages.move(columns, rows)
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
        self._pages.turn(pages)
        self._arrange()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.action_move(0, 1)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.action_move(0, -1)

    def on_click(self, event: events.Click) -> None:
        if event.chain == 2 and event.widget in [widget for widget, _ in self._places]:
            self.action_open()

    def action_open(self) -> None:
        """Open what is chosen: a section, a family's charts, or one chart on the whole screen."""
        chosen = self._pages.chosen
        is_chart = isinstance(chosen, Cell) and not chosen.is_panel
        if chosen is None or is_chart or self._pages.is_solo:
            self.action_full()
        else:
            self._toggle(chosen)

    def action_fold(self) -> None:
        """Fold the section in which the chosen chart is; on a heading also open it."""
        chosen = self._pages.chosen
        section = chosen if isinstance(chosen, Section) else self._pages.section_at(chosen)
        if section is not None:
            self._toggle(section)

    def action_fold_all(self) -> None:
        self._pages.toggle_all()
        self._refold()

    @on(SectionHeading.ToggleAsked)
    def _click_heading(self, message: SectionHeading.ToggleAsked) -> None:
        message.stop()
        self._toggle(message.section)

    def _toggle(self, item: Item) -> None:
        self._pages.toggle(item)
        self._refold()

    def _refold(self) -> None:
        self._arrange()
        self.post_message(self.SectionsChanged(self.unfolded))

    def action_full(self) -> None:
        if self.screen.maximized is self:
            self.screen.minimize()
        elif not isinstance(self._pages.chosen, Section):
            self.screen.maximize(self, container=False)

    def _maximized(self, widget: Widget | None) -> None:
        """The screen gave this grid all of itself, or took it back: escape does that as well."""
        if (widget is self) == self._pages.is_solo:
            return
        self._pages.is_solo = widget is self
        if self._pages.is_solo:
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
        if action in ("fold", "fold_all"):
            has_sections = any(line.heading is not None for line in self._pages.lines)
            return True if has_sections and not self._pages.is_solo else None
        return True

    def action_leave(self) -> None:
        self.query_one("#chart-find", Input).value = ""
        self._seek("")
        self._end_search()

    @on(Input.Changed, "#chart-find")
    def _search(self, message: Input.Changed) -> None:
        message.stop()
        self._seek(message.value.strip())

    def _seek(self, words: str) -> None:
        if words != self._pages.words:
            self._pages.search(words)
            self._arrange()

    @on(Input.Submitted, "#chart-find")
    def _end_search(self, message: Input.Submitted | None = None) -> None:
        if message is not None:
            message.stop()
        self._choose(is_here=True)
        # a box that is hidden while it has the focus would let the screen choose who is next
        self.call_after_refresh(self.remove_class, "-searching")


def _new_chart() -> Widget:
    chart = Chart(classes="-keys")
    chart.brings_finer = True
    return chart


def _maker(item: Item | None) -> Callable[[], Widget]:
    """Who makes the widget of an item."""
    if isinstance(item, Section):
        return SectionHeading
    return HeatMap if item is not None and item.is_panel else _new_chart


def margins(window: tuple[float, float] | None) -> tuple[int | None, int | None]:
    """The window and half of it on either side, so that panning finds something there."""
    if window is None:
        return None, None
    low, high = window
    room = (high - low) / 2
    return max(0, math.floor(low - room)), math.ceil(high + room)
