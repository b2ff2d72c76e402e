"""python -m albor_core.guard RUN_DIR: guard one run until it ends. Exit codes are the run's."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from albor_core.guard.launch import FORGET, read_launch
from albor_core.guard.loop import Guard
from albor_core.guard.records import log_line
from albor_core.run.errors import AlborError, NotFoundError, UsageError
from albor_core.run.files.ownership import distrust
from albor_core.run.files.whole_file import clear_halves
from albor_core.run.home.registry import refuse_unlaunched
from albor_core.run.liveness import take_lock
from albor_core.run.rundir import RunDir


def main(arguments: list[str]) -> int:
    """0 done, 1 failed, 4 Andon, 5 gave up, 8 in use, 130/143 stopped; others as in policy.py."""
    forgets = FORGET in arguments[1:]
    if len(arguments) != 1 + forgets:
        log_line(f"usage: python -m albor_core.guard RUN_DIR [{FORGET}]")
        return 2
    os.umask(0o077)
    run = RunDir(Path(arguments[0]).absolute())
    try:
        refuse_strangers(run)
        run.guard.mkdir(mode=0o700, exist_ok=True)
        late = frozenset(path.stem for path in (run.guard / "inbox").glob("*.json"))
        # kept by this process until it ends; the file is never reopened here
        take_lock(run.guard_lock)
        for place in (run.path, run.guard, run.guard / "outbox", run.crash_reports):
            clear_halves(place)
        for folder in ("inbox", "outbox"):
            (run.guard / folder).mkdir(mode=0o700, exist_ok=True)
        return Guard(run, read_launch(run), forgets=forgets, late=late).run_until_final()
    except AlborError as error:
        log_line(f"{error.message}{f' ({error.hint})' if error.hint else ''}")
        return error.exit_code


def refuse_strangers(run: RunDir) -> None:
    """Raise UsageError before anything is read, made or locked where others may have written."""
    try:
        problem = distrust(run)
    except OSError as error:
        raise NotFoundError(f"{run.path}: {error.strerror}", hint="albor runs ls") from error
    if problem:
        raise UsageError(
            f"{problem}, so it may not say what is started here",
            hint=f"copy what you trust; chmod -R go-w {run.path} if all of it is yours",
        )
    refuse_unlaunched(run, "guard", f"albor runs show {run.id}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
