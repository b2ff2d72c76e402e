"""Between the guard and the program: takes run.lock, says who it is, then becomes the program.

    python -m albor_core.guard.process.stub RUN_DIR ATTEMPT NONCE

The lock is a record lock taken before `exec` on a descriptor that `exec` keeps. So at every instant
either no process holds run.lock and there is no program, or the lock names the program's pid: there
is no moment in which a killed guard could lose track of what it started.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path

from albor_core.guard.launch import HIDDEN_ARGV, Launch, read_launch
from albor_core.run.errors import AlborError, InUseError
from albor_core.run.exit import exit_document, write_exit
from albor_core.run.files.whole_file import write_json
from albor_core.run.liveness import boot_id, start_ticks, take_lock
from albor_core.run.program.scheduler import current_job
from albor_core.run.rundir import RunDir

_NOT_STARTED = 2  # exit code and last words of a command that cannot be executed


def identity(launch: Launch, attempt: int, nonce: str) -> dict[str, object]:
    """child.json: what names this process for ever, on this boot of this host."""
    return {
        "schema": "albor.child/1",
        "attempt": attempt,
        "nonce": nonce,
        "pid": os.getpid(),
        "start_ticks": start_ticks(os.getpid()),
        "boot_id": boot_id(),
        "host": socket.gethostname(),
        "argv_hash": launch.argv_hash,
        "job": None if (job := current_job()) is None else job.document(),
    }


def restore_signals() -> None:
    """Reset signals as a shell would: none blocked, and none ignored because the guard ignores
    it."""
    for number in (signal.SIGHUP, signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def become(run: RunDir, attempt: int, nonce: str) -> int:
    """Never returns when the program starts; else the exit code. Raises AlborError."""
    if os.getsid(0) != os.getpid():
        os.setsid()
    launch = read_launch(run)
    os.environ.pop(HIDDEN_ARGV, None)
    lock = take_lock(run.run_lock, inheritable=True)
    write_json(run.guard / "child.json", identity(launch, attempt, nonce))
    os.environ["ALBOR_RUN_LOCK_FD"] = str(lock)
    try:
        os.umask(launch.umask)
        os.chdir(launch.cwd)
        restore_signals()
        os.execvpe(launch.argv[0], launch.argv, os.environ)  # noqa: S606
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        message = f"cannot start {launch.argv[0]!r} in {launch.cwd}: {reason}"
        print(message, file=sys.stderr)  # noqa: T201
        words = exit_document(
            run,
            attempt,
            nonce,
            code=_NOT_STARTED,
            reason="config",
            step=0,
            message=message,
            wall=time.time(),
        )
        write_exit(run, words)
        return _NOT_STARTED


def main() -> int:
    """Exit 8 if run.lock is taken, 2 if the command cannot be executed, 1 for a bad launch.json."""
    path, attempt, nonce = sys.argv[1:4]
    try:
        return become(RunDir(Path(path)), int(attempt), nonce)
    except InUseError as error:
        print(error.message, file=sys.stderr)  # noqa: T201
        return error.exit_code
    except AlborError as error:
        print(error.message, file=sys.stderr)  # noqa: T201
        return 1


if __name__ == "__main__":
    sys.exit(main())
