"""What a program under `albor guard run` can know of the attempt its guard gave it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from albor_core.run.errors import InUseError
from albor_core.run.exit import forget_exit
from albor_core.run.guard_state import GuardState, read_guard
from albor_core.run.liveness import lock_holder, take_lock
from albor_core.run.rundir import RunDir


@dataclass(frozen=True)
class SupervisedAttempt:
    """Who writes: which attempt of which run, and the descriptors of the locks held for that."""

    dir: RunDir
    attempt: int
    nonce: str
    locks: tuple[int, ...]
    is_guarded: bool


def inherited_attempt(environ: Mapping[str, str]) -> SupervisedAttempt | None:
    """The attempt that a guard gave this process or an ancestor of it; None without one.

    Holds `.albor/track.lock`, since a journal has one writer and a program may have many processes.
    Raises InUseError where another one has it.
    """
    if not all(environ.get(f"ALBOR_{word}") for word in ("RUN_DIR", "ATTEMPT", "NONCE")):
        return None
    run = RunDir(Path(environ["ALBOR_RUN_DIR"]))
    if not run.run_json.is_file() or run.metadata().get("kind") != "guard":
        return None
    if not _has_the_lock(run, environ) and lock_holder(run.run_lock) is None:
        return None  # words of a run that is over, left behind in the environment
    try:
        writer = take_lock(run.store.parent / "track.lock")
    except InUseError as error:
        raise InUseError(
            f"{run.id} is tracked by another process of this program: {error.message}",
            hint="log from one process only (rank 0)",
        ) from error
    forget_exit(run)
    attempt, nonce = int(environ["ALBOR_ATTEMPT"]), environ["ALBOR_NONCE"]
    return SupervisedAttempt(run, attempt, nonce, (writer,), is_guarded=True)


def is_asked_to_stop(attempt: SupervisedAttempt) -> bool:
    """Whether the guard of this attempt passes a requested stop on."""
    if not attempt.is_guarded:
        return False
    guard = read_guard(attempt.dir) or {}
    return guard.get("state") == GuardState.STOPPING and guard.get("attempt") == attempt.attempt


def _has_the_lock(run: RunDir, environ: Mapping[str, str]) -> bool:
    """Whether the descriptor came with us: then no code here may open and close the lock's file."""
    try:
        inherited = os.fstat(int(environ.get("ALBOR_RUN_LOCK_FD", "-1")))
        return os.path.samestat(inherited, run.run_lock.stat())
    except (OSError, ValueError):
        return False
