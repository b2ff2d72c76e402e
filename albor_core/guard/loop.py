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
from dataclasses import asdict, replace
from typing import Any

from albor_core.guard import mailbox, preflight
from albor_core.guard.attempt import GuardedAttempt, new_attempt
from albor_core.guard.deaths import crash_report, evidence, hang
from albor_core.guard.deaths.crash_report import Autopsy
from albor_core.guard.deaths.past_attempts import (
    LastAttempt,
    job_in,
    last_attempt,
    ledger_tail,
    next_attempt,
)
from albor_core.guard.launch import Launch
from albor_core.guard.mailbox import Relay
from albor_core.guard.policy import (
    GAVE_UP,
    Ended,
    ExitFacts,
    ExitPolicy,
    Finish,
    GuardMemory,
    Restart,
    classify,
    decide,
    remember,
)
from albor_core.guard.process import log_bounds
from albor_core.guard.process.adopt import LivingTrainer, find_trainer
from albor_core.guard.process.index_process import IndexProcess
from albor_core.guard.process.processes import become_subreaper, reap_orphans, spawn
from albor_core.guard.process.signals import SignalPipe
from albor_core.guard.records import Ledger, log_line
from albor_core.guard.stop_request import StopRequest
from albor_core.run.checkpoints import newest
from albor_core.run.control import ANDON, Command
from albor_core.run.errors import InUseError
from albor_core.run.exit import STOPPED_BY_ANDON
from albor_core.run.guard_state import GUARD_ENDS, MOVES, GuardState, read_guard
from albor_core.run.liveness import boot_id
from albor_core.run.program.scheduler import current_job
from albor_core.run.rundir import RunDir
from albor_core.run.values.redact import own_environment

_ALIVE = (GuardState.STARTING, GuardState.RUNNING, GuardState.PAUSED)
_AT_WORK = (GuardState.RUNNING, GuardState.PAUSED)
_PULSE_S = 5.0  # guard.json is fresh at least this often
_QUICK_S = 0.02  # pass time while something is about to happen
_STACKS_S = 5.0
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
        self.sidecar = IndexProcess(run) if launch.index else None
        self.relay = Relay(run, self.options)
        self.log_times = log_bounds.LogTimes()
        self.memory = GuardMemory()
        self.forgets = forgets  # whoever asked for this attempt starts the counts of restarts anew
        self.late = late  # commands that were there before anybody could mean this guard
        self.job = current_job()
        self.is_moved = False
        self.state, self.since_s = GuardState.INIT, time.monotonic()
        self.life: GuardedAttempt | None = None
        self.attempt: int | None = None
        self.stop: StopRequest | None = None
        self.exit_code: int | None = None
        self.reason = ""
        self.class_last: str | None = None
        self.backoff_until_s: float | None = None
        self.flight_since_s: float | None = None
        self.kill_at_s: float | None = None
        self.term_at_s: float | None = None
        self._look_at_s = 0.0
        self._pulse_at_s = 0.0

    def run_until_final(self) -> int:
        """Guard the run; the exit code. Raises InUseError if somebody else works on it."""
        self._begin()
        try:
            turns = self._turns()
            while self.state not in GUARD_ENDS:
                self._wait()
                self._keep_house()
                turns[self.state]()
            return self._finish()
        finally:
            self.ledger.close()

    def _turns(self) -> dict[GuardState, Callable[[], None]]:
        """What is done each time in a state that lasts; init and collecting end in one go."""
        return {
            GuardState.PREFLIGHT: self._preflight,
            GuardState.STARTING: self._starting,
            GuardState.RUNNING: self._running,
            GuardState.PAUSED: self._running,
            GuardState.HUNG: self._hung,
            GuardState.STOPPING: self._stopping,
            GuardState.BACKOFF: self._backoff,
        }

    # --- waiting and housekeeping ----------------------------------------------------------------

    def _wait(self) -> None:
        now = time.monotonic()
        is_quick = self.life is not None and not self.life.is_confirmed
        due = [now + (_QUICK_S if is_quick else self.options.pass_s)]
        due += [at for at in (self.backoff_until_s, self.kill_at_s, self.term_at_s) if at]
        listen: list[Any] = [self.signals]
        if self.life is not None and self.life.process is not None:
            listen.append(self.life.process)
        if self.state is GuardState.PREFLIGHT or (self.life is not None and self.life.has_ended()):
            return
        select.select(listen, [], [], max(0.0, min(due) - now))

    def _keep_house(self) -> None:
        for number in self.signals.take():
            self._on_signal(number)
        for command in mailbox.accepted_commands(self.run):
            self._obey(command)
        if self.stop is None and self.ledger.is_deleted:
            log_line(f"{self.run.path} was deleted: stopping, since the run can no longer be seen")
            self._request_stop(signal.SIGTERM, is_now=False, by="the removal of its folder")
        if self.sidecar is not None:
            self.sidecar.tend()
        self.ledger.retry()
        now = time.monotonic()
        if now >= self._pulse_at_s:
            self._publish()
        if self.life is None:
            return
        self.log_times.look(self.life.log)
        if log_bounds.rotate(self.life.log):
            self.ledger.event("guard.log_rotated", log=self.life.log.name)
        if self.life.process is not None and not self.life.has_ended():
            self.relay.tend(self.life.process, has_news=self.life.watch.has_news)

    def _on_signal(self, number: int) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            # a scheduler signals the command that asks us to stop as well as us
            again = self.stop is not None and self.stop.is_signalled
            by = f"{signal.Signals(number).name} to its guard"
            self._request_stop(number, is_now=again, by=by)
            assert self.stop is not None
            self.stop.is_signalled = True
        elif number == signal.SIGUSR1:
            log_line(f"state {self.state}: {self._document()}")
        elif number == signal.SIGCHLD:
            reap_orphans(self._spared() | ({self.life.pid} if self.life else set()))

    def _request_stop(
        self, number: int, *, is_now: bool, command_id: str = "", by: str = ""
    ) -> None:
        if self.stop is None:
            self.stop = StopRequest(number, by)
        self.stop.is_now = self.stop.is_now or is_now
        if command_id:
            self.stop.command_ids.append(command_id)

    def _spared(self) -> frozenset[int]:
        return self.sidecar.pids if self.sidecar is not None else frozenset()

    # --- what the guard says ---------------------------------------------------------------------

    def _enter(self, state: GuardState) -> None:
        """Raises AssertionError for a state that may not follow this one."""
        assert state in MOVES[self.state], f"a guard goes from {self.state} to {state}"
        self._record_state(state)

    def _record_state(self, state: GuardState) -> None:
        self.state, self.since_s = state, time.monotonic()
        self.ledger.line("state", state=state)
        self._publish()

    def _publish(self) -> None:
        self._pulse_at_s = time.monotonic() + min(_PULSE_S, 2 * self.options.poll_s)
        self.ledger.now(self._document())

    def _document(self) -> dict[str, Any]:
        life, saved = self.life, newest(self.run.checkpoints)
        until = self.backoff_until_s
        return {
            "state": self.state,
            "since_mono_ns": int(self.since_s * 1e9),
            "attempt": self.attempt,
            "adopted": life is not None and life.is_adopted,
            "diagnostic": life is not None and life.is_diagnostic,
            "child": _child_of(life),
            "class_last": self.class_last,
            "reason": self.reason,
            "backoff": None
            if until is None
            else {"index": self.memory.backoff_index, "until_mono_ns": int(until * 1e9)},
            "no_progress": self.memory.no_progress,
            "last_ckpt": None if saved is None else saved[0],
            "hang_detection": self._detects_hangs(),
            "exit_code": self.exit_code,
            "memory": asdict(self.memory),
        }

    def _detects_hangs(self) -> bool:
        """A plain program that writes no state file gives no sign of life to miss."""
        has_news = self.life is not None and self.life.watch.has_news
        return self.launch.kind == "train" or has_news

    # --- commands --------------------------------------------------------------------------------

    def _obey(self, command: Command) -> None:
        self.ledger.event("guard.command", cmd=command.cmd, sender=command.sender, by=command.by)
        if command.cmd in ("stop", "stop_now"):
            mailbox.answer(self.run, command.id, "accepted")
            number = signal.SIGINT if command.argument == "INT" else signal.SIGTERM
            if number == signal.SIGINT and self.state is GuardState.STOPPING:
                self._send(number)  # asked by another signal, it has not ended
            is_first = self.stop is None
            is_now = command.cmd == "stop_now"
            self._request_stop(number, is_now=is_now, command_id=command.id, by=command.by)
            assert self.stop is not None
            self.stop.by_andon |= is_first and command.sender == ANDON
        elif command.cmd == "retry_now":
            self._retry_now(command)
        elif command.cmd == "ack":
            mailbox.answer(self.run, command.id, "done", "noted")
        else:
            self._command_program(command)

    def _send(self, number: int) -> None:
        if self.life is not None and self.life.process is not None:
            self.life.process.send(number)

    def _retry_now(self, command: Command) -> None:
        if self.state is not GuardState.BACKOFF:
            mailbox.answer(self.run, command.id, "refused", f"not waiting: {self.state}")
            return
        self.backoff_until_s = time.monotonic()
        mailbox.answer(self.run, command.id, "done", "starting again")

    def _command_program(self, command: Command) -> None:
        life = self.life
        if life is None or life.process is None or self.state not in _ALIVE:
            mailbox.answer(self.run, command.id, "refused", f"no program runs: {self.state}")
        elif self.launch.kind == "train" or Relay.reaches(
            life.process, has_news=life.watch.has_news
        ):
            self.relay.add(command)
        elif command.cmd == "resume" and command.argument:
            detail = "this program has no step-time budgets"
            mailbox.answer(self.run, command.id, "refused", detail)
        elif command.cmd in ("checkpoint", "rollback"):
            detail = f"this program has no {command.cmd} that the guard could ask for"
            mailbox.answer(self.run, command.id, "refused", detail)
        else:
            self._freeze(life, command)

    def _freeze(self, life: GuardedAttempt, command: Command) -> None:
        """Pause or resume a plain program with SIGSTOP and SIGCONT for its whole tree."""
        life.is_stopped_by_us = command.cmd == "pause"
        count = life.tree(self._spared()).send(
            signal.SIGSTOP if life.is_stopped_by_us else signal.SIGCONT
        )
        mailbox.answer(self.run, command.id, "done", f"{count} processes")

    # --- init: what is there already -------------------------------------------------------------

    def _begin(self) -> None:
        previous = read_guard(self.run) or {}
        same_boot = previous.get("boot_id") == boot_id()
        goes_on = not self.forgets and previous.get("state") not in (None, *GUARD_ENDS)
        if goes_on and isinstance(previous.get("memory"), dict):
            self.memory = remember(previous["memory"], same_boot=same_boot)
        else:
            saved = newest(self.run.checkpoints)
            # A resumed run's old checkpoint is no progress of this guard's.
            self.memory = GuardMemory(checkpoint=None if saved is None else saved[0])
        found = find_trainer(self.run)  # may refuse: then nothing here has been touched
        last = last_attempt(self.run)
        self.attempt = None if last is None else last.attempt
        self._record_state(GuardState.INIT)
        if found is None and not goes_on:
            self._obey_early_commands()
        if found is not None:
            self._adopt(found)
        elif last is None or not self._judge_unseen_end(last):
            self._resume_backoff(previous, goes_on and same_boot)

    def _obey_early_commands(self) -> None:
        """What was asked for before this guard came, but not what the attempt before was to do."""
        for command in mailbox.accepted_commands(self.run):
            if command.id in self.late:  # it came when that attempt had already ended
                mailbox.answer(self.run, command.id, "refused", "meant for an earlier attempt")
            else:
                self._obey(command)

    def _adopt(self, found: LivingTrainer) -> None:
        record = self._start_record(found.attempt)
        started_s = time.monotonic() if record is None else int(record["mono_ns"]) / 1e9
        self.life = new_attempt(
            self.run, found.attempt, found.nonce, found.process, started_s=started_s
        )
        self.attempt = found.attempt
        self.life.is_adopted = self.life.is_confirmed = True
        self.life.job = job_in(record)
        self.life.is_diagnostic = self.memory.is_diagnostic
        if record is None:
            self._write_start(self.life)
        self.ledger.event("guard.adopted", attempt=found.attempt, pid=found.process.pid)
        log_line(f"adopted attempt {found.attempt}, process {found.process.pid}")
        self.relay.pick_up()
        self._enter(GuardState.RUNNING)

    def _start_record(self, attempt: int) -> dict[str, Any] | None:
        for record in reversed(ledger_tail(self.run)):
            if record.get("t") == "attempt.start" and record.get("attempt") == attempt:
                return record if isinstance(record.get("mono_ns"), int) else None
        return None

    def _judge_unseen_end(self, lost: LastAttempt) -> bool:
        """An attempt that ended while no guard watched: judge it by what it left."""
        if not lost.is_open:
            return False
        self.life = new_attempt(
            self.run, lost.attempt, lost.nonce, None, started_s=time.monotonic()
        )
        record = self._start_record(lost.attempt)
        self.life.is_confirmed, self.life.job = record is not None, job_in(record)
        self.life.look(self.options)
        self._collect()
        if self.backoff_until_s is not None:
            self.backoff_until_s = time.monotonic()  # starting a guard is asking for a start
        return True

    def _resume_backoff(self, previous: dict[str, Any], is_same: bool) -> None:
        backoff = previous.get("backoff")
        until = backoff.get("until_mono_ns") if isinstance(backoff, dict) else None
        if is_same and previous.get("state") == GuardState.BACKOFF and isinstance(until, int):
            longest_s = max(self.options.backoff_s)
            self.backoff_until_s = min(until / 1e9, time.monotonic() + longest_s)
            self._enter(GuardState.BACKOFF)
        else:
            self._enter(GuardState.PREFLIGHT)

    # --- states ----------------------------------------------------------------------------------

    def _preflight(self) -> None:
        if self.stop is not None:
            self._finish_as(self.stop.finish("stopped before a start"))
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
            self.reason = flight.problem
            self.backoff_until_s = now + _STRANGERS_LOOK_S
            self._enter(GuardState.BACKOFF)
        else:
            self._finish_as(Finish("failed", GAVE_UP, f"pre-flight: {flight.problem}"))

    def _start(self) -> None:
        attempt, nonce = next_attempt(self.run), secrets.token_hex(16)
        self.attempt = attempt
        self.run.logs.mkdir(mode=0o700, exist_ok=True)
        try:
            process = spawn(
                self.run,
                self.launch,
                attempt,
                nonce,
                self.run.log(attempt),
                diagnostic=self.memory.is_diagnostic,
            )
        except OSError as error:
            self._finish_as(Finish("failed", 1, f"cannot start a process: {error}"))
            return
        self.life = new_attempt(self.run, attempt, nonce, process, started_s=time.monotonic())
        self.life.is_diagnostic = self.memory.is_diagnostic
        self.life.job = self.job
        self.reason = ""
        self._enter(GuardState.STARTING)

    def _starting(self) -> None:
        life = self._living()
        if life is None or self._is_stopping():
            return
        if not life.is_confirmed:
            if not life.is_known_to_run():
                self._look(life)
                return
            life.is_confirmed = True
            self._write_start(life)
        life.look(self.options)
        if life.watch.has_news or self.launch.kind == "guard":
            self._enter(GuardState.RUNNING)
        else:
            self._check_hang(life)

    def _write_start(self, life: GuardedAttempt) -> None:
        self.ledger.line(
            "attempt.start",
            attempt=life.attempt,
            mono_ns=int(life.started_s * 1e9),
            pid=life.pid or None,
            nonce=life.nonce,
            argv_hash=self.launch.argv_hash,
            diagnostic=life.is_diagnostic,
            adopted=life.is_adopted,
            job=None if life.job is None else life.job.document(),
        )
        if life.job is not None:
            self.ledger.event("guard.job", attempt=life.attempt, **life.job.document())
        log_line(f"attempt {life.attempt} runs as process {life.pid}")

    def _running(self) -> None:
        life = self._living()
        if life is None or self._is_stopping():
            return
        self._look(life)
        is_paused = life.is_stopped_by_us or life.watch.phase == "paused"
        if self.state in _AT_WORK and is_paused != (self.state is GuardState.PAUSED):
            self._enter(GuardState.PAUSED if is_paused else GuardState.RUNNING)

    def _look(self, life: GuardedAttempt) -> None:
        """Look at the state file when it is time, or when a command may change it."""
        now = time.monotonic()
        if now < self._look_at_s and self.relay.is_idle and self.state is not GuardState.PAUSED:
            return
        self._look_at_s = now + self.options.poll_s
        life.look(self.options)
        if not life.is_stopped_by_us:
            self._check_hang(life)

    def _check_hang(self, life: GuardedAttempt) -> None:
        found = hang.find_hang(life.watch, self.options)
        if found is not None and (place := self.ledger.moved_to) is not None:
            self._wait_for_folder(life, place)
            return
        if found is None or life.process is None or not self._detects_hangs():
            return
        life.hang = found
        life.threads = evidence.threads_of(life.process.pid)
        self.ledger.event("guard.hang", severity="error", attempt=life.attempt, reason=str(found))
        log_line(f"attempt {life.attempt} hangs: {found}")
        now = time.monotonic()
        has_asked = life.ask_for_stacks(self._spared())
        self.term_at_s = now + (min(_STACKS_S, self.options.grace_s) if has_asked else 0.0)
        self._enter(GuardState.HUNG)

    def _wait_for_folder(self, life: GuardedAttempt, place: str) -> None:
        """Its news lies where nobody looks: no reason to end a program that may be well."""
        life.watch = replace(life.watch, news_s=life.watch.looked_s)
        if not self.is_moved:
            self.is_moved = True
            self.ledger.event("guard.moved", severity="warning", path=place)
            log_line(
                f"{self.run.path} was moved to {place}: silence counts for nothing until it is back"
            )

    def _hung(self) -> None:
        life = self._living()
        if life is None:
            return
        now = time.monotonic()
        if self.stop is not None and self.stop.is_now:
            self._kill(life)
        elif self.term_at_s is not None:
            if now >= self.term_at_s or crash_report.has_content(life.stacks):
                self._terminate(life, signal.SIGTERM)
        elif self.kill_at_s is not None and now >= self.kill_at_s:
            self._kill(life)

    def _is_stopping(self) -> bool:
        """Whether a stop was asked for; the first time it is passed on to the program."""
        life = self.life
        if self.stop is None or life is None:
            return False
        self._enter(GuardState.STOPPING)  # first: a tracker asks whether it was told to end
        self._terminate(life, self.stop.signal)
        return True

    def _stopping(self) -> None:
        life = self._living()
        if life is None or self.stop is None:
            return
        if self.stop.is_now or (self.kill_at_s and time.monotonic() >= self.kill_at_s):
            self._kill(life)

    def _terminate(self, life: GuardedAttempt, number: int) -> None:
        """Ask the program to end, waking it if it is frozen, and start the grace time."""
        self.term_at_s, self.kill_at_s = None, time.monotonic() + self.options.grace_s
        if life.process is not None:
            life.process.send(number)
        if life.is_stopped_by_us:
            life.tree(self._spared()).send(signal.SIGCONT)
        elif life.process is not None:
            life.process.send(signal.SIGCONT)

    def _kill(self, life: GuardedAttempt) -> None:
        life.is_killed_by_us = True
        life.tree(self._spared()).clear(patience_s=0.0)
        self.kill_at_s = time.monotonic() + self.options.grace_s  # again, if it survived

    def _backoff(self) -> None:
        if self.stop is not None:
            self._finish_as(self.stop.finish("stopped while waiting to restart"))
        elif self.backoff_until_s is None or time.monotonic() >= self.backoff_until_s:
            self.backoff_until_s = None
            self._enter(GuardState.PREFLIGHT)

    def _living(self) -> GuardedAttempt | None:
        """The attempt if it still lives; otherwise what is left of it is collected first."""
        assert self.life is not None, f"state {self.state} without a program"
        if not self.life.has_ended():
            return self.life
        self._collect()
        return None

    # --- the end of an attempt
    # -----------------------------------------------------------------------

    def _collect(self) -> None:
        life = self.life
        assert life is not None
        self.term_at_s = self.kill_at_s = None
        self._enter(GuardState.COLLECTING)
        status = life.end_status(self.options)
        patience_s = min(1.0, self.options.grace_s) if status.code == 0 else 0.0
        life.tree(self._spared()).clear(patience_s)
        life.look(self.options)
        self.relay.abandon("the program ended first")
        autopsy = life.autopsy(status, wants_gpu=preflight.wants_gpu(self.run, self.launch))
        stop_signal = None if self.stop is None else self.stop.signal
        facts = life.facts(self.launch, autopsy, stop_signal)
        if facts.locked_out and self._take_over(life):
            return
        kind = classify(status, facts)
        event = life.ended(kind, status, facts, autopsy, self.launch, self.options)
        before = self.memory
        self.memory, action = decide(before, event, self.options)
        if isinstance(action, Finish) and self.stop is not None:
            action = self.stop.asked(action)
        self.class_last, self.reason = kind.name, action.reason
        report_id = self._report(autopsy, facts, event, before, action)
        self._write_end(life, event, action, report_id)
        life.close()
        if isinstance(action, Restart):
            self.backoff_until_s = time.monotonic() + action.delay_s
            self.ledger.event(
                "guard.backoff",
                severity="warning",
                delay_s=action.delay_s,
                reason=action.reason,
                diagnostic=action.is_diagnostic,
            )
            self._enter(GuardState.BACKOFF)
            self.life = None
        elif life.process is None and action.state == "stopped" and self.stop is None:
            self.life = None  # stopped before we came: we are here since it is to go on
            self._enter(GuardState.PREFLIGHT)
        else:
            self._finish_as(action)

    def _take_over(self, life: GuardedAttempt) -> bool:
        """Our stub found the lock taken: whoever was faster is the trainer to guard, or to settle
        if it has ended since. False if it cannot be seen or proven from here.
        """
        try:
            found = find_trainer(self.run)
        except InUseError as error:
            log_line(error.message)
            return False
        life.close()
        if found is not None:
            self._adopt(found)
            return True
        self.ledger.event("guard.locked_out", severity="warning", attempt=life.attempt)
        log_line(f"attempt {life.attempt} met another program of this run, which has ended since")
        self.life, lost = None, last_attempt(self.run)
        if lost is None or not self._judge_unseen_end(lost):
            self.backoff_until_s = time.monotonic() + self.options.backoff_s[0]
            self._enter(GuardState.BACKOFF)
        return True

    def _report(
        self,
        autopsy: Autopsy,
        facts: ExitFacts,
        event: Ended,
        before: GuardMemory,
        action: Restart | Finish,
    ) -> str | None:
        """A crash report for every death that nobody asked for; its id."""
        if event.kind.verdict in (ExitPolicy.DONE, ExitPolicy.STOPPED):
            return None
        document = crash_report.build(
            self.run, self.launch, autopsy, facts, event, before, action, wall=time.time()
        )
        if isinstance(action, Finish) and action.links_reports:
            document["linked"] = [name for name in (document["prev"], document["id"]) if name]
            self.reason = f"{action.reason}; see reports {', '.join(document['linked'])}"
        environment = {**own_environment(), **self.launch.env}
        written = crash_report.write(self.run, document, environment)
        if written is None:
            self.ledger.event("guard.report_failed", severity="warning", report=document["id"])
        return written

    def _write_end(
        self, life: GuardedAttempt, event: Ended, action: Restart | Finish, report_id: str | None
    ) -> None:
        if not life.is_confirmed:
            self._write_start(life)  # every end has its start
        word = {"done": "stop", "stopped": "stop", "failed": "fail"}
        self.ledger.line(
            "attempt.end",
            attempt=life.attempt,
            code=event.status.code,
            signal=event.status.signal_name,
            **{"class": event.kind.name},
            action="restart" if isinstance(action, Restart) else word[action.state],
            reason=self.reason,
            delay_s=action.delay_s if isinstance(action, Restart) else None,
            report=report_id,
            step=event.step,
        )
        log_line(f"attempt {life.attempt} ended: {self.reason}")

    def _finish_as(self, action: Finish) -> None:
        self.exit_code = action.exit_code
        if action.state == "stopped" and self.stop is not None and self.stop.by_andon:
            self.exit_code = STOPPED_BY_ANDON
        self.reason = self.reason if self.reason.startswith(action.reason) else action.reason
        self.backoff_until_s = None
        if action.exit_code == GAVE_UP:
            self.ledger.event("guard.gave_up", severity="error", reason=self.reason)
        self._enter(GuardState(action.state))

    def _finish(self) -> int:
        assert self.exit_code is not None
        for command_id in self.stop.command_ids if self.stop is not None else ():
            said = self.reason.startswith(self.state)
            detail = self.reason if said else f"{self.state}: {self.reason}"
            mailbox.answer(self.run, command_id, "done", detail)
        for command in mailbox.accepted_commands(self.run):
            mailbox.answer(self.run, command.id, "refused", f"the run is over: {self.state}")
        if self.sidecar is not None:
            self.sidecar.finish()
            self.sidecar.leave()
        log_line(f"{self.state} with exit code {self.exit_code}: {self.reason}")
        return self.exit_code


def _child_of(life: GuardedAttempt | None) -> dict[str, Any] | None:
    if life is None or life.process is None:
        return None
    return {"pid": life.pid, "start_ticks": life.process.ticks}
