"""Everything that happened: alerts, restarts, rewinds, checkpoints, commands; and every attempt."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar, cast

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.content import Content
from textual.widgets import Static

from albor_core.feed.archive.archive import RunArchive, Told
from albor_core.feed.view.run_view import RunView
from albor_core.store.rows.rows import AlertRow, EventRow
from albor_tui.screens.base.polling_screen import PollingScreen
from albor_tui.screens.tabs.page import Page
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.line_list import LineList
from albor_tui.widgets.run.event_list import KINDS, AttemptTable, EventList, kind_of, words_of_event

_ABOUT_LINES = 2  # as many as #event-about has below its heading
_WHY_LINES = 3  # as many as #why-died has above where that is written


@dataclass(frozen=True)
class EventsWanted:
    """The newest events."""

    PERIOD_S: ClassVar[float | None] = 0.5

    def put(self, archive: RunArchive) -> Told:
        return archive.events()


class EventsPage(Page):
    """A list with a filter, and the table of attempts."""

    BINDINGS = [
        Binding("f", "kind(1)", "Kind", tooltip="Only one kind of event, then the next"),
        Binding("F", "kind(-1)", "Kind back", show=False, tooltip="The kind before"),
        Binding("o", "crash", "Crash", tooltip="Crash reports: why, last lines, stacks"),
    ]

    def __init__(self, name: str, view: RunView) -> None:
        super().__init__(name, view)
        self._told: Told | None = None
        self._kind = KINDS[0]
        self._titled = ""

    def compose(self) -> ComposeResult:
        yield AttemptTable(id="attempts")
        yield Static(id="why-died", markup=False)
        with Container(id="event-frame", classes="frame"):
            yield EventList(id="event-list")
            yield Static(id="no-event", classes="empty", markup=False)
        yield Static(id="event-about", markup=False)

    def enter(self) -> None:
        self.ask(EventsWanted())
        self.show_view(self.view)
        self.query_one(EventList).focus()

    def show_view(self, view: RunView) -> None:
        table = self.query_one(AttemptTable)
        table.styles.height = 3 + min(max(1, len(view.attempts)), self._room_for_attempts)
        table.show(view.attempts, is_active=view.is_active, is_read=not view.is_loading)
        self._show_why_died()
        self._arrange()

    @property
    def _room_for_attempts(self) -> int:
        return 3 if self.content_size.height < 28 else 6

    def show_answer(self, answer: object) -> None:
        assert isinstance(answer, Told)
        had = self._told is not None and bool(self._told.crashes)
        self._told = answer
        if had != bool(answer.crashes):
            self.refresh_bindings()
        self._show_why_died()
        self._arrange()

    def _show_why_died(self) -> None:
        """Why the last attempt that died did, in full, and where that is written; the table of
        attempts has one line for each."""
        died = next((one for one in reversed(self.view.attempts) if one.report), None)
        line = self.query_one("#why-died", Static)
        crashes = self._told.crashes if self._told is not None else ()
        line.display = died is not None or bool(crashes)
        if not line.display:
            return
        reason = died.reason if died is not None else crashes[0].reason
        attempt = died.attempt if died is not None else crashes[0].attempt
        width = max(10, self.content_size.width - 4)
        why = styled.text(f"attempt {attempt}: {reason or ''}", "$warning")
        words = styled.first_lines(why, width, _WHY_LINES)
        if crashes:
            path = styled.text(f"o opens the crash report, {crashes[0].path}", "$ink-muted")
            words.append(styled.fit_middle(path, width))
        line.update(styled.rows(words))

    def action_crash(self) -> None:
        crashes = self._told.crashes if self._told is not None else ()
        if crashes:
            from albor_tui.screens.dialogs.crash import CrashScreen  # loaded when it is wanted

            self.app.push_screen(CrashScreen(crashes))
        else:
            cast("PollingScreen", self.screen).show_message("no crash report", "$ink-muted")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "crash":
            return self._told is not None and bool(self._told.crashes)
        return super().check_action(action, parameters)

    def alert_at_cursor(self) -> AlertRow | None:
        event = self.query_one(EventList).current
        if event is None or event.name != "andon.alert":
            return None
        alert_id = event.data.get("id")
        return next((alert for alert in self.view.alerts if alert.id == alert_id), None)

    def _arrange(self) -> None:
        events = self._told.events if self._told is not None else self.view.events
        shown = tuple(event for event in reversed(events) if self._kind in ("all", kind_of(event)))
        listing, empty = self.query_one(EventList), self.query_one("#no-event", Static)
        listing.show(shown, self.view.alerts)
        listing.styles.height = "1fr" if shown else 0  # hidden it would lose the focus, and f
        empty.display = not shown
        if not shown:
            empty.update(self._nothing(len(events)))
            self.query_one("#event-about", Static).display = False
        self._title(events, len(shown))

    def _title(self, events: tuple[EventRow, ...], shown: int) -> None:
        counts = Counter(map(kind_of, events))
        kinds = "   ".join(f"{kind} {counts[kind]}" for kind in KINDS[1:] if counts[kind])
        count = str(shown) if shown or not self.is_loading else ""
        mark = f"{self._kind} {count} {kinds}"
        if mark == self._titled:
            return
        self._titled = mark
        frame = self.query_one("#event-frame")
        frame.border_title = Content.assemble(
            ("events ", "bold $ink"),
            (f"{self._kind} {count}".rstrip(), "$accent" if self._kind != "all" else "$ink-muted"),
        )
        frame.border_subtitle = Content.styled(kinds, "$ink-muted")

    @on(LineList.Moved)
    def _show_selected(self) -> None:
        """The whole of the event under the cursor; a line of the list may be too short for it."""
        event, about = self.query_one(EventList).current, self.query_one("#event-about", Static)
        about.display = event is not None
        if event is None:
            return
        width = max(10, self.content_size.width - 2)
        words = styled.text(words_of_event(event), "$ink")
        wrapped = styled.first_lines(words, width, _ABOUT_LINES)
        attempt = f"   attempt {event.attempt}" if event.attempt else ""
        head = styled.text(f"{event.name}   {event.severity}{attempt}", "$ink-muted")
        about.update(styled.rows([styled.fit(line, width) for line in (head, *wrapped)]))

    def on_resize(self) -> None:
        self._show_why_died()
        self._show_selected()

    def action_kind(self, by: int) -> None:
        self._kind = KINDS[(KINDS.index(self._kind) + by) % len(KINDS)]
        self._arrange()

    def _nothing(self, total: int) -> Content:
        if total:
            words = f"None of its {total} events is of this kind: {self._kind}."
            return styled.rows(
                [Content.styled(words, "bold $ink"), Content.styled("f shows the next kind.",
                                                                    "$ink-muted")]
            )  # fmt: skip
        if self.is_loading:
            return styled.loading()
        lines = [Content.styled("Nothing has happened yet.", "bold $ink")]
        if self.view.status == "queued":
            lines.append(Content.styled("The first event is the run's start.", "$ink-muted"))
        else:
            words = "Events come from journal.jsonl and the guard's attempts.jsonl in"
            lines += [
                Content.styled(words, "$ink-muted"),
                styled.text(self.view.path, "$ink-muted"),
            ]
        return styled.rows(lines)
