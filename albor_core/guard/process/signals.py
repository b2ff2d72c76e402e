"""Signals as bytes on a pipe: the loop handles them between its steps, never inside one."""

from __future__ import annotations

import os
import signal
from types import FrameType

_HEARD = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGCHLD)
_IGNORED = (signal.SIGHUP, signal.SIGPIPE)  # a closed terminal must not stop training


class SignalPipe:
    """Catches what the guard listens to. One per process, main thread only."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number in _HEARD:
            signal.signal(number, _wake)
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)

    def fileno(self) -> int:
        """Readable when a signal has come."""
        return self._read

    def take(self) -> list[int]:
        """Numbers of the signals since the last call."""
        try:
            return list(os.read(self._read, 4096))
        except BlockingIOError:
            return []


def _wake(number: int, frame: FrameType | None) -> None:
    """The wakeup descriptor already has the number; a handler must exist for it to be written."""
