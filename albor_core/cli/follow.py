"""Following a run from a terminal or a script: lines as it goes, its exit code at the end."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from albor_core.cli.output import clean, duration, emit, number, talk
from albor_core.run.control import send
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.state import read_state
from albor_core.store.settle import settle
from albor_core.train.launch import exit_code

_POLL_S = 0.2
_LINE_EVERY_S = 10.0  # without a tty: enough to see life in a CI log, few enough to read


def follow(
    run: RunDir, *, as_json: bool, detach: bool, stop_on_interrupt: bool, echo: bool = False
) -> int:
    """Wait for `run` and return its exit code; leaving early returns 0, says how to come back.

    `echo` passes the program's own output through instead of printing lines of progress.
    """
    if detach:
        if as_json:
            emit(document(run, "detached", None))
        talk(_how_to(run))
        return 0
    talk(f"run {run.id} in {run.path}")
    with _interrupts() as interrupted:
        code = _watch(run, interrupted, stop_on_interrupt, _Echo(run) if echo else None)
    if code is not None:
        settle(run)  # what is printed next must be in the stores already
    if as_json:
        emit(document(run, "left" if code is None else "ended", code))
    elif code is None:
        talk(_how_to(run))
    return code or 0


def document(run: RunDir, outcome: str, code: int | None) -> dict[str, Any]:
    """The one JSON document of `train apply`, `train resume` and `guard run`."""
    return {
        "schema": "albor.train.apply/1",
        "run": {"id": run.id, "path": str(run.path)},
        "outcome": outcome,
        "exit_code": code,
        "exit": read_json(run.exit),
    }


def progress_line(state: dict[str, Any] | None, guard: dict[str, Any] | None) -> str:
    """One line of a run's life; unknown figures are dashes."""
    state, guard = state or {}, guard or {}
    percent = state.get("progress_percent")
    return (
        f"{clean(state.get('phase') or guard.get('state') or 'starting'):<13}"
        f" step {state.get('global_step') or 0}/{state.get('max_steps') or '?'}"
        f" {number(percent, '.0f')}%"
        f"  loss {number(state.get('loss'), '.4f')}"
        f"  val {number(state.get('val_loss'), '.4f')}"
        f"  {number(state.get('tokens_per_second'), ',.0f')} tok/s"
        f"  eta {duration(state.get('eta_seconds'))}"
    )


class _Echo:
    """The program's output as it is, attempt after attempt: who started it may see its bytes."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._path: Path | None = None
        self._offset = 0

    def __call__(self, is_last: bool) -> None:
        path = self._run.newest_log()
        if path is None:
            return
        if path != self._path:
            self._path, self._offset = path, 0
        with path.open("rb") as file:
            file.seek(self._offset)
            fresh = file.read()
        self._offset += len(fresh)
        sys.stdout.buffer.write(fresh)
        sys.stdout.buffer.flush()


class _Progress:
    """A line about the run: the same one over and over on a terminal, now and then elsewhere."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._on_tty = sys.stderr.isatty()
        self._last = -1e9

    def __call__(self, is_last: bool) -> None:
        now = time.monotonic()
        if not (is_last or self._on_tty or now - self._last >= _LINE_EVERY_S):
            return
        self._last = now
        line = progress_line(read_state(self._run.state), read_json(self._run.guard / "guard.json"))
        if self._on_tty:
            sys.stderr.write("\r\x1b[2K" + line + ("\n" if is_last else ""))
            sys.stderr.flush()
        else:
            talk(line)


def _watch(
    run: RunDir, interrupted: list[int], stop_on_interrupt: bool, echo: _Echo | None
) -> int | None:
    show, asked = echo or _Progress(run), False
    while True:
        code = exit_code(run)
        show(code is not None)
        if code is not None:
            return code
        if interrupted:
            if not stop_on_interrupt:
                return None
            if not asked or len(interrupted) > 1:
                send(run, "stop_now" if asked else "stop", sender="interrupt")
                asked = True
                interrupted.clear()
        time.sleep(_POLL_S)


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """SIGINT and SIGTERM become entries of a list: the run lives in another session and never sees
    them.
    """
    seen: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        seen.append(number)

    before = {name: signal.signal(name, note) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield seen
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


def _how_to(run: RunDir) -> str:
    return (
        f"\n{run.id} goes on without this terminal.\n"
        f"  watch  albor-tui {run.id}\n  stop   albor guard stop {run.id}"
    )
