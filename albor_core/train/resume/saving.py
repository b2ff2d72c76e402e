"""Checkpoints as the loop sees them: start one, learn what became of it, tell everybody."""

from __future__ import annotations

import time
from collections.abc import Callable

from albor_core.checkpoint.folder import Checkpoint, Snapshot, Written, best_of
from albor_core.checkpoint.saver import SaveFailed, Saver
from albor_core.train.observe.reporter import Reporter

RED_AFTER_FAILURES = 3


class CheckpointSaving:
    """Coordinates checkpoints between the loop, the saver's thread, the journal and those who
    requested one."""

    def __init__(
        self, saver: Saver, reporter: Reporter, answer: Callable[[str, str, str], None]
    ) -> None:
        """`answer(command id, status, detail)` reaches whoever asked."""
        self._saver, self._reporter, self._answer = saver, reporter, answer
        self._asked: list[str] = []  # since the newest snapshot was taken
        self._promised: list[str] = []  # in that snapshot
        self._evaluated: int | None = None  # in the newest snapshot
        self._is_behind = False  # since a rollback that no checkpoint holds yet

    @property
    def is_busy(self) -> bool:
        return self._saver.in_flight

    def has(self, step: int, evaluated_step: int | None) -> bool:
        """Whether the newest checkpoint is of `step`, its evaluation included."""
        is_same = self._saver.last_step == step and self._evaluated == evaluated_step
        return is_same and not self._is_behind

    def resumed_from(self, source: Checkpoint, evaluated_step: int | None) -> None:
        self._evaluated = evaluated_step
        self._show(source.step, str(source.path), float(source.manifest["created"]))

    def went_back(self, source: Checkpoint | None) -> None:
        """The run is where `source` was (None: at its beginning), and nothing later is there."""
        self._saver.follow(None if source is None else (source.step, source.manifest["id"]))
        self._evaluated, self._is_behind = None, True  # more will be saved than `source` holds
        if source is not None:
            self._show(source.step, str(source.path), float(source.manifest["created"]))

    def ask(self, command_id: str) -> None:
        """Request a checkpoint of now or later, and an answer when it is on the disk."""
        self._asked.append(command_id)

    def save(self, take: Callable[[], Snapshot], step: int, evaluated_step: int | None) -> None:
        """Copy to the host now and let the saver write it. Nothing may be in flight.

        While journal lines wait for the disk there is no saving: a checkpoint whose metrics are not
        down would leave a gap.
        """
        self.collect()  # the one before may have come to its end a moment ago
        self._promised, self._asked = self._asked, []
        journal = self._reporter.journal
        journal.retry()
        if journal.pending:
            self._saver.failures += 1
            self._failed(SaveFailed(step, "journal lines wait for the disk", self._saver.failures))
            return
        self._saver.start(take())
        self._evaluated = evaluated_step
        self._reporter.state.fields["checkpoint"]["in_flight"] = True

    def collect(self) -> None:
        """Journal what became of saves since the last call."""
        for result in self._saver.results():
            if isinstance(result, Written):
                self._saved(result)
            else:
                self._failed(result)

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until no save is in flight, and collect the results."""
        self._saver.wait(timeout_s)
        self.collect()

    def turn_down(self, reason: str) -> None:
        """Nothing more will be saved: tell whoever still waits."""
        self._promised, self._asked = self._asked, []
        self._reply("refused", reason)

    def _saved(self, saved: Written) -> None:
        self._is_behind = False  # nothing is in flight while a run goes back
        journal, path = self._reporter.journal, str(saved.path)
        journal.event(
            "checkpoint.saved",
            step=saved.step,
            path=path,
            bytes=saved.bytes,
            seconds=round(saved.seconds, 4),
        )
        journal.append(
            "a",
            step=saved.step,
            name=saved.path.name,
            path=path,
            bytes=saved.bytes,
            hash=saved.id,
            kind="checkpoint",
        )
        self._show(saved.step, path, time.time())
        self._reply("done", f"checkpoint of step {saved.step}")

    def _show(self, step: int, path: str, wall: float) -> None:
        best = best_of(self._saver.folder)
        self._reporter.state.fields["checkpoint"] = {
            "last": {"step": step, "path": path, "wall": wall},
            "best": None if best is None else {"step": best[0], "value": best[1]},
            "in_flight": False,
            "failures": 0,
        }

    def _failed(self, failed: SaveFailed) -> None:
        self._reporter.journal.event(
            "checkpoint.failed",
            step=failed.step,
            severity="error" if failed.in_a_row >= RED_AFTER_FAILURES else "warning",
            reason=failed.reason[:500],
            in_a_row=failed.in_a_row,
        )
        if failed.in_a_row == 0:
            return
        self._evaluated = None  # what the snapshot held is not on the disk
        self._reporter.state.fields["checkpoint"] |= {
            "in_flight": False,
            "failures": failed.in_a_row,
        }
        self._reply("refused", failed.reason[:200])

    def _reply(self, status: str, detail: str) -> None:
        for command_id in self._promised:
            self._answer(command_id, status, detail)
        self._promised.clear()
