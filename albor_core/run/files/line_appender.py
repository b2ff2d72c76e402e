"""Lines appended to a file, none lost while its disk takes nothing for a while, and no caller kept
waiting while the disk is slow.

A line is in the page cache when `write` returns, and survives `kill -9` from then on. There are two
exceptions, and `pending` counts the lines of both. A disk that refuses a line (full, failing) makes
it and those after it wait in memory; they are offered again, in order, with every later one. A disk
that took longer than SLOW_S for a line has a thread write the following ones, until it was quick
for CALM_S; the line that met it first is waited for. What waits is bounded: beyond RING_BYTES the
oldest lines are dropped and counted.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

from albor_core.run.values.quantity import counted

RING_BYTES = 64 << 20
SLOW_S = 0.05
CALM_S = 5.0
PATIENCE_S = 2.0  # of `retry` and `close` for lines that a thread is writing
_RETRY_S = 0.1
LAST_WAIT_S = 2.0  # at the end of a run, for a disk that takes no line
_MOST_WAIT_S = 30.0  # for one that does, slowly, as where hundreds of programs end at once


class LineAppender:
    """The one writer of a file of lines, for a thread that has them. Opening cuts a torn last line.

    Raises OSError where the file cannot be opened; nothing later but in `barrier`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.error: str | None = None
        """Why the disk refused the newest line that was offered to it."""
        self.dropped = 0
        """Lines that were given up, since more waited than memory is kept for."""
        self._ring: deque[bytes] = deque()
        self._ring_bytes = 0
        self._in_hand = 0  # a line that the thread is writing
        self._torn = False  # half a line stands at the end and could not be cut yet
        self._news = threading.Condition(threading.RLock())  # a signal handler may write as well
        self._thread: threading.Thread | None = None
        self._is_closing = False
        self.fd = os.open(
            path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        """Valid until `close`; an `fdatasync` in another thread may have it."""
        self.offset = _cut_torn_tail(self.fd)
        """Bytes of whole lines in the file."""

    @property
    def pending(self) -> int:
        """Lines that the disk has not taken yet."""
        with self._news:
            return len(self._ring) + self._in_hand

    def write(self, line: bytes) -> None:
        """Append a line with its end."""
        if self._ring or self._thread is not None:
            self._queue(line)
            return
        began = time.monotonic()
        if not self._put(line):
            self._keep(line)
        if time.monotonic() - began > SLOW_S:
            self._write_beside()

    def _queue(self, line: bytes) -> None:
        with self._news:
            self._keep(line)
            if self._thread is not None:
                self._news.notify()
                return
        self._offer()

    def _keep(self, line: bytes) -> None:
        self._ring.append(line)
        self._ring_bytes += len(line)
        while self._ring_bytes > RING_BYTES:
            self._ring_bytes -= len(self._ring.popleft())
            self.dropped += 1

    def _offer(self) -> None:
        """Offer waiting lines to the disk again, oldest first, for as long as a caller may wait."""
        began = now = time.monotonic()
        while self._ring and now - began <= SLOW_S and self._put(self._ring[0]):
            self._ring_bytes -= len(self._ring.popleft())
            now = time.monotonic()
        if time.monotonic() - began > SLOW_S:
            self._write_beside()

    def retry(self) -> None:
        """Offer waiting lines to the disk again; those that wait because it is slow are waited for,
        a bounded time.
        """
        deadline = time.monotonic() + PATIENCE_S
        if self._thread is None:
            self._offer()
        while self.pending and self._thread is not None and time.monotonic() < deadline:
            if self.error is not None:
                return  # refused: waiting does not help
            time.sleep(0.005)

    def wait(self, timeout_s: float = LAST_WAIT_S) -> bool:
        """Offer them until the disk has taken all; whether it has. Given up where it takes none for
        so long: of our own pauses, since where hundreds of programs end at once we hardly run.
        """
        end = time.monotonic() + max(timeout_s, _MOST_WAIT_S)
        taken, paused_s = self.offset, 0.0
        while self.pending:
            if self._thread is None:
                self._offer()
            if self.offset != taken:
                taken, paused_s = self.offset, 0.0
            patience_s = timeout_s if self.error is not None else max(timeout_s, PATIENCE_S)
            if paused_s >= patience_s or time.monotonic() >= end:
                break
            pause_s = 0.005 if paused_s < _RETRY_S and self.error is None else _RETRY_S
            time.sleep(pause_s)
            paused_s += pause_s
        return not self.pending

    def give_up(self) -> int:
        """Drop what waits; returns how many lines the disk never took, those dropped before too."""
        with self._news:
            self.dropped += len(self._ring)
            self._ring.clear()
            self._ring_bytes = 0
            return self.dropped + self._in_hand

    def _put(self, line: bytes) -> bool:
        try:
            if self._torn:
                self._cut()
            written = os.write(self.fd, line)
            if written < len(line):
                self._put_rest(line[written:])
        except OSError as error:
            self.error = f"{self.path}: {error.strerror or error}"
            return False
        self.offset += len(line)
        self.error = None
        return True

    def _put_rest(self, rest: bytes) -> None:
        """The end of a line of which the disk took a part: most often it now says why."""
        self._torn = True
        try:
            while rest:
                if not (written := os.write(self.fd, rest)):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                rest = rest[written:]
        except OSError:
            with suppress(OSError):  # tried again before the next line
                self._cut()
            raise
        self._torn = False

    def _cut(self) -> None:
        # whoever appends holds a lock, so no other does. Where to cut is read from the file: an
        # interrupt right after a write would have left `offset` one whole line behind
        self.offset = _cut_torn_tail(self.fd)
        self._torn = False

    # -- a slow disk ---------------------------------------------------------------------------

    def _write_beside(self) -> None:
        with self._news:
            if self._thread is not None or self._is_closing:
                return
            self._thread = threading.Thread(target=self._write_slowly, daemon=True, name="journal")
            try:
                self._thread.start()
            except RuntimeError:  # no more threads to be had
                self._thread = None

    def _write_slowly(self) -> None:
        calm_at = time.monotonic() + CALM_S
        while (line := self._next(calm_at)) is not None:
            began = time.monotonic()
            is_written = self._put(line)
            if time.monotonic() - began > SLOW_S:
                calm_at = time.monotonic() + CALM_S
            with self._news:
                self._in_hand = 0
                if not is_written:
                    self._ring.appendleft(line)
                    self._ring_bytes += len(line)
                    self._news.wait(_RETRY_S)

    def _next(self, calm_at: float) -> bytes | None:
        """The next line, or None once there need be no thread."""
        with self._news:
            while not self._ring:
                left_s = calm_at - time.monotonic()
                if self._is_closing or left_s <= 0:
                    self._thread = None
                    return None
                self._news.wait(left_s)
            if self._is_closing and self.error is not None:
                self._thread = None
                return None
            line = self._ring.popleft()
            self._ring_bytes -= len(line)
            self._in_hand = 1
            return line

    # -- durability and the end ----------------------------------------------------------------

    def barrier(self) -> int:
        """Make all lines so far survive power loss; returns the offset they end at.

        Raises OSError, also while lines still wait for the disk.
        """
        self.retry()
        if self.pending:
            raise OSError(
                errno.ENOSPC,
                f"cannot write {counted(self.pending, 'line')}: {self.error}; will retry",
            )
        os.fdatasync(self.fd)
        return self.offset

    def close(self) -> None:
        """Offer waiting lines a last time. `pending` tells afterwards what was lost."""
        self.retry()
        with self._news:
            self._is_closing = True
            thread = self._thread
            self._news.notify()
        if thread is not None:
            thread.join(PATIENCE_S)
            if thread.is_alive():
                return  # it hangs in a write: the descriptor must stay its own
        fd, self.fd = self.fd, -1  # its number may soon be another file's
        os.close(fd)


def _cut_torn_tail(fd: int) -> int:
    size = os.fstat(fd).st_size
    position = size
    while position > 0:
        start = max(0, position - 65536)
        found = os.pread(fd, position - start, start).rfind(b"\n")
        if found >= 0:
            position = start + found + 1
            break
        position = start
    if position < size:
        os.ftruncate(fd, position)
    return position
