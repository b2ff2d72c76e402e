"""Home: every run of this box, the GPUs above, the highlighted one's loss below."""

from __future__ import annotations

from typing import Any

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container, Horizontal
from textual.content import Content
from textual.widgets import Footer, Input, Static

from albor_core.feed.view import RunsView, RunView
from albor_tui import glyphs
from albor_tui.messages import CurvesChanged, RunsChanged
from albor_tui.screens.confirm import ConfirmScreen
from albor_tui.screens.curves import MAX_POINTS, PREVIEW_KEYS, loss_chart
from albor_tui.screens.diff import DiffScreen
from albor_tui.screens.order import ORDERS, arrange
from albor_tui.screens.polling import PollingScreen
from albor_tui.screens.run import RunScreen, stop_question
from albor_tui.source import Follower
from albor_tui.widgets import meters
from albor_tui.widgets.chart import Chart, ChartData
from albor_tui.widgets.glance import Glance
from albor_tui.widgets.gpu_panel import GpuStrip
from albor_tui.widgets.run_table import RunTable
from albor_tui.widgets.status_bar import StatusBar, TopBar

EMPTY = (
    ("albor demo", "real data to a model in minutes"),
    ("albor train apply configs/demo.yaml", "train under the guard"),
    ("albor guard run -- python train.py", "supervise any program"),
)


class RunsScreen(PollingScreen):
    """The table of runs."""

    BINDINGS = [
        Binding("enter", "open", "Open", tooltip="Open the highlighted run"),
        Binding("slash", "filter", "Filter", key_display="/", tooltip="Filter by words"),
        Binding("s", "sort", "Sort", tooltip="Sort by the next column"),
        Binding("S", "reverse", "Reverse", show=False, tooltip="Reverse the order"),
        Binding("space", "select", "Select", tooltip="Select for a comparison"),
        Binding("d", "diff", "Diff", tooltip="Compare the selected runs"),
        Binding("x", "stop", "Stop", tooltip="Stop the run after a checkpoint; asks first"),
        Binding("escape", "clear", "Clear", show=False, tooltip="Clear filter and selection"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._view = RunsView()
        self._has_news = False
        self._titled: tuple[object, ...] = ()
        self._words = ""
        self._order = 0
        self._reverse = False
        self._highlighted: RunView | None = None  # read by the poll thread: one reference, atomic
        self._on_screen: frozenset[str] = frozenset()  # written and read whole, too
        self._shown: tuple[str, float | None] = ("", None)

    def compose(self) -> ComposeResult:
        yield TopBar("runs")
        yield GpuStrip(id="gpus")
        with Container(id="list"):
            yield RunTable(id="table")
            yield Static(id="empty", markup=False)
            yield Input(placeholder="name, experiment, state or tag", id="filter", compact=True)
        with Horizontal(id="preview"):
            yield Chart("loss", id="preview-chart")
            yield Glance(id="glance")
        yield StatusBar()
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        self.query_one("#filter", Input).display = False
        self.query_one("#empty", Static).display = False
        self.query_one(RunTable).focus()
        super().on_mount()

    def follow(self) -> None:
        overview = self.source.overview()
        follower: tuple[str, Follower] | None = None
        version = -1
        try:
            for _ in self.ticking():
                view = overview.poll(visible=self._on_screen)
                if view.version != version:
                    version = view.version
                    self.post_message(RunsChanged(view))
                follower = self._follow_highlighted(follower)
        finally:
            overview.close()
            if follower is not None:
                follower[1].close()

    def _follow_highlighted(self, follower: tuple[str, Follower] | None) -> Any:
        view = self._highlighted
        if view is None:
            return follower
        if follower is None or follower[0] != view.id:
            if follower is not None:
                follower[1].close()
            follower = (view.id, self.source.follow(view))
            self._shown = ("", None)
        mark = (view.id, view.step)
        if mark != self._shown:
            self._shown = mark
            curves = follower[1].curves(PREVIEW_KEYS, MAX_POINTS)
            self.post_message(CurvesChanged(view.id, curves))
        return follower

    @on(RunsChanged)
    def show_runs(self, message: RunsChanged) -> None:
        self._view, self._has_news = message.view, True
        self.query_one(TopBar).view = message.view
        strip = self.query_one(GpuStrip)
        strip.gpus, strip.why_none = message.view.gpus, message.view.gpus_why_none
        if message.view.problem:
            self.say(message.view.problem, "$warning")
        self._arrange()

    def _arrange(self) -> None:
        table = self.query_one(RunTable)
        order = ORDERS[self._order]
        rows = arrange(self._view.rows, words=self._words, order=order, reverse=self._reverse)
        table.sorted_by = order
        table.runs = rows
        self._title(len(rows), order)
        self._show_emptiness(not rows)

    def _title(self, shown: int, order: str) -> None:
        chosen = len(self.query_one(RunTable).selected)
        mark = (shown, len(self._view.rows), order, self._reverse, self._words, chosen)
        if mark == self._titled:  # a title redraws everything inside its frame
            return
        self._titled = mark
        listing = self.query_one("#list")
        total = len(self._view.rows)
        count = f"{shown} of {total}" if shown != total else f"{total}"
        listing.border_title = Content.assemble(("runs ", "bold $ink"), (count, "$ink-muted"))
        arrow = glyphs.current.arrow_up if self._reverse else glyphs.current.arrow_down
        parts = [Content.styled(f"{arrow} {order}", "$ink-muted")]
        if self._words:
            parts.insert(0, meters.text(f"/{self._words}  ", "$accent"))
        if chosen:
            parts.insert(0, Content.styled(f"{chosen} selected  ", "$accent"))
        listing.border_subtitle = Content("").join(parts)

    def _show_emptiness(self, is_empty: bool) -> None:
        empty = self.query_one("#empty", Static)
        empty.display = is_empty
        self.query_one(RunTable).display = not is_empty
        self.query_one("#preview").display = not is_empty
        if is_empty:
            empty.update(_nothing(self._has_news, self._words))

    @on(RunTable.Highlighted)
    def preview(self, message: RunTable.Highlighted) -> None:
        old, self._highlighted = self._highlighted, message.view
        self._on_screen = self.query_one(RunTable).visible_ids
        self.query_one(Glance).view = message.view
        chart = self.query_one("#preview-chart", Chart)
        if message.view is None:
            chart.data = ChartData()
        elif old is None or old.id != message.view.id:
            chart.border_title = Content.assemble(
                ("loss ", "bold $ink"),
                meters.text(message.view.name or message.view.id, "$ink-muted"),
            )
            chart.data = loss_chart(message.view, {})

    @on(CurvesChanged)
    def draw_preview(self, message: CurvesChanged) -> None:
        view = self._highlighted
        if view is not None and view.id == message.run_id:
            self.query_one("#preview-chart", Chart).data = loss_chart(view, message.curves)

    @on(RunTable.Opened)
    def open_run(self, message: RunTable.Opened) -> None:
        self.app.push_screen(RunScreen(message.view))

    def action_open(self) -> None:
        view = self.query_one(RunTable).current
        if view is not None:
            self.app.push_screen(RunScreen(view))

    def action_filter(self) -> None:
        box = self.query_one("#filter", Input)
        box.display = True
        box.focus()

    @on(Input.Changed, "#filter")
    def apply_filter(self, event: Input.Changed) -> None:
        self._words = event.value
        self._arrange()

    @on(Input.Submitted, "#filter")
    def leave_filter(self) -> None:
        self.query_one("#filter", Input).display = False
        self.query_one(RunTable).focus()

    def action_clear(self) -> None:
        box = self.query_one("#filter", Input)
        if box.display or self._words:
            box.value = ""
            self.leave_filter()
        self.query_one(RunTable).selected = frozenset()
        self._arrange()

    def action_sort(self) -> None:
        self._order = (self._order + 1) % len(ORDERS)
        self._arrange()

    def action_reverse(self) -> None:
        self._reverse = not self._reverse
        self._arrange()

    def action_select(self) -> None:
        table = self.query_one(RunTable)
        if table.current is not None:
            table.selected = table.selected ^ {table.current.id}
            table.action_move(1)
            self._arrange()

    def action_diff(self) -> None:
        table = self.query_one(RunTable)
        chosen = [view.id for view in table.runs if view.id in table.selected]
        if len(chosen) == 1 and table.current is not None and table.current.id != chosen[0]:
            chosen.append(table.current.id)
        if len(chosen) < 2:
            self.say("select two runs with space, then d", "$warning")
            return
        names = {view.id: view.name or view.id for view in table.runs}
        self.app.push_screen(DiffScreen(tuple(chosen), names))

    def action_stop(self) -> None:
        view = self.query_one(RunTable).current
        if view is None:
            return
        if not view.is_active:
            self.say(f"{view.name or view.id} is not running", "$warning")
            return

        def decide(yes: bool | None) -> None:
            if yes:
                self.send_command(view, "stop")

        self.app.push_screen(ConfirmScreen(*stop_question(view)), decide)


def _nothing(has_news: bool, words: str) -> Content:
    if not has_news:
        return Content.styled("looking for runs", "$ink-muted")
    if words:
        return meters.text(f"no run matches {words!r}; esc shows all", "$ink-muted")
    width = max(len(command) for command, _ in EMPTY)
    lines = [
        Content.styled("No runs here yet.", "bold $ink"),
        Content.styled("Start one from a shell; it appears here by itself.", "$ink-muted"),
        Content(""),
    ]
    lines += [
        Content.assemble((f"{command:<{width}}", "$accent"), (f"   {words}", "$ink-muted"))
        for command, words in EMPTY
    ]
    return meters.rows(lines)
