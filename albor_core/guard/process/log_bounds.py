"""Bounds the program's log while the program keeps writing to it.

The program holds an O_APPEND descriptor and no pipe, so nothing the guard does can block it. The
price is copy-and-truncate: what is written between the two is lost, at 64 MiB a time.
"""

from __future__ import annotations

import os
from pathlib import Path

ROTATE_BYTES = 64 << 20
_OLD = 3  # with the live one four files


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
        _keep_copy(fd, log)
        os.ftruncate(fd, 0)
    finally:
        os.close(fd)
    return True


def _keep_copy(fd: int, log: Path) -> None:
    first = log.with_name(log.name + ".1")
    for number in range(_OLD - 1, 0, -1):
        older = log.with_name(f"{log.name}.{number}")
        if older.exists():
            older.replace(log.with_name(f"{log.name}.{number + 1}"))
    try:
        copy = os.open(first, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError:
        return
    try:
        offset = 0
        while count := os.sendfile(copy, fd, offset, 1 << 24):
            offset += count
            if offset >= 2 * ROTATE_BYTES:  # a flood faster than the copy would never end
                break
    except OSError:
        first.unlink(missing_ok=True)
    finally:
        os.close(copy)
