"""The link to the terminal: slow, sometimes stuck, never waited for.

Textual queues whole frames and stops with its event loop when thirty of them wait. Here a frame
only changes a mirror of the screen, and one thread sends the newest difference as fast as the
terminal reads (`pace`): a terminal that does not keep up gets numbers before charts and misses the
frames between, while keys, polling and commands go on. Nothing is queued, so memory stays flat.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from typing import Any

from textual import events
from textual.message import Message
from textual.messages import InBandWindowResize, TerminalSupportsSynchronizedOutput

from albor_tui.terminal.mirror import Mirror
from albor_tui.terminal.pace import QUESTION, Pace
from albor_tui.terminal.textual_private import TerminalDriver

SYNC_START, SYNC_END = "\x1b[?2026h", "\x1b[?2026l"
_ALTERNATE_SCREEN, _USUAL_SCREEN = "\x1b[?1049h", "\x1b[?1049l"
_PATIENCE_S = 0.5  # for the last bytes when the cockpit leaves
_LAST_ANSWER_S = 1.0  # an answer after that is typed into the shell, as a late key press would be


class Link(threading.Thread):
    """Sends differences to `fd`, one at a time. Every method but `run` returns at once."""

    def __init__(self, fd: int) -> None:
        super().__init__(daemon=True, name="link")
        self._fd = fd
        self._mirror = Mirror()
        self._changed = threading.Condition(threading.RLock())  # a signal handler may come again
        self._orders: list[str] = []
        self._is_synchronized = False
        self._is_away = True  # the terminal shows something that is not ours
        self._is_over = False
        self._pace = Pace()
        self._is_leaving = False

    def frame(self, data: str, size: tuple[int, int]) -> None:
        """The screen should show this now."""
        with self._changed:
            self._mirror.resize(*size)
            self._mirror.draw(data)
            self._changed.notify_all()

    def order(self, data: str) -> None:
        """Send this as it is, in order, before anything newer."""
        with self._changed:
            if data in (SYNC_START, SYNC_END):
                self._is_synchronized = True
                return
            self._orders.append(data)
            if data == QUESTION:  # Textual's own, with little before it: it tells the way there
                self._pace.asked(len(data), time.monotonic())
            if data in (_ALTERNATE_SCREEN, _USUAL_SCREEN):
                self._is_away = data == _USUAL_SCREEN
                self._mirror.forget()
            self._changed.notify_all()

    def forget(self) -> None:
        """The terminal may show anything: draw all of it again."""
        with self._changed:
            self._mirror.forget()
            self._changed.notify_all()

    def stop(self) -> None:
        """Send what is left if the terminal takes it soon; leave it otherwise."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        self.join(_PATIENCE_S)

    def answered(self) -> bool:
        """The terminal answered the question; whether for the first time."""
        with self._changed:
            is_first = not self._pace.asks
            self._pace.answered(time.monotonic())
            self._changed.notify_all()
            return is_first

    def await_answers(self) -> None:
        """Ask no more and wait, shortly, for the answers that are due."""
        poll = select.poll()
        poll.register(self._fd, 0)
        with self._changed:
            self._is_leaving = True
            if poll.poll(0):  # hung up: none will come, and the input thread spins
                self._pace.forget()
            self._changed.wait_for(lambda: not self._pace.is_waiting, _LAST_ANSWER_S)
            self._pace.forget()

    def run(self) -> None:
        """Write frames until `stop`, or until the terminal is gone."""
        while (data := self._next()) is not None:
            began = time.monotonic()
            try:
                self._send(data)
            except OSError:  # hung up; the watchdog ends the program
                return
            with self._changed:
                self._pace.wrote(len(data), time.monotonic() - began)

    def _next(self) -> bytes | None:
        """The next bytes to send, None at the end; waits for either."""
        with self._changed:
            while not self._orders:
                wait = None
                if not (self._is_away or self._mirror.is_current):
                    wait = self._pace.wait_s(time.monotonic())
                    if wait == 0.0:
                        return self._difference()
                if self._is_over:
                    return None
                self._changed.wait(wait)
            orders, self._orders = "".join(self._orders), []
            return (self._mirror.reset_pen() + orders).encode("utf-8", "replace")

    def _difference(self) -> bytes:
        """Numbers first where not everything fits."""
        pace = self._pace
        found = self._mirror.next_difference(most=pace.most, charts=not pace.is_slow)
        if not found and pace.is_slow:
            found = self._mirror.next_difference(most=pace.most)
        if found and self._is_synchronized:
            found = SYNC_START + found + SYNC_END
        asks = found and pace.asks and not self._is_leaving
        data = (found + QUESTION if asks else found).encode("utf-8", "replace")
        if asks:
            pace.asked(len(data), time.monotonic())
        return data

    def _send(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._fd, data) :]


class LinkDriver(TerminalDriver):
    """Textual's driver for Linux, writing through a `Link`."""

    def __init__(self, app: Any, **options: Any) -> None:
        super().__init__(app, **options)
        self._link: Link | None = None

    def write(self, data: str) -> None:
        """A frame goes to the mirror, anything else straight on."""
        if self._link is None:
            return
        if _is_frame(data):
            self._link.frame(data, self.screen_size)
        else:
            self._link.order(data)

    def start_application_mode(self) -> None:
        self._link = Link(self.output_fd)
        self._link.start()
        super().start_application_mode()  # type: ignore[no-untyped-call]
        resized = signal.getsignal(signal.SIGWINCH)

        def on_resize(number: int, frame: Any) -> None:
            self.redraw()
            if callable(resized):
                resized(number, frame)

        signal.signal(signal.SIGWINCH, on_resize)

    def process_message(self, message: Message) -> None:
        """Input thread: a terminal that tells its new size has moved its cells."""
        if isinstance(message, InBandWindowResize | events.Resize):
            self.redraw()
        is_answer = isinstance(message, TerminalSupportsSynchronizedOutput)
        if is_answer and self._link is not None and not self._link.answered():
            return  # the app heard it once
        super().process_message(message)

    def disable_input(self) -> None:
        """Stop reading answers."""
        if self._link is not None:
            self._link.await_answers()
        super().disable_input()

    def redraw(self) -> None:
        """Send every cell again."""
        if self._link is not None:
            self._link.forget()

    def close(self) -> None:
        if self._link is not None:
            self._link.stop()
        super().close()


def _is_frame(data: str) -> bool:
    """Frames begin by going somewhere; modes, queries and the bell do not."""
    return data.startswith("\x1b[") and data[2:3].isdigit() and "H" in data[:12]
