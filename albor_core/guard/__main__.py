"""python -m albor_core.guard RUN_DIR: guard one run until it ends. Exit codes are the run's."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from albor_core.guard.launch import read_launch
from albor_core.guard.ledger import say
from albor_core.guard.loop import Guard
from albor_core.run.errors import AlborError
from albor_core.run.liveness import take_lock
from albor_core.run.rundir import RunDir


def main(arguments: list[str]) -> int:
    """0 done, 1 failed, 4 Andon, 5 gave up, 8 in use, 130/143 stopped; others as in policy.py."""
    if len(arguments) != 1:
        say("usage: python -m albor_core.guard RUN_DIR")
        return 2
    os.umask(0o077)
    run = RunDir(Path(arguments[0]).absolute())
    try:
        run.guard.mkdir(mode=0o700, exist_ok=True)
        take_lock(
            run.guard_lock
        )  # kept by this process until it ends; nobody here reopens the file
        for folder in ("inbox", "outbox"):
            (run.guard / folder).mkdir(mode=0o700, exist_ok=True)
        return Guard(run, read_launch(run)).run_until_final()
    except AlborError as error:
        say(f"{error.message}{f' ({error.hint})' if error.hint else ''}")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
