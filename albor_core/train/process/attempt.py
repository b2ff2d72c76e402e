"""One attempt of a run: its lock, its number and its last words.

Imports nothing heavy: all of it must work before torch is loaded, which takes seconds.
"""

from __future__ import annotations

import secrets
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace

from albor_core.guard.deaths.past_attempts import next_attempt
from albor_core.run.errors import (
    AlborError,
    ConfigError,
    DataError,
    NoCheckpointError,
    NotFoundError,
    UsageError,
    refused_by_the_machine,
)
from albor_core.run.exit import exit_document, forget_exit, reserve_exit, write_exit
from albor_core.run.files.reserved_file import ReservedFile
from albor_core.run.files.whole_file import clear_halves
from albor_core.run.liveness import take_lock
from albor_core.run.rundir import RunDir

GPU_MEMORY_HINT = (
    "apply again with --set data.batch_size halved and --set training.gradient_accumulation doubled"
    " (the same global batch), or --set training.activation_checkpointing=true"
)


@dataclass(frozen=True)
class Attempt:
    """Who this process is: attempt 1, 2, ... of a run, with a nonce that no other attempt has."""

    run: RunDir
    number: int
    nonce: str
    exit: ReservedFile | None = None
    """Room for its last words, should the disk have none left."""


def begin(run: RunDir, environ: Mapping[str, str]) -> Attempt:
    """Hold the run's lock and know which attempt this is.

    Under a guard the lock came with us through `exec`; alone we take it. Raises InUseError.
    """
    if "ALBOR_RUN_LOCK_FD" in environ:
        attempt = Attempt(run, int(environ["ALBOR_ATTEMPT"]), environ["ALBOR_NONCE"])
    else:
        take_lock(run.run_lock)  # held until this process ends; nothing opens the file again
        attempt = Attempt(run, next_attempt(run), secrets.token_hex(8))
    clear_halves(run.path)
    forget_exit(run)
    return replace(attempt, exit=reserve_exit(run))


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended: `reason` and exit `code` as exit.json has them."""

    reason: str
    code: int
    step: int
    message: str = ""
    error: Mapping[str, str] | None = None
    lines_lost: int = 0
    """Journal lines that no disk took."""


def outcome_of(error: BaseException, step: int) -> Outcome:
    """The outcome that an exception means."""
    reason, code = "exception", 1
    for kinds, word, its_code in (
        ((ConfigError, UsageError), "config", 2),
        ((DataError, NotFoundError), "data", 7),
        ((NoCheckpointError,), "no_checkpoint", 6),
    ):
        if isinstance(error, kinds):
            reason, code = word, its_code
    told = refused_by_the_machine(error) if isinstance(error, OSError) else error
    hint = told.hint if isinstance(told, AlborError) else ""
    if type(error).__name__ == "OutOfMemoryError":  # torch's; by name, since torch may not be here
        reason, hint = "gpu_memory", GPU_MEMORY_HINT
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    message = str(error)[:2000]
    return Outcome(
        reason,
        code,
        step,
        message,
        {
            "type": type(error).__name__,
            "message": message,
            "where": where,
            "hint": hint,
        },
    )


def last_words(attempt: Attempt, outcome: Outcome) -> None:
    """Write exit.json. Raises OSError."""
    document = exit_document(
        attempt.run,
        attempt.number,
        attempt.nonce,
        code=outcome.code,
        reason=outcome.reason,
        step=outcome.step,
        message=outcome.message,
        wall=time.time(),
        error=outcome.error,
        lines_lost=outcome.lines_lost,
    )
    write_exit(attempt.run, document, attempt.exit)
