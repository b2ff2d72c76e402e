"""A log by line number, whatever its size, without holding it.

Newlines are counted once per block of the file, so that any line is found with one read. Counting
and searching go on where they stopped and take at most TURN_S at a time: a caller asks again.
"""

from __future__ import annotations

import os
import re
import stat
import time
from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from albor_core.feed.run.tail import LINE_BYTES, clean_line

BLOCK_BYTES = 64 << 10
TURN_S = 0.05
MOST_MATCHES = 10_000
_NAME = re.compile(r"a(\d{1,9})\.log(?:\.(\d))?")


@dataclass(frozen=True, order=True)
class LogName:
    """A log of a run: its attempt, and 0 for the file that is written, -1, -2 ... for what was
    moved out of its way when it grew too large."""

    attempt: int
    part: int = 0

    @property
    def file(self) -> str:
        return f"a{self.attempt:04d}.log" + (f".{-self.part}" if self.part else "")


@dataclass(frozen=True)
class LogWindow:
    """A window of lines of a log, with its position. Lines are clean text."""

    name: LogName | None = None  # None: there is no log
    names: tuple[LogName, ...] = ()  # all there are, oldest first
    top: int = 0
    lines: tuple[str, ...] = ()
    total: int = 0  # lines known so far
    num_bytes: int = 0
    needle: str = ""
    matches: tuple[int, ...] = ()  # lines that hold the needle, at most MOST_MATCHES
    is_partial: bool = False  # counting or searching goes on
    generation: int = 0  # moves when the file was replaced: line numbers before mean nothing


class LogShelf:
    """The logs of a run. Remembers the one looked at last. Belongs to one thread; never raises."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: LogFile | None = None
        self._made: tuple[tuple[object, ...], LogWindow] = ((), LogWindow())

    def names(self) -> tuple[LogName, ...]:
        """Oldest first."""
        try:
            entries = [path.name for path in self._folder.iterdir()]
        except OSError:
            return ()
        found = filter(None, map(_NAME.fullmatch, entries))
        return tuple(sorted(LogName(int(m[1]), -int(m[2] or 0)) for m in found))

    def window(
        self, name: LogName | None, top: int | None, count: int, needle: str = ""
    ) -> LogWindow:
        """`count` lines from line `top` (None: the last ones) of a log (None: the newest)."""
        names = self.names()
        if not names:
            return LogWindow()
        chosen = name if name in names else names[-1]
        path = self._folder / chosen.file
        if self._file is None or self._file.path != path:
            self._file = LogFile(path)
        file = self._file
        file.look(needle)
        first = max(0, file.total - count) if top is None else max(0, top)
        mark = (names, path, first, count, file.num_bytes, file.generation, file.is_partial, needle)
        if mark == self._made[0] and not file.is_partial:
            return self._made[1]
        window = LogWindow(
            name=chosen,
            names=names,
            top=first,
            lines=file.lines(first, count),
            total=file.total,
            num_bytes=file.num_bytes,
            needle=needle,
            matches=tuple(file.matches),
            is_partial=file.is_partial,
            generation=file.generation,
        )
        self._made = (mark, window)
        return window


class LogFile:
    """A log file. Never raises: an unreadable one has no lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.num_bytes = 0
        self.generation = 0
        self.matches: list[int] = []
        self._needle = b""
        self._identity: tuple[int, int] | None = None
        self._forget()

    def _forget(self) -> None:
        self.num_bytes = 0
        self._before = [0]  # newlines before each block, and before what comes next
        self._counted = 0  # bytes
        self._ends_whole = True
        self._begin_search()

    def _begin_search(self) -> None:
        self.matches = []
        self._searched, self._line = 0, 0  # bytes, and the line they end in
        self._is_searching = False

    @property
    def total(self) -> int:
        """Lines counted so far, one that is still written included."""
        return self._before[-1] + (not self._ends_whole)

    @property
    def is_partial(self) -> bool:
        """Whether another look would find more."""
        return self._counted < self.num_bytes or self._is_searching

    @property
    def _is_full(self) -> bool:
        return len(self.matches) >= MOST_MATCHES

    def look(self, needle: str = "") -> None:
        """See what is new, and search for a text (ASCII in either case) in what was not."""
        wanted = needle.encode("utf-8", "replace").lower()
        if wanted != self._needle:
            self._needle = wanted
            self._begin_search()
        fd = self._open()
        if fd is None:
            return
        try:
            stop = time.monotonic() + TURN_S
            self._count(fd, stop)
            if self._needle:
                self._search(fd, stop + TURN_S)
        except OSError:
            return
        finally:
            os.close(fd)

    def lines(self, first: int, count: int) -> tuple[str, ...]:
        """Lines from `first`, each cut at LINE_BYTES."""
        fd = self._open()
        if fd is None:
            return ()
        try:
            last = min(first + count, self.total)
            return tuple(_line(fd, *ends) for ends in pairwise(self._starts(fd, first, last)))
        except OSError:
            return ()
        finally:
            os.close(fd)

    def line_at(self, offset: int) -> int:
        """The number of the line that a byte of what was counted is in."""
        fd = self._open()
        if fd is None or offset <= 0:
            return 0
        try:
            block, rest = divmod(min(offset, self._counted), BLOCK_BYTES)
            before = self._before[min(block, len(self._before) - 1)]
            return before + os.pread(fd, rest, block * BLOCK_BYTES).count(b"\n")
        except OSError:
            return 0
        finally:
            os.close(fd)

    def _open(self) -> int | None:
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(fd)
            return None
        identity = (status.st_dev, status.st_ino)
        if identity != self._identity or status.st_size < self._counted:
            self.generation += self._identity is not None
            self._identity = identity
            self._forget()
        self.num_bytes = status.st_size
        return fd

    def _count(self, fd: int, stop: float) -> None:
        while self._counted < self.num_bytes and time.monotonic() < stop:
            done = self._counted % BLOCK_BYTES
            raw = os.pread(fd, BLOCK_BYTES - done, self._counted)
            if not raw:
                return
            if done == 0 and self._counted:
                self._before.append(self._before[-1])
            elif self._counted == 0:
                self._before = [0, 0]
            self._before[-1] += raw.count(b"\n")
            self._counted += len(raw)
            self._ends_whole = raw.endswith(b"\n")

    def _starts(self, fd: int, first: int, last: int) -> list[int]:
        """The byte where each of these lines starts, a block read once for all of its lines; of the
        line after the last, the end of what is counted.
        """
        starts: list[int] = []
        block, raw, line_at, at = -1, b"", 0, -1
        for line in range(first, last + 1):
            if not 0 < line <= self._before[-1]:
                starts.append(0 if line <= 0 else self._counted)
                continue
            there = bisect_left(self._before, line) - 1
            if there != block:
                block, raw, line_at, at = there, self._block(fd, there), self._before[there], -1
            while line_at < line:
                line_at, at = line_at + 1, raw.find(b"\n", at + 1)
                if at < 0:  # it was rewritten under us: the next look will know
                    return [*starts, self._counted]
            starts.append(block * BLOCK_BYTES + at + 1)
        return starts

    def _block(self, fd: int, block: int) -> bytes:
        return os.pread(fd, BLOCK_BYTES, block * BLOCK_BYTES)

    def _search(self, fd: int, stop: float) -> None:
        size = 16 * BLOCK_BYTES
        self._is_searching = False
        while self._searched < self._counted and not self._is_full:
            if time.monotonic() > stop:
                self._is_searching = True
                return
            raw = os.pread(fd, min(size, self._counted - self._searched), self._searched).lower()
            if not raw:
                return
            whole = raw.rfind(b"\n") + 1
            is_end = self._searched + len(raw) >= self._counted
            part = raw if is_end or not whole else raw[:whole]
            self._note_matches(part)
            if is_end and whole < len(raw):  # a line that is still written is looked at again
                self._line += raw[:whole].count(b"\n")
                self._searched += whole
                return
            self._line += part.count(b"\n")
            overlap = 0 if whole else len(self._needle) - 1
            self._searched += max(1, len(part) - overlap)

    def _note_matches(self, raw: bytes) -> None:
        at, line, counted = raw.find(self._needle), self._line, 0
        while at >= 0 and not self._is_full:
            line += raw.count(b"\n", counted, at)
            if not self.matches or self.matches[-1] != line:
                self.matches.append(line)
            counted = at
            at = raw.find(b"\n", at)
            at = raw.find(self._needle, at) if at >= 0 else -1


def _line(fd: int, start: int, end: int) -> str:
    """A line of a log. Of a long one its end is read first, where a progress bar's last state is,
    and its beginning where there is no bar.
    """
    size = end - start
    if size > LINE_BYTES:
        last = os.pread(fd, LINE_BYTES, end - LINE_BYTES).rstrip(b"\r\n")
        if b"\r" in last:
            return clean_line(last)
    return clean_line(os.pread(fd, min(size, LINE_BYTES + 1), start).rstrip(b"\n"))


def offset_since(log: Path, wall: float) -> int | None:
    """The byte from which on a log was written at `wall` or later; None where nothing says.

    Its `.times` has lines `BYTE FROM [UNTIL]`: what follows that byte up to the next line's was
    written between two times, the second of them a second after the first where it is not said.
    A little more may be given than was asked for, and nothing less.
    """
    times = log.with_name(log.name.replace(".log", ".times", 1))
    try:
        rows = [line.split() for line in times.read_text(errors="replace").splitlines()]
        status = log.stat()
    except OSError:
        return None
    begin = None
    for row in rows:
        try:
            begin, until = min(int(row[0]), status.st_size), float(row[-1]) + (len(row) == 2)
        except (ValueError, IndexError):  # cut off by a full disk
            continue
        if until >= wall:
            return begin
    return begin if status.st_mtime >= wall else status.st_size  # its last words have no time
