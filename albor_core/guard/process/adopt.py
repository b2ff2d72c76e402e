"""Finds the trainer that already works on a run, and proves that it is this one.

The kernel names the holder of run.lock; a file can lie about it, but not hold the lock. The pidfd
is opened between two looks at the lock, so the process that is adopted is the one that holds it.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from albor_core.guard.deaths.past_attempts import last_attempt
from albor_core.guard.process.processes import Process, environment_of, open_process
from albor_core.run.errors import InUseError
from albor_core.run.liveness import boot_id, lock_holder
from albor_core.run.program.scheduler import current_job
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.state import read_state

_PROOF_LIMIT_S = 2.0  # a trainer started by hand proves itself with its first state file
_LOOK_S = 0.05


@dataclass(frozen=True)
class LivingTrainer:
    """A living trainer of this run."""

    process: Process
    attempt: int
    nonce: str


def find_trainer(run: RunDir) -> LivingTrainer | None:
    """The holder of run.lock, or None if there is none.

    Raises InUseError if it cannot be seen or proven from here, or if another host may still work on
    the run.
    """
    deadline = time.monotonic() + _PROOF_LIMIT_S
    while (pid := lock_holder(run.run_lock)) is not None:
        if pid == 0:
            raise InUseError(
                f"{run.run_lock}: held by a process that is not visible from here",
                hint="another host or container works on this run: stop it there",
            )
        found = _prove(run, pid)
        if found is not None:
            return found
        if time.monotonic() >= deadline:
            raise InUseError(
                f"{run.run_lock}: held by process {pid}, which does not prove to be this run's",
                hint=f"look at it with: ps -fp {pid}",
            )
        time.sleep(_LOOK_S)
    _refuse_other_host(run)
    return None


def _prove(run: RunDir, pid: int) -> LivingTrainer | None:
    process = open_process(pid)
    if process is None:
        return None
    identity = None
    if lock_holder(run.run_lock) == pid and _is_ours(pid):
        identity = _from_files(run, process) or _from_environment(run, pid)
    if identity is None:
        process.close()
        return None
    return LivingTrainer(process, *identity)


def _is_ours(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}").stat().st_uid == Path("/proc/self").stat().st_uid
    except OSError:
        return False


def _from_files(run: RunDir, process: Process) -> tuple[int, str] | None:
    for document in (read_json(run.guard / "child.json"), read_state(run.state)):
        if document is not None and _means(document, process):
            attempt, nonce = document.get("attempt"), document.get("nonce")
            if isinstance(attempt, int) and isinstance(nonce, str) and nonce:
                return attempt, nonce
    return None


def _means(document: dict[str, Any], process: Process) -> bool:
    return (
        document.get("pid") == process.pid
        and document.get("start_ticks") == process.ticks
        and document.get("boot_id") == boot_id()
    )


def _from_environment(run: RunDir, pid: int) -> tuple[int, str] | None:
    """A stub that has the lock and has not yet written child.json."""
    environment = environment_of(pid)
    attempt, nonce = environment.get("ALBOR_ATTEMPT", ""), environment.get("ALBOR_NONCE", "")
    if environment.get("ALBOR_RUN_ID") != run.id or not attempt.isdigit() or not nonce:
        return None
    return int(attempt), nonce


def _refuse_other_host(run: RunDir) -> None:
    """A lock of another host may be invisible here: an unfinished attempt there may be alive."""
    child = read_json(run.guard / "child.json") or {}
    host, last, job = child.get("host"), last_attempt(run), current_job()
    if job is not None and isinstance(child.get("job"), dict) and job.follows(child["job"]):
        return
    if (
        isinstance(host, str)
        and host != socket.gethostname()
        and child.get("boot_id") != boot_id()
        and last is not None
        and last.is_open
    ):
        raise InUseError(
            f"{run.path}: attempt {last.attempt} began on host {host} and has not ended there",
            hint=f"if {host} is gone for good, remove {run.guard / 'child.json'}",
        )
