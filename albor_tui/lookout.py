"""What the app does with attention: each new trouble is told once, on whatever screen is on top,
and what was open at the start comes forward by itself.

The thread of the list of runs looks. Where the cockpit began on one run there is no list yet, and a
thread of this one looks in its place.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from textual.app import App

from albor_tui.error_log import note
from albor_tui.messages import AttentionChanged
from albor_tui.model.loudness import Loudness
from albor_tui.model.newcomers import Newcomers
from albor_tui.model.source import LiveSource
from albor_tui.screens.base.polling_screen import PollingScreen

GAP_S = 10.0  # between two notices: what comes up meanwhile is told in one
WAIT_S = 1.0  # until the next try, while a command waits for its answer on the same line
LOOK_S = 1.0


class Lookout:
    """Belongs to the app's own thread. `show` brings the list of entries to the front, `write`
    takes what is for the terminal itself. `loudness` may be set at any time.
    """

    def __init__(
        self,
        app: App[None],
        *,
        show: Callable[[], object],
        write: Callable[[str], object],
    ) -> None:
        self._app, self._show, self.write = app, show, write
        self.loudness = Loudness()
        self._news = Newcomers()
        self._told_at = -GAP_S
        self._is_timed = False
        self._is_fresh = True
        self._own: _OwnThread | None = None

    def take(self, message: AttentionChanged) -> None:
        """The newest list."""
        from albor_tui.screens.runs.screen import RunsScreen

        self._news.take(message.found)
        if self._is_fresh and message.found.open and isinstance(self._app.screen, RunsScreen):
            self._is_fresh = False
            self._show()
        elif message.found.is_complete:
            self._is_fresh = False
        self._tell_in_time()

    def somebody_acted(self) -> None:
        """Stop bringing the list to the front: it would now be in the user's way."""
        self._is_fresh = False

    def look_alone(self, source: LiveSource) -> None:
        """Look in a thread of its own, until `stop`."""
        if self._own is None:
            self._own = _OwnThread(source, self._app.post_message)
            self._own.start()

    def stop(self) -> None:
        if self._own is not None:
            self._own.left.set()
            self._own = None

    def hurry(self) -> None:
        """An entry was marked: look now."""
        if self._own is not None:
            self._own.wanted.set()

    def _tell_in_time(self) -> None:
        if not self._news.is_waiting or self._is_timed:
            return
        wait = self._told_at + GAP_S - time.monotonic()
        if wait <= 0 and self._tell():
            return
        self._is_timed = True
        self._app.set_timer(max(wait, WAIT_S), self._again)

    def _again(self) -> None:
        self._is_timed = False
        self._tell_in_time()

    def _tell(self) -> bool:
        """Show one line on the top screen; return whether there was space for it."""
        from albor_tui.screens.attention import AttentionScreen
        from albor_tui.widgets.attention_panels import notice, whose

        screen = self._app.screen
        is_listed = isinstance(screen, AttentionScreen)
        if not is_listed and not (isinstance(screen, PollingScreen) and screen.is_free_to_tell):
            return False
        found = self._news.told()
        self._told_at = time.monotonic()
        if found and isinstance(screen, PollingScreen) and not is_listed:
            screen.show_notice(notice(found))
        if any(self.loudness.rings(item) for item in found):
            self._app.bell()
        loud = tuple(item for item in found if self.loudness.tells_desktop(item))
        if loud:
            from albor_core.andon.channels.desktop import desktop_bytes

            title = f"{loud[0].word} {whose(loud[0])}"
            more = f" (and {len(loud) - 1} more)" if len(loud) > 1 else ""
            told = desktop_bytes(title, f"{loud[0].summary}{more}", os.environ)
            self.write(told.decode(errors="replace"))
        return True


class _OwnThread(threading.Thread):
    """Polls all runs where no list of them does."""

    def __init__(self, source: LiveSource, tell: Callable[[AttentionChanged], object]) -> None:
        super().__init__(name="attention", daemon=True)
        self._source, self._tell = source, tell
        self.left, self.wanted = threading.Event(), threading.Event()

    def run(self) -> None:
        try:
            overview, attention = self._source.overview(), self._source.attention()
        except Exception as error:  # the screen of the run says what is wrong with its place
            note("attention cannot look", error)
            return
        try:
            while not self.left.is_set():
                if (news := attention.look(overview, overview.poll())) is not None:
                    self._tell(news)
                self.wanted.wait(LOOK_S)
                self.wanted.clear()
        except Exception as error:  # nothing else is hurt by it
            note("attention cannot look", error)
        finally:
            overview.close()
