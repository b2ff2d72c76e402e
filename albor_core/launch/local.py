"""The launcher of this machine: a guard is a process of its own."""

from __future__ import annotations

import os
from pathlib import Path

from albor_core.config.microbatches import MAX_RANKS_HERE
from albor_core.guard.launch import start_guard, write_launch
from albor_core.launch.launcher import Host, Launcher, State, Submission
from albor_core.run.control import send
from albor_core.run.exit import read_exit
from albor_core.run.guard_state import read_guard
from albor_core.run.rundir import RunDir


class Local:
    """Launches runs on this machine, each under a guard process."""

    def submit(self, run: RunDir, program: Submission) -> None:
        launch = write_launch(
            run,
            argv=program.argv,
            cwd=program.cwd,
            env=program.env,
            options=program.options,
            max_steps=program.max_steps,
            kind=program.kind,
            index=program.index,
        )
        start_guard(run, launch=launch, forgets=program.forgets)

    def state(self, run: RunDir) -> State:
        return State(_exit_code(run))

    def cancel(self, run: RunDir, *, at_once: bool, asked_by: str) -> None:
        send(run, "stop_now" if at_once else "stop", sender=asked_by)

    def log(self, run: RunDir) -> Path | None:
        return run.newest_log()

    def hosts(self) -> tuple[Host, ...]:
        return (Host(os.uname().nodename, MAX_RANKS_HERE),)


LOCAL: Launcher = Local()


def _exit_code(run: RunDir) -> int | None:
    """The exit code of an ended run; None while it has not ended, 1 if it was lost.

    It is the guard's, or, if the guard was killed first, that of the program's exit record.
    """
    if run.liveness().is_alive:
        return None
    guard, words = read_guard(run) or {}, read_exit(run) or {}
    code = guard.get("exit_code")
    is_cut_short = code is None and guard.get("child")  # it died while it watched a program
    if is_cut_short and words.get("attempt") == guard.get("attempt"):
        code = words.get("code")
    return code if isinstance(code, int) else 1
