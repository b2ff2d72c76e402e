"""Whether this thread gets the processor that it wants: on a crowded machine timings say little.

/proc/thread-self/schedstat counts the nanoseconds that a thread was ready to run and waited for a
processor. Where the kernel does not count them, nothing is known and nothing is called crowded.
"""

from __future__ import annotations

from pathlib import Path

CROWDED = 0.05  # of the time of some steps
COUNTS = Path("/proc/thread-self/schedstat")


class RunQueue:
    """Belongs to the thread that asks."""

    def __init__(self) -> None:
        self._waited_s = _waited_s()

    def was_crowded(self, seconds: float) -> bool:
        """Whether much of so many seconds, since the last call, went by in waiting."""
        before, self._waited_s = self._waited_s, _waited_s()
        if before is None or self._waited_s is None:
            return False
        return self._waited_s - before > CROWDED * seconds


def _waited_s() -> float | None:
    try:
        return int(COUNTS.read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None
