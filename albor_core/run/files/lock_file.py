"""A file that one process at a time may hold, for as long as a block lasts."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from albor_core.run.errors import InUseError


@contextmanager
def locked(path: Path, busy: InUseError, mode: int = 0o600) -> Iterator[int]:
    """Hold a lock file and yield its descriptor, open to read and write. Raises `busy` while
    another process holds it, OSError.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # between open and flock the holder before may have removed or renamed this very file
            if not os.path.samestat(os.fstat(fd), path.stat(follow_symlinks=False)):
                raise BlockingIOError
        except (BlockingIOError, FileNotFoundError):
            raise busy from None
        yield fd
    finally:
        os.close(fd)
