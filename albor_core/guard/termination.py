"""How a program is made to end: its stacks if it hangs, a signal, a grace time, then SIGKILL."""

from __future__ import annotations

import signal
import time

from albor_core.guard.attempt import GuardedAttempt
from albor_core.guard.deaths import crash_report

_STACKS_S = 5.0


class Termination:
    """The end that a guard brings about; each step waits no longer than the grace time."""

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._term_at_s: float | None = None
        self._kill_at_s: float | None = None

    @property
    def due(self) -> list[float]:
        """When something is to be done, by the monotonic clock."""
        return [at for at in (self._kill_at_s, self._term_at_s) if at]

    def begin_with_stacks(self, attempt: GuardedAttempt) -> None:
        """Let a hung program dump its stacks before it is asked to end."""
        now = time.monotonic()
        has_asked = attempt.ask_for_stacks()
        self._term_at_s = now + (min(_STACKS_S, self._grace_s) if has_asked else 0.0)

    def ask(self, attempt: GuardedAttempt, number: int) -> None:
        """Ask the program to end, waking it if it is frozen, and start the grace time."""
        self._term_at_s, self._kill_at_s = None, time.monotonic() + self._grace_s
        if attempt.process is not None:
            attempt.process.send(number)
        if attempt.is_stopped_by_us:
            attempt.tree().send(signal.SIGCONT)
        elif attempt.process is not None:
            attempt.process.send(signal.SIGCONT)

    def tend(self, attempt: GuardedAttempt, *, is_now: bool) -> None:
        """Go on with what is due; `is_now`: with SIGKILL, whatever is due."""
        now = time.monotonic()
        if is_now:
            self._kill(attempt)
        elif self._term_at_s is not None:
            if now >= self._term_at_s or crash_report.has_content(attempt.stacks):
                self.ask(attempt, signal.SIGTERM)
        elif self._kill_at_s is not None and now >= self._kill_at_s:
            self._kill(attempt)

    def _kill(self, attempt: GuardedAttempt) -> None:
        attempt.is_killed_by_us = True
        attempt.tree().clear(patience_s=0.0)
        self._kill_at_s = time.monotonic() + self._grace_s  # again, if it survived

    def end(self) -> None:
        """The program has ended."""
        self._term_at_s = self._kill_at_s = None
