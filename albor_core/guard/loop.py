"""The guard's loop: one thread that waits, looks, and moves between a dozen states.

The states, and which may follow which: run/guard_state.py.

Every decision is `policy.decide` or `hang.find_hang`; this file only carries them out. Each
transition is one line in attempts.jsonl and a new guard.json. Time is the monotonic clock. A guard
may die at any point: the next one finds its trainer by run.lock and goes on (adopt.py).
"""

from __future__ import annotations

import secrets
import select
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from albor_core.guard import preflight
from albor_core.guard.attempt import GuardedAttempt
from albor_core.guard.commands import GuardCommands
from albor_core.guard.deaths import evidence, hang
from albor_core.guard.deaths.past_attempts import (
    LastAttempt,
    job_in,
    last_attempt,
    next_attempt,
    start_record,
)
from albor_core.guard.judgement import judge
from albor_core.guard.launch import Launch
from albor_core.guard.mailbox import Relay
from albor_core.guard.policy import GAVE_UP, Finish, GuardMemory, Restart, remember
from albor_core.guard.process import log_bounds
from albor_core.guard.process.adopt import LivingTrainer, find_trainer
from albor_core.guard.process.index_process import IndexProcess
from albor_core.guard.process.processes import Process, become_subreaper, reap_orphans, spawn
from albor_core.guard.process.signals import SignalPipe
from albor_core.guard.records import Ledger, log_line
from albor_core.guard.status import GuardStatus
from albor_core.guard.termination import Termination
from albor_core.run.checkpoints import newest
from albor_core.run.errors import InUseError
from albor_core.run.exit import STOPPED_BY_ANDON
from albor_core.run.guard_state import GUARD_ENDS, GuardState, read_guard
from albor_core.run.liveness import boot_id
from albor_core.run.program.scheduler import current_job
from albor_core.run.rundir import RunDir

_AT_WORK = (GuardState.RUNNING, GuardState.PAUSED)
_QUICK_S = 0.02  # pass time while something is about to happen
_STRANGERS_LIMIT_S = 300.0  # how long a start waits for a GPU that others use
_STRANGERS_LOOK_S = 30.0


class Guard:
    """Keeps one run alive until it is done, stopped or beyond help. Holder of guard.lock only."""

    def __init__(
        self,
        run: RunDir,
        launch: Launch,
        *,
        forgets: bool = False,
        late: frozenset[str] = frozenset(),
    ) -> None:
        self.run, self.launch, self.options = run, launch, launch.options
        self.signals = SignalPipe()
        become_subreaper()
        self.ledger = Ledger(run)
        self.status = GuardStatus(run, launch, self.ledger)
        self.index_process = IndexProcess(run) if launch.index else None
        self.relay = Relay(run, self.options)
        self.commands = GuardCommands(self.status, self.relay)
        self.termination = Termination(self.options.grace_s)
        self.log_times = log_bounds.LogTimes()
        self.forgets = forgets  # whoever asked for this attempt starts the counts of restarts anew
        self.late = late  # commands that were there before anybody could mean this guard
        self.job = current_job()
        self.is_moved = False
        self.flight_since_s: float | None = None
        self._look_at_s = 0.0

    def run_until_final(self) -> int:
        """Guard the run; the exit code. Raises InUseError if another process works on it."""
        self._begin()
        try:
            turns = self._turns()
            while self.status.state not in GUARD_ENDS:
                self._wait()
                self._keep_house()
                turns[self.status.state]()
            return self._finish()
        finally:
            self.ledger.close()

    def _turns(self) -> dict[GuardState, Callable[[], None]]:
        """The repeated work of each state that lasts; init and collecting end in one pass."""
        return {
            GuardState.PREFLIGHT: self._preflight,
            GuardState.STARTING: self._starting,
            GuardState.RUNNING: self._running,
            GuardState.PAUSED: self._running,
            GuardState.HUNG: self._ending,
            GuardState.STOPPING: self._ending,
            GuardState.BACKOFF: self._backoff,
        }

    # --- waiting and housekeeping ----------------------------------------------------------------

    def _wait(self) -> None:
        now, attempt = time.monotonic(), self.status.attempt
        is_quick = attempt is not None and not attempt.is_confirmed
        due = [now + (_QUICK_S if is_quick else self.options.pass_s), *self.termination.due]
        if self.status.backoff_until_s:
            due.append(self.status.backoff_until_s)
        listen: list[Any] = [self.signals]
        if attempt is not None and attempt.process is not None:
            listen.append(attempt.process)
        is_preflight = self.status.state is GuardState.PREFLIGHT
        if is_preflight or (attempt is not None and attempt.has_ended()):
            return
        select.select(listen, [], [], max(0.0, min(due) - now))

    def _keep_house(self) -> None:
        for number in self.signals.take():
            self._on_signal(number)
        self.commands.obey()
        if self.status.stop is None and self.ledger.is_deleted:
            log_line(f"{self.run.path} was deleted: stopping, since the run can no longer be seen")
            by = "the removal of its folder"
            self.status.request_stop(signal.SIGTERM, is_now=False, by=by)
        if self.index_process is not None:
            self.index_process.tend()
        self.ledger.retry()
        self.status.pulse()
        attempt = self.status.attempt
        if attempt is None:
            return
        self.log_times.look(attempt.log)
        if log_bounds.rotate(attempt.log):
            self.ledger.event("guard.log_rotated", log=attempt.log.name)
        if attempt.process is not None and not attempt.has_ended():
            self.relay.tend(attempt.process, has_news=attempt.watch.has_news)

    def _on_signal(self, number: int) -> None:
        status = self.status
        if number in (signal.SIGTERM, signal.SIGINT):
            # a scheduler signals the command that asks us to stop as well as us
            again = status.stop is not None and status.stop.is_signalled
            by = f"{signal.Signals(number).name} to its guard"
            status.request_stop(number, is_now=again, by=by).is_signalled = True
        elif number == signal.SIGUSR1:
            log_line(f"state {status.state}: {status.document()}")
        elif number == signal.SIGCHLD:
            reap_orphans(self._spared() | ({status.attempt.pid} if status.attempt else set()))

    def _spared(self) -> frozenset[int]:
        """Children of the guard that do not belong to the program."""
        return self.index_process.pids if self.index_process is not None else frozenset()

    # --- init: what is there already -------------------------------------------------------------

    def _begin(self) -> None:
        previous = read_guard(self.run) or {}
        same_boot = previous.get("boot_id") == boot_id()
        goes_on = not self.forgets and previous.get("state") not in (None, *GUARD_ENDS)
        if goes_on and isinstance(previous.get("memory"), dict):
            self.status.memory = remember(previous["memory"], same_boot=same_boot)
        else:
            saved = newest(self.run.checkpoints)
            # A resumed run's old checkpoint does not count as progress of this guard.
            self.status.memory = GuardMemory(checkpoint=None if saved is None else saved[0])
        found = find_trainer(self.run)  # may refuse: then nothing here has been touched
        last = last_attempt(self.run)
        self.status.number = None if last is None else last.attempt
        self.status.record(GuardState.INIT)
        if found is None and not goes_on:
            self.commands.obey_early(self.late)
        if found is not None:
            self._adopt(found)
        elif last is None or not self._judge_unseen_end(last):
            self._resume_backoff(previous, goes_on and same_boot)

    def _look_after(
        self, number: int, nonce: str, process: Process | None, started_s: float
    ) -> GuardedAttempt:
        """Begin to look after an attempt."""
        attempt = GuardedAttempt(self.run, number, nonce, process, started_s, self._spared)
        self.status.attempt = attempt
        return attempt

    def _adopt(self, found: LivingTrainer) -> None:
        record = start_record(self.run, found.attempt)
        started_s = time.monotonic() if record is None else int(record["mono_ns"]) / 1e9
        attempt = self._look_after(found.attempt, found.nonce, found.process, started_s)
        self.status.number = found.attempt
        attempt.is_adopted = attempt.is_confirmed = True
        attempt.job = job_in(record)
        attempt.is_diagnostic = self.status.memory.is_diagnostic
        if record is None:
            attempt.write_start(self.ledger, self.launch)
        self.ledger.event("guard.adopted", attempt=found.attempt, pid=found.process.pid)
        log_line(f"adopted attempt {found.attempt}, process {found.process.pid}")
        self.relay.pick_up()
        self.status.enter(GuardState.RUNNING)

    def _judge_unseen_end(self, lost: LastAttempt) -> bool:
        """An attempt that ended while no guard watched: judge it by what it left."""
        if not lost.is_open:
            return False
        attempt = self._look_after(lost.attempt, lost.nonce, None, time.monotonic())
        record = start_record(self.run, lost.attempt)
        attempt.is_confirmed, attempt.job = record is not None, job_in(record)
        attempt.look(self.options)
        self._collect(attempt)
        if self.status.backoff_until_s is not None:
            self.status.backoff_until_s = time.monotonic()  # to start a guard is to ask for a start
        return True

    def _resume_backoff(self, previous: dict[str, Any], is_same: bool) -> None:
        backoff = previous.get("backoff")
        until = backoff.get("until_mono_ns") if isinstance(backoff, dict) else None
        if is_same and previous.get("state") == GuardState.BACKOFF and isinstance(until, int):
            longest_s = max(self.options.backoff_s)
            self.status.backoff_until_s = min(until / 1e9, time.monotonic() + longest_s)
            self.status.enter(GuardState.BACKOFF)
        else:
            self.status.enter(GuardState.PREFLIGHT)

    # --- states ----------------------------------------------------------------------------------

    def _preflight(self) -> None:
        if self.status.stop is not None:
            self._finish_as(self.status.stop.finish("stopped before a start"))
            return
        flight = preflight.check(self.run, self.launch, self._spared())
        for note in flight.notes:
            self.ledger.event("guard.preflight_note", severity="warning", note=note)
        if flight.cleared:
            self.ledger.event("guard.orphans_killed", severity="warning", count=flight.cleared)
        if not flight.problem:
            self.flight_since_s = None
            self._start()
            return
        self.ledger.event("guard.preflight_refused", severity="warning", reason=flight.problem)
        now = time.monotonic()
        self.flight_since_s = now if self.flight_since_s is None else self.flight_since_s
        if flight.may_pass and now - self.flight_since_s < _STRANGERS_LIMIT_S:
            self.status.reason = flight.problem
            self._back_off_until(now + _STRANGERS_LOOK_S)
        else:
            self._finish_as(Finish("failed", GAVE_UP, f"pre-flight: {flight.problem}"))

    def _start(self) -> None:
        number, nonce = next_attempt(self.run), secrets.token_hex(16)
        self.status.number = number
        is_diagnostic = self.status.memory.is_diagnostic
        self.run.logs.mkdir(mode=0o700, exist_ok=True)
        log = self.run.log(number)
        try:
            process = spawn(self.run, self.launch, number, nonce, log, diagnostic=is_diagnostic)
        except OSError as error:
            self._finish_as(Finish("failed", 1, f"cannot start a process: {error}"))
            return
        attempt = self._look_after(number, nonce, process, time.monotonic())
        attempt.is_diagnostic, attempt.job = is_diagnostic, self.job
        self.status.reason = ""
        self.status.enter(GuardState.STARTING)

    def _starting(self) -> None:
        attempt = self._living()
        if attempt is None or self._is_stopping(attempt):
            return
        if not attempt.is_confirmed:
            if not attempt.is_known_to_run():
                self._look(attempt)
                return
            attempt.is_confirmed = True
            attempt.write_start(self.ledger, self.launch)
        attempt.look(self.options)
        if attempt.watch.has_news or self.launch.kind == "guard":
            self.status.enter(GuardState.RUNNING)
        else:
            self._check_hang(attempt)

    def _running(self) -> None:
        attempt = self._living()
        if attempt is None or self._is_stopping(attempt):
            return
        self._look(attempt)
        is_paused = attempt.is_stopped_by_us or attempt.watch.phase == "paused"
        state = self.status.state
        if state in _AT_WORK and is_paused != (state is GuardState.PAUSED):
            self.status.enter(GuardState.PAUSED if is_paused else GuardState.RUNNING)

    def _look(self, attempt: GuardedAttempt) -> None:
        """Look at the state file when it is time, or when a command may change it."""
        now, is_paused = time.monotonic(), self.status.state is GuardState.PAUSED
        if now < self._look_at_s and self.relay.is_idle and not is_paused:
            return
        self._look_at_s = now + self.options.poll_s
        attempt.look(self.options)
        if not attempt.is_stopped_by_us:
            self._check_hang(attempt)

    def _check_hang(self, attempt: GuardedAttempt) -> None:
        found = hang.find_hang(attempt.watch, self.options)
        if found is not None and (place := self.ledger.moved_to) is not None:
            self._wait_for_folder(attempt, place)
            return
        if found is None or attempt.process is None or not self.status.detects_hangs:
            return
        attempt.hang = found
        attempt.threads = evidence.threads_of(attempt.process.pid)
        number = attempt.number
        self.ledger.event("guard.hang", severity="error", attempt=number, reason=str(found))
        log_line(f"attempt {number} hangs: {found}")
        self.termination.begin_with_stacks(attempt)
        self.status.enter(GuardState.HUNG)

    def _wait_for_folder(self, attempt: GuardedAttempt, place: str) -> None:
        """While the run directory is moved, do not count silence as a hang: the program may be
        well."""
        attempt.watch = replace(attempt.watch, news_s=attempt.watch.looked_s)
        if not self.is_moved:
            self.is_moved = True
            self.ledger.event("guard.moved", severity="warning", path=place)
            log_line(
                f"{self.run.path} was moved to {place}: silence counts for nothing until it is back"
            )

    def _is_stopping(self, attempt: GuardedAttempt) -> bool:
        """Whether a stop was asked for; the first time it is passed on to the program."""
        if self.status.stop is None:
            return False
        self.status.enter(GuardState.STOPPING)  # first: a tracker asks whether it was told to end
        self.termination.ask(attempt, self.status.stop.signal)
        return True

    def _ending(self) -> None:
        if (attempt := self._living()) is not None:
            stop = self.status.stop
            self.termination.tend(attempt, is_now=stop is not None and stop.is_now)

    def _backoff(self) -> None:
        until = self.status.backoff_until_s
        if self.status.stop is not None:
            self._finish_as(self.status.stop.finish("stopped while waiting to restart"))
        elif until is None or time.monotonic() >= until:
            self.status.backoff_until_s = None
            self.status.enter(GuardState.PREFLIGHT)

    def _back_off_until(self, at_s: float) -> None:
        self.status.backoff_until_s = at_s
        self.status.enter(GuardState.BACKOFF)

    def _living(self) -> GuardedAttempt | None:
        """The attempt if it still lives; otherwise what is left of it is collected first."""
        attempt = self.status.attempt
        assert attempt is not None, f"state {self.status.state} without a program"
        if not attempt.has_ended():
            return attempt
        self._collect(attempt)
        return None

    # --- the end of an attempt -------------------------------------------------------------------

    def _collect(self, attempt: GuardedAttempt) -> None:
        self.termination.end()
        self.status.enter(GuardState.COLLECTING)
        exit_status = attempt.end_status(self.options)
        patience_s = min(1.0, self.options.grace_s) if exit_status.code == 0 else 0.0
        attempt.tree().clear(patience_s)
        attempt.look(self.options)
        self.relay.abandon("the program ended first")
        wants_gpu = preflight.wants_gpu(self.run, self.launch)
        autopsy = attempt.autopsy(exit_status, wants_gpu=wants_gpu)
        stop_signal = None if self.status.stop is None else self.status.stop.signal
        facts = attempt.facts(self.launch, autopsy, stop_signal)
        if facts.locked_out and self._take_over(attempt):
            return
        action = judge(self.status, attempt, exit_status, facts, autopsy)
        attempt.close()
        if isinstance(action, Restart):
            until_s = time.monotonic() + action.delay_s
            self.ledger.event(
                "guard.backoff",
                severity="warning",
                delay_s=action.delay_s,
                reason=action.reason,
                diagnostic=action.is_diagnostic,
            )
            self._back_off_until(until_s)
            self.status.attempt = None
        elif attempt.process is None and action.state == "stopped" and self.status.stop is None:
            self.status.attempt = None  # stopped before we came: we are here since it is to go on
            self.status.enter(GuardState.PREFLIGHT)
        else:
            self._finish_as(action)

    def _take_over(self, attempt: GuardedAttempt) -> bool:
        """Our stub found the lock taken: whoever was faster is the trainer to guard, or to settle
        if it has ended since. False if it cannot be seen or proven from here.
        """
        try:
            found = find_trainer(self.run)
        except InUseError as error:
            log_line(error.message)
            return False
        attempt.close()
        if found is not None:
            self._adopt(found)
            return True
        number = attempt.number
        self.ledger.event("guard.locked_out", severity="warning", attempt=number)
        log_line(f"attempt {number} met another program of this run, which has ended since")
        self.status.attempt, lost = None, last_attempt(self.run)
        if lost is None or not self._judge_unseen_end(lost):
            self._back_off_until(time.monotonic() + self.options.backoff_s[0])
        return True

    def _finish_as(self, action: Finish) -> None:
        status, stop = self.status, self.status.stop
        status.exit_code = action.exit_code
        if action.state == "stopped" and stop is not None and stop.by_andon:
            status.exit_code = STOPPED_BY_ANDON
        if not status.reason.startswith(action.reason):
            status.reason = action.reason
        status.backoff_until_s = None
        if action.exit_code == GAVE_UP:
            self.ledger.event("guard.gave_up", severity="error", reason=status.reason)
        status.enter(GuardState(action.state))

    def _finish(self) -> int:
        code = self.status.exit_code
        assert code is not None
        self.commands.answer_at_end()
        if self.index_process is not None:
            self.index_process.finish()
            self.index_process.leave()
        log_line(f"{self.status.state} with exit code {code}: {self.status.reason}")
        return code
