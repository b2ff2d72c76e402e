"""Stopping the program of a run that has no guard, by a signal.

A pid in a file proves nothing: the process is signalled through a pidfd, after host, boot, start
time and owner were found to be those that the run's state file names.
"""

from __future__ import annotations

import os
import select
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from albor_core.run.control import person
from albor_core.run.errors import InUseError, NotFoundError
from albor_core.run.exit import exit_document, read_exit, write_exit
from albor_core.run.liveness import boot_id, start_ticks
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.state import read_state


def signal_program(run: RunDir, name: str, *, wait_s: float, sender: str = "cli") -> bool:
    """Send SIG`name` to the program that writes the run's state file; whether it had ended within
    `wait_s`. One that leaves no last words, since it is killed or knows of none, is spoken for; who
    asked, through the program `sender`, is added to those of one that was stopped.

    Raises InUseError for a process that is not provably this run's, of this user, host and boot.
    """
    state = read_state(run.state) or _child_of_guard(run)
    pidfd = _open(run, state)
    try:
        asked = f"asked by {person(sender)}"
        spoken = _write_exit_record(run, state, name, asked) if name == "KILL" else None
        try:
            signal.pidfd_send_signal(pidfd, signal.Signals[f"SIG{name}"])
        except OSError as error:
            if spoken is not None:
                spoken.unlink(missing_ok=True)
            raise NotFoundError(
                f"cannot stop {run.id}: its program has ended meanwhile",
                hint=f"albor runs show {run.id}",
            ) from error
        with suppress(OSError):  # it has ended
            signal.pidfd_send_signal(pidfd, signal.SIGCONT)  # one that is frozen would not hear it
        has_ended = bool(select.select([pidfd], [], [], wait_s)[0]) and _has_let_go(run)
        if has_ended and name != "KILL":
            _write_exit_record(run, state, name, asked)
        return has_ended
    finally:
        os.close(pidfd)


def _open(run: RunDir, state: dict[str, Any]) -> int:
    """A pidfd of the process that `state` names, looked at after it was opened."""
    pid, ticks, host = state.get("pid"), state.get("start_ticks"), state.get("host")
    if not isinstance(pid, int) or not isinstance(ticks, int) or pid <= 0:
        raise _refused(run, "no file of it names its process")
    if host != os.uname().nodename or state.get("boot_id") != boot_id():
        where = str(host) if host != os.uname().nodename else f"an earlier boot of {host}"
        raise _refused(run, f"its process {pid} is of {where}")
    try:
        pidfd = os.pidfd_open(pid)
    except OSError as error:
        raise _refused(run, f"its process {pid} is gone") from error
    if start_ticks(pid) != ticks:
        why = f"process {pid} is not the one that its files name"
    elif not _is_ours(pid):
        why = f"process {pid} belongs to another user"
    elif run.liveness().trainer is None:
        why = f"process {pid} no longer holds the run's lock"
    else:
        return pidfd
    os.close(pidfd)
    raise _refused(run, why)


def _child_of_guard(run: RunDir) -> dict[str, Any]:
    """The record of a program whose guard is gone and which writes no state file."""
    return read_json(run.guard / "child.json") or {}


def _is_ours(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}").stat().st_uid == os.geteuid()
    except OSError:
        return False


def _refused(run: RunDir, why: str) -> InUseError:
    return InUseError(f"cannot stop {run.id}: {why}", hint=f"albor guard status {run.id}")


def _write_exit_record(run: RunDir, state: dict[str, Any], name: str, asked: str) -> Path | None:
    """Leave the last words of a program that leaves none; the file, if it was written. Of one that
    is about to be killed before the kill: whoever sees the lock free must find them.
    """
    said = read_exit(run) or {}
    if said.get("nonce") == state.get("nonce"):  # it has spoken already
        if said.get("reason") == "stopped" and name != "KILL":
            message = f"{said.get('message') or f'SIG{name}'}, {asked}"
            with suppress(OSError):
                write_exit(run, {**said, "message": message})
        return None
    how = "killed" if name == "KILL" else "ended"
    document = exit_document(
        run,
        state.get("attempt"),
        state.get("nonce"),
        code=128 + signal.Signals[f"SIG{name}"],
        reason="stopped",
        step=state.get("global_step"),
        message=f"{how} by SIG{name}, {asked}",
        wall=time.time(),
    )
    with suppress(OSError):  # a full disk: it is lost then, and may be killed all the same
        write_exit(run, document)
        return run.exit
    return None


def _has_let_go(run: RunDir) -> bool:
    """Whether nothing works on it any more: a program that started this one may hold the lock."""
    deadline = time.monotonic() + 1.0
    while run.liveness().trainer is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
