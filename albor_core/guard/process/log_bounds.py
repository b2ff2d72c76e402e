"""Bounds the program's log while the program keeps writing to it.

The program holds an O_APPEND descriptor and no pipe, so nothing the guard does can block it. The
price is copy-and-truncate: what is written between the two is lost, at 64 MiB a time.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

ROTATE_BYTES = 64 << 20
OLD_LOGS = 3  # with the live one four files


class LogTimes:
    """Writes beside a log when which bytes of it were written, as often as it is looked at:
    `BYTE FROM UNTIL` in `aNNNN.times`. Never raises: without times the log is still whole.
    """

    def __init__(self) -> None:
        self._log: Path | None = None
        self._size, self._looked = 0, 0.0

    def look(self, log: Path) -> None:
        """Note what came since the last look."""
        now = time.time()
        try:
            size = log.stat().st_size
        except OSError:
            return
        if log != self._log:  # what an earlier guard has noted of it stays
            self._log, self._looked = log, now - 1
            self._size = size if times_of(log).exists() else 0
        if size > self._size:
            line = f"{self._size} {self._looked:.3f} {now:.3f}\n".encode()
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            with suppress(OSError):
                fd = os.open(times_of(log), flags, 0o600)
                try:
                    os.write(fd, line)
                finally:
                    os.close(fd)
        self._size, self._looked = size, now


def times_of(log: Path) -> Path:
    """The file of times of a log: beside `aNNNN.log`, and beside `aNNNN.log.1` for that one."""
    return log.with_name(log.name.replace(".log", ".times", 1))


def rotate(log: Path, limit: int = ROTATE_BYTES) -> bool:
    """Move a log that has outgrown `limit` to LOG.1 (older ones to .2 and .3); whether it did.

    On a full disk the content is dropped instead: the log itself may be what filled it.
    """
    try:
        fd = os.open(log, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        if os.fstat(fd).st_size <= limit:
            return False
        kept = _keep_copy(fd, log)
        size = os.fstat(fd).st_size
        os.ftruncate(fd, 0)
        if not kept:  # the room for this line is free by now
            with suppress(OSError):
                os.pwrite(fd, b"[albor: %d bytes were dropped: no room for a copy]\n" % size, 0)
        with suppress(OSError):  # there may be none
            times_of(log).replace(times_of(log.with_name(log.name + ".1")))
    finally:
        os.close(fd)
    return True


def _keep_copy(fd: int, log: Path) -> bool:
    first = log.with_name(log.name + ".1")
    for number in range(OLD_LOGS - 1, 0, -1):
        older = log.with_name(f"{log.name}.{number}")
        if older.exists():
            oldest = log.with_name(f"{log.name}.{number + 1}")
            older.replace(oldest)
            with suppress(OSError):
                times_of(older).replace(times_of(oldest))
    try:
        copy = os.open(first, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError:
        return False
    try:
        offset = 0
        while count := os.sendfile(copy, fd, offset, 1 << 24):
            offset += count
            if offset >= 2 * ROTATE_BYTES:  # a flood faster than the copy would never end
                break
        return True
    except OSError:
        first.unlink(missing_ok=True)
        return False
    finally:
        os.close(copy)
