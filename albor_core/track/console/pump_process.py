"""The process that passes the console on: started, looked at, replaced."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from albor_core.guard.launch import clean_environment
from albor_core.guard.process.log_bounds import OLD_LOGS, ROTATE_BYTES
from albor_core.track.console.stream import Stream, ready

_HERE = str(Path(__file__).parent)
# last on the path, for nothing of ours to stand for a module of Python's; and as a module, which
# Python need not compile at each start
_PUMP = "import sys; sys.path.append(sys.argv.pop(1)); import console_pump; console_pump.main()"
_STUCK_S = 2.0  # a log takes a piece sooner
_STARTS_S = 10.0  # on a busy machine, with what another left half written


class PumpProcess:
    """A started pump. Raises OSError where none starts."""

    def __init__(self, streams: list[Stream], marks: int, logs: list[tuple[int, str]]) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.setblocking(False)
        spec = {
            "control": theirs.fileno(),
            "marks": marks,
            "logs": logs,
            "limit": ROTATE_BYTES,
            "old": OLD_LOGS,
            "streams": [stream.spec() for stream in streams],
        }
        kept = {theirs.fileno(), marks, *(fd for stream in streams for fd in stream.fds)}
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _PUMP, _HERE, json.dumps(spec)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=kept,
                cwd="/",
                env=clean_environment(),
            )
        except BaseException:
            self.control.close()
            raise
        finally:
            theirs.close()
        self.pid, process.returncode = process.pid, 0  # we reap it, or init does
        self.pidfd = os.pidfd_open(self.pid)
        self.is_ready = False
        self._states: list[bytes] = []
        self._marks, self._writing, self._since_s = marks, b"", time.monotonic()

    def has_died(self) -> bool:
        return ready([self.pidfd], 0)

    def look(self) -> None:
        """Remember what it does: call it on every look."""
        try:
            state = Path(f"/proc/{self.pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
        except OSError:
            state = b""
        self._states = [*self._states[-2:], state]
        writing = os.pread(self._marks, 2, 0)
        if writing != self._writing or writing[0] == 0:
            self._writing, self._since_s = writing, time.monotonic()

    def is_stopped(self) -> bool:
        """Whether it was found stopped in some looks one after the other."""
        return self._states == [b"T"] * 3

    def is_stuck(self) -> bool:
        """Whether it has been at one piece of a log for seconds. Not so where it is starting, or
        has no turn on a busy machine.
        """
        waits = len(self._states) == 3 and {b"S", b"D"}.issuperset(self._states)
        limit_s = _STUCK_S if self.is_ready else _STARTS_S
        return waits and time.monotonic() - self._since_s > limit_s

    def kill(self) -> None:
        with suppress(OSError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        ready([self.pidfd], _STUCK_S)

    def close(self) -> None:
        """Reap it, if it has ended: until then its SIGCHLD may be on the way, which, sent while
        another process is started here, would cut a write of the program short.
        """
        self.control.close()
        with suppress(OSError):
            os.waitpid(self.pid, 0 if self.has_died() else os.WNOHANG)
        os.close(self.pidfd)
