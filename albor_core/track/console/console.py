"""The captured descriptors of this process, and the thread that looks after their pump.

The program holds the reading ends as well, so that no dead pump can end it by SIGPIPE or SIGHUP. A
pump that died, was stopped, or stands still before a log that takes nothing is replaced by another,
which goes on at the same byte. Where none can be started, the program gets its own descriptors
back.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from albor_core.track.console.notebook import NotebookOutput
from albor_core.track.console.pump_process import PumpProcess
from albor_core.track.console.stream import Stream, above_standard, ready, relay

_LOOK_S = 0.25
MARKS_BYTES = 4096
_MOMENT_S = 1.0
_PATIENCE_S = 5.0  # at the end, without a byte passed on
_LONGEST_S = 60.0
_MOST_STARTS, _PER_S = 6, 60.0
_PAUSE_S = 30.0  # of a log that takes nothing; twice as long each time


class Console:
    """The captured descriptors of this process. Made by `capture`, which all its runs share."""

    def __init__(self, streams: list[Stream], marks: int, log: Path) -> None:
        self.is_over = False
        self._streams, self._marks = streams, marks
        self._logs = {1: str(log.absolute())}
        self._keys = 1
        self._records, self._records_at, self._pause_s = True, 0.0, _PAUSE_S
        self.notebook: NotebookOutput | None = None
        self._turn = threading.RLock()
        self._told = threading.Condition(self._turn)
        self._asked = self._answered = 0
        self._starts: list[float] = []
        self._wake_out, self._wake_in = map(above_standard, os.pipe())
        self._fds: tuple[int, ...] = (marks, self._wake_out, self._wake_in)
        self._pump: PumpProcess | None = None
        self._passed_on = threading.Event()  # what was left when no pump could be started

    def start(self) -> None:
        """Start the pump. Where none starts, let go of all but the streams and raise OSError."""
        try:
            self._pump = self._started()
        except OSError:
            self._streams = []
            self.close()
            raise
        threading.Thread(target=self._watch, name="albor-console", daemon=True).start()

    # -- runs ----------------------------------------------------------------------------------

    def add(self, log: Path) -> int:
        """Write to this log too. Returns what names it. Raises OSError."""
        create_log(log)
        with self._turn:
            flush_python()
            self._flush()  # what was printed before is not this run's
            self._keys += 1
            self._logs[self._keys] = str(log.absolute())
            self._flush(with_logs=True)
            return self._keys

    def settle(self, key: int) -> tuple[int, str]:
        """`loss`, once what was printed so far is passed on: waits a moment for that."""
        with self._turn:
            if key in self._logs and not self.is_over:
                flush_python()
                self._flush(patience_s=_MOMENT_S)
            return self.loss(key)

    def forget(self, key: int) -> tuple[int, str]:
        """The run is over; with the last one the console is. Returns its `loss`."""
        with self._turn:
            if key not in self._logs or self.is_over:
                return self.loss(key)
            flush_python()
            is_last = len(self._logs) == 1
            if is_last:
                for stream in self._streams:
                    stream.restore()
                if self.notebook is not None:
                    self.notebook.close()
            self._flush()
            if is_last and self._pump is None:  # the program may end next, and our thread with it
                self._passed_on.wait(_LONGEST_S)
            found = self.loss(key)
            del self._logs[key]
            if not is_last:
                self._flush(with_logs=True)
            elif not self.is_over:  # it may have ended with its streams meanwhile
                self.is_over = True
                os.write(self._wake_in, b".")
            return found

    def loss(self, key: int) -> tuple[int, str]:
        """How many of the bytes that were printed the log of `key` lacks, and why."""
        from albor_core.track.console.console_pump import (  # noqa: PLC0415  ctypes: 5 ms
            loss_in,
            why_lost,
        )

        if not self._fds:
            return 0, ""
        page = os.pread(self._marks, MARKS_BYTES, 0)
        (lost, _, error), (missed, _, stuck) = loss_in(page, key), loss_in(page, 0)
        return lost + missed, why_lost(error or stuck) if lost + missed else ""

    def _flush(self, *, with_logs: bool = False, patience_s: float = _PATIENCE_S) -> None:
        """Have all that was printed passed on: waits while it moves."""
        if not with_logs and sum(stream.look() for stream in self._streams) == 0:
            return
        self._asked += 1
        self._send(with_logs=with_logs)
        begun = moved = time.monotonic()
        before: list[tuple[int, int]] = []
        while self._answered < self._asked and self._pump is not None:
            self._told.wait(_LOOK_S)
            for stream in self._streams:
                stream.look()
            pending = [stream.pending for stream in self._streams]
            now = time.monotonic()
            moved, before = (now, pending) if pending != before else (moved, before)
            if now - moved > patience_s or now - begun > _LONGEST_S:
                return

    def _send(self, *, with_logs: bool) -> None:
        if self._pump is None:
            return
        message: dict[str, Any] = {"flush": self._asked}
        if with_logs:
            message["logs"] = self._wanted_logs()
        with suppress(OSError):  # it died: the next one is told all
            self._pump.control.send(json.dumps(message).encode())

    # -- the pump ------------------------------------------------------------------------------

    def _started(self) -> PumpProcess:
        now = time.monotonic()
        self._starts = [start for start in self._starts if now - start < _PER_S] + [now]
        if len(self._starts) > _MOST_STARTS:
            raise OSError("pumps end as soon as they start")
        return PumpProcess(self._streams, self._marks, self._wanted_logs())

    def _wanted_logs(self) -> list[tuple[int, str]]:
        return list(self._logs.items()) if self._records else []

    def _watch(self) -> None:
        """Wait until the console is closed, then collect the pump, whenever it ends."""
        while (pump := self._pump) is not None:
            ready([pump.pidfd, pump.control.fileno(), self._wake_out], _LOOK_S)
            with self._turn:
                self._hear(pump)
                if self.is_over:
                    break
                self._follow_sizes()
                self._look_after(pump)
        if pump is None:
            with suppress(OSError):
                relay(self._streams, self._passed_on.set)
        self._passed_on.set()
        with self._turn:
            self.is_over = True
            self._pump = None
            self.close()
        if pump is not None:
            pump.control.close()
            ready([pump.pidfd], None)
            pump.close()

    def _hear(self, pump: PumpProcess) -> None:
        with suppress(OSError):
            while words := pump.control.recv(100).split():
                number = int(words[1])
                if words[0] == b"flushed":
                    pump.is_ready = True
                    self._answered = max(number, self._answered)
                    self._told.notify_all()
                else:
                    stream = next(one for one in self._streams if one.number == number)
                    stream.is_gone = True
                    stream.restore()

    def _follow_sizes(self) -> None:
        changed = [stream for stream in self._streams if stream.follow_size()]
        if changed:
            with suppress(OSError, ValueError):  # its own handler came before the new size
                if signal.getsignal(signal.SIGWINCH) not in (signal.SIG_DFL, signal.SIG_IGN):
                    os.kill(os.getpid(), signal.SIGWINCH)

    def _look_after(self, pump: PumpProcess) -> None:
        with suppress(OSError):
            for stream in self._streams:
                stream.look()
        pump.look()
        has_died = pump.has_died()
        if has_died and all(stream.has_ended() for stream in self._streams):
            self.is_over = True
            return
        is_stopped = pump.is_stopped()
        if not (has_died or is_stopped or pump.is_stuck()):
            if not self._records and time.monotonic() >= self._records_at:
                self._records = True
                self._send(with_logs=True)
            return
        pump.kill()
        pump.close()
        if not (has_died or is_stopped):  # its log takes nothing
            self._records, self._records_at = False, time.monotonic() + self._pause_s
            self._pause_s *= 2
        try:
            self._pump = self._started()
            self._send(with_logs=True)
        except OSError:
            self._pump = None
            for stream in self._streams:
                stream.restore()
        self._told.notify_all()

    def close(self) -> None:
        """Let go of all descriptors. Again: nothing."""
        self._passed_on = threading.Event()  # in a forked child the lock of the old one may be held
        self._passed_on.set()
        pump, self._pump = self._pump, None
        streams, self._streams = self._streams, []
        fds, self._fds = self._fds, ()
        for fd in fds:
            with suppress(OSError):
                os.close(fd)
        for stream in streams:
            stream.close()
        if pump is not None:
            pump.control.close()
            os.close(pump.pidfd)


def create_log(log: Path) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    os.close(os.open(log, flags, 0o600))


def flush_python() -> None:
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        # closed or replaced, a full disk, or a signal came inside of a write
        with suppress(OSError, ValueError, AttributeError, RuntimeError):
            stream.flush()  # type: ignore[union-attr]
