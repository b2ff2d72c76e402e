"""The index process beside the guard: kept alive, and left to drain at the end."""

from __future__ import annotations

import os
import subprocess
import threading
import time

from albor_core.guard.launch import CODE_ROOT, clean_environment, python_module
from albor_core.guard.records import log_line
from albor_core.run.home.folders import albor_home
from albor_core.run.liveness import lock_holder
from albor_core.run.rundir import RunDir

_NICE = 10
_FIRST_WAIT_S = 5.0
_LONGEST_WAIT_S = 60.0
_LOG_BYTES = 1 << 20


class IndexProcess:
    """Keeps `albor_core.store.index RUN_DIR` alive, at low priority, at most every 5 s.

    An index process that an earlier guard left behind is recognised by its lock and kept. Any
    thread may call it: a tracker's last words come while its thread tends.
    """

    def __init__(self, run: RunDir) -> None:
        self._run = run
        self._home = albor_home()  # where the run is registered, whatever the program does later
        self._process: subprocess.Popen[bytes] | None = None
        self._next_start_s = 0.0
        self._wait_s = _FIRST_WAIT_S
        self._turn = threading.RLock()  # a signal may end the program inside a call of its own

    @property
    def pids(self) -> frozenset[int]:
        """Our child, if there is one: no part of the program's tree."""
        return frozenset() if self._process is None else frozenset({self._process.pid})

    def tend(self) -> None:
        """Reap and restart as needed. Cheap; call it on every pass."""
        with self._turn:
            self._tend()

    def _tend(self) -> None:
        if self._process is not None:
            code = self._process.poll()
            if code is None:
                return
            log_line(f"index process ended with code {code}, next start in {self._wait_s:.0f} s")
            self._process = None
            has_worked = time.monotonic() - self._next_start_s > _LONGEST_WAIT_S
            self._wait_s = _FIRST_WAIT_S if has_worked else min(2 * self._wait_s, _LONGEST_WAIT_S)
        now = time.monotonic()
        if now >= self._next_start_s:
            self._next_start_s = now + self._wait_s
            if lock_holder(self._run.index_lock) is None:
                self._start()

    def finish(self) -> None:
        """The run is over: have what is left indexed, whatever the last index process died of."""
        with self._turn:
            self.tend()
            if self._process is None:
                self._next_start_s = 0.0
                self.tend()

    def _start(self) -> None:
        path = self._run.guard / "index.log"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            log = os.open(path, flags, 0o600)
        except OSError as error:
            log_line(f"{path}: {error.strerror}; no index process")
            return
        try:
            if os.fstat(log).st_size > _LOG_BYTES:
                os.ftruncate(log, 0)
            self._process = subprocess.Popen(
                python_module("albor_core.store.index", str(self._run.path)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=CODE_ROOT,
                env={**clean_environment(), "ALBOR_HOME": str(self._home)},
            )
            os.setpriority(os.PRIO_PROCESS, self._process.pid, _NICE)
        except OSError as error:
            log_line(f"no index process: {error.strerror}")
        finally:
            os.close(log)

    def is_over(self) -> bool:
        """Whether our child has ended; it is reaped then. For a parent that lives on after `leave`
        would be due.
        """
        return self._process is None or self._process.poll() is not None

    def leave(self) -> None:
        """Let it drain by itself; it ends once both locks are free and all bytes are indexed."""
        if self._process is not None:
            self._process.returncode = 0  # ours no longer: init reaps it
