"""What a guard is at, as guard.json shows it."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from albor_core.guard.attempt import GuardedAttempt
from albor_core.guard.launch import Launch
from albor_core.guard.policy import GuardMemory
from albor_core.guard.records import Ledger
from albor_core.guard.stop_request import StopRequest
from albor_core.run.checkpoints import newest
from albor_core.run.guard_state import MOVES, GuardState
from albor_core.run.rundir import RunDir

_PULSE_S = 5.0  # guard.json is fresh at least this often


class GuardStatus:
    """The state of a guard and what belongs to it. Each new state is a line in attempts.jsonl and a
    new guard.json.
    """

    def __init__(self, run: RunDir, launch: Launch, ledger: Ledger) -> None:
        self.run, self.launch, self.ledger = run, launch, ledger
        self.state, self.since_s = GuardState.INIT, time.monotonic()
        self.attempt: GuardedAttempt | None = None
        self.number: int | None = None  # of the newest attempt, which may be over
        self.memory = GuardMemory()
        self.stop: StopRequest | None = None
        self.exit_code: int | None = None
        self.reason = ""
        self.class_last: str | None = None
        self.backoff_until_s: float | None = None
        self._pulse_at_s = 0.0

    def enter(self, state: GuardState) -> None:
        """Go to a state. Raises AssertionError for one that may not follow this one."""
        assert state in MOVES[self.state], f"a guard goes from {self.state} to {state}"
        self.record(state)

    def record(self, state: GuardState) -> None:
        """Enter a state, whatever it follows."""
        self.state, self.since_s = state, time.monotonic()
        self.ledger.line("state", state=state)
        self._publish()

    def pulse(self) -> None:
        """Keep guard.json fresh. Cheap; call it on every pass."""
        if time.monotonic() >= self._pulse_at_s:
            self._publish()

    def _publish(self) -> None:
        self._pulse_at_s = time.monotonic() + min(_PULSE_S, 2 * self.launch.options.poll_s)
        self.ledger.now(self.document())

    def document(self) -> dict[str, Any]:
        """guard.json without what the ledger adds."""
        attempt, saved = self.attempt, newest(self.run.checkpoints)
        until = self.backoff_until_s
        return {
            "state": self.state,
            "since_mono_ns": int(self.since_s * 1e9),
            "attempt": self.number,
            "adopted": attempt is not None and attempt.is_adopted,
            "diagnostic": attempt is not None and attempt.is_diagnostic,
            "child": None
            if attempt is None or attempt.process is None
            else {"pid": attempt.pid, "start_ticks": attempt.process.ticks},
            "class_last": self.class_last,
            "reason": self.reason,
            "backoff": None
            if until is None
            else {"index": self.memory.backoff_index, "until_mono_ns": int(until * 1e9)},
            "no_progress": self.memory.no_progress,
            "last_ckpt": None if saved is None else saved[0],
            "hang_detection": self.detects_hangs,
            "exit_code": self.exit_code,
            "memory": asdict(self.memory),
        }

    @property
    def detects_hangs(self) -> bool:
        """A plain program that writes no state file gives no sign of life to miss."""
        has_news = self.attempt is not None and self.attempt.watch.has_news
        return self.launch.kind == "train" or has_news

    def request_stop(
        self, number: int, *, is_now: bool, command_id: str = "", by: str = ""
    ) -> StopRequest:
        """Ask for the end of the run; a second request may make the first more urgent."""
        if self.stop is None:
            self.stop = StopRequest(number, by)
        self.stop.is_now = self.stop.is_now or is_now
        if command_id:
            self.stop.command_ids.append(command_id)
        return self.stop
