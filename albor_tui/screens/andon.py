"""The board: alerts of every run, who has seen them, and the rules that raise them."""

from __future__ import annotations

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.content import Content
from textual.widgets import Static

from albor_core.andon.severity import SEVERITIES
from albor_core.feed.attention.item import AttentionList
from albor_core.run.errors import AlborError, ConfigError
from albor_core.run.values.clean import clean
from albor_core.run.values.quantity import counted
from albor_core.store.rows.rows import AlertRow
from albor_tui.look.themes import SEVERITY_TONE
from albor_tui.messages import AlertsChanged, PastFound, RulesReplayed, RunFound
from albor_tui.screens.base.run_actions import RunActionsScreen
from albor_tui.screens.charts.alert_chart import alert_chart, alert_title
from albor_tui.screens.charts.curves import MAX_POINTS
from albor_tui.screens.dialogs.prompt import PromptScreen
from albor_tui.widgets.alert_panels import AlertPanel, AlertTable, RulesPanel, limit_of
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.line_list import LineList
from albor_tui.widgets.chart.chart import Chart, ChartData
from albor_tui.widgets.key_bar import KeyBar
from albor_tui.widgets.status_bar import StatusBar, TopBar

REST_S = 0.3  # the cursor stands still this long before rules are played
AGAIN_S = 5.0  # between two looks at a run that goes on
LEAST_ROWS, CHART_ROWS = 8, 10  # of the list with its frame; of the chart, at the least
ON_ALERTS = frozenset({"open", "acknowledge", "acknowledge_all", "try"})  # nothing without one


class AndonScreen(RunActionsScreen):
    """Follows the alerts of all runs, or of one."""

    BINDINGS = [
        Binding("escape,q,backspace", "back", "Back", tooltip="Back to where you were"),
        Binding("enter", "open", "Open", tooltip="Open the run of this alert"),
        Binding("a", "acknowledge", "Ack", tooltip="Acknowledge this alert"),
        Binding(
            "A", "acknowledge_all", "Ack all", tooltip="Acknowledge every listed alert; asks first"
        ),
        Binding("f", "severity", "Severity", tooltip="Only one severity, or all"),
        Binding("o", "seen", "Seen too", tooltip="Show acknowledged alerts too"),
        Binding("e", "try", "Try a rule", tooltip="Test a rule against this run's history"),
        Binding("z", "zoom", "Zoom", show=False, tooltip="The focused panel alone, and back"),
    ]

    def __init__(self, run_id: str = "") -> None:
        super().__init__()
        self._run_id = run_id
        self._alerts: tuple[AlertRow, ...] | None = None
        self._is_calm = False
        self._severity = ""
        self._open_only = True
        self._tried = ""
        self._playing = ""  # the run whose rules are on the panel
        self._past: PastFound | None = None  # what the chart draws
        self._wanted_past = ("", "")  # run and metric
        self._titled: tuple[object, ...] = ()

    def compose(self) -> ComposeResult:
        yield TopBar("runs", "alerts")
        with Container(id="list"):
            yield AlertTable(id="alerts-table")
            yield Static(id="empty", markup=False)
        yield Chart(id="alert-chart")
        with Container(id="andon-body"):
            yield AlertPanel(id="alert")
            yield RulesPanel(id="rules")
        yield StatusBar()
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one("#empty", Static).display = False
        self.query_one(AlertTable).focus()
        self.set_interval(AGAIN_S, self._look_again)
        self.watch(self.app, "attention", self.show_coverage, init=False)
        super().on_mount()

    def follow(self) -> None:
        board = self.desk.board()
        try:
            for _ in self.ticking():
                alerts = board.poll()
                if alerts is not None:
                    self.post_message(AlertsChanged(alerts, board.problem))
        finally:
            board.close()

    def show_coverage(self) -> None:
        """How well the runs are watched, where no alert is listed."""
        if self._is_calm:
            self.query_one("#empty", Static).update(self._nothing())

    @on(AlertsChanged)
    def show_alerts(self, message: AlertsChanged) -> None:
        self._alerts = message.alerts
        if message.problem:
            self.show_message(message.problem, "$warning")
        self._arrange()

    def _is_wanted(self, row: AlertRow) -> bool:
        """Whether it passes the filters of run, severity and open ones."""
        return (
            (not self._run_id or row.run_id == self._run_id)
            and (not self._severity or row.severity == self._severity)
            and (not self._open_only or row.is_open)
        )

    def _arrange(self) -> None:
        shown = tuple(row for row in self._alerts or () if self._is_wanted(row))
        table = self.query_one(AlertTable)
        table.alerts = shown
        is_whole = self._open_only and not (self._severity or self._run_id)
        self._is_calm = self._alerts is not None and not shown and (is_whole or not self._alerts)
        self._title(len(shown))
        self.show_empty(None if shown else self._nothing(), table)
        if not shown:
            self.query_one(AlertPanel).alert = None
        self._share_room()

    def _share_room(self) -> None:
        """A list that is shorter than its place leaves the rest to the chart."""
        listing, body = self.query_one("#list"), self.query_one("#andon-body")
        chart = self.query_one("#alert-chart")
        rows = max(len(self.query_one(AlertTable).alerts) + 2, LEAST_ROWS)
        place = self.size.height - body.outer_size.height - 2
        is_few = chart.display and body.display and rows <= place - CHART_ROWS
        self.set_class(is_few, "-few")
        listing.styles.height = rows if is_few else None

    def on_resize(self) -> None:
        self.call_after_refresh(self._share_room)
        self.call_after_refresh(self.show_alert)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action in ON_ALERTS:
            return not self.has_class("-empty")
        return super().check_action(action, parameters)

    def _title(self, shown: int) -> None:
        total = None if self._alerts is None else len(self._alerts)
        mark = (shown, total, self._severity, self._open_only)
        if mark == self._titled:
            return
        self._titled = mark
        listing = self.query_one("#list")
        count = "" if total is None else f"{total}" if shown == total else f"{shown} of {total}"
        listing.border_title = Content.assemble(("alerts ", "bold $ink"), (count, "$ink-muted"))
        kept = ["open" if self._open_only else "all", self._severity or "every severity"]
        listing.border_subtitle = Content.styled("  ".join(kept), "$ink-muted")

    def _nothing(self) -> Content:
        if self._alerts is None:
            return styled.loading()
        if not self._alerts:
            hint = "rules: monitoring.alerts of a config, or rules.yaml in this home"
            lines = [self._coverage("no alerts"), Content.styled(hint, "$ink-muted")]
        elif self._is_calm:
            hint = "o shows acknowledged alerts too"
            lines = [self._coverage("no open alerts"), Content.styled(hint, "$ink-muted")]
        else:
            kept = ("no", "open" if self._open_only else "", self._severity, "alerts here")
            words = " ".join(part for part in kept if part)
            lines = [Content.styled(f"{words}; f and o change what is shown", "$ink-muted")]
        return styled.rows(lines)

    def _coverage(self, said: str) -> Content:
        active = sum(view.is_active for view in self.cockpit.attended.values())
        return coverage(said, self.attention, active)

    def runs_changed(self) -> None:
        self.show_coverage()

    @on(LineList.Moved)
    def show_alert(self) -> None:
        row = self.query_one(AlertTable).current
        if row is None:
            return
        self.query_one(AlertPanel).alert = row
        self._look(row)
        if row.run_id != self._playing:
            self._tried = ""
            self._play(row.run_id)

    def _look(self, row: AlertRow) -> None:
        """Draw what the alert is about, as soon as that is known."""
        chart = self.query_one("#alert-chart", Chart)
        if not chart.display:
            return
        chart.entitle(alert_title(row))
        past, wanted = self._past, (row.run_id, row.metric or "")
        if past is not None and (past.run_id, past.metric) == wanted:
            self._draw(row, past)
        elif wanted != self._wanted_past:
            chart.data = ChartData(subject=f"{wanted}")
            self.set_timer(REST_S, lambda: self._find_past(*wanted))
        self._wanted_past = wanted

    def _look_again(self) -> None:
        """The run of the alert may have gone on."""
        past = self._past
        if self.is_current and past is not None and past.view is not None and past.view.is_active:
            self._find_past(past.run_id, past.metric)

    @work(thread=True, group="past", exit_on_error=False)
    def _find_past(self, run_id: str, metric: str) -> None:
        if (run_id, metric) != self._wanted_past:
            return  # the cursor went on
        try:
            found = self.desk.find(run_id)
            follower = self.source.follow(found)
            try:
                view = follower.poll() or found
                curves = follower.curves((metric,), MAX_POINTS) if metric else {}
            finally:
                follower.close()
        except AlborError as error:
            self.post_message(PastFound(run_id, metric, None, {}, error.message))
        else:
            self.post_message(PastFound(run_id, metric, view, curves))

    @on(PastFound)
    def take_past(self, message: PastFound) -> None:
        row = self.query_one(AlertTable).current
        if row is not None and (message.run_id, message.metric) == self._wanted_past:
            self._past = message
            self.query_one(AlertPanel).run = message.view
            self._draw(row, message)

    def _draw(self, row: AlertRow, past: PastFound) -> None:
        chart = self.query_one("#alert-chart", Chart)
        if past.view is None:
            chart.data = ChartData(empty=clean(past.problem))
        else:
            chart.data = alert_chart(row, past.view, past.curves)

    def _play(self, run_id: str) -> None:
        self._playing = run_id
        panel = self.query_one(RulesPanel)
        panel.document, panel.problem, panel.watched = None, "", ()
        tried = self._tried
        self.set_timer(REST_S, lambda: self._replay_rules(run_id, tried))

    @work(thread=True, group="replay", exit_on_error=False)
    def _replay_rules(self, run_id: str, condition: str) -> None:
        if (run_id, condition) != (self._playing, self._tried):
            return  # the cursor went on
        try:
            document = self.desk.replay_rules(run_id, (condition,) if condition else ())
            watched = () if condition else self.desk.watched(run_id)
        except AlborError as error:
            found = error.problems[0].message if isinstance(error, ConfigError) else error.message
            self.post_message(RulesReplayed(run_id, None, found))
        else:
            self.post_message(RulesReplayed(run_id, document, watched=watched))

    @on(RulesReplayed)
    def show_replay(self, message: RulesReplayed) -> None:
        if message.run_id == self._playing:
            panel = self.query_one(RulesPanel)
            panel.watched = message.watched
            panel.problem, panel.document = message.problem, message.document

    @on(LineList.Chosen)
    def action_open(self) -> None:
        row = self.query_one(AlertTable).current
        if row is not None:
            self._find(row.run_id)

    @work(thread=True, group="find", exit_on_error=False)
    def _find(self, run_id: str) -> None:
        self.post_message(RunFound(self.desk.find(run_id)))

    @on(RunFound)
    def open_run(self, message: RunFound) -> None:
        self.app.push_screen(self.cockpit.run_screen(message.view))

    def action_acknowledge(self) -> None:
        row = self.query_one(AlertTable).current
        if row is None or row.acked_by is not None:
            self.show_message("all alerts here are acknowledged", "$ink-muted")
            return
        self._acknowledge((row,))

    def action_acknowledge_all(self) -> None:
        rows = tuple(r for r in self.query_one(AlertTable).alerts if r.acked_by is None)
        if not rows:
            self.show_message("all alerts here are acknowledged", "$ink-muted")
            return
        self.ask_to_acknowledge(len(rows), "their runs", lambda: self._acknowledge(rows))

    def _acknowledge(self, rows: tuple[AlertRow, ...]) -> None:
        desk = self.desk

        def job() -> str:
            for row in rows:
                desk.annotate(row.run_id, "ack", row.id)
            return rows[0].id if len(rows) == 1 else f"{len(rows)} alerts"

        names = {row.run_name or row.run_id for row in rows}
        self.act("ack", names.pop() if len(names) == 1 else f"{len(names)} runs", job)

    def action_severity(self) -> None:
        there = {row.severity for row in self._alerts or ()}
        words = ("", *(word for word in reversed(SEVERITIES) if word in there))
        at = words.index(self._severity) if self._severity in words else 0
        self._severity = words[(at + 1) % len(words)]
        self._arrange()

    def action_seen(self) -> None:
        self._open_only = not self._open_only
        self._arrange()

    def action_try(self) -> None:
        row = self.query_one(AlertTable).current
        if row is None:
            self.show_message("no run to try a rule on", "$ink-muted")
            return

        def play(condition: str | None) -> None:
            if condition is not None:
                self._tried = condition
                self._play(row.run_id)

        question = Content.assemble(
            ("Test a rule on ", "bold $ink"),
            styled.text(row.run_name or row.run_id, "bold $accent"),
        )
        limit = limit_of(row)
        value = "" if limit is None else f"{clean(row.metric or '')} > {limit:g}"
        self.app.push_screen(PromptScreen(question, "for example: loss > 3", value), play)


def coverage(said: str, found: AttentionList, active: int) -> Content:
    """What was found, and how many of the active runs are watched now: green only where all are and
    nothing is wrong."""
    if not found.is_complete:
        return Content.styled(said, "bold $ink")
    if not active:
        return Content.styled(f"{said}; no run is active", "bold $ink")
    words = f"{said}; {active - len(found.not_watched)} of {counted(active, 'active run')}"
    tone = "$success" if found.is_quiet else "$ink"
    line = Content.styled(f"{words} {'is' if active == 1 else 'are'} watched", f"bold {tone}")
    if found.tells_only:
        line += Content.styled(f", {len(found.tells_only)} only told of", "$ink-muted")
    if found.open:
        needs = "needs" if len(found.open) == 1 else "need"
        tone = SEVERITY_TONE.get(found.severity, "$warning")
        line += Content.styled(f"; {len(found.open)} {needs} you: press !", tone)
    return line
