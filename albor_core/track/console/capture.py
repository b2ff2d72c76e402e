"""What a tracked program prints, also into its runs' logs: descriptors 1 and 2 lead through a pump.

The pump (console_pump.py) is a process of its own, since a thread of ours cannot read while C code
that holds the interpreter's lock fills a pipe. Where a descriptor was a terminal the program gets a
pty of the same size and settings, which is not its controlling terminal: foreground, Ctrl-C, Ctrl-Z
and stdin stay as they were. Elsewhere it gets a pipe.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from contextlib import suppress
from pathlib import Path

from albor_core.track.console.console import MARKS_BYTES, Console, create_log, flush_python
from albor_core.track.console.notebook import NotebookOutput, notebook_streams
from albor_core.track.console.stream import (
    Stream,
    above_standard,
    make_silent_stream,
    make_stream,
    places,
)

_OFF = ("0", "no", "off", "false")


class Recording:
    """The part of one run in the console: its log gets the output until `end`."""

    def __init__(self, console: Console, key: int, log: Path) -> None:
        self._console, self._key, self._log = console, key, log

    def settle(self) -> tuple[int, str]:
        """How many of the bytes that were printed so far the log lacks, and why."""
        with _turn:
            return self._console.settle(self._key)

    def end(self, error: BaseException | None = None) -> tuple[int, str]:
        """Wait, for a bounded time, until all that was printed is in the log and was shown. With
        the last run the program has its own descriptors back. Returns how many bytes the log lacks,
        and why.

        Python prints the traceback of an error that leaves a `with` block only after it: the log
        has it first.
        """
        with _turn:
            lost, why = self._console.forget(self._key)
        if error is None or isinstance(error, SystemExit) or error is _printed():
            return lost, why
        lines = "".join(traceback.format_exception(error)).encode(errors="backslashreplace")
        try:
            with self._log.open("a+b", buffering=0) as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - 2 * len(lines)))
                tail = log.read()
                if lines not in tail:  # the program may have printed it by itself
                    lines = lines if tail.endswith(b"\n") or not tail else b"\n" + lines
                    lost += len(lines) - (log.write(lines) or 0)
        except OSError as failed:
            lost, why = lost + len(lines), failed.strerror or why
        return lost, why


def capture(log: Path) -> Recording | None:
    """Have what the program prints from now on in `log` too; None where that is not wanted
    (ALBOR_CONSOLE=0), there is nothing to capture, or it cannot be. Never raises OSError.
    """
    global _console
    with _turn:
        if not _is_wanted():
            return None
        try:
            if _console is None or _console.is_over:
                _console = None
                _console = _begin(log)
                return None if _console is None else Recording(_console, 1, log)
            return Recording(_console, _console.add(log), log)
        except OSError as error:
            _warn(f"cannot record the console: {log}: {error.strerror or error}")
            return None


def _printed() -> BaseException | None:
    """The error that ended the program, if the interpreter has printed it."""
    error: BaseException | None = getattr(sys, "last_value", None)
    return error


def _is_wanted() -> bool:
    is_off = os.environ.get("ALBOR_CONSOLE", "").lower() in _OFF
    # a test reads its own captured output at once, and would find it on the way
    is_test = "pytest" in sys.modules and "PYTEST_CURRENT_TEST" in os.environ
    return not (is_off or is_test or getattr(sys, "frozen", False) or not sys.executable)


def _begin(log: Path) -> Console | None:
    """Lead what there is to capture through a pump. Raises OSError, with nothing changed."""
    flush_python()
    made: list[Stream] = []
    writers: list[int] = []
    try:
        for there in places():
            stream, writer = make_stream(len(made), there)
            made.append(stream)
            writers.append(writer)
        if notebook_streams():
            stream, writer = make_silent_stream(len(made))
            made.append(stream)
            writers.append(writer)
        if not made:
            return None
        create_log(log)
        marks = above_standard(os.memfd_create("albor-console"))
        os.ftruncate(marks, MARKS_BYTES)
        console = Console(made, marks, log)
        console.start()
        for stream, writer in zip(made, writers, strict=True):
            for place in stream.places:
                os.dup2(writer, place)
            if not stream.places:
                console.notebook = NotebookOutput(os.dup(writer))
        return console
    except OSError:
        for stream in made:
            stream.close()
        raise
    finally:
        for writer in writers:
            os.close(writer)


def _warn(text: str) -> None:
    with suppress(OSError, ValueError, AttributeError):  # no stderr, or closed
        sys.stderr.write(f"albor: {text}\n")


_turn = threading.RLock()
_console: Console | None = None


def _forked() -> None:
    """In a forked child, leave the parent's pump alone: output of the child goes through it."""
    global _turn, _console
    mine, _console = _console, None
    _turn = threading.RLock()
    if mine is not None:
        mine.close()


os.register_at_fork(after_in_child=_forked)
