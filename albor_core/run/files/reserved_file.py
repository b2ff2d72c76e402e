"""A small document for which there is room when its disk has none left."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from albor_core.run.files.whole_file import fsync_dir, temporary_beside, write_json

_BYTES = 16 << 10


class ReservedFile:
    """Room for `path`, taken now: two files without a name, which go when this process does; the
    second is for what is learnt after the first was written.

    Where the file system has no such files, or no room any more, `write` is `write_json`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fds = list[int]()
        with suppress(OSError):
            for _ in range(2):
                fd = os.open(path.parent, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
                self._fds.append(fd)
                os.posix_fallocate(fd, 0, _BYTES)

    def write(self, document: Mapping[str, Any]) -> None:
        """Replace `path` in one step, durably; from the third time on without such room. Raises
        OSError."""
        if not self._fds:
            write_json(self._path, document, durable=True)
            return
        fd = self._fds.pop(0)
        try:
            self._write_into(fd, json.dumps(document, allow_nan=False).encode())
        except OSError:
            write_json(self._path, document, durable=True)
        finally:
            os.close(fd)

    def _write_into(self, fd: int, content: bytes) -> None:
        if len(content) > _BYTES or os.pwrite(fd, content, 0) < len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.ftruncate(fd, len(content))
        os.fsync(fd)
        beside = temporary_beside(self._path)
        # a folder is named because only then Python calls linkat(), see open(2), O_TMPFILE
        os.link(f"/proc/self/fd/{fd}", beside, src_dir_fd=fd)
        try:
            beside.replace(self._path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        fsync_dir(self._path.parent)

    def close(self) -> None:
        """Give the room back unused."""
        while self._fds:
            os.close(self._fds.pop())
