"""The tracker for anybody's training loop: three lines, no torch, nothing lost to `kill -9`.

    from albor_core import track

    with track.start(experiment="tiny", config={"lr": 3e-4}) as run:
        for step in range(1, 1001):
            run.log({"loss": loss, "lr": lr}, step=step)

A value is acknowledged when `log` returned: its line is in the page cache then, and only a power
cut can take it (from the last 30 s). Not so while the disk refuses lines or takes longer than 50 ms
for one: no loop waits for that, so lines wait in memory, 64 MiB of them, until the disk takes them.
The state file counts them (`journal`), a note on stderr says so, and a `kill -9` takes them. What
the disk has not taken two seconds after the end is lost: stderr says how many lines, and so do
exit.json (`lines_lost`) and with it `albor runs ls`, `albor runs show` and `albor doctor`.

One index process per run, started here by argv, brings the journal into the stores; `albor-tui`,
`albor runs` and `albor monitor` show the run while it lives.

`start` inside a program under `albor guard run` joins the guard's run: same directory, and the lock
that came with this process. A later attempt that begins again at step S takes back what the
attempts before it said from S on.

Nothing that a loop logs raises. `run/values/metrics.py` says what becomes of odd values and keys;
of steps:

- none given: the one after the last;
- the same step again: new keys join it, known keys are replaced;
- a step lower than the last: its values replace those of that step, the others stay;
- no whole number of 0 to 2^48: as if none was given.

What was odd is counted, journalled as the event `track.odd`, and told by `albor doctor`.

A Run may be used from several threads. In a forked child it does nothing but warn once. Common
names of headline values (loss, val_loss, lr, ...) are recorded under the house's own (train/loss,
val/loss, optim/lr, ...). Never look at this run's locks from the process that tracks it: closing a
lock file drops the lock (see run/liveness.py).
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import os
import platform
import secrets
import signal
import sys
import threading
import time
import warnings
from collections.abc import Mapping, Set
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

from albor_core.guard.process.index_process import IndexProcess
from albor_core.guard.supervised import SupervisedAttempt, is_told_to_end, joined_life
from albor_core.run.errors import InUseError, UsageError
from albor_core.run.exit import exit_document, reserve_exit, write_exit
from albor_core.run.files.fingerprint import fingerprint
from albor_core.run.headlines import HOUSE_NAMES
from albor_core.run.journal import LAST_WAIT_S, Journal
from albor_core.run.liveness import take_lock
from albor_core.run.program.at_exit import unwatch, watch
from albor_core.run.program.provenance import script_of_process, versions
from albor_core.run.program.recorded_code import recorded_code
from albor_core.run.rundir import albor_home, create_run, is_run_id, new_run_id
from albor_core.run.state import StateWriter
from albor_core.run.tracked_state import LiveState
from albor_core.run.values.directions import check_goals
from albor_core.run.values.flatten import flatten
from albor_core.run.values.metrics import (
    Odd,
    as_json,
    as_text,
    printable,
    safe_key,
    tidy,
)
from albor_core.run.values.redact import redact, redact_known, redact_text

STATUSES = {"completed": 0, "stopped": 1, "failed": 1}  # and the exit code that exit.json carries
_SEVERITIES = ("info", "green", "yellow", "red")
_MAX_STEP = 1 << 48
_TICK_S = 0.25  # the live state is written at most this often
_SYNC_S = 30.0  # what a power cut may take
_ODD_GAP_S = 60.0
_MAX_SHAPES = 256
_MAX_DATA = 4096  # values of an event: a journal line has fewer bytes
_OWN_EVENTS = ("run.", "andon.", "guard.", "track.", "store.", "checkpoint.")
_PLAIN = frozenset((float, int))  # exactly: a bool, numpy or torch scalar takes the general way
_open: dict[Path, Run] = {}
_draining: list[IndexProcess] = []  # index processes of closed runs: ours to reap while we live


def start(
    experiment: str = "default",
    name: str | None = None,
    config: object = None,
    dir: str | os.PathLike[str] | None = None,
    *,
    max_steps: int | None = None,
    parent: str | None = None,
    goals: Mapping[str, str] | None = None,
) -> Run:
    """A new run below `dir` (by default ALBOR_HOME/runs), or the guard's own if we are under one:
    what is given fills in what `albor guard run` was not told, and what cannot be is said.

    `name` is for people and need not be unique. `config` is a mapping, dataclass, Namespace or an
    object with `to_dict()`; secrets in it are not recorded. `max_steps` lets viewers say how far it
    is. `parent` is the id of the run whose weights this one begins from. `goals` says of metrics
    whose names do not whether `min` or `max` is better ({"wer": "min"}), for all runs of the
    experiment. Raises UsageError for a config of another kind, a home of somebody else, a parent
    that is no id or a goal that is none, InUseError where this run is tracked already, AlborError
    where no run directory can be made.
    """
    settings, directions = _recordable(config), check_goals(goals)
    if parent is not None and not is_run_id(parent):
        raise UsageError(f"parent {parent!r} is not a run id", hint="albor runs ls shows the ids")
    if Path(os.environ.get("ALBOR_RUN_DIR", "")) in _open:
        raise InUseError("this program's run is tracked here already", hint="close it first")
    life = joined_life(os.environ)
    if life is None:
        life = _fresh(experiment, name, settings, dir, {"max_steps": max_steps, "parent": parent})
    _draining[:] = [sidecar for sidecar in _draining if not sidecar.is_over()]
    run = Run(life, max_steps=max_steps)
    _open[life.dir.path] = run
    watch(_last_call)
    if life.is_guarded:
        seed = settings.get("seed")
        told = {
            "experiment": None if experiment == "default" else printable(experiment),
            "name": None if name is None else printable(name),
            "max_steps": max_steps,
            "parent": parent,
            "seed": seed if type(seed) is int else None,
        }
        run.describe({key: value for key, value in told.items() if value is not None}, dir)
    run.params(settings)
    run.set_goals(directions)
    return run


def _forked() -> None:
    for run in _open.values():
        run.disown()


os.register_at_fork(after_in_child=_forked)  # a getpid in each `log` would cost 5 % of it


@atexit.register
def _let_drain() -> None:
    """The index processes outlive us: init reaps them."""
    for sidecar in _draining:
        sidecar.leave()


def _last_call(number: signal.Signals | None, error: BaseException | None) -> None:
    """Close what the program left open when it ends."""
    for run in list(_open.values()):
        if number is not None:
            run.end(by=number)
        else:
            run.end(error=error)


def _fresh(
    experiment: str,
    name: str | None,
    settings: Mapping[str, Any],
    folder: str | os.PathLike[str] | None,
    facts: Mapping[str, Any],
) -> SupervisedAttempt:
    _check_places(folder)
    code, script = recorded_code(sys.argv, script_of_process())
    seed = settings.get("seed")
    title = printable(name or experiment)
    for last in (False, False, True):  # a random id may be taken: three times in a row is no chance
        try:
            run = create_run(
                Path(folder).expanduser() if folder is not None else albor_home() / "runs",
                new_run_id(title),
                experiment=printable(experiment),
                name=title,
                kind="track",
                argv=code["argv"],
                seed=seed if isinstance(seed, int) else None,
                resolved=settings,
                facts={
                    "git": code["git"],
                    "script": code["script"],
                    "versions": versions(),
                    **facts,
                },
                script=script,
            )
            break
        except InUseError:
            if last:
                raise
    return SupervisedAttempt(
        run, 1, secrets.token_hex(8), (take_lock(run.run_lock),), is_guarded=False
    )


def _check_places(folder: str | os.PathLike[str] | None) -> None:
    """Raises UsageError for a relative path where the working directory has been deleted."""
    with contextlib.suppress(FileNotFoundError):
        Path.cwd()
        return
    for name, place in (("dir", folder), ("ALBOR_HOME", os.environ.get("ALBOR_HOME"))):
        if place and not Path(place).expanduser().is_absolute():
            raise UsageError(
                f"{name} {os.fspath(place)!r}: the working directory of this program was deleted",
                hint="give an absolute path, or start in a folder that exists",
            )


class Run:
    """A run that is being tracked. Made by `start`; also a context manager.

    Leaving the `with` block by an exception records `failed` with the error, by KeyboardInterrupt
    `stopped`. Without a `with` block the end of the program closes the run, and SIGTERM and SIGHUP
    do, unless the program handles them itself; they then end it as they always did.
    """

    def __init__(self, life: SupervisedAttempt, *, max_steps: int | None = None) -> None:
        self.dir, self.id, self.path = life.dir, life.dir.id, life.dir.path
        self.step = 0
        self._max_steps = max_steps
        self.odd = Odd()
        self._life = life
        self._lock = threading.RLock()  # reentrant: a signal handler may close while `log` runs
        self._journal = Journal(life.dir.journal, attempt=life.attempt, dumps=orjson.dumps)
        self._exit = reserve_exit(life.dir)
        self._live = LiveState(
            StateWriter(life.dir.state, run_id=self.id, attempt=life.attempt, nonce=life.nonce),
            max_steps=max_steps,
        )
        self._names: dict[tuple[Any, ...], tuple[str, ...]] = {}  # () where the keys are the names
        self._said: Set[str] = frozenset()  # what the last step has a value of
        self._rewinds = life.attempt > 1
        self._has_logged = self._has_warned = False
        self._is_closed = self._is_forked = self._is_shut = False
        self._odd_said, self._odd_due = 0, 0.0
        self._waiting_said = False
        self._ended = threading.Event()
        self._sidecar = None if life.is_guarded else IndexProcess(life.dir)
        self._journal.event(
            "run.start",
            attempt=life.attempt,
            pid=os.getpid(),
            max_steps=max_steps,
            versions={"python": platform.python_version()},
        )
        if self._sidecar is not None:
            # under a guard the first news starts its watch over silence: that is for the first log
            self._live.publish()
            self._sidecar.tend()
        threading.Thread(target=self._tend, name="albor-track", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end(error=error)

    # -- what a loop says ----------------------------------------------------------------------

    def log(self, values: Mapping[str, Any], step: int | None = None) -> None:
        """Record values of a step. On return they survive the death of this process."""
        if self._is_shut:
            self._refuse("log")
            return
        with self._lock:
            if step is None:
                step = self.step + 1
            elif type(step) is not int or step <= self.step or step >= _MAX_STEP:
                step = self._placed(step, values)
            named = self._named(values)
            if self._rewinds:
                self._rewinds = False
                self._journal.rewind(step - 1)
            if not named:
                return
            if step != self.step or not self._has_logged:
                self._said = named.keys()
            else:
                if not self._said.isdisjoint(named):
                    self.odd.note("step_repeated", step)
                self._said = self._said | named.keys()
            if not self._journal.numbers(step, named):
                named = tidy(named, self.odd)  # names that were seen before may hold any integer
                self._journal.metrics(step, named)
            self.step, self._has_logged = step, True
            self._live.take(named, step)

    def _named(self, values: Any) -> dict[str, float | int]:
        """`values` with final names; a dict of plain numbers whose keys were seen before costs a
        look-up.
        """
        if type(values) is dict and _PLAIN.issuperset(map(type, values.values())):
            keys = tuple(values)
            try:
                names = self._names.get(keys)
            except Exception:  # a key of somebody else's, which cannot be compared
                names = None
            if names is not None:
                return dict(zip(names, values.values(), strict=True)) if names else values
            self._learn(keys)
        return tidy(values, self.odd)

    def _learn(self, keys: tuple[Any, ...]) -> None:
        if not all(type(key) is str and safe_key(key) == key for key in keys):
            return  # counted as odd each time
        names = tuple(HOUSE_NAMES.get(key, key) for key in keys)
        if len(set(names)) == len(names):
            if len(self._names) >= _MAX_SHAPES:  # keys that never repeat
                self._names.clear()
            self._names[keys] = () if names == keys else names

    def _placed(self, step: Any, values: Any) -> int:
        """The step that an unusual `step` means."""
        try:
            whole = int(step)
            if whole != step or not 0 <= whole < _MAX_STEP:
                raise ValueError
        except Exception:  # somebody else's object
            self.odd.note("bad_step", step)
            return self.step + 1
        if whole < self.step and self._has_logged:
            self.odd.note("step_backwards", f"{whole} after {self.step}")
        return whole

    def event(
        self, name: str, *, step: int | None = None, severity: str = "info", **data: Any
    ) -> None:
        """Something that happened. Severity: info, green, yellow or red. A name that begins with
        one of the house's own words (run., andon., ...), or is one (sample), becomes `user.NAME`.
        Secrets in the data are not recorded.
        """
        if self._is_shut:
            self._refuse("event")
            return
        word = printable(as_text(name)).strip()[:100] or "event"
        is_ours = word == "sample" or word.startswith(_OWN_EVENTS)
        word = f"user.{word}" if is_ours else word
        colour = severity if type(severity) is str and severity in _SEVERITIES else "info"
        safe, _ = redact(as_json(data, most=_MAX_DATA), dict(os.environ))
        with self._lock:
            self._journal.append(
                "e",
                step=self._at(step),
                name=word,
                severity=colour,
                data=safe,
            )

    def sample(self, text: str, *, prompt: str = "", step: int | None = None) -> None:
        """A text that the model made. Long ones are cut to a journal line of 4 KiB."""
        if self._is_shut:
            self._refuse("sample")
            return
        asked, said = (redact_known(as_text(one), dict(os.environ)) for one in (prompt, text))
        with self._lock:
            self._journal.append("s", step=self._at(step), prompt=asked, text=said)

    def artifact(
        self,
        path: str | os.PathLike[str],
        *,
        name: str | None = None,
        kind: str = "file",
        step: int | None = None,
    ) -> str | None:
        """Record a file or folder by its path, size and BLAKE3, which is returned as `blake3:HEX`.

        It is read once, here and now, and stays where it is. One that cannot be read is recorded as
        an event and gives None.
        """
        if self._is_shut:
            self._refuse("artifact")
            return None
        where: object = path
        try:
            where = Path(path).expanduser().absolute()
            size, digest = fingerprint(where)
        except Exception as error:  # of the system, or of what was given for a path
            self.odd.note("artifact_unreadable", where)
            self.event("artifact.failed", step=step, severity="yellow", path=where, error=error)
            return None
        title = as_text(name) if name is not None else ""
        with self._lock:
            self._journal.append(
                "a",
                step=self._at(step),
                name=printable(title or where.name),
                path=os.fsencode(where).decode(errors="backslashreplace"),
                bytes=size,
                hash=digest,
                kind=printable(as_text(kind)),
            )
        return digest

    def params(self, config: object) -> None:
        """More of the configuration: what `start` takes as `config`. A key said again is replaced.

        Raises UsageError.
        """
        settings = _recordable(config)
        if self._is_shut:
            self._refuse("params")
            return
        with self._lock:
            for key, value in flatten(settings).items():
                self._journal.append("p", key=key, value=value)

    def set_goals(self, goals: Mapping[str, str]) -> None:
        """More of `goals` of `start`. Raises UsageError."""
        directions = check_goals(goals)
        if self._is_shut:
            return
        with self._lock:
            for metric, way in directions.items():  # one a line: a line has 4 KiB
                said = {metric: way}
                self._journal.append("e", step=None, name="run.goals", severity="info", data=said)

    def describe(self, told: Mapping[str, Any], folder: str | os.PathLike[str] | None) -> None:
        """Fill in the run that a guard made: run.json is the guard's, so the journal has it."""
        about = self.dir.metadata()
        given = about.get("given") or ()
        unused = {key: told[key] for key in given if key in told and told[key] != about.get(key)}
        if folder is not None:
            where = Path(os.fspath(folder)).expanduser().absolute()
            if where != self.path.parent:
                unused["dir"] = str(where)
        with self._lock:
            if told:
                self._note("run.described", "info", told)
            if unused:
                self._note("track.unused", "yellow", unused)
        if unused:
            what = ", ".join(f"{key} {value!r}" for key, value in unused.items())
            line = f"albor: {what} is not used: the guard of {self.id} decided otherwise\n"
            with contextlib.suppress(OSError, ValueError, AttributeError):  # no stderr, or closed
                sys.stderr.write(line)

    def _note(self, name: str, severity: str, data: Mapping[str, Any]) -> None:
        self._journal.append("e", step=None, name=name, severity=severity, data=dict(data))

    def beat(self, phase: str = "training") -> None:
        """A sign of life in a stretch without values, such as an evaluation (phase `evaluating`).

        Matters under a guard, which restarts a program that has logged once and is then silent for
        its `stale_s` (300 s).
        """
        if not self._is_shut:
            with self._lock:
                self._live.beat(printable(as_text(phase))[:100], self.step)

    def disown(self) -> None:
        """In a forked child: the run is its parent's, and this process leaves it alone."""
        self._is_forked = self._is_shut = True

    def _at(self, step: Any) -> int | None:
        if type(step) is int and 0 <= step < _MAX_STEP:
            return step
        return self.step if self._has_logged else None

    def _refuse(self, what: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            why = "after it was closed" if self._is_closed else "in a forked process"
            warnings.warn(f"albor: {what} of run {self.id} {why}: ignored", stacklevel=3)

    # -- the thread beside the loop ------------------------------------------------------------

    def _tend(self) -> None:
        """Write the live state, keep the index process alive, make lines survive a power cut.

        Never moves `seq` by itself: only what the loop said since the last time is published, so a
        loop that hangs is seen to hang.
        """
        synced, offset, tick = time.monotonic(), 0, 0.0
        while not self._ended.wait(tick):
            tick = _TICK_S
            with self._lock:
                if self._is_closed:
                    return
                self._say_waiting()
                has_news = self._live.refresh(self.step)
                self._say_odd(gap_s=_ODD_GAP_S)
            if has_news:
                self._live.publish()
            if self._sidecar is not None:
                self._sidecar.tend()
            if time.monotonic() - synced >= _SYNC_S and self._journal.offset != offset:
                offset, synced = self._journal.offset, time.monotonic()
                with contextlib.suppress(OSError):  # closed meanwhile, or a disk in trouble
                    os.fdatasync(self._journal.fileno())

    def _say_waiting(self) -> None:
        """What of the journal waits for the disk, in the state file, and once on stderr."""
        journal = self._journal
        count = journal.pending
        self._live.waiting(pending=count, dropped=journal.dropped, error=journal.error)
        if count and journal.error is not None and not self._waiting_said:
            self._waiting_said = True
            _warn(f"{journal.error}: what run {self.id} logs waits in memory until there is room")
        self._waiting_said = self._waiting_said and count > 0

    def _say_odd(self, *, gap_s: float) -> None:
        now = time.monotonic()
        if self.odd.total != self._odd_said and now >= self._odd_due:
            self._odd_said, self._odd_due = self.odd.total, now + gap_s
            self._journal.event(
                "track.odd",
                severity="yellow",
                counts=dict(self.odd.counts),
                examples=dict(self.odd.examples),
            )

    # -- the end -------------------------------------------------------------------------------

    def close(self, status: str = "completed", message: str = "") -> None:
        """Say how it ended (completed, stopped or failed) and let go of the run. Again: nothing.

        The index process reads what is left and ends by itself. A program that its guard told to
        end before its last step is stopped, though it may leave as one that completed. Raises
        UsageError for another word.
        """
        if status not in STATUSES:
            raise UsageError(f"status {status!r}: one of {', '.join(STATUSES)}")
        code, words = STATUSES[status], as_text(message)
        if status == "completed" and self._is_cut_short():
            status, words = "stopped", words or "its guard was asked to stop it"
        self._close(status, status, words, code, None)

    def _is_cut_short(self) -> bool:
        is_at_end = self._max_steps is not None and self.step >= self._max_steps
        return not (self._is_shut or is_at_end) and is_told_to_end(self._life)

    def end(self, *, error: BaseException | None = None, by: signal.Signals | None = None) -> None:
        """Close as what ended the block or the program says."""
        if by is not None:
            self._close("stopped", "stopped", f"ended by {by.name}", 128 + by, None)
        elif error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
            self.close()
        elif isinstance(error, KeyboardInterrupt):
            self._close("stopped", "stopped", "interrupted", 130, None)
        else:
            message = redact_text(as_text(error)[:8000], dict(os.environ))[:2000]
            about = {"type": type(error).__name__, "message": message, "where": _where(error)}
            self._close("failed", "exception", message, 1, about)

    def _close(
        self, status: str, reason: str, message: str, code: int, error: Mapping[str, str] | None
    ) -> None:
        if self._is_forked:
            return  # a forked child: the run is its parent's
        message = " ".join(message.splitlines())
        with self._lock:
            if self._is_closed:
                return
            self._say_odd(gap_s=0.0)
            lost = self._lines_lost()
            self._journal.event(
                "run.end",
                step=self._at(None),
                severity="red" if status == "failed" else "info",
                status=status,
                reason=reason,
                code=code,
                message=printable(message)[:1000],
                **({"lines_lost": lost} if lost else {}),
            )
            self._is_closed = self._is_shut = True
            self._live.end(status, self.step)
            self._last_words(reason, printable(message)[:2000], code, error, lost)
            with contextlib.suppress(OSError):  # the disk is in trouble: the lines were written
                self._journal.barrier()
            self._journal.close()
        self._ended.set()
        _open.pop(self.path, None)
        for lock in self._life.locks:
            os.close(lock)
        if self._sidecar is not None:
            self._sidecar.finish()
            _draining.append(self._sidecar)
        if not _open:
            unwatch(_last_call)

    def _lines_lost(self) -> int:
        """How many lines the disk never took, once it had a last chance; told on stderr."""
        journal = self._journal
        why = "" if journal.wait(LAST_WAIT_S) else journal.error or f"{journal.path}: too slow"
        lost = journal.give_up()
        self._live.waiting(pending=0, dropped=lost, error=why or None)
        if lost:
            _warn(f"{lost:,} line(s) that run {self.id} logged are lost: {why or journal.path}")
        return lost

    def _last_words(
        self,
        reason: str,
        message: str,
        code: int,
        error: Mapping[str, str] | None,
        lost: int,
    ) -> None:
        document = exit_document(
            self.dir,
            self._life.attempt,
            self._life.nonce,
            code=code,
            reason=reason,
            step=self.step,
            message=message,
            wall=time.time(),
            error=error,
            lines_lost=lost,
        )
        try:
            write_exit(self.dir, document, self._exit)
        except OSError as failed:
            _warn(f"{self.dir.exit}: {failed.strerror}: how run {self.id} ended is not recorded")


def _warn(text: str) -> None:
    """A note on stderr, if there is one."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"albor: {text}\n")
        sys.stderr.flush()


def _where(error: BaseException) -> str:
    """file:line of the innermost frame."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


def _recordable(config: object) -> dict[str, Any]:
    """A config as JSON data without secrets. Raises UsageError for what is none."""
    if config is None:
        return {}
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        config = {item.name: getattr(config, item.name) for item in dataclasses.fields(config)}
    elif callable(getattr(config, "to_dict", None)):
        config = config.to_dict()  # type: ignore[attr-defined]
    elif not isinstance(config, Mapping) and hasattr(config, "__dict__"):
        config = vars(config)
    if not isinstance(config, Mapping):
        raise UsageError(
            f"config must be a mapping, dataclass or Namespace, not {type(config).__name__}",
            hint="give a mapping, a dataclass or an argparse.Namespace",
        )
    said: dict[str, Any] = as_json(config)
    safe, _ = redact(said, dict(os.environ))
    return safe
