"""The end of a log, followed: bounded at the start, per line and per read, whatever it is fed."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from albor_core.run.values.clean import clean

START_BYTES = 64 << 10  # how much of an old log is worth showing
READ_BYTES = 1 << 20  # per read: a program that logs 1 GB/min cannot hold up the screen
LINE_BYTES = 16 << 10
_CUT = " [cut]"
_LOOKS = re.compile(rb"\x1b\[(?:[\d;:]*m|[0-2]?K|\d*A|\?25[hl])")
"""Colours, and what a progress bar does to draw itself again. Others a log shows, for they may be
meant to harm.
"""


class LogFollower:
    """New lines of one log, or of the newest log in a folder of `a0001.log, a0002.log ...`.

    Remembers its place, notices a file that was replaced, truncated or followed by the next
    attempt's, and skips what it cannot read in time, saying so. Lines are clean text. Never raises.

    With `is_whole` nothing is skipped, neither of a file nor an attempt: read again at once while
    it is `behind`.
    """

    def __init__(
        self, path: Path, *, start_bytes: int = START_BYTES, is_whole: bool = False
    ) -> None:
        self.path = path
        self.current: Path | None = None  # the file that lines come from
        self.behind = 0  # bytes that the last read left
        self._start_bytes, self._is_whole = start_bytes, is_whole
        self._identity: tuple[int, int] | None = None
        self._offset = 0
        self._rest = b""
        self._skipping = False  # inside a line that was cut already

    def begin_at(self, path: Path, offset: int) -> None:
        """Go on from a byte of a log: what is before it was shown already."""
        self._begin(path)
        try:
            status = path.stat()
        except OSError:
            return
        self._identity, self._offset = (status.st_dev, status.st_ino), offset

    def read(self) -> list[str]:
        """The whole lines since the last read, oldest first; the first read gives the end of it."""
        lines: list[str] = []
        newest = self._newest()
        if newest is not None and newest != self.current:
            if self.current is not None:
                lines += self._read_from(self.current)  # the last words of the attempt before
                if self.behind:
                    return lines
                lines += self.take_rest()
            self._begin(newest)
        if self.current is not None:
            lines += self._read_from(self.current)
        return lines

    def _newest(self) -> Path | None:
        try:
            if not self.path.is_dir():
                return self.path
            logs = sorted(Path(one.path) for one in os.scandir(self.path) if _is_log(one.name))
        except OSError:
            return None
        if self._is_whole and self.current is not None:
            logs = [log for log in logs if log > self.current][:1] or [self.current]
        return logs[-1] if logs else None

    def _begin(self, path: Path) -> None:
        self.current, self._identity = path, None
        self._offset, self._rest, self._skipping = 0, b"", False

    def _read_from(self, path: Path) -> list[str]:
        self.behind = 0
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return []
        try:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                return []
            skipped = self._place(status)
            raw = os.pread(fd, READ_BYTES, self._offset)
        except OSError:
            return []
        finally:
            os.close(fd)
        self._offset += len(raw)
        self.behind = max(0, status.st_size - self._offset)
        note = [f"[{skipped:,} bytes skipped]"] if skipped else []
        return note + self._lines(raw)

    def _place(self, status: os.stat_result) -> int:
        """Decide where to read; returns how many bytes are left out on the way there."""
        identity = (status.st_dev, status.st_ino)
        if self._identity != identity or status.st_size < self._offset:
            is_first = self._identity is None
            self._identity, self._offset = identity, 0
            self._rest, self._skipping = b"", False
            if is_first and not self._is_whole and status.st_size > self._start_bytes:
                self._offset = status.st_size - self._start_bytes
                self._skipping = True  # most likely in the middle of a line
            return 0
        behind = status.st_size - self._offset
        if self._is_whole or behind <= READ_BYTES:
            return 0
        self._offset = status.st_size - self._start_bytes
        self._rest, self._skipping = b"", True
        return behind - self._start_bytes

    def _lines(self, raw: bytes) -> list[str]:
        *whole, rest = (self._rest + raw).split(b"\n")
        if self._skipping and whole:
            whole, self._skipping = whole[1:], False
        lines = [clean_line(part) for part in whole]
        if self._skipping:
            rest = b""
        elif len(rest) > LINE_BYTES:
            rest = folded(rest)
        if len(rest) > LINE_BYTES:  # an endless line: show its start now, drop the rest of it
            lines.append(clean_line(rest))
            rest, self._skipping = b"", True
        self._rest = rest
        return lines

    def take_rest(self) -> list[str]:
        """The last, unterminated line of a log to which no more is written."""
        rest, self._rest = self._rest, b""
        return [clean_line(rest)] if rest else []


def last_lines(path: Path, count: int) -> list[str]:
    """The last `count` lines of a log or of a folder's newest log, once."""
    tail = LogFollower(path)
    return (tail.read() + tail.take_rest())[-count:] if count > 0 else []


def _is_log(name: str) -> bool:
    return name.startswith("a") and name.endswith(".log")


def folded(raw: bytes) -> bytes:
    """The last state of a progress bar, which begins each with a carriage return or ends it so."""
    return raw[raw.rstrip(b"\r").rfind(b"\r") + 1 :]


def clean_line(raw: bytes) -> str:
    """One line of a log as clean text without colours, marked where it is cut. A progress bar's
    carriage returns show its last state.
    """
    last = folded(_LOOKS.sub(b"", raw).rstrip(b"\r"))
    text = clean(last[:LINE_BYTES].decode("utf-8", "replace").expandtabs(8))
    return text + _CUT if len(last) > LINE_BYTES else text
