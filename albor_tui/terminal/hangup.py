"""Leave when the terminal is gone or the program is ended, and put the terminal back.

A lost SSH link does not always send SIGHUP, and an app that reads a dead terminal spins at 100 % of
a core for ever. One thread waits in `poll` for the hang-up of stdin, stdout or stderr, at no cost.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable

GRACE_S = 2.0


def watch_terminal(leave: Callable[[int], None], *, fds: tuple[int, ...] = (0, 1, 2)) -> None:
    """Call `leave` with an exit code, once and in a thread of its own, when a terminal in `fds`
    hangs up, on SIGHUP, SIGINT and SIGTERM; end the process if it is still here after GRACE_S. Main
    thread only (signals)."""
    watchdog = _Watchdog(leave)
    for asked in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(asked, lambda number, _: watchdog.over(number))
    threading.Thread(target=watchdog.wait, args=(fds,), name="hangup", daemon=True).start()


class _Watchdog:
    def __init__(self, leave: Callable[[int], None]) -> None:
        self._leave = leave
        self._once = threading.Lock()

    def wait(self, fds: tuple[int, ...]) -> None:
        poll = select.poll()
        for fd in fds:
            if os.isatty(fd):
                poll.register(fd, 0)  # POLLHUP, POLLERR and POLLNVAL are always reported
        while not poll.poll(60_000):
            pass
        self.over(signal.SIGHUP)

    def over(self, number: int) -> None:
        code = 128 + number  # what a shell reports for a program that a signal ended
        if not self._once.acquire(blocking=False):
            return
        # Two threads: `leave` may block for ever on a loop that is stuck writing to the dead
        # terminal, and neither may run in the main thread, where a signal handler would put it.
        for name, work in (("grace", self._end_anyway), ("leave", self._leave)):
            threading.Thread(target=work, args=(code,), name=f"hangup-{name}", daemon=True).start()

    def _end_anyway(self, code: int) -> None:
        time.sleep(GRACE_S)
        os._exit(code)
