"""Where the time goes between the start of a process and its first step. Standard library only."""

from __future__ import annotations

import os
import time

from albor_core.run.liveness import start_ticks


def process_age_s() -> float:
    """Seconds since the kernel started this process: its interpreter came after that."""
    ticks = start_ticks(os.getpid())
    if ticks is None:
        return 0.0
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    return max(0.0, now - ticks / os.sysconf("SC_CLK_TCK"))


class StartTimes:
    """A stopwatch whose laps have names: each `mark` says what was done since the last."""

    def __init__(self, before_s: float = 0.0) -> None:
        """`before_s`: what has passed already."""
        self._last = time.monotonic() - before_s
        self._seconds: dict[str, float] = {}

    def mark(self, name: str) -> None:
        """What was done since the last call was `name`; laps of one name add up."""
        now = time.monotonic()
        self._seconds[name] = self._seconds.get(name, 0.0) + now - self._last
        self._last = now

    def seconds(self) -> dict[str, float]:
        """The seconds of each name, in the order of their first marks."""
        return dict(self._seconds)
