"""What the cells of a notebook print, which goes to no descriptor but to the browser."""

from __future__ import annotations

import os
import select
import sys
import threading
from contextlib import suppress
from typing import Any

_LIMIT_S = 1.0  # a cell waits no longer for the log


class NotebookOutput:
    """Copies what is written to the sys.stdout and sys.stderr of an IPython kernel to a pipe.

    By their `echo`, which is theirs for that: IPython puts another `write` in place of theirs for
    each cell, and what it found before the cell in place of ours after it.
    """

    def __init__(self, writer: int) -> None:
        self._writer = writer
        os.set_blocking(writer, False)
        self._echoes = [_Echo(stream, writer) for stream in notebook_streams()]

    def close(self) -> None:
        """Leave the streams as they were."""
        for echo in self._echoes:
            echo.close()
        os.close(self._writer)


class _Echo:
    """Gets what a stream of the kernel gets."""

    def __init__(self, stream: Any, writer: int) -> None:
        self._stream, self._writer = stream, writer
        self._before = getattr(stream, "echo", None)
        stream.echo = self

    def write(self, text: str) -> None:
        # what comes from descriptor 1 is in the log already
        if threading.current_thread() is not getattr(self._stream, "watch_fd_thread", None):
            self._copy(text)
        if self._before is not None:
            self._before.write(text)

    def _copy(self, text: str) -> None:
        poll = select.poll()
        poll.register(self._writer, select.POLLOUT)
        data = text.encode(errors="backslashreplace")
        with suppress(OSError):
            while data and poll.poll(1000 * _LIMIT_S):
                data = data[os.write(self._writer, data) :]

    def flush(self) -> None:
        if self._before is not None:
            self._before.flush()

    def close(self) -> None:
        if self._stream.echo is self:
            self._stream.echo = self._before


def notebook_streams() -> list[Any]:
    """The output streams of an IPython kernel; empty in other programs."""
    streams = [sys.stdout, sys.stderr]
    return [one for one in streams if type(one).__module__.startswith("ipykernel.")]
