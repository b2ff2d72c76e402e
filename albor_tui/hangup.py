"""Leave when the terminal is gone.

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
EXIT_CODE = 129  # 128 + SIGHUP, what a shell reports for a hung-up program


def watch_terminal(leave: Callable[[], None], *, fds: tuple[int, ...] = (0, 1, 2)) -> None:
    """Call `leave`, once and in a thread of its own, when a terminal in `fds` hangs up or SIGHUP
    arrives; end the process if it is still here after GRACE_S. Main thread only (signals)."""
    watchdog = _Watchdog(leave)
    signal.signal(signal.SIGHUP, lambda *_: watchdog.hung_up())
    threading.Thread(target=watchdog.wait, args=(fds,), name="hangup", daemon=True).start()


class _Watchdog:
    def __init__(self, leave: Callable[[], None]) -> None:
        self._leave = leave
        self._once = threading.Lock()

    def wait(self, fds: tuple[int, ...]) -> None:
        poll = select.poll()
        for fd in fds:
            if os.isatty(fd):
                poll.register(fd, 0)  # POLLHUP, POLLERR and POLLNVAL are always reported
        while not poll.poll(60_000):
            pass
        self.hung_up()

    def hung_up(self) -> None:
        if not self._once.acquire(blocking=False):
            return
        # Two threads: `leave` may block for ever on a loop that is stuck writing to the dead
        # terminal, and neither may run in the main thread, where a signal handler would put it.
        threading.Thread(target=self._end_anyway, name="hangup-grace", daemon=True).start()
        threading.Thread(target=self._leave, name="hangup-leave", daemon=True).start()

    def _end_anyway(self) -> None:
        time.sleep(GRACE_S)
        os._exit(EXIT_CODE)
