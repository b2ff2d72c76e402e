"""What an exit means and what to do about it. Pure: no clock, no process, no disk.

`classify` gives an ended attempt one of the classes of the table below; `decide` turns the class
and what is remembered of earlier attempts into a restart after a delay or an end. An exit code is
one number here: a death by signal N and a shell's 128+N are the same thing.

    0 done | early_exit          75 temporary              137 oom_host | killed
    2 config  7 data             1 exception | oom_*       134 136 139 131 crash
    4 andon   5 internal         130 143 129 external      132 135 153 159 fatal_signal
    6 no_checkpoint  8 in_use    unknown: unknown_exit     hang, stopped, gpu_lost by evidence

Codes 2 to 8 mean this only if the last words carry the attempt's nonce: any program may exit 2.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from albor_core.run.exit import COMPLETED
from albor_core.run.guard_options import Options
from albor_core.run.values.lenient import finite_of, text_of, whole_of
from albor_core.run.values.quantity import counted

DAY_S = 86400.0
FATAL_XIDS = frozenset({48, 79, 95, 119})  # the GPU needs a reset or is gone: a restart cannot help


class ExitPolicy(StrEnum):
    """The reaction to a class of exit."""

    DONE = "done"
    FATAL = "fatal"
    RESTART = "restart"
    STOPPED = "stopped"


@dataclass(frozen=True)
class ExitStatus:
    """How a process ended: `code` is 0..255 with signals as 128+N, None if unknown."""

    code: int | None
    source: str = "waitid"
    core: bool = False

    @property
    def signal(self) -> int | None:
        """The signal that the code stands for."""
        return (
            self.code - 128
            if self.code is not None and 128 < self.code < 128 + signal.NSIG
            else None
        )

    @property
    def signal_name(self) -> str | None:
        """SIGSEGV and the like; None for an exit."""
        number = self.signal
        if number is None:
            return None
        try:
            return signal.Signals(number).name
        except ValueError:
            return f"SIG{number}"


@dataclass(frozen=True)
class TrainerWords:
    """The trainer's last words, exit.json of this very attempt."""

    code: int
    reason: str = ""
    step: int | None = None
    message: str = ""
    error_type: str = ""
    error_message: str = ""
    where: str = ""


@dataclass(frozen=True)
class ExitFacts:
    """Facts of an ended attempt besides its exit status."""

    words: TrainerWords | None = None
    needs_words: bool = True
    """Exit 0 proves nothing without last words or the final step."""
    reached_end: bool = False
    """Its last step is the last one that it was to take."""
    stop_signal: int | None = None
    """The guard was asked to stop: the signal it forwarded."""
    hung: bool = False
    killed_by_guard: bool = False
    oom_killed: bool | None = None
    out_of_memory: bool = False
    """It said itself that it got no memory: an uncaught MemoryError."""
    xids: tuple[int, ...] = ()
    locked_out: bool = False
    """The stub found run.lock taken: the program was never started."""
    unwatched: bool = False
    """It ended while no guard watched: a signal that stopped it was not one to restart from."""


@dataclass(frozen=True)
class ExitClass:
    """A kind of ending; `exit_code` is the guard's own when the ending is final."""

    name: str
    verdict: ExitPolicy
    exit_code: int = 1
    is_crash: bool = False
    """A death by signal that points at native code: worth a diagnostic attempt at step 0."""


def _restart(name: str, *, is_crash: bool = False) -> ExitClass:
    return ExitClass(name, ExitPolicy.RESTART, is_crash=is_crash)


_SPOKEN = {
    2: ExitClass("config", ExitPolicy.FATAL, 2),
    4: ExitClass("andon", ExitPolicy.FATAL, 4),
    5: ExitClass("internal", ExitPolicy.FATAL, 1),
    6: ExitClass("no_checkpoint", ExitPolicy.FATAL, 6),
    7: ExitClass("data", ExitPolicy.FATAL, 7),
    8: ExitClass("in_use", ExitPolicy.FATAL, 8),
}
_CRASH = _restart("crash", is_crash=True)
_GPU_MEMORY = ExitClass("oom_gpu", ExitPolicy.FATAL)  # the same batch would not fit again
_FATAL_SIGNAL = ExitClass("fatal_signal", ExitPolicy.FATAL)
_BY_CODE_ALONE = (_GPU_MEMORY, _FATAL_SIGNAL)  # of a program that was asked to stop they say little
_PLAIN = {
    75: _restart("temporary"),
    129: _restart("external"),
    130: _restart("external"),
    143: _restart("external"),
    131: _CRASH,
    134: _CRASH,
    136: _CRASH,
    139: _CRASH,
    132: _FATAL_SIGNAL,
    135: _FATAL_SIGNAL,
    153: _FATAL_SIGNAL,
    159: _FATAL_SIGNAL,
}
_LEFT_AS_TOLD = ExitClass("stopped", ExitPolicy.STOPPED, 0)  # `--stop-after`, which no signal asked
_STOPPING = (None, 129, 130, 137, 143)  # after our signal an unknown end is that signal's


def classify(status: ExitStatus, facts: ExitFacts) -> ExitClass:
    """The class of an ending. Total: every status has one."""
    if facts.locked_out:
        return _SPOKEN[8]
    code = _true_code(status, facts.words)
    if code == 0:
        return _exited_0(facts)
    return _as_spoken(code, facts.words) or _as_asked(code, facts) or _failed(code, facts)


def _true_code(status: ExitStatus, words: TrainerWords | None) -> int | None:
    """The exit code in its exit record, if it was killed while exiting: it had ended before."""
    if words is not None and (status.code is None or (status.signal and _is_final(words))):
        return words.code
    return status.code


def _as_spoken(code: int | None, words: TrainerWords | None) -> ExitClass | None:
    return _SPOKEN.get(words.code) if words is not None and words.code == code else None


def _as_asked(code: int | None, facts: ExitFacts) -> ExitClass | None:
    """The class of a requested end (by our guard's signal, or while no guard watched), else
    None."""
    ended_so = facts.killed_by_guard or code in _STOPPING
    if facts.stop_signal is not None and ended_so and not facts.hung:
        return _stopped_by(facts.stop_signal)
    if facts.unwatched and facts.words is not None and facts.words.reason == "stopped":
        return ExitClass("stopped", ExitPolicy.STOPPED, facts.words.code)
    return None


def _failed(code: int | None, facts: ExitFacts) -> ExitClass:
    """The class of a failure: by evidence that outweighs the code, else by the code."""
    if FATAL_XIDS.intersection(facts.xids):
        return ExitClass("gpu_lost", ExitPolicy.FATAL)
    if facts.hung:
        return _restart("hang")
    if code is None:
        return _restart("unknown_exit")
    if code == 137:
        return _killed(facts)
    if code == 1 and facts.words is not None and facts.words.reason == "gpu_memory":
        return _GPU_MEMORY
    if code == 1 and facts.out_of_memory:
        return _restart("oom_host")
    if code in _PLAIN:
        return _PLAIN[code]
    return _restart("signal" if ExitStatus(code).signal else "exception")


def _exited_0(facts: ExitFacts) -> ExitClass:
    """Whoever handles SIGTERM leaves with 0, and so does whoever has done all there was to do: of a
    program that was asked to end only its last step tells which, or the word of our own trainer.
    """
    reason = "" if facts.words is None else facts.words.reason
    finished = reason in COMPLETED
    at_end = facts.reached_end or (facts.needs_words and finished)
    if facts.hung and not at_end:
        return _restart("hang")
    if facts.stop_signal is not None and not at_end:
        return _stopped_by(facts.stop_signal)
    if at_end or not facts.needs_words:
        return ExitClass("done", ExitPolicy.DONE, 0)
    return _LEFT_AS_TOLD if reason == "stopped" else _restart("early_exit")


def _stopped_by(number: int) -> ExitClass:
    return ExitClass("stopped", ExitPolicy.STOPPED, 128 + number)


def _is_final(words: TrainerWords) -> bool:
    return words.code in _SPOKEN or (words.code == 0 and words.reason in COMPLETED)


def _killed(facts: ExitFacts) -> ExitClass:
    if facts.killed_by_guard:
        return _restart("killed_by_guard")
    # Anybody may send SIGKILL: without a kernel message or a counter that rose it was not memory.
    return _restart("oom_host" if facts.oom_killed else "killed")


@dataclass(frozen=True)
class GuardMemory:
    """The guard's memory over attempts; guard.json keeps it when the guard dies."""

    restarts_s: tuple[float, ...] = ()
    """Monotonic times of the restarts of the last day."""
    backoff_index: int = 0
    no_progress: int = 0
    """Restarts in a row that were decided without a newer checkpoint."""
    checkpoint: int | None = None
    """Newest checkpoint when the last attempt began."""
    fault: tuple[str, str, int] | None = None
    """Kind, place and step of the last failure that would repeat itself if it were a bug."""
    is_diagnostic: bool = False
    """The present attempt runs with CUDA_LAUNCH_BLOCKING=1."""
    early_error: str | None = None
    """How the last attempt ended if it was by an exception before its first logged step."""
    restarts: int = 0
    """All of them."""


@dataclass(frozen=True)
class Ended:
    """An attempt is over."""

    kind: ExitClass
    status: ExitStatus
    now_s: float
    lived_s: float
    checkpoint: int | None = None
    """Newest usable checkpoint now."""
    step: int | None = None
    fault: tuple[str, str, int] | None = None
    before_first_step: bool = False
    stop_signal: int | None = None
    error: str = ""
    """The exception's last line, or what a program without one said last."""
    job: str = ""
    """The scheduler's job that it ran in, which may have sent the signal."""
    is_unlogged: bool = False
    """No step of this attempt was logged: it is as if it had not begun."""


@dataclass(frozen=True)
class Restart:
    """Start again after `delay_s`."""

    delay_s: float
    reason: str
    is_diagnostic: bool = False


@dataclass(frozen=True)
class Finish:
    """The end: the guard's final state (done, failed or stopped) and exit code."""

    state: str
    exit_code: int
    reason: str
    links_reports: bool = False
    """The last two crash reports belong together."""


GAVE_UP = 5


def decide(
    memory: GuardMemory, event: Ended, options: Options
) -> tuple[GuardMemory, Restart | Finish]:
    """The next memory, and what to do. A total function of its arguments."""
    what = describe(event)
    if event.kind.verdict is ExitPolicy.DONE:
        return memory, Finish("done", 0, what)
    is_moot = event.stop_signal is not None and event.kind in _BY_CODE_ALONE
    if event.kind.verdict is ExitPolicy.FATAL and not is_moot:
        return memory, Finish("failed", event.kind.exit_code, what)
    if event.stop_signal is not None:
        return memory, Finish("stopped", 128 + event.stop_signal, what)
    if event.kind.verdict is ExitPolicy.STOPPED:
        return memory, Finish("stopped", event.kind.exit_code, what)
    end = _by_count(memory, options, what) if options.restarts is not None else None
    if options.restarts is None:
        end = _repeated(memory, event, what) or _too_often(memory, event, options, what)
    return (memory, end) if end is not None else _start_again(memory, event, options, what)


def _by_count(memory: GuardMemory, options: Options, what: str) -> Finish | None:
    """The end where a person said how many restarts there may be."""
    assert options.restarts is not None
    if memory.restarts < options.restarts:
        return None
    told = f"{what}, after {counted(memory.restarts, 'restart')}" if memory.restarts else what
    return Finish("failed", GAVE_UP, told)


def _repeated(memory: GuardMemory, event: Ended, what: str) -> Finish | None:
    """The end of what has failed like this before and would again."""
    if _early_error(event) is not None and _early_error(event) == memory.early_error:
        return Finish("failed", GAVE_UP, what)
    if event.fault is not None and event.fault == memory.fault:
        again = f"{what}: the same failure twice, so it would come again"
        return Finish("failed", 1, again, True)
    if _crashed_early(event) and memory.is_diagnostic:
        return Finish("failed", 1, f"{what}: again before the first step", True)
    return None


def _too_often(memory: GuardMemory, event: Ended, options: Options, what: str) -> Finish | None:
    """The end of what has had its restarts."""
    has_progress = _is_newer(event.checkpoint, memory.checkpoint)
    if not has_progress and memory.no_progress >= options.max_no_progress:
        reason = f"{what}: restarts without a newer checkpoint: {memory.no_progress}"
        return Finish("failed", GAVE_UP, reason)
    recent = len(_recent(memory, event))
    if recent >= options.max_restarts:
        return Finish("failed", GAVE_UP, f"{what}: restarts within a day: {recent}")
    return None


def _recent(memory: GuardMemory, event: Ended) -> tuple[float, ...]:
    return tuple(at for at in memory.restarts_s if event.now_s - at < DAY_S)


def _crashed_early(event: Ended) -> bool:
    return event.kind.is_crash and event.before_first_step


def _early_error(event: Ended) -> str | None:
    """What ended an attempt before its first logged step, if it was an exception: most likely a
    typo, a missing module or a wrong flag, which no wait heals.
    """
    return describe(event) if event.is_unlogged and event.kind.name == "exception" else None


def _start_again(
    memory: GuardMemory, event: Ended, options: Options, what: str
) -> tuple[GuardMemory, Restart]:
    has_progress = _is_newer(event.checkpoint, memory.checkpoint)
    early_error, diagnostic = _early_error(event), _crashed_early(event)
    is_stable = has_progress and event.lived_s >= options.stable_s and not memory.is_diagnostic
    index = 0 if is_stable else memory.backoff_index
    is_at_once = early_error is not None and memory.early_error is None
    after = GuardMemory(
        restarts_s=(*_recent(memory, event), event.now_s),
        backoff_index=index if is_at_once else min(index + 1, len(options.backoff_s)),
        no_progress=0 if has_progress else memory.no_progress + 1,
        checkpoint=event.checkpoint if has_progress else memory.checkpoint,
        fault=event.fault,
        is_diagnostic=diagnostic,
        early_error=early_error,
        restarts=memory.restarts + 1,
    )
    delay_s = 0.0 if is_at_once else options.backoff_s[min(index, len(options.backoff_s) - 1)]
    return after, Restart(delay_s, what, diagnostic)


def _is_newer(checkpoint: int | None, than: int | None) -> bool:
    return checkpoint is not None and (than is None or checkpoint > than)


def describe(event: Ended) -> str:
    """One line for people: the exception as Python says it, or else class, how it ended, where."""
    status = event.status
    if event.error and event.kind.name == "exception":
        return event.error
    if event.error and event.kind.name.startswith("oom_") and status.signal is None:
        return f"{event.kind.name}: {event.error}"
    if status.signal_name:
        how = f"{status.signal_name} ({status.code})"
    else:
        how = "exit code unknown" if status.code is None else f"exited with code {status.code}"
    at = "" if event.step is None else f" at step {event.step}"
    job = f", {event.job}" if event.job and status.signal_name else ""
    word = "" if event.kind.name == "exception" and not status.signal_name else event.kind.name
    return f"{word}: {how}{at}{job}".removeprefix(": ")


def remember(document: Mapping[str, Any], *, same_boot: bool) -> GuardMemory:
    """Memory from guard.json as an earlier guard left it; what cannot be read is forgotten."""
    fault = document.get("fault")
    times = document.get("restarts_s")
    return GuardMemory(
        restarts_s=(
            tuple(at for at in map(finite_of, times) if at is not None)
            if same_boot and isinstance(times, list)
            else ()
        ),
        backoff_index=_count(document.get("backoff_index")) or 0,
        no_progress=_count(document.get("no_progress")) or 0,
        checkpoint=_count(document.get("checkpoint")),
        fault=(
            (str(fault[0]), str(fault[1]), fault[2])
            if isinstance(fault, list) and len(fault) == 3 and isinstance(fault[2], int)
            else None
        ),
        is_diagnostic=document.get("is_diagnostic") is True,
        early_error=text_of(document.get("early_error")),
        restarts=_count(document.get("restarts")) or 0,
    )


def _count(value: Any) -> int | None:
    found = whole_of(value)
    return found if found is not None and found >= 0 else None
