"""Home: every run of this box, the GPUs above, the highlighted one's loss below."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.content import Content
from textual.widgets import Input, Static

from albor_core.feed.view.run_view import RunView
from albor_core.run.errors import AlborError
from albor_tui.look import glyphs
from albor_tui.look.naming import name_of, tails_of
from albor_tui.messages import FilterAnswered, RunsChanged
from albor_tui.model.desk import Matches, RunQuery
from albor_tui.screens.runs.arranging import ARRANGING, ArrangingScreen, CellsRead, hidden_columns
from albor_tui.screens.runs.order import RECENT
from albor_tui.screens.runs.preview import HighlightFollower, Preview
from albor_tui.widgets.base import styled
from albor_tui.widgets.key_bar import KeyBar
from albor_tui.widgets.run.gpu_panel import GpuStrip
from albor_tui.widgets.run_columns import TableColumn
from albor_tui.widgets.run_table import RunTable
from albor_tui.widgets.status_bar import StatusBar, TopBar

EMPTY = (
    ("albor demo", "real data to a model in minutes"),
    ("albor train apply configs/demo.yaml", "train under the guard"),
    ("albor guard run -- python train.py", "supervise any program"),
)


ON_RUNS = frozenset(  # actions that are nothing without a run
    {
        *("open", "stop", "pause", "checkpoint", "retry", "diff", "select", "select_all"),
        *("workspace", "sort", "reverse", "group", "group_by", "columns", "fold_all"),
        *("tag", "note", "rename", "pin", "export", "report"),
    }
)
LEAST_ROWS, PREVIEW_ROWS = 8, 15  # of the list with its frame; of the preview as albor.tcss has it
CHOICE_S = 0.5  # at most, for the table to highlight its first row
PAINT_S = 0.15  # for the first chart, which this thread would slow down


class FilterLine(Input):
    """The line in which a filter is typed."""

    BINDINGS = [Binding("enter", "submit", "Keep", tooltip="Keep the filter, back to the list")]

    def edit(self) -> None:
        """Go on with the text where it ends."""
        self.display = True
        self.focus()
        self.cursor_position = len(self.value)


class RunsScreen(ArrangingScreen):
    """The table of runs. A key acts on the selected runs, or on the highlighted one.

    Its thread looks also for what needs a person, for all screens: it goes on when covered.
    """

    COVERED_S = 2.0

    BINDINGS = [
        Binding("enter", "open", "Open", tooltip="Open the highlighted run"),
        Binding("x", "stop", "Stop", tooltip="Stop; says how and asks first"),
        Binding("p", "pause", "Pause", tooltip="Pause or resume, through the guard"),
        Binding("c", "checkpoint", "Save", tooltip="Write a checkpoint now"),
        Binding("R", "retry", "Retry", tooltip="Start a dead run again; says how and asks first"),
        Binding("d", "diff", "Diff", tooltip="Compare the selected runs"),
        Binding("slash", "filter", "Filter", key_display="/", tooltip="Filter: words, lr>=1e-4"),
        Binding("space", "select", "Select", tooltip="Select for a comparison, or to act on many"),
        Binding("w", "workspace", "Workspace", tooltip="The selected runs, or all, in one picture"),
        ARRANGING[0],
        Binding("n", "launch", "New", tooltip="Launch a run from a config"),
        *ARRANGING[1:],
        Binding("A", "andon", "Alerts", tooltip="Alerts of all runs and their rules (Andon)"),
        Binding("D", "data", "Data", tooltip="Data sets: what is in them, who read them"),
        Binding("T", "tag", "Tag", show=False, tooltip="Give a tag; -tag takes it away"),
        Binding("N", "note", "Note", show=False, tooltip="Write something down beside the run"),
        Binding("M", "rename", "Rename", show=False, tooltip="Give the run another name"),
        Binding("P", "pin", "Pin", show=False, tooltip="Pin to the top, and back"),
        Binding("E", "export", "Export", show=False, tooltip="Every point as CSV, JSONL, Parquet"),
        Binding("H", "report", "Report", show=False, tooltip="One HTML page with charts and diff"),
        Binding("u", "undo", "Undo", show=False, tooltip="Take back the last tag, pin or name"),
        Binding(
            "escape", "clear", "Clear", show=False, tooltip="Clear the filter, then the selection"
        ),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._tails: dict[str, str] = {}  # behind names that are not unique, by id
        self._problem = ""  # as it stands above the list
        self._has_news = self._awaits_workspace = False
        self._columns: tuple[TableColumn, ...] = ()  # as the table was last shown
        self._titles: tuple[str, Content] = ("", Content(""))
        self._highlighted: RunView | None = None  # read by the poll thread: one reference, atomic
        self._is_chosen = threading.Event()
        self._on_screen: frozenset[str] = frozenset()  # written and read whole, too

    def has_picture(self) -> bool:
        return self.query_one(Preview).is_painted if self.rows else self._has_news

    @property
    def rows(self) -> tuple[RunView, ...]:
        """Every run known, filtered or not."""
        return self._listing.view.rows

    def compose(self) -> ComposeResult:
        yield TopBar("runs")
        yield GpuStrip(id="gpus")
        yield Static(id="problem", markup=False)
        with Container(id="list"):
            yield RunTable(id="table")
            yield Static(id="empty", markup=False)
            yield FilterLine(
                placeholder="words, status:running, lr>=1e-4, -tag:old, since:2d",
                id="filter",
                classes="-keys",
                compact=True,
                select_on_focus=False,
            )
        yield Preview(self.name_of)
        yield StatusBar()
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one("#filter", Input).display = False
        self.query_one("#empty", Static).display = False
        self.query_one("#problem", Static).display = False
        self.query_one(RunTable).focus()
        self._adopt_view()
        super().on_mount()

    def _adopt_view(self) -> None:
        self._listing.show(self.cockpit.views.current)
        self._awaits_workspace = self.cockpit.views.current.screen == "workspace"
        box = self.query_one("#filter", Input)
        with box.prevent(Input.Changed):
            box.value = self._listing.words
        if self._listing.words or self._listing.sorted_by != RECENT:
            self.query_one(RunTable).show_first(is_new=True)

    def show_current_view(self) -> None:
        self._adopt_view()
        self.query_one(RunTable).show_first(is_new=True)
        self.ask_anew()
        self.leave_filter()

    def follow(self) -> None:
        overview, attention = self.source.overview(), None
        preview = self.query_one(Preview)
        follower = HighlightFollower(self.source, tell=preview.post_message, poll_now=self.poll_now)
        version = -1
        try:
            for _ in self.ticking():
                view = overview.poll(visible=self._on_screen, wanted=self._listing.to_load)
                if attention is not None and (news := attention.look(overview, view)) is not None:
                    self.app.post_message(news)
                if not self.is_on_top:
                    continue
                if view.version != version:
                    is_first, version = version < 0, view.version
                    self.post_message(RunsChanged(view))
                if (cells := overview.cells.read(self.wanted, view.rows)) is not None:
                    self.post_message(CellsRead(cells))
                    if is_first and view.rows:  # a chart before the other ten thousand rows
                        self._is_chosen.wait(CHOICE_S)
                        follower.poll(self._highlighted, wants_details=self.has_class("-wide"))
                        time.sleep(PAINT_S)
                follower.poll(self._highlighted, wants_details=self.has_class("-wide"))
                if attention is None:  # after the first picture
                    attention = self.source.attention()
                    self.poll_now()
        finally:
            overview.close()
            follower.close()

    @on(RunsChanged)
    def show_runs(self, message: RunsChanged) -> None:
        if message.view.rows is not self.rows:
            self._tails = tails_of(message.view.rows)
        self._listing.view, self._has_news = message.view, True
        self.query_one(TopBar).view = message.view
        strip = self.query_one(GpuStrip)
        strip.judged = tuple(item for item in self.attention.items if item.kind.startswith("gpu_"))
        strip.gpus, strip.why_none = message.view.gpus, message.view.gpus_why_none
        self._show_problem(message.view.problem)
        if self._listing.is_due:
            self._ask_store(self._listing.query)
        self.list_runs()

    def _show_problem(self, problem: str) -> None:
        """Show a problem that hides runs or makes them outdated, as long as it exists."""
        if problem == self._problem:
            return
        self._problem = problem
        line = self.query_one("#problem", Static)
        line.display = bool(problem)
        line.update(styled.text(f"{glyphs.current.alert} {problem}", "$warning"))
        self.call_after_refresh(self._share_room)

    def list_runs(self, *, is_asked: bool = False, is_sorted: bool = False) -> None:
        """List what is known now; where other rows were `is_asked` for, with the cursor in view,
        and where another order was, with its first rows."""
        table = self.query_one(RunTable)
        self._listing.metrics = self.cockpit.views.metrics
        rows, groups = self._listing.arranged()
        self._columns = self._listing.columns(table.runs_in_view)
        table.sorted_by, table.is_rising = self._listing.sorted_column, self._listing.is_rising
        table.show(rows, groups, self._tails, self._columns)
        self._look_at_metrics()
        self._title(len(rows))
        known, words = self._listing.view.is_complete, self._listing.words
        known = known and not self._listing.is_unanswered
        why = None if rows else _nothing(known, words, self._problem)
        self.show_empty(why, table, self.query_one(Preview))
        self._share_room()
        self.refresh_key_bar()
        if is_sorted or (is_asked and not table.is_moved):
            table.show_first()
        elif is_asked:
            table.reveal()
        self._open_awaited()

    def _share_room(self) -> None:
        """A list that is shorter than its place leaves the rest to the preview. A filter does not
        move the border."""
        listing, preview = self.query_one("#list"), self.query_one("#preview")
        rows = max(len(self.rows), self.query_one(RunTable).lines) + 3  # header and frame
        rows += self.query_one("#filter").display
        place = self.size.height - self.query_one(GpuStrip).outer_size.height - 2
        place -= self.query_one("#problem").outer_size.height if self._problem else 0
        is_few = preview.display and max(rows, LEAST_ROWS) < place - PREVIEW_ROWS
        self.set_class(is_few, "-few")
        listing.styles.height = max(rows, LEAST_ROWS) if is_few else None

    def on_resize(self) -> None:
        self._share_room()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ON_RUNS:
            return not self.has_class("-empty")
        if action in ("filter", "clear", "undo"):  # a filter that hides all can be taken away
            return bool(self.rows) or not self._has_news
        return super().check_action(action, parameters)

    def ask_anew(self, *, is_sorted: bool = False) -> None:
        """Another filter or order."""
        self.keep_view(**self._listing.shown)
        self._listing.reset_answer()
        if self._listing.needs_store:
            self._ask_store(self._listing.query)
        if self._listing.is_plain:  # others are arranged when they were understood
            self.list_runs(is_asked=True, is_sorted=is_sorted)

    @work(thread=True, exclusive=True, group="filter", exit_on_error=False)
    def _ask_store(self, question: RunQuery) -> None:
        self._listing.is_asking = True
        try:
            found: Matches | None = self.desk.matching(question)
            problem = ""
        except AlborError as error:
            found, problem = None, error.message
        self.post_message(FilterAnswered(question, found, problem))

    @on(FilterAnswered)
    def take_filter(self, message: FilterAnswered) -> None:
        if self._listing.answer(message):
            if message.found is not None:
                self.poll_now()
            self.list_runs(is_asked=True)

    def _title(self, shown: int) -> None:
        table = self.query_one(RunTable)
        titles = (
            self._listing.count(shown) + hidden_columns(*table.hidden_columns),
            self._listing.about(table.selection),
        )
        if titles == self._titles:  # a title redraws everything inside its frame
            return
        self._titles = titles
        listing = self.query_one("#list")
        listing.border_title = Content.assemble(("runs ", "bold $ink"), (titles[0], "$ink-muted"))
        listing.border_subtitle = Content.assemble(titles[1])

    @on(RunTable.Highlighted)
    def preview(self, message: RunTable.Highlighted) -> None:
        self._highlighted = message.view
        if message.view is not None:
            self._is_chosen.set()
        self.refresh_key_bar()
        self._look_at_metrics()
        if self.query_one(Preview).show(message.view):
            self.poll_now()

    @on(RunTable.ColumnsScrolled)
    def name_columns(self) -> None:
        self._title(len(self.query_one(RunTable).runs))

    def _look_at_metrics(self) -> None:
        """Have the poll thread read what is said of the runs that are seen, and what order and
        groups are made of."""
        table = self.query_one(RunTable)
        self._on_screen = table.visible_ids
        self.want(self._listing.cells_wanted(self._on_screen))
        columns = self._listing.columns(table.runs_in_view)
        if columns is not self._columns:  # each time that it is shown it says what is highlighted
            self._columns = columns
            table.show(table.runs, table.groups, self._tails, columns)

    @on(RunTable.Opened)
    def open_run(self, message: RunTable.Opened) -> None:
        self.app.push_screen(self.cockpit.run_screen(message.view))

    def action_open(self) -> None:
        table = self.query_one(RunTable)
        if table.heading is not None:
            table.reveal()
            self.fold(table.heading.label)
        elif table.current is not None:
            table.reveal()
            self.app.push_screen(self.cockpit.run_screen(table.current))

    def action_filter(self) -> None:
        if self.maximized is not None:
            self.minimize()
        self.query_one(FilterLine).edit()
        self.refresh_key_bar()

    @on(Input.Changed, "#filter")
    def apply_filter(self, event: Input.Changed) -> None:
        self._listing.words = event.value
        self.ask_anew()

    @on(Input.Submitted, "#filter")
    def leave_filter(self) -> None:
        self.query_one("#filter", Input).display = False
        self.query_one(RunTable).focus()
        self.refresh_key_bar()

    def action_clear(self) -> None:
        """Clear the filter; where there is none, the selection."""
        box = self.query_one("#filter", Input)
        if box.display or self._listing.words:
            box.value = ""
            self.leave_filter()
        else:
            table = self.query_one(RunTable)
            table.selection = replace(table.selection, marked=frozenset())
        self.list_runs(is_asked=True)

    def action_diff(self) -> None:
        table = self.query_one(RunTable)
        compared = table.selection.compared
        if len(compared) < 2:
            self.show_message("select two runs with space, then d", "$warning")
            return
        from albor_tui.screens.diff import DiffScreen

        names = {view.id: self.name_of(view) for view in table.runs if view.id in compared}
        self.app.push_screen(DiffScreen(compared, names))

    def action_workspace(self) -> None:
        """The selected runs, or all that are listed, in one picture."""
        from albor_tui.screens.workspace.screen import WorkspaceScreen

        table = self.query_one(RunTable)
        views = table.acted_on if table.selection.chosen else table.runs
        if views:
            names = {view.id: self.name_of(view) for view in views}
            self.app.push_screen(WorkspaceScreen(views, names))

    def _open_awaited(self) -> None:
        """Open the workspace that the view is of, once it is known which runs are listed."""
        listing = self._listing
        is_known = listing.view.is_complete and not listing.is_unanswered
        if self._awaits_workspace and not listing.view.problem:
            is_known = is_known and listing.is_in_order
        if self._awaits_workspace and is_known and self.is_current:
            self._awaits_workspace = False
            self.action_workspace()

    def on_screen_resume(self) -> None:
        self.call_later(self._open_awaited)

    def action_launch(self) -> None:
        from albor_tui.screens.launch import LaunchScreen

        self.app.push_screen(LaunchScreen())

    def action_andon(self) -> None:
        from albor_tui.screens.andon import AndonScreen

        self.app.push_screen(AndonScreen())

    def action_data(self) -> None:
        from albor_tui.screens.data.screen import DataScreen

        self.app.push_screen(DataScreen())

    def name_of(self, view: RunView) -> str:
        return name_of(view, self._tails)

    def shows_key(self, action: str) -> bool:
        if action == "diff":
            return len(self.query_one(RunTable).selection.compared) > 1
        if action == "clear":
            box, selection = self.query_one("#filter"), self.query_one(RunTable).selection
            return bool(box.display or self._listing.words or selection.marked)
        return super().shows_key(action)

    def acted_on(self) -> list[RunView]:
        return self.query_one(RunTable).acted_on

    def reveal_acted_on(self) -> list[RunView]:
        self.query_one(RunTable).reveal()
        return self.acted_on()


def _nothing(is_read: bool, words: str, problem: str) -> Content:
    if not is_read:
        return styled.loading()
    if words:
        from albor_core.store.query.filter import meant_status

        meant = meant_status(words.strip())
        other = f"{meant} asks for the state, " if meant else ""
        return styled.text(f"no run matches {words!r}; {other}esc shows all", "$ink-muted")
    if problem:
        return Content.styled("No run can be shown; the line above says why.", "$ink-muted")
    width = max(len(command) for command, _ in EMPTY)
    lines = [
        Content.styled("No runs here yet.", "bold $ink"),
        Content.styled("Press n, or start one from a shell; it appears by itself.", "$ink-muted"),
        Content(""),
    ]
    lines += [
        Content.assemble((f"{command:<{width}}", "$accent"), (f"   {words}", "$ink-muted"))
        for command, words in EMPTY
    ]
    return styled.rows(lines)
