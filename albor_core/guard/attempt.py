"""One attempt in the guard's hands: its process, its news, and how it ended."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from albor_core.guard.deaths import crash_report, evidence, hang
from albor_core.guard.deaths.crash_report import Autopsy
from albor_core.guard.deaths.hang import Hang, HangWatch
from albor_core.guard.deaths.past_attempts import last_words, said_by
from albor_core.guard.launch import Launch
from albor_core.guard.policy import Ended, ExitClass, ExitFacts, ExitStatus, TrainerWords
from albor_core.guard.process.processes import (
    Process,
    ProcessTree,
    catches,
    exit_of_stranger,
    open_process,
)
from albor_core.guard.records import Ledger, log_line
from albor_core.run.checkpoints import newest
from albor_core.run.guard_options import Options
from albor_core.run.program.scheduler import SchedulerJob
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.state import read_state
from albor_core.run.values.lenient import NOTHING, whole
from albor_core.run.values.redact import own_environment, redact_text

_STATUS_LIMIT_S = 5.0  # until another parent has reaped its child and the kernel tells the status
_STATUS_LOOK_S = 0.02


@dataclass
class GuardedAttempt:
    """A started or adopted program. `process` is None when it ended while no guard watched."""

    run: RunDir
    number: int
    nonce: str
    process: Process | None
    started_s: float
    spared: Callable[[], frozenset[int]] = frozenset
    """The guard's other children, which are not the program's."""
    is_adopted: bool = False
    is_diagnostic: bool = False
    is_confirmed: bool = False
    """The stub took run.lock: the program runs, and the ledger has its start."""
    job: SchedulerJob | None = None
    """The scheduler's job that it was started in."""
    is_stopped_by_us: bool = False
    """A plain program that `pause` froze with SIGSTOP."""
    is_killed_by_us: bool = False
    hang: Hang | None = None
    threads: list[dict[str, Any]] = field(default_factory=list)
    oom_before: int | None = field(default_factory=evidence.oom_kills)
    """Kills of the kernel for want of memory, before it started."""
    state: Mapping[str, Any] | None = None
    """The newest whole state document of this very attempt."""
    watch: HangWatch = field(init=False)

    def __post_init__(self) -> None:
        self.watch = hang.watch(self.run.id, self.nonce, time.monotonic())

    @property
    def log(self) -> Path:
        """The program's output."""
        return self.run.log(self.number)

    @property
    def stacks(self) -> Path:
        """The file to which a trainer dumps its Python stacks on SIGUSR1."""
        return self.run.logs / f"a{self.number:04d}.stacks"

    @property
    def pid(self) -> int:
        """0 for a process that was never seen."""
        return 0 if self.process is None else self.process.pid

    def has_ended(self) -> bool:
        """Whether the program runs no more."""
        return self.process is None or self.process.has_ended()

    def look(self, options: Options) -> None:
        """Read the state file and remember what is news."""
        state = read_state(self.run.state)
        is_ours = (
            state is not None
            and state.get("nonce") == self.nonce
            and state.get("run_id") == self.run.id
        )
        if is_ours:
            self.state = state
        self.watch = hang.observe(self.watch, state, time.monotonic(), options)

    def is_known_to_run(self) -> bool:
        """Whether the stub got as far as writing child.json for this attempt."""
        child = read_json(self.run.guard / "child.json")
        return child is not None and child.get("nonce") == self.nonce

    def tree(self) -> ProcessTree:
        """All its processes."""
        return ProcessTree(self.run.id, frozenset({self.nonce}), self.process, self.spared())

    def ask_for_stacks(self) -> bool:
        """Have the program and its other ranks dump their stacks, if they know how; a frozen one is
        woken for it.
        """
        if self.process is None or not catches(self.process.pid, signal.SIGUSR1):
            return False
        for pid in self.tree().pids():
            if pid != self.process.pid and catches(pid, signal.SIGUSR1):
                rank = open_process(pid)
                if rank is not None:
                    rank.send(signal.SIGUSR1)
                    rank.close()
        return self.process.send(signal.SIGUSR1) and self.process.send(signal.SIGCONT)

    def write_start(self, ledger: Ledger, launch: Launch) -> None:
        """Record that it runs."""
        ledger.line(
            "attempt.start",
            attempt=self.number,
            mono_ns=int(self.started_s * 1e9),
            pid=self.pid or None,
            nonce=self.nonce,
            argv_hash=launch.argv_hash,
            diagnostic=self.is_diagnostic,
            adopted=self.is_adopted,
            job=None if self.job is None else self.job.document(),
        )
        if self.job is not None:
            ledger.event("guard.job", attempt=self.number, **self.job.document())
        log_line(f"attempt {self.number} runs as process {self.pid}")

    def end_status(self, options: Options) -> ExitStatus:
        """How it ended. Call it once it has."""
        if self.process is None:
            return ExitStatus(None, "unknown")
        status = self.process.status()
        assert status is not None, "asked for the end of a process that is still alive"
        if status.code is not None:
            return status
        # The kernel knows more once the parent has reaped; last words make waiting less worth.
        words = last_words(self.run, self.nonce)
        limit_s = min(_STATUS_LIMIT_S, options.grace_s) if words is None else _STATUS_LOOK_S
        deadline = time.monotonic() + limit_s
        while status.code is None and time.monotonic() < deadline:
            time.sleep(_STATUS_LOOK_S)
            status = exit_of_stranger(self.process.pidfd)
        if status.code is None and words is not None:
            return ExitStatus(words.code, "last_words")
        return status

    def autopsy(self, status: ExitStatus, *, wants_gpu: bool) -> Autopsy:
        """Collect the evidence of this death."""
        found = Autopsy(
            attempt=self.number,
            nonce=self.nonce,
            pid=self.pid,
            is_adopted=self.is_adopted,
            log=self.log,
            oom_before=self.oom_before,
            threads=self.threads,
            state=self.state,
            state_age_s=self._state_age_s(),
            hang=None if self.hang is None else str(self.hang),
        )
        look_at_gpu = wants_gpu and (status.signal is not None or self.hang is not None)
        crash_report.complete(found, since_mono_s=self.started_s, look_at_gpu=look_at_gpu)
        return found

    def _state_age_s(self) -> float | None:
        """The age of the state file by its own time stamp, precise enough for messages."""
        stamp = whole(self.state or NOTHING, "mono_ns")
        age_s = None if stamp is None else time.monotonic() - stamp / 1e9
        return round(age_s, 3) if age_s is not None and age_s >= 0 else None

    def facts(self, launch: Launch, autopsy: Autopsy, stop_signal: int | None) -> ExitFacts:
        """The facts that the policy needs besides the status."""
        status = None if self.process is None else self.process.status()
        words = last_words(self.run, self.nonce)
        return ExitFacts(
            words=words,
            needs_words=launch.final_exit_needs_exit_json,
            reached_end=self._reached_end(launch, words),
            stop_signal=stop_signal,
            hung=self.hang is not None,
            killed_by_guard=self.is_killed_by_us,
            oom_killed=crash_report.was_oom_killed(autopsy),
            out_of_memory=crash_report.ran_out_of_memory(words, autopsy),
            xids=tuple(xid["code"] for xid in autopsy.xids or ()),
            locked_out=(
                not self.is_confirmed
                and status is not None
                and status.code == 8
                and not self.is_known_to_run()
            ),
            unwatched=self.process is None,
        )

    def _reached_end(self, launch: Launch, words: TrainerWords | None) -> bool:
        """Whether it took its last step; a program that is not ours may say how many there are."""
        told = whole(self.state or NOTHING, "max_steps")
        most = told if launch.max_steps is None else launch.max_steps
        steps = (whole(self.state or NOTHING, "global_step"), None if words is None else words.step)
        return most is not None and any(step is not None and step >= most for step in steps)

    def ended(
        self,
        kind: ExitClass,
        status: ExitStatus,
        facts: ExitFacts,
        autopsy: Autopsy,
        launch: Launch,
    ) -> Ended:
        """The event that the policy decides on."""
        spoken = None if facts.words is None else facts.words.step
        step = spoken if spoken is not None else whole(self.state or NOTHING, "global_step")
        saved = newest(self.run.checkpoints)
        now_s = time.monotonic()
        lived_s, is_trainer = now_s - self.started_s, launch.kind == "train"
        said = said_by(self.run, self.number)
        # the first step of a program without a tracker is unknown
        may_be_early = is_trainer or said.is_tracked or lived_s <= launch.options.start_limit_s
        error = evidence.error_line(facts.words, autopsy.python, autopsy.log_tail, status.code)
        return Ended(
            kind=kind,
            status=status,
            now_s=now_s,
            lived_s=lived_s,
            checkpoint=None if saved is None else saved[0],
            step=step,
            fault=_fault(kind, facts, autopsy, step),
            before_first_step=step == 0 or (step is None and is_trainer),
            stop_signal=facts.stop_signal,
            error=redact_text(error, {**own_environment(), **launch.env}),
            job="" if self.job is None else str(self.job),
            is_unlogged=may_be_early and not said.has_metric and not step,
        )

    def close(self) -> None:
        """Give the pidfd back."""
        if self.process is not None:
            self.process.close()


def _fault(
    kind: ExitClass, facts: ExitFacts, autopsy: Autopsy, step: int | None
) -> tuple[str, str, int] | None:
    """The fault that would occur again if it were a bug; None if there is no sign of one."""
    if step is None:
        return None
    if kind.name == "oom_host":
        return kind.name, "", step
    if kind.name != "exception":
        return None
    words = facts.words
    if words is not None and words.error_type:
        return words.error_type, words.where, step
    if autopsy.python is not None:
        return autopsy.python[0], autopsy.python[2], step
    return None
