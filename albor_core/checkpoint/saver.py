"""Saves checkpoints beside the training: one thread writes what the loop has copied to the host.

The loop waits only for the copy. One save is in flight at a time; its outcome comes back through
`results`, since only the loop may write the journal.
"""

from __future__ import annotations

import math
import os
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from albor_core.checkpoint.folder import (
    Snapshot,
    Written,
    best_of,
    mark_best,
    write_checkpoint,
)
from albor_core.checkpoint.retention import Retention, prune
from albor_core.run.files.tensor_header import DamagedFileError


@dataclass(frozen=True)
class SaveFailed:
    """A save that left nothing behind. `in_a_row` counts failures since the last success; 0 means
    that the checkpoint itself was published.
    """

    step: int
    reason: str
    in_a_row: int


class Saver:
    """Writes snapshots in a background thread. All methods are called by the loop's thread."""

    def __init__(
        self,
        folder: Path,
        journal: Path,
        *,
        run_id: str,
        hashes: Mapping[str, str],
        retention: Retention,
        verify: bool = True,
        parent: tuple[int, str] | None = None,
        after_publish: Callable[[int], None] = lambda step: None,
    ) -> None:
        """`parent` is the (step, id) of the checkpoint resumed from; `after_publish` is called
        after each save, for fault drills."""
        self.folder, self.journal = folder, journal
        self.run_id, self.hashes, self.retention, self.verify = run_id, hashes, retention, verify
        self.failures = 0
        self.follow(parent)
        self._after_publish = after_publish
        self._results: queue.SimpleQueue[Written | SaveFailed] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def follow(self, parent: tuple[int, str] | None) -> None:
        """Make the checkpoint (step, id) the parent of the next save; no save may be in flight."""
        self.last_step: int | None = None if parent is None else parent[0]
        self._parent_id: str | None = None if parent is None else parent[1]

    @property
    def in_flight(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self, snapshot: Snapshot) -> None:
        """Begin to write `snapshot`; no other save may be in flight."""
        assert not self.in_flight
        self._thread = threading.Thread(
            target=self._save, args=(snapshot,), name="checkpoint", daemon=True
        )
        self._thread.start()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until no save is in flight; False if the time is up first."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        return not self.in_flight

    def results(self) -> list[Written | SaveFailed]:
        """Outcomes of the saves since the last call, oldest first."""
        found: list[Written | SaveFailed] = []
        while True:
            try:
                result = self._results.get_nowait()
            except queue.Empty:
                return found
            if isinstance(result, Written):
                self.last_step = result.step
            found.append(result)

    def _save(self, snapshot: Snapshot) -> None:
        try:
            self._flush_journal()
            written = write_checkpoint(
                self.folder,
                snapshot,
                run_id=self.run_id,
                parent_id=self._parent_id,
                hashes=self.hashes,
                verify=self.verify,
            )
        except (OSError, DamagedFileError) as error:
            self.failures += 1
            self._results.put(SaveFailed(snapshot.step, str(error), self.failures))
            return
        except Exception as error:  # no memory, say: whatever it is, the loop must hear of it
            self.failures += 1
            reason = f"{type(error).__name__}: {error}"
            self._results.put(SaveFailed(snapshot.step, reason, self.failures))
            return
        self.failures, self._parent_id = 0, written.id
        self._after_publish(written.step)
        untidy = self._tidy(snapshot)
        self._results.put(written)
        if untidy:
            self._results.put(SaveFailed(snapshot.step, untidy, 0))

    def _flush_journal(self) -> None:
        """Flush metrics up to this step to disk before the checkpoint is published; otherwise a
        power cut could leave a gap that no resume can fill.
        """
        fd = os.open(self.journal, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fdatasync(fd)
        finally:
            os.close(fd)

    def _tidy(self, snapshot: Snapshot) -> str:
        """Mark the best and prune old checkpoints; return an error text or "". The new checkpoint
        is safe in any case."""
        try:
            best = best_of(self.folder)
            found = snapshot.val_loss
            if found is not None and math.isfinite(found) and (best is None or found < best[1]):
                mark_best(self.folder, snapshot.step, found)
            prune(
                self.folder,
                keep=max(1, self.retention.keep),
                keep_every=self.retention.keep_every,
                source=self.retention.source,
                sound=snapshot.sound,
            )
        except OSError as error:
            return f"after publishing: {error}"
        return ""
