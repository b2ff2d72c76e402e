"""Home: every run of this box, the GPUs above, the highlighted one's loss below."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container, Horizontal
from textual.content import Content
from textual.widgets import Input, Static

from albor_core.feed.view import LOADING, RunsView, RunView
from albor_core.run.errors import AlborError
from albor_tui.look import glyphs
from albor_tui.look.naming import name_of, tails_of
from albor_tui.messages import CurvesChanged, FilterAnswered, RunChanged, RunsChanged
from albor_tui.model.desk import Matches, RunSelection, reference
from albor_tui.model.source import RunFollower
from albor_tui.screens.base.run_actions import RunActionsScreen
from albor_tui.screens.charts.curves import MAX_POINTS, loss_chart, preview_chart, preview_keys
from albor_tui.screens.runs.order import (
    GROUPS,
    SORTS,
    arrange,
    grouped,
    is_plain,
    needed_for,
    next_order,
    question_of,
)
from albor_tui.widgets.base import styled
from albor_tui.widgets.chart.chart import Chart, ChartData
from albor_tui.widgets.key_bar import KeyBar
from albor_tui.widgets.run.gpu_panel import GpuStrip
from albor_tui.widgets.run.run_preview import RunPreview
from albor_tui.widgets.run_columns import METRIC
from albor_tui.widgets.run_table import RunTable
from albor_tui.widgets.status_bar import StatusBar, TopBar

EMPTY = (
    ("albor demo", "real data to a model in minutes"),
    ("albor train apply configs/demo.yaml", "train under the guard"),
    ("albor guard run -- python train.py", "supervise any program"),
)


ON_RUNS = frozenset(  # actions that are nothing without a run
    {
        *("open", "stop", "pause", "checkpoint", "retry", "diff", "select", "sort", "reverse"),
        *("group", "tag", "note", "rename", "pin", "export", "report"),
    }
)
LEAST_ROWS, PREVIEW_ROWS = 8, 15  # of the list with its frame; of the preview as albor.tcss has it
CHOICE_S = 0.5  # at most, for the table to highlight its first row
ASK_GAP_S = 2.0  # between two questions to a store that is too large to be here whole
PAINT_S = 0.15  # for the first chart, which this thread would slow down


class FilterLine(Input):
    """Where a filter is typed."""

    BINDINGS = [Binding("enter", "submit", "Keep", tooltip="Keep the filter, back to the list")]


class RunsScreen(RunActionsScreen):
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
        Binding("n", "launch", "New", tooltip="Launch a run from a config"),
        Binding("d", "diff", "Diff", tooltip="Compare the selected runs"),
        Binding("slash", "filter", "Filter", key_display="/", tooltip="Filter: words, lr>=1e-4"),
        Binding("space", "select", "Select", tooltip="Select for a comparison, or to act on many"),
        Binding("A", "andon", "Andon", tooltip="Alerts of all runs, and the rules behind them"),
        Binding("s", "sort", "Sort", tooltip="Sort by the next column"),
        Binding("g", "group", "Group", tooltip="Group by experiment, state, tag, host"),
        Binding("D", "data", "Data", tooltip="Data sets: what is in them, who read them"),
        Binding("S", "reverse", "Reverse", show=False, tooltip="Reverse the order"),
        Binding("T", "tag", "Tag", show=False, tooltip="Give a tag; -tag takes it away"),
        Binding("N", "note", "Note", show=False, tooltip="Write something down beside the run"),
        Binding("M", "rename", "Rename", show=False, tooltip="Give the run another name"),
        Binding("P", "pin", "Pin", show=False, tooltip="Pin to the top, and back"),
        Binding("E", "export", "Export", show=False, tooltip="Every point as CSV, JSONL, Parquet"),
        Binding("H", "report", "Report", show=False, tooltip="One HTML page with charts and diff"),
        Binding("u", "undo", "Undo", show=False, tooltip="Take back the last tag, pin or name"),
        Binding("escape", "clear", "Clear", show=False, tooltip="Clear filter and selection"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._view = RunsView(is_complete=False)
        self._tails: dict[str, str] = {}  # behind names that are not unique, by id
        self._problem = ""  # as it stands above the list
        self._has_news = self._has_curves = False
        self._titled: tuple[object, ...] = ()
        self._words = ""
        self._matches: Matches | None = None  # what the store keeps, where it was asked
        self._to_load: frozenset[str] = frozenset()  # read by the poll thread, whole
        self._asked_at = 0.0
        self._filter_problem = ""
        self._is_asking = False
        self._order = "recent"
        self._reverse = False
        self._group = ""
        self._highlighted: RunView | None = None  # read by the poll thread: one reference, atomic
        self._is_chosen = threading.Event()
        self._on_screen: frozenset[str] = frozenset()  # written and read whole, too
        self._shown: tuple[str, int | None, tuple[str, ...]] = ("", None, ())
        self._full: RunView | None = None  # the highlighted run with what the list does not know
        self._asked = ""  # the run that this was asked of last

    def has_picture(self) -> bool:
        if not self._view.rows:
            return self._has_news
        return self._has_curves and self.query_one("#preview-chart", Chart).is_painted

    @property
    def rows(self) -> tuple[RunView, ...]:
        """Every run known, filtered or not."""
        return self._view.rows

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
            )
        with Horizontal(id="preview"):
            yield Chart("loss", id="preview-chart")
            yield RunPreview(id="glance")
        yield StatusBar()
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one("#filter", Input).display = False
        self.query_one("#empty", Static).display = False
        self.query_one("#problem", Static).display = False
        self.query_one(RunTable).focus()
        super().on_mount()

    def follow(self) -> None:
        overview, attention = self.source.overview(), None
        follower: tuple[str, RunFollower] | None = None
        version = -1
        try:
            for _ in self.ticking():
                view = overview.poll(visible=self._on_screen, wanted=self._to_load)
                if attention is not None and (news := attention.look(overview, view)) is not None:
                    self.app.post_message(news)
                if not self.is_on_top:
                    continue
                if view.version != version:
                    is_first, version = version < 0, view.version
                    self.post_message(RunsChanged(view))
                    if is_first and view.rows:  # a chart before the other ten thousand rows
                        self._is_chosen.wait(CHOICE_S)
                        follower = self._follow_highlighted(follower)
                        time.sleep(PAINT_S)
                follower = self._follow_highlighted(follower)
                if attention is None:  # after the first picture
                    attention = self.source.attention()
                    self.poll_now()
        finally:
            overview.close()
            if follower is not None:
                follower[1].close()

    def _follow_highlighted(self, follower: tuple[str, RunFollower] | None) -> Any:
        view = self._highlighted
        if view is None:
            return follower
        if follower is None or follower[0] != view.id:
            if follower is not None:
                follower[1].close()
            follower = (view.id, self.source.follow(view))
            self._shown = ("", None, ())
        mark = (view.id, view.step, tuple(one.name for one in view.metrics[:1]))
        if mark != self._shown:
            self._shown = mark
            keys = preview_keys(follower[1].main_metrics(view))
            curves = follower[1].curves(keys, MAX_POINTS)
            self.post_message(CurvesChanged(view.id, curves))
            self.poll_now()  # its details come after the chart
        elif not view.is_active and self._asked != view.id and self.has_class("-wide"):
            self._asked = view.id
            if (full := follower[1].poll()) is not None:
                self.post_message(RunChanged(full))
        return follower

    @on(RunsChanged)
    def show_runs(self, message: RunsChanged) -> None:
        if message.view.rows is not self._view.rows:
            self._tails = tails_of(message.view.rows)
        self._view, self._has_news = message.view, True
        self.query_one(TopBar).view = message.view
        strip = self.query_one(GpuStrip)
        strip.judged = tuple(item for item in self.attention.items if item.kind.startswith("gpu_"))
        strip.gpus, strip.why_none = message.view.gpus, message.view.gpus_why_none
        self._show_problem(message.view.problem)
        if self._needs_store() and not self._is_asking and self._is_due():
            self._ask_store(self._question())
        self._arrange()

    def _show_problem(self, problem: str) -> None:
        """What hides runs or makes them old, for as long as it does."""
        if problem == self._problem:
            return
        self._problem = problem
        line = self.query_one("#problem", Static)
        line.display = bool(problem)
        line.update(styled.text(f"{glyphs.current.alert} {problem}", "$warning"))
        self.call_after_refresh(self._share_room)

    def _arrange(self) -> None:
        table, order = self.query_one(RunTable), self._order
        matches = self._matches if self._needs_store() else None
        only = None if matches is None else matches.ids
        words = self._words if only is None else ""
        rows = arrange(self._view.rows, words=words, only=only, order=order, reverse=self._reverse)
        rows, groups = grouped(rows, self._group)
        table.sorted_by = order if order in SORTS else METRIC
        table.show(rows, groups, self._tails)
        self._look_at_metrics()
        self._title(len(rows))
        self._show_emptiness(not rows)
        self._share_room()
        self.refresh_key_bar()

    def _rearrange(self) -> None:
        """Show other rows or another order at the user's request: the cursor stays in view."""
        self._arrange()
        self.query_one(RunTable).reveal()

    def _share_room(self) -> None:
        """A list that is shorter than its place leaves the rest to the preview. A filter does not
        move the border."""
        listing, preview = self.query_one("#list"), self.query_one("#preview")
        groups = len(grouped(self._view.rows, self._group)[1])
        rows = len(self._view.rows) + groups + 3  # header and frame
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
            return bool(self._view.rows) or not self._has_news
        return super().check_action(action, parameters)

    def _question(self) -> RunSelection:
        sort, descending = question_of(self._order, self._view.rows)
        return RunSelection(self._words, sort, descending != self._reverse)

    def _is_cut(self) -> bool:
        """Whether the store has more runs than can be here at once."""
        return self._view.is_complete and self._view.total > len(self._view.rows)

    def _needs_store(self) -> bool:
        return not is_plain(self._words) or (self._is_cut() and self._question() != RunSelection())

    def _is_due(self) -> bool:
        return not self._is_cut() or time.monotonic() - self._asked_at > ASK_GAP_S

    def _ask_anew(self) -> None:
        """Another filter or order."""
        self._filter_problem = ""
        if self._needs_store():
            self._ask_store(self._question())
        else:
            self._matches, self._to_load = None, frozenset()
        if is_plain(self._words):  # others are arranged when they were understood
            self._rearrange()

    @work(thread=True, exclusive=True, group="filter", exit_on_error=False)
    def _ask_store(self, question: RunSelection) -> None:
        self._is_asking = True
        try:
            found: Matches | None = self.desk.matching(question)
            problem = ""
        except AlborError as error:
            found, problem = None, error.message
        self.post_message(FilterAnswered(question, found, problem))

    @on(FilterAnswered)
    def take_filter(self, message: FilterAnswered) -> None:
        self._is_asking, self._asked_at = False, time.monotonic()
        if message.question != self._question():
            return
        self._filter_problem = message.problem
        if message.found is not None:
            self._matches, self._to_load = message.found, message.found.ids
            self.poll_now()
        self._rearrange()

    def _title(self, shown: int) -> None:
        table = self.query_one(RunTable)
        chosen = len(table.selected)
        hidden = chosen - sum(view.id in table.selected for view in table.runs) if chosen else 0
        asked = (self._words, self._filter_problem, self._group)
        total = max(len(self._view.rows), self._view.total)
        count = self._count_of(shown, total)
        if not self._view.is_complete:
            count = f"{count}, {LOADING}" if total else LOADING
        mark = (count, self._order, self._reverse, asked, chosen, hidden)
        if mark == self._titled:  # a title redraws everything inside its frame
            return
        self._titled = mark
        listing = self.query_one("#list")
        listing.border_title = Content.assemble(("runs ", "bold $ink"), (count, "$ink-muted"))
        arrow = glyphs.current.arrow_up if self._reverse else glyphs.current.arrow_down
        parts = [styled.text(f"{arrow} {self._order}", "$ink-muted")] if total else []
        if self._group:
            parts.insert(0, Content.styled(f"by {self._group}  ", "$ink-muted"))
        if self._filter_problem:
            parts.insert(0, styled.text(f"{self._filter_problem}  ", "$error"))
        elif self._words:
            parts.insert(0, styled.text(f"/{self._words}  ", "$accent"))
        if chosen:
            but = f", {hidden} of them hidden" if hidden else ""
            parts.insert(0, Content.styled(f"{chosen} selected{but}  ", "$accent"))
        listing.border_subtitle = Content("").join(parts)

    def _count_of(self, shown: int, total: int) -> str:
        if self._needs_store() and self._matches is not None and self._matches.total > shown:
            return f"{shown:,} of {self._matches.total:,} that match, of {total:,}"
        newest = ", the newest" if self._is_cut() and not self._needs_store() else ""
        return f"{shown:,} of {total:,}{newest}" if shown != total else f"{total:,}"

    def _show_emptiness(self, is_empty: bool) -> None:
        if is_empty != self.has_class("-empty"):
            self.set_class(is_empty, "-empty")
            self.refresh_bindings()
        empty = self.query_one("#empty", Static)
        empty.display = is_empty
        self.query_one(RunTable).display = not is_empty
        self.query_one("#preview").display = not is_empty
        if is_empty:
            empty.update(_nothing(self._view.is_complete, self._words, self._problem))

    @on(RunTable.Highlighted)
    def preview(self, message: RunTable.Highlighted) -> None:
        old, self._highlighted = self._highlighted, message.view
        if message.view is not None:
            self._is_chosen.set()
        self.refresh_key_bar()
        self._look_at_metrics()
        self._show_glance(message.view)
        chart = self.query_one("#preview-chart", Chart)
        if message.view is None:
            chart.data = ChartData()
        elif old is None or old.id != message.view.id:
            self._name_chart("loss", message.view)
            chart.data = loss_chart(message.view, {}, is_loading=True)
            self.poll_now()

    def _look_at_metrics(self) -> None:
        """Have the poll thread read those of the runs that are seen, and what the list needs."""
        needed = needed_for(self._order, self._group, self._view.rows)
        self._on_screen = self.query_one(RunTable).visible_ids | needed

    def _show_glance(self, view: RunView | None) -> None:
        """The list knows less of a run that has ended than its own records do."""
        full = self._full
        if view is not None and full is not None and full.id == view.id and not view.is_active:
            view = replace(
                view,
                lr=full.lr,
                loss_ema=full.loss_ema,
                step_ms=full.step_ms,
                device=full.device,
                checkpoint=full.checkpoint,
                detail=full.detail or view.detail,
                val_step=full.val_step,
            )
        self.query_one(RunPreview).view = view

    @on(RunChanged)
    def show_details(self, message: RunChanged) -> None:
        if self._highlighted is not None and self._highlighted.id == message.view.id:
            self._full = message.view
            self._show_glance(self._highlighted)

    @on(CurvesChanged)
    def draw_preview(self, message: CurvesChanged) -> None:
        view = self._highlighted
        if view is not None and view.id == message.run_id:
            self._has_curves = True
            metric, data = preview_chart(view, message.curves)
            self._name_chart(metric, view)
            self.query_one("#preview-chart", Chart).data = data

    def _name_chart(self, metric: str, view: RunView) -> None:
        title = Content.assemble(
            styled.text(f"{metric} ", "bold $ink"), styled.text(self.name_of(view), "$ink-muted")
        )
        self.query_one("#preview-chart", Chart).entitle(title)

    @on(RunTable.Opened)
    def open_run(self, message: RunTable.Opened) -> None:
        self._open(message.view)

    def action_open(self) -> None:
        table = self.query_one(RunTable)
        if table.current is not None:
            table.reveal()
            self._open(table.current)

    def _open(self, view: RunView) -> None:
        self.app.push_screen(self.cockpit.run_screen(view))

    def action_filter(self) -> None:
        if self.maximized is not None:
            self.minimize()
        box = self.query_one("#filter", Input)
        box.display = True
        box.focus()
        self.refresh_key_bar()

    @on(Input.Changed, "#filter")
    def apply_filter(self, event: Input.Changed) -> None:
        self._words = event.value
        self._ask_anew()

    @on(Input.Submitted, "#filter")
    def leave_filter(self) -> None:
        self.query_one("#filter", Input).display = False
        self.query_one(RunTable).focus()
        self.refresh_key_bar()

    def action_clear(self) -> None:
        box = self.query_one("#filter", Input)
        if box.display or self._words:
            box.value = ""
            self.leave_filter()
        self.query_one(RunTable).selected = frozenset()
        self._rearrange()

    def action_sort(self) -> None:
        self._order = next_order(self._order, self._view.rows)
        self._ask_anew()

    def action_reverse(self) -> None:
        self._reverse = not self._reverse
        self._ask_anew()

    def action_select(self) -> None:
        table = self.query_one(RunTable)
        if table.current is not None:
            table.selected = table.selected ^ {table.current.id}
            table.action_move(1)
            self._arrange()

    def action_diff(self) -> None:
        table = self.query_one(RunTable)
        chosen = self._compared()
        if len(chosen) < 2:
            self.show_message("select two runs with space, then d", "$warning")
            return
        from albor_tui.screens.diff import DiffScreen

        names = {view.id: self.name_of(view) for view in table.runs}
        self.app.push_screen(DiffScreen(tuple(chosen), names))

    def _compared(self) -> list[str]:
        """The selected runs; beside a single one the highlighted run."""
        table = self.query_one(RunTable)
        if not table.selected:
            return []
        chosen = [view.id for view in table.runs if view.id in table.selected]
        if len(chosen) == 1 and table.current is not None and table.current.id != chosen[0]:
            chosen.append(table.current.id)
        return chosen

    def action_group(self) -> None:
        self._group = GROUPS[(GROUPS.index(self._group) + 1) % len(GROUPS)]
        self.show_message(
            f"grouped by {self._group}" if self._group else "not grouped", "$ink-muted"
        )
        self._rearrange()

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
            return len(self._compared()) > 1
        if action == "clear":
            box, table = self.query_one("#filter", Input), self.query_one(RunTable)
            return bool(box.display or self._words or table.selected)
        return super().shows_key(action)

    def acted_on(self) -> list[RunView]:
        """The selected runs that the filter shows, else the highlighted one."""
        table = self.query_one(RunTable)
        asked = table.runs if table.selected else ()  # ten thousand, for each key
        selected = [view for view in asked if view.id in table.selected]
        return selected or ([table.current] if table.current is not None else [])

    def _for_deed(self) -> list[RunView]:
        """The same, so that the user sees which one it is."""
        self.query_one(RunTable).reveal()
        return self.acted_on()

    def action_stop(self) -> None:
        self.ask(self._for_deed(), "stop", "no, keep it running")

    def action_pause(self) -> None:
        """Each run to the state of the highlighted one's opposite, so that many move together."""
        views = self._for_deed()
        if views:
            if views[0].status == "paused":
                self.resume(views)
            else:
                self.order(views, "pause")

    def action_checkpoint(self) -> None:
        self.order(self._for_deed(), "checkpoint")

    def action_retry(self) -> None:
        self.ask(self._for_deed(), "retry")

    def action_tag(self) -> None:
        views = self._for_deed()

        def annotate(word: str) -> None:
            is_off = word.startswith("-") and len(word) > 1
            self.annotate(views, "untag" if is_off else "tag", word.removeprefix("-"))

        self._ask("Tag", views, "-tag takes it away", annotate)

    def action_note(self) -> None:
        views = self._for_deed()

        def annotate(text: str) -> None:
            self.annotate(views, "note", text)

        self._ask("Note on", views, "kept with the run, for ever", annotate)

    def action_rename(self) -> None:
        views = self._for_deed()
        if len(views) > 1:
            self.show_message("one run at a time has a new name", "$ink-muted")
            return

        def annotate(name: str) -> None:
            self.annotate(views, "rename", name, undo=views[0].name or views[0].id)

        self._ask(
            "Rename", views, "its id and folder stay", annotate, views[0].name if views else ""
        )

    def action_pin(self) -> None:
        views = self._for_deed()
        if views:
            self.annotate(views, "unpin" if all(v.is_pinned for v in views) else "pin")

    def action_export(self) -> None:
        views = self._for_deed()
        write = partial(self._write, "export", self.desk.export, views)
        self._ask("Export", views, ".csv, .jsonl or .parquet", write, f"{_stem(views)}.csv")

    def action_report(self) -> None:
        views = self._for_deed()
        write = partial(self._write, "report", self.desk.report, views)
        self._ask("Report on", views, "one page, no network", write, f"{_stem(views)}.html")

    def _write(
        self,
        verb: str,
        make: Callable[[Sequence[str], Path], str],
        views: Sequence[RunView],
        name: str,
    ) -> None:
        runs, out = tuple(map(reference, views)), Path(name).expanduser().absolute()
        self.act(verb, self._how_many(views), lambda: make(runs, out))

    def _how_many(self, views: Sequence[RunView]) -> str:
        return self.name_of(views[0]) if len(views) == 1 else f"{len(views)} runs"

    def _ask(
        self,
        verb: str,
        views: Sequence[RunView],
        hint: str,
        then: Callable[[str], None],
        value: str = "",
    ) -> None:
        """`then` takes what is typed, unless nothing is."""
        if not views:
            return
        question = Content.assemble(
            (f"{verb} ", "bold $ink"), styled.text(self._how_many(views), "bold $accent")
        )
        from albor_tui.screens.dialogs.prompt import PromptScreen

        self.app.push_screen(
            PromptScreen(question, hint, value), lambda said: None if said is None else then(said)
        )


def _stem(views: Sequence[RunView]) -> str:
    """A file name that is free of whatever a run may be called."""
    if len(views) == 1:
        return views[0].id
    return f"runs-{datetime.now(tz=UTC):%Y%m%d-%H%M%S}"


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
