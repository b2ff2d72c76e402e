"""The board: alerts of every run, who has seen them, and the rules that raise them."""

from __future__ import annotations

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.content import Content
from textual.widgets import Static

from albor_core.feed.clean import clean
from albor_core.run.errors import AlborError, ConfigError
from albor_core.store.rows import AlertRow
from albor_tui.messages import AlertsChanged, Rehearsed, RunFound
from albor_tui.screens.acting import ActingScreen
from albor_tui.screens.confirm import ConfirmScreen
from albor_tui.screens.prompt import PromptScreen
from albor_tui.widgets import meters
from albor_tui.widgets.alert_panels import AlertPanel, AlertTable, RulesPanel
from albor_tui.widgets.key_bar import KeyBar
from albor_tui.widgets.line_list import LineList
from albor_tui.widgets.status_bar import StatusBar, TopBar

SEVERITIES = ("", "red", "yellow")
REST_S = 0.3  # the cursor stands still this long before rules are played


class AndonScreen(ActingScreen):
    """Follows the alerts of all runs, or of one."""

    BINDINGS = [
        Binding("escape,q,backspace", "back", "Back", tooltip="Back to where you were"),
        Binding("enter", "open", "Open", tooltip="Open the run of this alert"),
        Binding("a", "acknowledge", "Ack", tooltip="Say that this alert has been seen"),
        Binding("A", "acknowledge_all", "Ack all", tooltip="Say so of all in the list; asks first"),
        Binding("f", "severity", "Severity", tooltip="Only red, only yellow, or both"),
        Binding("o", "seen", "Seen too", tooltip="Only what nobody has seen, or all"),
        Binding("e", "try", "Try a rule", tooltip="Play a rule you type on this run's history"),
        Binding("z", "zoom", "Zoom", show=False, tooltip="The focused panel alone, and back"),
    ]

    def __init__(self, run_id: str = "") -> None:
        super().__init__()
        self._run_id = run_id
        self._alerts: tuple[AlertRow, ...] | None = None
        self._severity = ""
        self._open_only = True
        self._tried = ""
        self._playing = ""  # the run whose rules are on the panel
        self._titled: tuple[object, ...] = ()

    def compose(self) -> ComposeResult:
        yield TopBar("runs", "andon")
        with Container(id="list"):
            yield AlertTable(id="alerts-table")
            yield Static(id="empty", markup=False)
        with Container(id="andon-body"):
            yield AlertPanel(id="alert")
            yield RulesPanel(id="rules")
        yield StatusBar()
        yield KeyBar()

    def on_mount(self) -> None:
        self.query_one("#empty", Static).display = False
        self.query_one(AlertTable).focus()
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

    @on(AlertsChanged)
    def show_alerts(self, message: AlertsChanged) -> None:
        self._alerts = message.alerts
        if message.problem:
            self.say(message.problem, "$warning")
        self._arrange()

    def _arrange(self) -> None:
        shown = tuple(
            row
            for row in self._alerts or ()
            if (not self._run_id or row.run_id == self._run_id)
            and (not self._severity or row.severity == self._severity)
            and (not self._open_only or row.acked_by is None)
        )
        self.query_one(AlertTable).alerts = shown
        self._title(len(shown))
        empty = self.query_one("#empty", Static)
        empty.display = not shown
        self.query_one(AlertTable).display = bool(shown)
        if not shown:
            empty.update(self._nothing())
            self.query_one(AlertPanel).alert = None

    def _title(self, shown: int) -> None:
        total = len(self._alerts or ())
        mark = (shown, total, self._severity, self._open_only)
        if mark == self._titled:
            return
        self._titled = mark
        listing = self.query_one("#list")
        count = f"{shown} of {total}" if shown != total else f"{total}"
        listing.border_title = Content.assemble(("alerts ", "bold $ink"), (count, "$ink-muted"))
        kept = ["not seen yet" if self._open_only else "all", self._severity or "every severity"]
        listing.border_subtitle = Content.styled("  ".join(kept), "$ink-muted")

    def _nothing(self) -> Content:
        if self._alerts is None:
            return Content.styled("looking for alerts", "$ink-muted")
        if not self._alerts:
            quiet = "All quiet: no run has raised an alert."
            where = "Rules stand in a config under monitoring.alerts."
            lines = [Content.styled(quiet, "bold $success"), Content.styled(where, "$ink-muted")]
            return meters.rows(lines)
        return Content.styled("nothing left here; o shows what has been seen", "$ink-muted")

    @on(LineList.Moved)
    def show_alert(self) -> None:
        row = self.query_one(AlertTable).current
        if row is None:
            return
        self.query_one(AlertPanel).alert = row
        if row.run_id != self._playing:
            self._tried = ""
            self._play(row.run_id)

    def _play(self, run_id: str) -> None:
        self._playing = run_id
        panel = self.query_one(RulesPanel)
        panel.document, panel.problem = None, ""
        tried = self._tried
        self.set_timer(REST_S, lambda: self._rehearse(run_id, tried))

    @work(thread=True, group="rehearse", exit_on_error=False)
    def _rehearse(self, run_id: str, condition: str) -> None:
        if (run_id, condition) != (self._playing, self._tried):
            return  # the cursor went on
        try:
            document = self.desk.rehearse(run_id, (condition,) if condition else ())
        except AlborError as error:
            found = error.problems[0].message if isinstance(error, ConfigError) else error.message
            self.post_message(Rehearsed(run_id, None, found))
        else:
            self.post_message(Rehearsed(run_id, document))

    @on(Rehearsed)
    def show_rehearsal(self, message: Rehearsed) -> None:
        if message.run_id == self._playing:
            panel = self.query_one(RulesPanel)
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
        from albor_tui.screens.run import RunScreen

        self.app.push_screen(RunScreen(message.view))

    def action_acknowledge(self) -> None:
        row = self.query_one(AlertTable).current
        if row is None or row.acked_by is not None:
            self.say("no alert here that nobody has seen", "$ink-muted")
            return
        self._acknowledge((row,))

    def action_acknowledge_all(self) -> None:
        rows = tuple(r for r in self.query_one(AlertTable).alerts if r.acked_by is None)
        if not rows:
            self.say("no alert here that nobody has seen", "$ink-muted")
            return

        def decide(yes: bool | None) -> None:
            if yes:
                self._acknowledge(rows)

        question = Content.styled(f"Acknowledge {len(rows)} alerts?", "bold $ink")
        kept = "They stay in the history of their runs. This cannot be taken back."
        self.app.push_screen(ConfirmScreen(question, kept, decline="no"), decide)

    def _acknowledge(self, rows: tuple[AlertRow, ...]) -> None:
        desk = self.desk

        def job() -> str:
            for row in rows:
                desk.annotate(row.run_id, "ack", row.id)
            return rows[0].id if len(rows) == 1 else f"{len(rows)} alerts"

        names = {row.run_name or row.run_id for row in rows}
        self.act("ack", names.pop() if len(names) == 1 else f"{len(names)} runs", job)

    def action_severity(self) -> None:
        self._severity = SEVERITIES[(SEVERITIES.index(self._severity) + 1) % len(SEVERITIES)]
        self._arrange()

    def action_seen(self) -> None:
        self._open_only = not self._open_only
        self._arrange()

    def action_try(self) -> None:
        row = self.query_one(AlertTable).current
        if row is None:
            self.say("no run to try a rule on", "$ink-muted")
            return

        def play(condition: str | None) -> None:
            if condition is not None:
                self._tried = condition
                self._play(row.run_id)

        question = Content.assemble(
            ("Play a rule on ", "bold $ink"),
            meters.text(row.run_name or row.run_id, "bold $accent"),
        )
        value = "" if row.threshold is None else f"{clean(row.metric or '')} > {row.threshold:g}"
        self.app.push_screen(PromptScreen(question, "for example: loss > 3", value), play)

    def action_back(self) -> None:
        if self.maximized is not None:
            self.minimize()
        else:
            self.app.pop_screen()

    def action_zoom(self) -> None:
        if self.maximized is not None:
            self.minimize()
        elif self.focused is not None:
            self.maximize(self.focused)
