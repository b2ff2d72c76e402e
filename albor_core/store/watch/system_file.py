"""RUN_DIR/system.jsonl, the writer's end: figures of machine and program, and what was told.

Records of the journal's format; the x of figures is whole seconds since the run was made, since a
step may take a millisecond or an hour; who reads finds the step (store/index/series/step_clock.py).
Bounded:
each STRETCH_BYTES of the file double the interval between figures, which stop at FIGURES_BYTES;
alerts go on for ALERTS_BYTES more. Where the disk takes nothing, figures are dropped and counted
and alerts wait; nothing raises.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from albor_core.run.journal import Journal
from albor_core.run.rundir import RunDir

INTERVAL_S = 10.0
STRETCH_BYTES = 8 << 20
FIGURES_BYTES = 64 << 20
ALERTS_BYTES = 1 << 20
_MOST_WAITING = 1000  # alerts that wait in memory; figures never do
_RETRY_S = 5.0


class SystemFile:
    """The one writer: the holder of index.lock, one thread."""

    def __init__(self, run: RunDir, *, created: float) -> None:
        self.lost = 0
        """Lines that were given up: figures that a full disk did not take, and what came when the
        file was as long as it may be."""
        self.problem = ""
        self.attempt = 1
        self._run, self._created = run, created
        self._journal: Journal | None = None
        self._waiting: deque[tuple[str, dict[str, Any]]] = deque()
        self._retry_at = 0.0
        self._due = 0.0

    @property
    def interval_s(self) -> float:
        """Seconds between two figures, at the file's present length."""
        return INTERVAL_S * float(2 ** (self._size() // STRETCH_BYTES))

    def wants_figures(self, mono: float) -> bool:
        """Whether figures are due; asked once for each."""
        if mono < self._due or self._size() >= FIGURES_BYTES:
            return False
        self._due = mono + self.interval_s
        return True

    def figures(self, values: Mapping[str, float | int], wall: float) -> None:
        """Figures of this moment, in one line or a few of the same second."""
        journal = self._open()
        if not values or journal is None or journal.pending or self._waiting:
            self.lost += bool(values)
            return
        journal.metrics(max(0, int(wall - self._created)), values, wall=wall)
        self._settle(journal)

    def event(
        self,
        name: str,
        data: Mapping[str, Any],
        *,
        wall: float,
        severity: str = "info",
        step: int | None = None,
    ) -> None:
        """Something that was told or done."""
        head = {"step": step, "name": name, "severity": severity}
        fields = {**head, "data": dict(data), "wall": wall}
        self._waiting.append(("e", fields))
        while len(self._waiting) > _MOST_WAITING:
            self._waiting.popleft()
            self.lost += 1
        self.tend()

    def tend(self) -> None:
        """Offer what waits to the disk again."""
        if not self._waiting and (self._journal is None or not self._journal.pending):
            return
        journal = self._open()
        if journal is None:
            return
        journal.retry()
        while self._waiting and not journal.pending:
            kind, fields = self._waiting.popleft()
            if self._size() >= FIGURES_BYTES + ALERTS_BYTES:
                self.lost += 1
                continue
            journal.append(kind, **fields)
        self._settle(journal)

    def close(self) -> None:
        """Offer what waits a last time; what the disk does not take is lost and counted."""
        self.tend()
        self.lost += len(self._waiting)
        if self._journal is not None:
            self.lost += self._journal.pending
            self._journal.close()
            self._journal = None

    def _settle(self, journal: Journal) -> None:
        self.problem = journal.error or ""

    def _size(self) -> int:
        if self._journal is not None:
            return self._journal.offset
        try:
            return self._run.system.stat().st_size
        except OSError:
            return 0

    def _open(self) -> Journal | None:
        if self._journal is None:
            now = time.monotonic()
            if now < self._retry_at:
                return None
            try:
                self._journal = Journal(self._run.system, attempt=self.attempt)
            except OSError as error:
                self._retry_at = now + _RETRY_S
                self.problem = f"{self._run.system}: {error.strerror or error}"
                return None
        self._journal.attempt = self.attempt
        return self._journal
