"""The program's own output: every attempt, whole, searched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.widgets import Static

from albor_core.feed.archive.log_file import LogName, LogWindow
from albor_core.feed.view.run_view import RunView
from albor_tui.look import quantity
from albor_tui.screens.tabs.page import Page
from albor_tui.widgets.base import styled
from albor_tui.widgets.run.log_view import LogView, Need
from albor_tui.widgets.run.panels import yet
from albor_tui.widgets.search_line import SearchLine
from albor_tui.widgets.status_bar import StatusBar

if TYPE_CHECKING:
    from albor_core.feed.archive.archive import RunArchive
    from albor_core.store.rows.rows import AttemptRow


@dataclass(frozen=True)
class LinesWanted:
    """A request for lines of a log."""

    need: Need

    PERIOD_S: ClassVar[float | None] = 0.5

    def put(self, archive: RunArchive) -> LogWindow:
        need = self.need
        return archive.log(need.name, need.top, need.count, need.needle)


class LogsPage(Page):
    """The tab that shows one log at a time; the newest is followed."""

    BINDINGS = [
        Binding("slash", "search", "Search", key_display="/", tooltip="Search this log"),
        Binding("n", "match(1)", "Next", tooltip="Next match"),
        Binding("N", "match(-1)", "Previous", tooltip="Match before"),
        Binding("f", "follow", "Follow", tooltip="Follow the end until you go up"),
        Binding("less_than_sign", "turn(-1)", "Older", key_display="<", tooltip="Attempt before"),
        Binding("greater_than_sign", "turn(1)", "Newer", key_display=">", tooltip="Attempt after"),
    ]

    def compose(self) -> ComposeResult:
        yield LogView(id="log-view")
        yield Static(id="no-log", classes="empty", markup=False)
        yield SearchLine(id="log-search")

    def enter(self) -> None:
        self._show_empty(self.query_one(LogView).window.name is None)
        self.query_one(LogView).ask_again()
        self.query_one(LogView).focus()

    def show_view(self, view: RunView) -> None:
        self._show_empty(self.query_one(LogView).window.name is None)

    def show_answer(self, answer: object) -> None:
        assert isinstance(answer, LogWindow)
        self._show_empty(answer.name is None)
        self.query_one(LogView).show(answer, edges(answer.name, self.view))

    def _show_empty(self, is_empty: bool) -> None:
        empty, log = self.query_one("#no-log", Static), self.query_one(LogView)
        empty.display, log.display = is_empty, not is_empty
        if is_empty:
            self.say_empty(empty, lambda: _nothing(self.view))

    @on(LogView.Needs)
    def want(self, message: LogView.Needs) -> None:
        message.stop()
        self.ask(LinesWanted(message.need))

    def action_follow(self) -> None:
        self.query_one(LogView).action_follow()

    def action_turn(self, by: int) -> None:
        if not self.query_one(LogView).turn(by):
            self._mention("no older log" if by < 0 else "this is the newest log")

    def action_search(self) -> None:
        self.query_one(SearchLine).open()

    def action_match(self, by: int) -> None:
        log = self.query_one(LogView)
        if not log.next_match(by):
            self._mention("nothing found" if log.needle else "/ searches")

    @on(SearchLine.Typed)
    def search(self, message: SearchLine.Typed) -> None:
        message.stop()
        self.query_one(LogView).search(message.words)

    @on(SearchLine.Left)
    def leave_search(self, message: SearchLine.Left) -> None:
        message.stop()
        self.query_one(LogView).focus()

    def _mention(self, words: str) -> None:
        self.screen.query_one(StatusBar).show_message(words, "$ink-muted")


def edges(name: LogName | None, view: RunView) -> tuple[str, str]:
    """How the attempt of a log began and ended, in words."""
    if name is None:
        return "", ""
    found = next((a for a in view.attempts if a.attempt == name.attempt), None)
    before = next((a for a in view.attempts if a.attempt == name.attempt - 1), None)
    begin = f"attempt {name.attempt}"
    if found is not None and found.started is not None:
        begin += f" began {quantity.clock(found.started)}"
    if before is not None and before.exit_class:
        begin += f", after {before.exit_class}"
    if name.part:
        begin = f"attempt {name.attempt}, an older part: the log was cut at 64 MiB"
    return begin, ending(found) if not name.part else ""


def ending(attempt: AttemptRow | None) -> str:
    """How an attempt ended; "" while it runs or where that is not known."""
    if attempt is None or attempt.ended is None:
        return ""
    how = attempt.exit_class or "ended"
    code = f", signal {attempt.signal}" if attempt.signal else f", code {attempt.code}"
    step = f" at step {quantity.count(attempt.step)}" if attempt.step is not None else ""
    took = ""
    if attempt.started is not None:
        took = f" after {quantity.duration(attempt.ended - attempt.started)}"
    return f"attempt {attempt.attempt} ended: {how}{code}{step}{took}"


def records_output(view: RunView) -> bool:
    """Whether something may keep what the program of a run prints."""
    return view.kind != "imported"


def _nothing(view: RunView) -> Content:
    lines = [Content.styled(f"No output{yet(view, is_house=False)}.", "bold $ink")]
    if not records_output(view):
        lines = [Content.styled("No output is recorded.", "bold $ink")]
        words = "The run was imported, and no console came with it."
        lines.append(Content.styled(words, "$ink-muted"))
    elif view.status == "queued":
        lines.append(Content.styled("The program has not been started.", "$ink-muted"))
    elif not view.is_active:
        folder = f"{view.path}/logs"
        lines.append(Content.styled("No log was left by this run; it would be in", "$ink-muted"))
        lines.append(styled.text(folder, "$ink-muted"))
    else:
        lines.append(Content.styled("What the program prints appears here.", "$ink-muted"))
    return styled.rows(lines)
