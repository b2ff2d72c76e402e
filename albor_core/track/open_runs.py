"""The runs that this process tracks: closed when it ends, left alone in a forked child."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Protocol

from albor_core.guard.process.index_process import IndexProcess
from albor_core.run.program.process_end import unwatch, watch


class OpenRun(Protocol):
    """What a run must know to be ended by its program's end."""

    path: Path

    def end(
        self, *, error: BaseException | None = None, by: signal.Signals | None = None
    ) -> None: ...

    def exit_asked(self, error: SystemExit) -> None: ...

    def disown(self) -> None: ...


starting = threading.RLock()  # a process has its own locks twice: two threads may not take one
_open: dict[Path, OpenRun] = {}
_draining: list[IndexProcess] = []  # index processes of closed runs: ours to reap while we live


def is_open(path: Path) -> bool:
    """Whether this process tracks the run in that folder, however it is spelt."""
    if path in _open:
        return True
    with contextlib.suppress(OSError):
        return any(path.samefile(one) for one in _open)
    return False


def opened(path: Path) -> OpenRun | None:
    """The run in that folder, as this process tracks it."""
    return _open.get(path)


def add(run: OpenRun) -> None:
    """Register `run`, so that the end of the program ends it."""
    _draining[:] = [index for index in _draining if not index.is_over()]
    _open[run.path] = run
    watch(_last_call, _exit_asked)


def drop(run: OpenRun, index: IndexProcess | None) -> None:
    """`run` was closed; `index` reads what is left and ends by itself."""
    _open.pop(run.path, None)
    if index is not None:
        index.finish()
        _draining.append(index)
    if not _open:
        unwatch(_last_call)


def _forked() -> None:
    global starting  # a thread that we do not have may hold the other
    starting = threading.RLock()
    for run in _open.values():
        run.disown()
    _open.clear()  # it may track runs of its own
    for index in _draining:
        index.leave()
    _draining.clear()


os.register_at_fork(after_in_child=_forked)  # a getpid in each `log` would cost 5 % of it


@atexit.register
def _let_drain() -> None:
    """The index processes outlive us: init reaps them."""
    for index in _draining:
        index.leave()


def _exit_asked(error: SystemExit) -> None:
    for run in list(_open.values()):
        run.exit_asked(error)


def _last_call(number: signal.Signals | None, error: BaseException | None) -> None:
    """Close what the program left open when it ends."""
    for run in list(_open.values()):
        try:
            if number is not None:
                run.end(by=number)
            else:
                run.end(error=error)
        except Exception as failed:  # the others end all the same
            with contextlib.suppress(OSError, ValueError, AttributeError):
                sys.stderr.write(f"albor: {run.path}: its end is not recorded: {failed}\n")
