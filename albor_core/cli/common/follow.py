"""Following a run from a terminal or a script: lines as it goes, its exit code at the end."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from albor_core.cli.common.alert_lines import AlertLines
from albor_core.cli.common.output import clean, emit, metric_text, print_note
from albor_core.cli.common.run_ending import print_ending
from albor_core.feed.run.status import run_status
from albor_core.feed.run.terminal import terminal_of
from albor_core.feed.view.newest import metrics_of_state
from albor_core.launch.launcher import Launcher
from albor_core.launch.local import LOCAL
from albor_core.run.errors import StoreError
from albor_core.run.exit import read_exit
from albor_core.run.guard_state import GUARD_ENDS, read_guard
from albor_core.run.headlines import LOSSES
from albor_core.run.home.folders import albor_home
from albor_core.run.program.scheduler import current_job
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.state import read_state
from albor_core.run.status import ENDS
from albor_core.run.values.lenient import integer, number, whole_of
from albor_core.run.values.main_metrics import MainMetric, beside_columns, main_metrics
from albor_core.run.values.quantity import duration
from albor_core.store.index.catch_up import drain_index

if TYPE_CHECKING:
    from albor_core.documents.train import TrainApplyDocument

_POLL_S = 0.2
_LINE_EVERY_S = 10.0  # without a tty: enough to see life in a CI log, few enough to read


def follow(
    run: RunDir,
    begin: Callable[[], object],
    *,
    as_json: bool,
    detach: bool,
    stop_on_interrupt: bool,
    echo: bool = False,
    where: Launcher = LOCAL,
) -> int:
    """`begin` the run, wait for it and return its exit code; leaving early returns 0, says how to
    come back.

    `echo` passes the program's own output through instead of printing lines of progress.

    In a scheduler's job an interrupt stops the run: it would not outlive the job.
    """
    stop_on_interrupt = stop_on_interrupt or current_job() is not None
    alerts = AlertLines(run)  # from before it starts: what it said in an earlier attempt is known
    with _interrupts() as interrupted:  # from before it starts: it may not be left in silence
        begin()
        if os.environ.get("ALBOR_HOME_MAX"):
            _tell_of_home()
        if detach:
            if as_json:
                emit(document(run, "detached", None))
            print_note(_how_to(run))
            return 0
        print_note(f"run {run.id} in {run.path}")
        code = _watch(
            run, interrupted, stop_on_interrupt, alerts, _Echo(run, where) if echo else None, where
        )
    if code is not None:
        _drain_or_warn(run)  # what is printed next must be in the stores already
    if as_json:
        emit(document(run, "left" if code is None else "ended", code))
    if code is None:
        print_note(_how_to(run))
    else:
        print_ending(run, code)
    return code or 0


def _tell_of_home() -> None:
    """Once, where the home comes near the size that its owner gave it, or that cannot be read."""
    from albor_core.store.upkeep.home_size import CAP, HomeLook, cap_problem

    if problem := cap_problem():
        print_note(f"albor: {clean(problem)}; export {CAP}=50GiB, or unset it")
        return
    home = albor_home()
    if words := HomeLook(home, wait_s=2.0).words():
        print_note(f"albor: {clean(home)}: {words}; albor doctor --disk says by what")


def _drain_or_warn(run: RunDir) -> None:
    """A store in trouble is told of, and hides nothing of how the run ended."""
    try:
        drain_index(run)
    except StoreError as error:
        print_note(f"albor: {clean(error.message)}")
        print_note(f"  next: {clean(error.hint or 'albor db rebuild')}")


def document(run: RunDir, outcome: str, code: int | None) -> TrainApplyDocument:
    """The one JSON document of `train apply`, `train resume` and `guard run`. Without a `code` it
    goes on: exit.json is of an earlier attempt.
    """
    said: Any = None if code is None else read_exit(run)
    return {
        "schema": "albor.train.apply/1",
        "run": {"id": run.id, "path": str(run.path)},
        "outcome": outcome,
        "exit_code": code,
        "exit": said,
    }


_OWN = 2  # metrics of a run that is not judged by a loss
_FIGURES = {
    "progress_percent": "{:.0f}%",
    "loss": "loss {:.4f}",
    "val_loss": "val {:.4f}",
    "tokens_per_second": "{:,.0f} tok/s",
}


def progress_line(
    state: dict[str, Any] | None,
    guard: dict[str, Any] | None,
    mains: Sequence[MainMetric] | None = None,
) -> str:
    """One line on a run that is followed; what is not known yet, or not a number, is left out.
    `mains` stand for it, as far as the state says where they are not given.
    """
    state, guard = state or {}, guard or {}
    mains = main_metrics(metrics_of_state(state)) if mains is None else mains
    step, most = integer(state, "global_step"), integer(state, "max_steps")
    parts = [f"{clean(state.get('phase') or guard.get('state') or 'starting'):<12}"]
    if step and most and step > most:
        parts.append(f"step {step:,}, past its {most:,}")
        state = {**state, "progress_percent": None}
    elif step or most is not None:
        parts.append(f"step {step or 0}{f'/{most}' if most else ''}")
    figures = _figures(state, step)
    parts += _with_mains(figures, mains)
    return "  ".join([*parts, *_time_left(state)]).rstrip()


def _with_mains(figures: Iterator[str], mains: Sequence[MainMetric]) -> list[str]:
    """The figures of the house, and the run's own where it is judged by those."""
    if mains and mains[0].name in LOSSES:
        other = beside_columns(mains, LOSSES)
        return [*figures, *([] if other is None else [metric_text(other)])]
    own = [metric_text(one) for one in mains if one.name not in LOSSES]
    return [*own[:_OWN], *figures]


def _time_left(state: dict[str, Any]) -> Iterator[str]:
    """Nothing of what is over."""
    is_over = state.get("phase") in ("completed", "failed", "stopped")
    if not is_over and (eta := number(state, "eta_seconds")) is not None:
        yield f"eta {duration(eta)}"


def _figures(state: dict[str, Any], step: int | None) -> Iterator[str]:
    for key, form in _FIGURES.items():
        if (value := number(state, key)) is not None:
            yield form.format(value) + (_of_step(state, step) if key == "val_loss" else "")


def _of_step(state: dict[str, Any], step: int | None) -> str:
    """The step of a validation loss, if it is earlier than the values beside it."""
    told = integer(state, "val_step")
    return "" if told is None or told == step else f" (step {told})"


class _Echo:
    """The program's output as it is, attempt after attempt: who started it may see its bytes."""

    def __init__(self, run: RunDir, where: Launcher) -> None:
        self._run, self._where = run, where
        self._pauses = _Pauses(run)
        self._path: Path | None = None
        self._offset = 0

    def __call__(self, is_last: bool) -> None:
        path = self._where.log(self._run)
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
        if news := self._pauses.news():
            print_note(news)


class _Pauses:
    """Tells of each wait before a new attempt, once."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._told = 0

    def news(self) -> str:
        """The message about a pause or its end, if any."""
        guard = read_guard(self._run) or {}
        attempt = guard.get("attempt")
        if guard.get("state") != "backoff" or not isinstance(attempt, int) or attempt <= self._told:
            return ""
        self._told = attempt
        return f"albor: {run_status(self._run).detail}"


class _Progress:
    """A line about the run: the same one over and over on a terminal, now and then elsewhere."""

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._on_tty = sys.stderr.isatty()
        self._last = -1e9
        self._pauses = _Pauses(run)
        chosen = terminal_of(read_json(run.config_resolved) or {})
        self._is_wanted = chosen is not None  # what goes on without a config has no terminal to ask
        every_s = 0.0 if chosen is None else chosen.refresh_ms / 1000
        self._every_s = every_s if self._on_tty else max(every_s, _LINE_EVERY_S)

    def __call__(self, is_last: bool) -> None:
        now = time.monotonic()
        if news := self._pauses.news():
            print_note(("\r\x1b[2K" if self._on_tty else "") + news)
        if not (is_last or (self._is_wanted and now - self._last >= self._every_s)):
            return
        self._last = now
        guard = read_guard(self._run) or {}
        state = read_state(self._run.state) or {}
        if not is_last:  # the last words of a guard or a trainer that these come after
            guard = {} if str(guard.get("state")) in GUARD_ENDS else guard
            state = {} if not guard or state.get("phase") in ENDS else state
        if _attempt(state) < _attempt(guard):  # of an attempt that is over
            state = {}
        line = progress_line(state, guard)
        if self._on_tty:
            sys.stderr.write("\r\x1b[2K" + line + ("\n" if is_last else ""))
            sys.stderr.flush()
        else:
            print_note(line)


def _attempt(document: dict[str, Any]) -> int:
    return whole_of(document.get("attempt")) or 0


def _watch(
    run: RunDir,
    interrupted: list[int],
    stop_on_interrupt: bool,
    alerts: AlertLines,
    echo: _Echo | None,
    where: Launcher,
) -> int | None:
    show, asked = echo or _Progress(run), False
    over_progress = "\r\x1b[2K" if echo is None and sys.stderr.isatty() else ""
    while True:
        code = where.state(run).exit_code
        for line in alerts.news():
            print_note(over_progress + line)
        show(code is not None)
        if code is not None:
            return code
        if interrupted:
            if not stop_on_interrupt:
                return None
            if not asked or len(interrupted) > 1:
                where.cancel(run, at_once=asked, asked_by="interrupt")
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
        f"\n{run.id} continues without this terminal.\n"
        f"  watch  albor-tui {run.id}\n  stop   albor guard stop {run.id}"
    )
