"""A run that is being tracked."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
import signal
import sys
import threading
import time
import warnings
from collections.abc import Mapping, Set
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import orjson

from albor_core.andon.severity import severity_of
from albor_core.guard.process.index_process import IndexProcess
from albor_core.guard.supervised_attempt import SupervisedAttempt, is_asked_to_stop
from albor_core.run.errors import UsageError
from albor_core.run.exit import reserve_exit
from albor_core.run.journal import Journal
from albor_core.run.state import StateWriter
from albor_core.run.tracked_state import LiveState
from albor_core.run.values.defined_metrics import EVENT, definition
from albor_core.run.values.directions import check_goals
from albor_core.run.values.flatten import flatten
from albor_core.run.values.lenient import real
from albor_core.run.values.metrics import (
    MAX_NAMES,
    NO_ROOM_EVENT,
    ODD_WORDS,
    LoggedNames,
    Odd,
    as_json,
    as_text,
    printable,
    tidy,
)
from albor_core.run.values.redact import redact, redact_known
from albor_core.track import open_runs
from albor_core.track.last_words import (
    End,
    end_by,
    end_from,
    lines_lost,
    record_end,
    say_rewind,
    say_unlogged,
    tell,
)
from albor_core.track.recordable import recordable
from albor_core.track.run_media import MediaMethods

if TYPE_CHECKING:
    from albor_core.track.console.capture import Recording
    from albor_core.track.recorded import Recorded
    from albor_core.track.resumed import Past

STATUSES = {"completed": 0, "stopped": 1, "failed": 1}  # and the exit code that exit.json carries
_MAX_STEP = 1 << 48
TICK_S = 0.25  # the live state is written at most this often
_SYNC_S = 30.0  # what a power cut may take
_ODD_GAP_S = 60.0
_MAX_DATA = 4096  # values of an event: a journal line has fewer bytes
_OWN_EVENTS = ("run.", "andon.", "guard.", "track.", "store.", "checkpoint.")


class Run(MediaMethods):
    """A run that is being tracked. Made by `start`; also a context manager.

    Leaving the `with` block by an exception records `failed` with the error, by KeyboardInterrupt
    `stopped`. Without a `with` block the end of the program closes the run, and SIGTERM and SIGHUP
    do, unless the program handles them itself; they then end it as they always did.
    """

    def __init__(
        self,
        attempt: SupervisedAttempt,
        *,
        max_steps: int | None = None,
        past: Past | None = None,
        console: bool = True,
    ) -> None:
        self.dir, self.id, self.path = attempt.dir, attempt.dir.id, attempt.dir.path
        last_step = None if past is None else past.recorded.last_step
        self.step = last_step or 0
        self._past = past
        self._kept_to = -1 if last_step is None else last_step  # what went before us stands so far
        self._max_steps = max_steps
        self.odd = Odd()
        self.repeats_steps = False
        """A framework logs here, which says a step's figures several times: not counted as odd."""
        self._attempt = attempt
        self._lock = threading.RLock()  # reentrant: a signal handler may close while `log` runs
        self._journal = Journal(attempt.dir.journal, attempt=attempt.attempt, dumps=orjson.dumps)
        self._exit = reserve_exit(attempt.dir)
        self._live = LiveState(
            StateWriter(
                attempt.dir.state, run_id=self.id, attempt=attempt.attempt, nonce=attempt.nonce
            ),
            max_steps=max_steps,
        )
        self._names = LoggedNames(() if past is None else past.recorded.newest)
        self._refused_said = 0
        self._said: Set[str] = frozenset()  # what the last step has a value of
        self._again: dict[tuple[str, int], float] = {}  # logged at steps of attempts before
        self._replaced_said = False
        if past is not None:
            self._live.recall(past.state)
        self._rewinds = attempt.attempt > 1
        self._has_logged, self._has_warned = last_step is not None, False
        self._is_closed = self._is_forked = self._is_shut = False
        self._odd_said, self._odd_due = 0, 0.0
        self._odd_told: set[str] = set()  # kinds, on stderr
        self._waiting_said = False
        self._ended = threading.Event()
        self._exit_asked: tuple[int, SystemExit] | None = None  # and how far the journal was
        self._sidecar = None if attempt.is_guarded else IndexProcess(attempt.dir)
        self._journal.event(
            "run.start",
            attempt=attempt.attempt,
            pid=os.getpid(),
            max_steps=max_steps,
            versions={"python": platform.python_version()},
        )
        if self._sidecar is not None:
            # under a guard the first news starts its watch over silence: that is for the first log
            self._live.publish()
            self._sidecar.tend()
        threading.Thread(target=self._tend, name="albor-track", daemon=True).start()
        self._console = _recorded(attempt) if console else None

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
        with self._lock:
            if self._is_shut:
                self._refuse("log")
                return
            if step is None:
                step = self.step + 1
            elif type(step) is not int or step <= self.step or step >= _MAX_STEP:
                step = self._placed(step, values)
            named = self._names.named(values, self.odd)
            if not named:
                return
            if self._names.room.refused and not self._refused_said:
                self._say_refused()
            if self._rewinds:
                self._go_on(step, named)
            self._note_repeats(step, named)
            if step <= self._kept_to and self._past is not None:
                self._note_replaced(step, named, self._past.recorded)
            if not self._journal.numbers(step, named):
                named = tidy(named, self.odd)  # names that were seen before may hold any integer
                self._journal.metrics(step, named)
            if step > self._kept_to:
                self.step = step
            else:
                self._said = frozenset()  # of what attempts before said there is no track
            self._has_logged = True
            self._live.take(named, step)

    def _note_repeats(self, step: int, named: Mapping[str, Any]) -> None:
        if step != self.step or not self._has_logged:
            self._said = named.keys()
            return
        if not self.repeats_steps and not self._said.isdisjoint(named):
            self.odd.note("step_repeated", step)
        self._said = self._said | named.keys()

    def _note_replaced(self, step: int, named: Mapping[str, Any], before: Recorded) -> None:
        """What an attempt before logged at a step that is logged again, and nothing takes back."""
        said = {key: real(value) for key, value in named.items()}  # an integer may be of any size
        known = {key: self._again[key, step] for key in said if (key, step) in self._again}
        known |= before.values_at(step, said.keys() - known.keys())
        for key, value in known.items():
            if value == said[key] or (value != value and said[key] != said[key]):
                continue
            self.odd.note("step_repeated", key, f"{value:g} at step {step}")
            if not self._replaced_said:
                self._replaced_said = True
                tell(
                    f"run {self.id}: {key} at step {step:,} was {value:g} and is replaced by"
                    f" {said[key]:g}; nothing else is taken back"
                )
        self._again.update(((key, step), value) for key, value in said.items())

    def _go_on(self, step: int, named: Mapping[str, Any]) -> None:
        """The first values of a later attempt: where they say again what was said from `step` on,
        that is taken back. A guard starts the same program again, which says all of it again.
        """
        if self._past is not None and self._past.recorded.is_evaluation(named):
            return  # whether training begins again is still to be seen
        self._rewinds = False
        if self._past is None or self._past.recorded.has_any_from(step, named):
            self._kept_to = -1
            if self._past is not None and (gone := self._past.recorded.after(step - 1)):
                say_rewind(self._journal, self.id, step - 1, gone)
            self._journal.rewind(step - 1)
            self._live.rewind(step)

    def _placed(self, step: Any, values: Any) -> int:
        """The step that an unusual `step` means."""
        try:
            whole = int(step)
            if whole != step or not 0 <= whole < _MAX_STEP:
                raise ValueError
        except Exception:  # a foreign object
            self.odd.note("bad_step", step)
            return self.step + 1
        if self._kept_to < whole < self.step and self._has_logged and not self._rewinds:
            self.odd.note("step_backwards", f"{whole} after {self.step}")
        return whole

    def event(
        self, name: str, *, step: int | None = None, severity: str = "info", **data: Any
    ) -> None:
        """Something that happened. Severity: info, warning, error or critical. A name that begins
        one of the house's own words (run., andon., ...), or is one (sample), becomes `user.NAME`.
        Secrets in the data are not recorded.
        """
        word = printable(as_text(name)).strip()[:100] or "event"
        is_ours = word == "sample" or word.startswith(_OWN_EVENTS)
        word = f"user.{word}" if is_ours else word
        safe, _ = redact(as_json(data, most=_MAX_DATA), dict(os.environ))
        about = {"name": word, "severity": severity_of(severity), "data": safe}
        if not self.journal_append("e", self._at(step), **about):
            self._refuse("event")

    def sample(self, text: str, *, prompt: str = "", step: int | None = None) -> None:
        """A text that the model made. Long ones are cut to a journal line of 4 KiB."""
        asked, said = (redact_known(as_text(one), dict(os.environ)) for one in (prompt, text))
        if not self.journal_append("s", self._at(step), prompt=asked, text=said):
            self._refuse("sample")

    def params(self, config: object) -> None:
        """More of the configuration: what `start` takes as `config`. A key said again is replaced.

        Raises UsageError.
        """
        settings = recordable(config)
        with self._lock:
            if self._is_shut:
                self._refuse("params")
                return
            for key, value in flatten(settings).items():
                self._journal.append("p", key=key, value=value)

    def set_goals(self, goals: Mapping[str, str]) -> None:
        """More of `goals` of `start`. Raises UsageError."""
        checked = check_goals(goals)
        self._names.room.always(checked)
        for metric, way in checked.items():  # one a line: a line has 4 KiB
            self._note("run.goals", {metric: way})

    def define_metric(
        self,
        name: str,
        *,
        goal: str | None = None,
        x: str | None = None,
        summary: str | None = None,
    ) -> None:
        """What is to be known of a metric: whether `min` or `max` is better (`goal`), which metric
        it is read back over instead of the step (`x`), and which of its values stands for the run
        in lists (`summary`): last, min, max, or none of them. Raises UsageError.
        """
        said = definition(name, x, summary)
        goals = {} if goal is None else check_goals({said["metric"]: goal})
        if len(said) > 1:
            self._note(EVENT, said)
        self.set_goals(goals)

    def _note(self, name: str, data: Mapping[str, Any]) -> None:
        self.journal_append("e", None, name=name, severity="info", data=dict(data))

    def journal_append(self, kind: str, step: int | None, /, **fields: Any) -> bool:
        """A line of type `kind` for what stands in modules of its own; False where the run is
        closed. Any thread may call it.
        """
        with self._lock:
            if self._is_shut:
                return False
            self._journal.append(kind, step=step, **fields)
        return True

    def beat(self, phase: str = "training") -> None:
        """A sign of life in a stretch without values, such as an evaluation (phase `evaluating`).

        Matters under a guard, which restarts a program that has logged once and is then silent for
        its `stale_s` (300 s).
        """
        with self._lock:
            if not self._is_shut:
                self._live.beat(printable(as_text(phase))[:100], self.step)

    def disown(self) -> None:
        """In a forked child, leave the run to its parent."""
        self._is_forked = self._is_shut = True
        self._lock = threading.RLock()  # a thread that we do not have may hold the other

    def _at(self, step: Any) -> int | None:
        if type(step) is int and 0 <= step < _MAX_STEP:
            return step
        return self.last_step

    @property
    def last_step(self) -> int | None:
        """The last step that was logged here; None before the first."""
        return self.step if self._has_logged else None

    def _refuse(self, what: str, *, calls: int = 1) -> None:
        """Warn once, as the line of the program that is `calls` calls above."""
        if not self._has_warned:
            self._has_warned = True
            why = "after it was closed" if self._is_closed else "in a forked process"
            warnings.warn(f"albor: {what} of run {self.id} {why}: ignored", stacklevel=calls + 2)

    # -- the thread beside the loop ------------------------------------------------------------

    def _tend(self) -> None:
        """Write the live state, keep the index process alive, make lines survive a power cut.

        Never moves `seq` by itself: only what the loop said since the last time is published, so a
        loop that hangs is seen to hang.
        """
        synced, offset, tick = time.monotonic(), 0, 0.0
        while not self._ended.wait(tick):
            tick = TICK_S
            with self._lock:
                if self._is_closed:
                    return
                self._report_waiting()
                has_news = self._live.refresh(self.step)
                self._report_odd(gap_s=_ODD_GAP_S)
            if has_news:
                self._live.publish()
            if self._sidecar is not None:
                self._sidecar.tend()
            if time.monotonic() - synced >= _SYNC_S and self._journal.offset != offset:
                offset, synced = self._journal.offset, time.monotonic()
                with contextlib.suppress(OSError):  # closed meanwhile, or a disk in trouble
                    os.fdatasync(self._journal.fd)

    def _report_waiting(self) -> None:
        """What of the journal waits for the disk, in the state file, and once on stderr."""
        journal = self._journal
        count = journal.pending
        self._live.waiting(pending=count, dropped=journal.dropped, error=journal.error)
        if count and journal.error is not None and not self._waiting_said:
            self._waiting_said = True
            tell(f"{journal.error}: what run {self.id} logs waits in memory until there is room")
        self._waiting_said = self._waiting_said and count > 0

    def _say_refused(self) -> None:
        """Report metrics beyond the limit of names: once on stderr, and their number at the end."""
        room = self._names.room
        first, count = next(iter(room.refused), None), len(room.refused)
        if not self._refused_said:
            tell(
                f"run {self.id}: more than {MAX_NAMES:,} metric names: {first!r} and what else is"
                " new stands in its journal alone; albor runs show says how many,"
                f" albor runs pin {self.id} METRIC gives one room"
            )
        self._refused_said = count
        self._journal.event(
            NO_ROOM_EVENT, severity="warning", first=first, left_out=count, names=room.asked
        )

    def _report_odd(self, *, gap_s: float) -> None:
        now = time.monotonic()
        examples = dict(self.odd.examples)  # the thread of media adds some of its own
        for kind in [kind for kind in ODD_WORDS if kind in examples.keys() - self._odd_told]:
            self._odd_told.add(kind)
            tell(f"run {self.id}: {ODD_WORDS[kind].format(examples[kind])}")
        if self.odd.total != self._odd_said and now >= self._odd_due:
            self._odd_said, self._odd_due = self.odd.total, now + gap_s
            self._journal.event(
                "track.odd",
                severity="warning",
                counts=dict(self.odd.counts),
                examples=dict(self.odd.examples),
            )

    # -- the end -------------------------------------------------------------------------------

    def finish(self, status: str = "completed", message: str = "") -> None:
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
        self._close(End(status, status, words, code))

    close = finish  # as it was called first

    def _is_cut_short(self) -> bool:
        is_at_end = self._max_steps is not None and self.step >= self._max_steps
        return not (self._is_shut or is_at_end) and is_asked_to_stop(self._attempt)

    def end(self, *, error: BaseException | None = None, by: signal.Signals | None = None) -> None:
        """Close as what ended the block or the program says."""
        if by is not None:
            self._close(end_by(by))
            return
        if error is None and self._exit_asked is not None:
            said_at, asked = self._exit_asked
            # a program that said something afterwards had caught it
            error = asked if said_at == self._journal.offset else None
        if error is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
            self.finish()
        else:
            self._close(end_from(error))

    def exit_asked(self, error: SystemExit) -> None:
        """The program is about to leave with this, if it does not catch it."""
        self._exit_asked = (self._journal.offset, error)

    def _close(self, end: End) -> None:
        if self._is_forked:
            return  # a forked child: the run is its parent's
        self._finish_media()  # before the lock: its thread says lines
        end = dataclasses.replace(end, message=" ".join(end.message.splitlines()))
        stands = end if self._past is None or self._past.stands is None else self._past.stands
        with self._lock:
            if self._is_closed:
                return
            self._report_odd(gap_s=0.0)
            if len(self._names.room.refused) != self._refused_said:
                self._say_refused()
            unlogged, _ = (0, "") if self._console is None else self._console.settle()
            lost = lines_lost(self._journal, self._live, self.id)
            self._journal.event(
                "run.end",
                step=self._at(None),
                severity="error" if end.status == "failed" else "info",
                status=stands.status,
                reason=stands.reason,
                code=end.code,
                message=printable(end.message)[:1000],
                **({"lines_lost": lost} if lost else {}),
            )
            self._is_closed = self._is_shut = True
            self._live.end(stands.status, self.step)
            facts = {"step": self.step, "wall": time.time(), "lines_lost": lost}
            told = record_end(
                self._attempt, stands, self._exit, **facts, console_bytes_lost=unlogged
            )
            with contextlib.suppress(OSError):  # the disk is in trouble: the lines were written
                self._journal.barrier()
            self._journal.close()
        if self._console is not None:
            loss, why = self._console.end(None if end.status == "completed" else sys.exc_info()[1])
            say_unlogged(self.id, loss, why)
            if loss > unlogged and told:  # printed while the run ended
                facts["console_bytes_lost"] = loss
                record_end(self._attempt, stands, self._exit, **facts)
        self._exit.close()
        self._ended.set()
        for lock in self._attempt.locks:
            os.close(lock)
        open_runs.drop(self, self._sidecar)


def _recorded(attempt: SupervisedAttempt) -> Recording | None:
    """Have what the program prints in the attempt's log; a guard does so by itself."""
    if attempt.is_guarded:
        return None
    from albor_core.track.console.capture import capture  # noqa: PLC0415  5 ms, where wanted

    return capture(attempt.dir.log(attempt.attempt))
