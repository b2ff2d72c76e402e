"""What is to be done with a run that may be there already: the question of `train run` and of
`guard run --resume-or-start`.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from enum import Enum, auto
from pathlib import Path

from albor_core.cli.common.output import emit, print_note
from albor_core.cli.common.run_ending import ended_at, is_complete
from albor_core.feed.run.status import run_status
from albor_core.run.errors import InUseError, UsageError
from albor_core.run.guard_state import GUARD_ENDS, read_guard
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.values.clean import MARK
from albor_core.run.values.redact import redact


class ExistingState(Enum):
    """The state of an existing run, for a caller who wants it completed."""

    COMPLETE = auto()
    GUARDED = auto()
    """A guard here has it: wait for that."""
    OPEN = auto()
    """It stopped, died, or lives without a guard: give it one."""


def existing_state(run: RunDir, *, kind: str) -> ExistingState:
    """The state of an existing run. Raises UsageError if the folder holds a run of another kind,
    InUseError if another host works on it.
    """
    found = run.metadata().get("kind")
    if found != kind:
        verb = "albor train run CONFIG --name" if found == "train" else "albor guard run --name"
        hint = f"{verb} {run.id}, or another --name" if found in ("train", "guard") else ""
        raise UsageError(
            f"{run.path} is a run of kind {found!r}, not {kind!r}", hint=hint or "another --name"
        )
    alive, now = run.liveness(), run_status(run)
    if 0 in (alive.trainer, alive.guard) or (now.word == "running" and not alive.is_alive):
        where = now.detail or "another host or container"
        raise InUseError(
            f"cannot start {run.id}: already active, {where}",
            hint=f"stop it there, or: albor monitor {run.id}",
        )
    if alive.guard is not None:
        return ExistingState.GUARDED
    if alive.trainer is not None:
        return ExistingState.OPEN
    return ExistingState.COMPLETE if is_complete(run) or _is_done(run) else ExistingState.OPEN


def same_command(run: RunDir, argv: Sequence[str]) -> None:
    """Raise UsageError if the run is of another command than `argv`: what is recorded of its code,
    and what a retry starts, would not be what ran. A program may lie elsewhere on the next host,
    and what was taken out of the record is not compared.
    """
    recorded = (read_json(run.launch) or {}).get("argv")
    if not isinstance(recorded, list) or not recorded:
        return  # it never got as far
    safe, _ = redact(list(argv), dict(os.environ))
    own, asked = ([Path(words[0]).name, *words[1:]] for words in (recorded, safe))
    if len(own) == len(asked) and all(
        mine == other or MARK in mine for mine, other in zip(own, asked, strict=True)
    ):
        return
    raise UsageError(
        f"cannot resume {run.id}: the run was started by another command, {shlex.join(own)!r}",
        hint="another --name; what differs from job to job belongs in the environment",
    )


def _is_done(run: RunDir) -> bool:
    """A program without a tracker leaves no words of its own: then the guard's count."""
    guard = read_guard(run) or {}
    return GUARD_ENDS.get(str(guard.get("state"))) == "completed"


def print_complete(run: RunDir, *, as_json: bool) -> int:
    """Exit code 0: there is nothing to do."""
    from albor_core.cli.common.follow import document

    if as_json:
        emit(document(run, "ended", 0))
    print_note(f"{run.id} is {ended_at(run)}: complete, nothing to do")
    return 0
