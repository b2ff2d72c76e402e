"""The thread that writes media, what may wait for it, and what is too much.

What waits is in memory: `Limits.max_queue` bytes of it. A call that finds no room waits for it,
WAIT_S at most in all until there was room again; then media are refused until half of it is free:
no loop stands still for a disk that hangs. The journal's own lock is only held for a line.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from albor_core.run.files.media_file import hash_of, kept, publish
from albor_core.run.files.whole_file import clear_halves
from albor_core.run.values.metrics import printable
from albor_core.run.values.quantity import byte_size
from albor_core.track.encode.medium import Medium, RefusedError, limits_of, warn

WAIT_S = 5.0
END_S = 30.0  # for what waits when the run is closed, while it goes on
_LOOK_S, _STUCK_LOOKS = 0.05, 40  # looks, not seconds: we may have been stopped together
_MAX_LINES = 20  # on stderr, of refusals


@dataclass
class Job:
    """A medium on its way."""

    step: int | None
    key: str
    kind: str
    caption: str
    medium: Medium
    most: int


Line = tuple[int | None, dict[str, Any]]  # of the journal: its step and its fields


class MediaWriter:
    """The media of one run. `put`, `refuse`, `flush` and `finish` from any thread."""

    _of: ClassVar[WeakKeyDictionary[Any, MediaWriter]] = WeakKeyDictionary()
    _making: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, run: Any) -> None:
        self._run = run
        self.limits = limits_of(os.environ)
        # reentrant: a signal handler may close the run, or show something
        self._news = threading.Condition(threading.RLock())
        self._jobs: deque[Job] = deque()
        self._lines: deque[Line] = deque()  # written, and not in the journal yet
        self._waiting = self._in_hand = 0
        self._is_saying = self._is_over = self._is_behind = False
        self._moved = 0  # what the thread has done, to see that it goes on
        self._thread: threading.Thread | None = None
        self._count: int | None = None
        self._bytes = 0
        self._said: set[tuple[str, str, str]] = set()

    # -- from the program ----------------------------------------------------------------------

    def put(self, job: Job) -> None:
        """Queue a medium, once there is room for it. Raises RefusedError."""
        size = job.medium.size
        with self._news:
            if self._is_over:
                return  # closed meanwhile
            self._admit()
            self._wait_for_room(size)
            self._jobs.append(job)
            self._waiting += size
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="albor-media", daemon=True)
                self._thread.start()
            self._news.notify_all()

    def _admit(self) -> None:
        """Count one more. What the run has already is counted once, when its first comes."""
        if self._count is None:
            clear_halves(self._run.dir.path / "media")
            sizes = [status.st_size for _, status in kept(self._run.dir.path)]
            self._count, self._bytes = len(sizes), sum(sizes)
        if self._count >= self.limits.max_count:
            raise RefusedError("media_limit", f"the run has {self._count:,} already")
        if self._bytes >= self.limits.max_total:
            raise RefusedError("media_limit", f"the run has {byte_size(self._bytes)} already")
        self._count += 1

    def admit_bytes(self, size: int) -> None:
        """Room for an artefact of `size` bytes. Raises RefusedError."""
        with self._news:
            self._admit()
            if self._bytes + size > self.limits.max_total:
                raise RefusedError(
                    "media_limit",
                    f"{byte_size(size)} more, and the run may keep"
                    f" {byte_size(self.limits.max_total)}",
                )

    def add_bytes(self, size: int) -> None:
        """Count the bytes of a file that was written outside the thread."""
        with self._news:
            self._bytes += size

    def _wait_for_room(self, size: int) -> None:
        room = self.limits.max_queue
        if self._is_behind:
            self._is_behind = self._waiting > room // 2
        deadline = time.monotonic() + (0.0 if self._is_behind else WAIT_S)
        while self._waiting and self._waiting + size > room:
            left = deadline - time.monotonic()
            if left <= 0 or not self._news.wait(left):
                self._is_behind = True
                raise RefusedError(
                    "media_behind", f"the disk is too slow: {byte_size(self._waiting)} wait for it"
                )

    def refuse(self, kind: str, key: str, why: RefusedError) -> None:
        """Count it, and say the first of its kind under this key, as long as these are few."""
        with self._news:
            self._run.odd.note(why.kind, key, why.reason)
            is_new = (kind, key, why.kind) not in self._said and len(self._said) < _MAX_LINES
            if is_new:
                self._said.add((kind, key, why.kind))
        if is_new:
            reason = printable(" ".join(why.reason.split()))[:300]
            warn(f"{kind} {key!r} of run {self._run.id} is not kept: {reason}")

    def flush(self, timeout_s: float) -> bool:
        """Wait until nothing waits any more."""
        deadline = time.monotonic() + timeout_s
        with self._news:
            while self._jobs or self._in_hand or self._lines:
                left = deadline - time.monotonic()
                if left <= 0 or not self._news.wait(left):
                    return False
        return True

    def finish(self) -> None:
        """The run is being closed: wait for what is on its way, as long as it moves."""
        with self._news:
            moved, looks, end = self._moved, 0, time.monotonic() + END_S
            while self._jobs or self._in_hand or self._lines:
                moved, looks = self._moved, looks + 1 if self._moved == moved else 0
                # a signal handler may close the run while `log` below it holds the lock that the
                # thread waits for: then its lines are ours to say
                if (self._is_saying and looks > _STUCK_LOOKS) or time.monotonic() > end:
                    break
                self._news.wait(_LOOK_S)
            self._is_over = True
            lost = len(self._jobs) + bool(self._in_hand and not self._is_saying)
            self._jobs.clear()
            lines = [*self._lines]
            self._lines.clear()
            self._news.notify_all()
        for step, line in lines:
            self._run.journal_append("b", step, **line)
        if lost:
            what = "1 medium" if lost == 1 else f"{lost:,} media"
            warn(f"{what} of run {self._run.id} could not be written")

    # -- the thread ----------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._news:
                while not self._jobs:
                    if self._is_over:
                        return
                    self._news.wait()
                job = self._jobs.popleft()
                self._in_hand = 1
            line = self._tried(job)
            with self._news:
                if line is not None and not self._is_over:
                    self._lines.append(line)
                    self._is_saying = True
                self._moved += 1
            if line is not None:
                self._say()
            with self._news:
                self._is_saying = False
                self._waiting -= job.medium.size
                self._in_hand = 0
                self._moved += 1
                self._news.notify_all()

    def _tried(self, job: Job) -> Line | None:
        """The line of a medium whose file is there; None where it was refused."""
        try:
            return self._written(job)
        except RefusedError as refused:
            self.refuse(job.kind, job.key, refused)
        except Exception as error:  # a full disk, a foreign encoder, no memory
            why = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
            self.refuse(job.kind, job.key, RefusedError("media_failed", why))
        return None

    def _say(self) -> None:
        """The newest line into the journal: it leaves the queue when it is there."""
        line = self._lines[0] if self._lines else None
        if line is not None:
            self._run.journal_append("b", line[0], **line[1])
        with self._news:
            if self._lines and self._lines[0] is line:
                self._lines.popleft()

    def _written(self, job: Job) -> Line:
        medium = job.medium
        content = medium.content if isinstance(medium.content, bytes) else medium.content()
        if len(content) > job.most:
            raise RefusedError.too_large(len(content), job.most)
        if "data" in medium.meta:
            digest = hash_of(content)
        else:
            file = publish(self._run.dir.path, medium.form, content)
            digest = file.hash
            if file.is_new:
                self.add_bytes(file.bytes)
        return job.step, {
            "key": job.key,
            "kind": job.kind,
            "hash": digest,
            "bytes": len(content),
            "name": "",
            "caption": job.caption,
            "meta": {"format": medium.form, **medium.meta},
        }


def writer_of(run: Any) -> MediaWriter:
    """The writer of a run, made with its first medium."""
    found = MediaWriter._of.get(run)
    if found is None:
        with MediaWriter._making:
            found = MediaWriter._of.setdefault(run, MediaWriter(run))
    return found


def finish(run: Any) -> None:
    """Wait for the media of a run that is being closed, before its journal is."""
    found = MediaWriter._of.get(run)
    if found is not None:
        found.finish()
