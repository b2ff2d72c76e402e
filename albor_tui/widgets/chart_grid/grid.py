"""Every metric of a run, or of many, as a grid of charts, in sections that fold.

Only the charts on the screen exist, ask for data and draw; paging gives them other keys. The screen
sets `picture`; the grid says in `Wanted` what curves it lacks, again whenever that changes, and the
screen brings them at its own pace. All charts share one window and one cursor; how a line is
smoothed and how y is measured belongs to each chart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Input

from albor_tui.messages import PinAsked
from albor_tui.widgets.chart.chart import Chart
from albor_tui.widgets.chart.data import Look
from albor_tui.widgets.chart_grid.board import ChartBoard, margins
from albor_tui.widgets.chart_grid.head import ChartHead, HeadFacts
from albor_tui.widgets.chart_grid.heading import SectionHeading
from albor_tui.widgets.chart_grid.looks import Looks
from albor_tui.widgets.chart_grid.pages import GridPages
from albor_tui.widgets.chart_grid.picture import GridPicture
from albor_tui.widgets.chart_grid.sections import Cell, ChartSection, Folds

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

    def compose(self) -> ComposeResult:
        with Horizontal(id="chart-top"):
            yield Input(id="chart-find", placeholder="part of a name, or a regex")
            yield ChartHead(id="chart-head")
        yield ChartBoard(self._pages, self._looks, id="charts")

    def on_mount(self) -> None:
        self.watch(self.screen, "maximized", self._maximized, init=False)

    @property
    def order(self) -> tuple[str, ...]:
        """The keys of all charts that are not folded away, pinned ones first."""
        return tuple(key for cell in self._pages.cells for key in cell.keys)

    @property
    def shown(self) -> tuple[str, ...]:
        """The keys on the screen."""
        return tuple(key for cell in self._board.cells for key in cell.keys)

    @property
    def current(self) -> str | None:
        """The key of the chosen chart."""
        chosen = self._pages.chosen
        return chosen.name if isinstance(chosen, Cell) and not chosen.is_panel else None

    @property
    def appearance(self) -> Look:
        """The look of the chosen chart."""
        return self._looks.appearance(self.current or "")

    @property
    def charts(self) -> dict[str, Chart]:
        """The charts on the screen by their keys."""
        found = ((self._board.item_at(chart), chart) for chart in self._board.charts)
        return {item.name: chart for item, chart in found if item is not None}

    def begin(self, unfolded: Iterable[str], smoothing: int | None = None) -> None:
        """Show sections and lines as they were left."""
        self._pages.folds = Folds(unfolded)
        if smoothing is not None:
            self._looks.smooth_all(smoothing)
        self._arrange()

    def watch_picture(self, old: GridPicture | None, new: GridPicture | None) -> None:
        if new is None:
            return
        is_same = (new.keys, new.pins) == (self._pages.keys, self._pages.pins)
        self._pages.replace_keys(new.keys, new.pins)
        if is_same:
            self._fill()
        else:
            self._arrange()
            self._find_sought()

    def on_resize(self) -> None:
        self.call_after_refresh(self._arrange)

    def on_focus(self) -> None:
        self._board.focus_chosen()  # Textual marks the grid as focused only after this

    @property
    def _board(self) -> ChartBoard:
        return self.query_one(ChartBoard)

    def _arrange(self) -> None:
        """Arrange as many lines as fit, each chart with its key."""
        if not self.is_attached or not self.is_mounted:
            return
        board = self._board
        is_here = self.has_focus or board.has_focus_within
        if board.arrange_page():
            self.call_after_refresh(self._fill)  # by their widths
        self._fill()
        if is_here:
            board.focus_chosen()
        self.refresh_bindings()  # sections come and go

    def _fill(self) -> None:
        """Give every place its key, its curve and the common look."""
        if self.is_attached:
            self._board.fill(self.picture)
            self._show_head()
            self._ask()

    def _show_head(self) -> None:
        every, shown, charts = self._pages.cells, self._board.cells, self._board.charts
        first = every.index(shown[0]) + 1 if shown else 0
        picture = self.picture
        self.query_one(ChartHead).facts = HeadFacts(
            first=first,
            last=first + len(shown) - 1 if shown else 0,
            found=len(every),
            folded=0 if self._pages.words else len({*self._pages.keys} - {*self.order}),
            total=len(self._pages.keys) if picture is not None and picture.is_read else None,
            words=self._pages.words,
            problem=self._pages.problem,
            is_text=self._pages.is_text,
            axis=charts[0].x_word if charts else "step",
            look=self.appearance,
            window=self._board.window,
        )

    def _ask(self) -> None:
        shown = self.shown
        if not shown:
            return
        lo, hi = margins(self._board.window)
        width = self._board.widest
        points = min(max(POINTS[0], -(-4 * width // 64) * 64), POINTS[1])
        wanted = self.Wanted(shown, lo, hi, points)
        if wanted != self.wanted:
            self.wanted = wanted
            self.post_message(wanted)

    @on(events.DescendantFocus)
    def _follow_focus(self, event: events.DescendantFocus) -> None:
        item = self._board.item_at(event.widget)
        if item is not None and item != self._pages.chosen:
            self._pages.choose(item)
            self._show_head()

    @on(Chart.Looked)
    def _share_look(self, message: Chart.Looked) -> None:
        message.stop()
        new, item = message.look, self._board.item_at(message.chart)
        if item is None:
            return
        if new.smoothing != self._looks.appearance(item.name).smoothing:
            self.post_message(self.SmoothingChanged(new.smoothing))
        self._looks.change(item.name, new)
        self._board.share_looks(self.picture)
        self._show_head()
        self._ask()

    async def act(self, action: str) -> None:
        """Let a key of charts work while the focus is elsewhere: on the chosen one, what each has
        for itself on all."""
        charts = self.charts
        chart = charts.get(self.current or "", next(iter(charts.values()), None))
        if chart is None:
            return
        old = chart.look
        await self.app.run_action(action, chart)
        new = chart.look
        changes = {
            name: getattr(new, name)
            for name in ("smoothing", "is_log", "is_robust")
            if getattr(new, name) != getattr(old, name)
        }
        self._looks.change_all(**changes)
        if "smoothing" in changes:
            self.post_message(self.SmoothingChanged(new.smoothing))

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
            self._board.focus_chosen()

    def action_page(self, pages: int) -> None:
        self._pages.turn(pages)
        self._arrange()

    @on(events.MouseScrollDown)
    @on(events.MouseScrollUp)
    def _turn(self, event: events.MouseEvent) -> None:
        event.stop()
        self.action_move(0, 1 if isinstance(event, events.MouseScrollDown) else -1)

    def on_click(self, event: events.Click) -> None:
        if event.chain == 2 and self._board.item_at(event.widget) is not None:
            self.action_open()

    def action_open(self) -> None:
        """Open what is chosen: a section, a family's charts, or one chart on the whole screen."""
        chosen = self._pages.chosen
        is_chart = isinstance(chosen, Cell) and not chosen.is_panel
        if chosen is None or is_chart or self._pages.is_solo:
            self.action_full()
        else:
            self._pages.toggle(chosen)
            self._refold()

    def action_fold(self) -> None:
        """Fold the section in which the chosen chart is; on a heading also open it."""
        chosen = self._pages.chosen
        section = chosen if isinstance(chosen, ChartSection) else self._pages.section_at(chosen)
        if section is not None:
            self._pages.toggle(section)
            self._refold()

    def action_fold_all(self) -> None:
        self._pages.toggle_all()
        self._refold()

    @on(SectionHeading.ToggleAsked)
    def _click_heading(self, message: SectionHeading.ToggleAsked) -> None:
        message.stop()
        self._pages.toggle(message.section)
        self._refold()

    def _refold(self) -> None:
        self._arrange()
        self.post_message(self.SectionsChanged(self._pages.folds.changes))

    def action_full(self) -> None:
        if self.screen.maximized is self:
            self.screen.minimize()
        elif not isinstance(self._pages.chosen, ChartSection):
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
        self._pages.search("")
        self._arrange()
        self._end_search()

    @on(Input.Changed, "#chart-find")
    def _search(self, message: Input.Changed) -> None:
        message.stop()
        words = message.value.strip()
        if words != self._pages.words:
            self._pages.search(words)
            self._arrange()

    @on(Input.Submitted, "#chart-find")
    def _end_search(self, message: Input.Submitted | None = None) -> None:
        if message is not None:
            message.stop()
        self._board.focus_chosen()
        # a box that is hidden while it has the focus would let the screen choose who is next
        self.call_after_refresh(self.remove_class, "-searching")
