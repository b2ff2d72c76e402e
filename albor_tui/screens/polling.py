"""What every screen that follows something shares: a poll thread that never dies in silence.

A worker touches no widget, it posts; a screen that is covered polls nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import cast

from textual import on, work
from textual.content import Content
from textual.screen import Screen
from textual.worker import Worker, WorkerState, get_current_worker

from albor_core.feed.view import RunView
from albor_core.run.errors import AlborError
from albor_tui import glyphs
from albor_tui.messages import CommandReport
from albor_tui.source import HasSource, Source
from albor_tui.widgets.status_bar import StatusBar

RETRY_S = 2.0


class PollingScreen(Screen[None]):
    """A screen with a status bar and a poll thread; subclasses write `follow` and call `ticking`
    in it."""

    PERIOD_S = 0.5

    def __init__(self) -> None:
        super().__init__()
        self._uncovered = threading.Event()

    @property
    def source(self) -> Source:
        return cast("HasSource", self.app).source

    def on_mount(self) -> None:
        self.set_class(glyphs.current.is_ascii, "-ascii")
        self._uncovered.set()
        self._poll()

    def on_screen_suspend(self) -> None:
        self._uncovered.clear()

    def on_screen_resume(self) -> None:
        self._uncovered.set()

    def follow(self) -> None:
        """Poll and post until cancelled. Runs in a thread."""
        raise NotImplementedError

    def ticking(self) -> Iterator[None]:
        """One turn per period while the screen is on top, until the worker is cancelled."""
        worker = get_current_worker()
        while not worker.is_cancelled:
            if self._uncovered.wait(0.1):
                yield
                deadline = time.monotonic() + self.PERIOD_S
                while not worker.is_cancelled and time.monotonic() < deadline:
                    time.sleep(0.05)

    @work(thread=True, exclusive=True, group="poll", exit_on_error=False)
    def _poll(self) -> None:
        self.follow()

    @work(thread=True, group="command", exit_on_error=False)
    def send_command(self, view: RunView, cmd: str) -> None:
        """Deliver a command; each stage is shown."""
        for report in self.source.command(view, cmd):
            self.post_message(report)

    @work(thread=True, group="acknowledge", exit_on_error=False)
    def send_acknowledgement(self, view: RunView, alert_id: str) -> None:
        """Write down that somebody saw an alert."""
        name = view.name or view.id
        try:
            self.source.acknowledge(view, alert_id)
        except (AlborError, OSError) as error:
            self.post_message(CommandReport(name, "ack", "refused", str(error)))
        else:
            self.post_message(CommandReport(name, "ack", "done", alert_id))

    @on(CommandReport)
    def show_report(self, message: CommandReport) -> None:
        self.query_one(StatusBar).report(message)

    @on(Worker.StateChanged)
    def report_failure(self, event: Worker.StateChanged) -> None:
        if event.state is not WorkerState.ERROR or event.worker.node is not self:
            return
        error = event.worker.error
        words = (
            error.message if isinstance(error, AlborError) else f"{type(error).__name__}: {error}"
        )
        self.log.error(f"{event.worker.group}: {error!r}")
        self.query_one(StatusBar).say(f"{event.worker.group}: {words}", "$error")
        if event.worker.group == "poll":
            self.set_timer(RETRY_S, self._poll)

    def say(self, words: str, tone: str = "$ink") -> None:
        """One line in the status bar."""
        self.query_one(StatusBar).say(words, tone)


def heading(*parts: tuple[str, str] | Content) -> Content:
    """A border title from styled parts; data goes in as Content."""
    return Content.assemble(*parts)
