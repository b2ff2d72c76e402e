"""A config as a shell may give it: a file, or what another program writes."""

from __future__ import annotations

import errno
import os
import select
import stat
from pathlib import Path

_WAIT_S = 10.0


def read_config_file(path: Path, limit: int) -> bytes:
    """At most `limit` bytes of a file, or of what a shell's `<(...)` writes. Raises OSError, also
    where nothing writes into a FIFO, or nothing more for ten seconds.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if stat.S_ISFIFO(os.fstat(fd).st_mode):
            return _piped(fd, limit)
        os.set_blocking(fd, True)
        raw = b""
        while len(raw) < limit and (piece := os.read(fd, limit - len(raw))):
            raw += piece
        return raw
    finally:
        os.close(fd)


def _piped(fd: int, limit: int) -> bytes:
    raw = b""
    while len(raw) < limit:
        if not select.select([fd], [], [], _WAIT_S)[0]:
            raise OSError(errno.ETIMEDOUT, f"a FIFO that nothing was written to for {_WAIT_S:g} s")
        if not (piece := os.read(fd, limit - len(raw))):
            break
        raw += piece
    if not raw:
        raise OSError(errno.ENODATA, "a FIFO that nothing was written to")
    return raw
