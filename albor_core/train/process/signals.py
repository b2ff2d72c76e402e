"""The signals that a trainer handles: requests to stop, to read a command, to dump its stacks.

Imports nothing heavy: signals must be handled before torch is loaded, which takes seconds.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import time
from pathlib import Path
from types import FrameType
from typing import TextIO

from albor_core.train.process.attempt import Attempt


class SignalRequests:
    """Requests from outside, noted by signal handlers and read by the loop between two steps.

    TERM and the first INT ask for a graceful end; a second INT leaves at once. USR2 says that a
    command lies in guard/cmd.json. USR1 dumps every thread's stack.
    """

    def __init__(self) -> None:
        self.stop: signal.Signals | None = None
        self.command = False

    def install(self, attempt: Attempt) -> None:
        """Main thread only."""
        dump_stacks_to(attempt.run.logs / f"a{attempt.number:04d}.stacks")
        signal.signal(signal.SIGTERM, self._on_stop)
        signal.signal(signal.SIGINT, self._on_stop)
        signal.signal(signal.SIGUSR2, self._on_command)

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.stop is signal.SIGINT:
            os._exit(130)
        if self.stop is None:
            self.stop = signal.Signals(number)

    def _on_command(self, number: int, frame: FrameType | None) -> None:
        self.command = True

    def wait(self, timeout_s: float) -> None:
        """Sleep until the time is up or a request came.

        By short sleeps: an Event set in a signal handler can deadlock with the wait it ends.
        """
        deadline = time.monotonic() + timeout_s
        while self.stop is None and not self.command and time.monotonic() < deadline:
            time.sleep(0.05)


_STACKS: list[TextIO] = []


def dump_stacks_to(path: Path) -> None:
    """USR1 appends every thread's stack. The file stays open: a dump must work when nothing else
    does.
    """
    _STACKS.append(path.open("a"))
    faulthandler.register(signal.SIGUSR1, file=_STACKS[-1], all_threads=True)
