"""A file that one process at a time may hold, for as long as a block lasts."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from albor_core.run.errors import InUseError


@contextmanager
def locked(path: Path, busy: InUseError) -> Iterator[None]:
    """Raises `busy` while another process holds it, OSError."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise busy from error
    finally:
        os.close(fd)
