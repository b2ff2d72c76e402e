"""A run that was there before: found by its id, and gone on with as another attempt of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from albor_core.guard.deaths.past_attempts import next_attempt
from albor_core.guard.supervised_attempt import SupervisedAttempt
from albor_core.run.errors import AlborError, InUseError, UsageError, remedy
from albor_core.run.exit import end_word, read_exit
from albor_core.run.files.pulled_file import refuse_pulled
from albor_core.run.guard_state import GUARD_ENDS, read_guard
from albor_core.run.home.folders import pointer_of
from albor_core.run.home.registry import known_as, register
from albor_core.run.home.runs import run_at
from albor_core.run.liveness import lock_holder, take_lock
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.state import read_state
from albor_core.run.values.lenient import whole_of
from albor_core.track import open_runs
from albor_core.track.last_words import End
from albor_core.track.recorded import Recorded, recorded

_GOES_ON = {"train": "albor train resume {0}", "guard": "albor guard retry {0}"}


@dataclass(frozen=True)
class Past:
    """What a resumed run has behind it."""

    recorded: Recorded = field(default_factory=Recorded)
    state: Mapping[str, Any] = field(default_factory=dict)
    """The last training_state.json."""
    stands: End | None = None
    """How the run ended, where it is another program's to say: whoever logs into it later does not
    change that.
    """


def find(run_id: str, folder: str | os.PathLike[str] | None) -> RunDir | None:
    """The run of that id in `folder`, or of this home."""
    if folder is not None:
        run = RunDir(Path(folder).expanduser().absolute() / run_id)
        if run.run_json.is_file():
            return run
    found = run_at(run_id, read_json(pointer_of(run_id)))
    return found if found is not None and found.run_json.is_file() else None


def resume(run: RunDir, how: str) -> tuple[SupervisedAttempt, Past]:
    """Take the run's lock for a further attempt. Nothing is written yet.

    Raises InUseError where a process works on it or `how` is "never", UsageError where another
    command goes on with it, AlborError where its files cannot be used.
    """
    if open_runs.is_open(run.path):  # asking the kernel would drop our own lock
        raise InUseError(
            f"cannot resume {run.id!r}: this program tracks it already",
            hint="run.finish() ends the first; in a notebook resume='allow' does that by itself",
        )
    _refuse_alive(run)
    if how == "never":
        raise InUseError(
            f"cannot start {run.id!r}: the run exists, in {run.path}",
            hint="resume='allow' continues it, another id begins a new run",
        )
    kind = run.metadata().get("kind")
    if kind != "track" and how != "must":
        command = _GOES_ON.get(str(kind), "albor runs show {0}").format(run.id)
        raise UsageError(
            f"cannot resume {run.id!r}: it is a run of kind {kind!r}, which goes on by"
            f" `{command}`; give resume='must' to log into it as it ended",
            hint=command,
        )
    refuse_pulled(run, "resume", f"albor runs show {run.own_id}")
    try:
        lock = take_lock(run.run_lock)
    except InUseError as error:
        raise _in_use(run, lock_holder(run.run_lock)) from error
    except OSError as error:
        raise _unusable(run, error) from error
    try:
        return _next(run, lock, is_own=kind == "track")
    except OSError as error:
        os.close(lock)
        raise _unusable(run, error) from error
    except BaseException:
        os.close(lock)
        raise


def _refuse_alive(run: RunDir) -> None:
    alive = run.liveness()
    if alive.trainer is not None:
        raise _in_use(run, alive.trainer)
    if alive.guard is not None:
        raise _in_use(run, alive.guard, "its guard, ")


def _in_use(run: RunDir, holder: int | None, who: str = "") -> InUseError:
    name = f"process {holder}" if holder else "another process"
    return InUseError(
        f"cannot resume {run.id!r}: {who}{name} works on it",
        hint=f"albor monitor {run.id}",
    )


def _unusable(run: RunDir, error: OSError) -> AlborError:
    where = error.filename if isinstance(error.filename, str) else run.path
    return AlborError(
        f"cannot resume {run.id!r}: {where}: {error.strerror or error}",
        hint=remedy(error),
    )


def _next(run: RunDir, lock: int, *, is_own: bool) -> tuple[SupervisedAttempt, Past]:
    _have_home_know(run)
    state, words, guard = read_state(run.state) or {}, read_exit(run) or {}, read_guard(run) or {}
    before = max(next_attempt(run) - 1, *(_attempt(one) for one in (state, words, guard)))
    past = Past(
        recorded=recorded(run),
        state=state,
        stands=None if is_own else _verdict(before, words, guard),
    )
    attempt = SupervisedAttempt(run, before + 1, os.urandom(8).hex(), (lock,), is_guarded=False)
    return attempt, past


def _have_home_know(run: RunDir) -> None:
    known = known_as(run)
    if known is not None and not run_at(known.id, read_json(pointer_of(known.id))):
        register(known)


def _attempt(document: Mapping[str, Any]) -> int:
    return whole_of(document.get("attempt")) or 0


def _verdict(before: int, words: Mapping[str, Any], guard: Mapping[str, Any]) -> End:
    """How the run ended with attempt `before`, by its program or else its guard."""
    if words and _attempt(words) >= before:
        reason, code = str(words.get("reason") or ""), whole_of(words.get("code")) or 0
        error = words.get("error")
        return End(
            end_word(reason, code),
            reason,
            str(words.get("message") or ""),
            code,
            error if isinstance(error, Mapping) else None,
        )
    word = GUARD_ENDS.get(str(guard.get("state")))
    if word is not None and _attempt(guard) >= before:
        status, said = whole_of(guard.get("exit_code")), str(guard.get("reason") or "")
        return End(word, word, said, int(word != "completed") if status is None else status)
    gone = f"attempt {before} ended without an exit record" if before else "it was never started"
    return End("failed", "lost", gone, 1)
