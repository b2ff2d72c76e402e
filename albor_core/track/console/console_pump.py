"""The process between a tracked program's output and its terminal: first to the logs, then on.

    python -I -S -c "... import console_pump; console_pump.main()" SPEC

SPEC is JSON (see `main`). Standard library only, and no module of ours: it starts beside a program
that has just begun to work. It ends by itself when no process holds the writing ends.

It may be killed at any instant, and another one goes on where it stopped, with nothing lost, out
of order or there twice. For that the bytes never are in its memory alone. They are moved by the
kernel (splice) from the program's pipe or pty into a second pipe, which the program holds too;
copied from there (tee) into the logs; and moved on to where they were going. What the second pipe
still holds has not been shown; `Marks`, a page shared with the program, says what of it is in the
logs.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import mmap
import os
import select
import signal
import stat
import struct
import sys
import termios
import threading
import time
from contextlib import suppress

TYPE_CHECKING = False  # typing takes 4 ms
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

BLOCK = 1 << 16  # a pipe's capacity
_MARK = struct.Struct("=4q")
_LOSSES_AT, _LOSSES = 1024, 40
_NONE = -1
_TIMES_GAP_S = 1.0
_NOTHING_MORE = (errno.EIO, errno.EBADF)  # a pty whose other side is closed reads as EIO
_UNHEARD = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGTSTP)

_tee = ctypes.CDLL(None, use_errno=True).tee
_tee.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_size_t, ctypes.c_uint)


class Marks:
    """What a successor must know, in shared memory: a kill between two instructions leaves either
    the old or the new, since a mark is written beside the valid one and then named by one byte.
    """

    SIZE = 4096

    def __init__(self, fd: int) -> None:
        self._page = mmap.mmap(fd, self.SIZE)
        self._page[0] = 0

    def set_writing(self, is_writing: bool) -> None:
        """Byte 0 tells the program that a log is written to, byte 1 moves each time: one that
        stands still for seconds is stuck there.
        """
        self._page[1] = (self._page[1] + is_writing) % 256
        self._page[0] = is_writing

    def set_logged(self, stream: int, is_logged: bool) -> None:
        """Whether the block that a stream holds is in all logs."""
        self._page[8 + stream] = is_logged

    def is_logged(self, stream: int) -> bool:
        return bool(self._page[8 + stream])

    def set_log(self, of: int, key: int, size: int) -> None:
        """Record that a block of stream `of` - 1 is being written to log `key`, which had `size`
        bytes before; `of` 0 means none.
        """
        self._set(64, (of, key, size))

    def log(self) -> tuple[int, int, int]:
        return self._get(64)

    def set_shown(self, stream: int, held: int, size: int) -> None:
        """Record that `held` bytes were not yet shown, and that the file that shows them had `size`
        bytes."""
        self._set(256 + 128 * stream, (1, held, size))

    def set_no_shown(self, stream: int) -> None:
        self._set(256 + 128 * stream, (0, 0, 0))

    def shown(self, stream: int) -> tuple[int, int, int]:
        return self._get(256 + 128 * stream)

    def set_loss(self, key: int, lost: int, untold: int, error: int) -> None:
        """How many bytes log `key` lacks, how many of them it does not say, and by which errno."""
        self._set(_loss_at(key), (key, lost, untold), error)

    def loss(self, key: int) -> tuple[int, int, int]:
        return loss_in(self._page, key)

    def _set(self, at: int, values: tuple[int, int, int], more: int = 0) -> None:
        other = 1 - self._page[at]
        _MARK.pack_into(self._page, at + 8 + 32 * other, *values, more)
        self._page[at] = other

    def _get(self, at: int) -> tuple[int, int, int]:
        return _mark_at(self._page, at)[:3]


def _loss_at(key: int) -> int:
    return _LOSSES_AT + 72 * (key % _LOSSES)


def _mark_at(page: bytes | mmap.mmap, at: int) -> tuple[int, int, int, int]:
    one, two, three, four = _MARK.unpack_from(page, at + 8 + 32 * page[at])
    return one, two, three, four


def loss_in(page: bytes | mmap.mmap, key: int) -> tuple[int, int, int]:
    """What `Marks.set_loss` last said of log `key`: also to the program, which has the page too."""
    of, *loss = _mark_at(page, _loss_at(key))
    lost, untold, error = loss if of == key else (0, 0, 0)
    return lost, untold, error


def why_lost(error: int) -> str:
    return "it took nothing for seconds" if error == errno.ETIMEDOUT else os.strerror(error)


class Log:
    """One run's log: bounded, and never an error. What a full disk does not take is counted, and
    said in the log once there is room. Beside it `aNNNN.times`: byte and wall clock, each second.
    """

    def __init__(self, key: int, path: str, limit: int, old: int, marks: Marks) -> None:
        self.key, self.path, self._marks = key, path, marks
        self._times = path.removesuffix(".log") + ".times"
        self._limit, self._old = limit, old
        self._fd = self._times_fd = _NONE
        self._due = 0.0
        self._lost, self._untold, self._error = marks.loss(key)  # of a predecessor too
        self.size = 0
        self._open()

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self._fd = os.open(self.path, flags, 0o600)
            self.size = os.fstat(self._fd).st_size
        except OSError as error:
            self._error = error.errno or 0
        with suppress(OSError):
            self._times_fd = os.open(self._times, flags, 0o600)

    def close(self) -> None:
        for fd in (self._fd, self._times_fd):
            if fd != _NONE:
                os.close(fd)
        self._fd = self._times_fd = _NONE

    def prepare(self) -> None:
        """Before a block: make room, and say what is missing."""
        now = time.time()
        if self._fd == _NONE:
            if now < self._due:
                return
            self._due = now + _TIMES_GAP_S
            self._open()
        if self.size >= self._limit:
            self._rotate()
        self.tell_loss()
        if now >= self._due and self._times_fd != _NONE:
            self._due = now + _TIMES_GAP_S
            with suppress(OSError):
                os.write(self._times_fd, b"%d %.3f\n" % (self.size, now))

    def tell_loss(self) -> None:
        """Say in the log what it lacks, if that is not said and there is room."""
        if self._untold:
            told = f"[albor: {self._untold:,} bytes were not recorded: {why_lost(self._error)}]\n"
            if self._put(told.encode()) == len(told):
                self._untold = 0
                self._keep()

    def miss(self, count: int) -> None:
        """Count bytes that were not written to the log, since the disk refused them."""
        self._error = errno.ETIMEDOUT
        self._lose(count)

    def append(self, data: bytes) -> None:
        if rest := len(data) - self._put(data):
            self._lose(rest)

    def _lose(self, count: int) -> None:
        self._lost, self._untold = self._lost + count, self._untold + count
        self._keep()

    def _keep(self) -> None:
        self._marks.set_loss(self.key, self._lost, self._untold, self._error)

    def _put(self, data: bytes) -> int:
        done = 0
        try:
            while done < len(data):
                done += os.write(self._fd, data[done:])
        except OSError as error:  # also of a log that could not be opened
            if self._fd != _NONE:
                self._error = error.errno or 0
        self.size += done
        return done

    def _rotate(self) -> None:
        self.close()
        for path in (self.path, self._times):
            for number in range(self._old, 0, -1):
                with suppress(OSError):
                    older = path + (f".{number - 1}" if number > 1 else "")
                    os.replace(older, f"{path}.{number}")  # noqa: PTH105  pathlib takes 8 ms
        self._open()


class Logs:
    """The logs of all runs that are open in the program."""

    def __init__(self, spec: dict[str, Any], marks: Marks) -> None:
        self._limit, self._old = spec["limit"], spec["old"]
        self._marks = marks
        self._turn = threading.Lock()
        self._logs: list[Log] = []
        self._missed, _, _ = marks.loss(0)  # bytes, while there was none to write to
        self.set(spec["logs"])

    def set(self, wanted: list[tuple[int, str]]) -> None:
        """Write to these from here on: pairs of a number, rising, and a path."""
        with self._turn:
            self._marks.set_writing(True)
            known = {log.key: log for log in self._logs}
            for key in known.keys() - dict(wanted).keys():
                known.pop(key).close()
            self._logs = [
                known.get(key) or Log(key, path, self._limit, self._old, self._marks)
                for key, path in sorted(wanted)
            ]
            if self._logs and self._missed:
                for log in self._logs:
                    log.miss(self._missed)
                    log.prepare()
                self._miss(-self._missed)
            self._marks.set_writing(False)

    def _miss(self, count: int) -> None:
        self._missed += count
        self._marks.set_loss(0, self._missed, 0, errno.ETIMEDOUT)

    def tell_losses(self) -> None:
        """At the end, write the notes about lost output, for a disk that has space again."""
        for log in self._logs:
            log.tell_loss()

    def write(self, stream: int, data: bytes) -> None:
        """Put a block into all logs; what a predecessor had put there of it is not put again."""
        marks = self._marks
        with self._turn:
            marks.set_writing(True)
            of, key, size = marks.log()
            if marks.is_logged(stream):
                if of == stream + 1:
                    marks.set_log(0, 0, 0)
                marks.set_writing(False)
                return
            if not self._logs:
                self._miss(len(data))
            for log in self._logs:
                rest = data
                if of == stream + 1 and log.key < key:
                    continue
                if of == stream + 1 and log.key == key:
                    rest = data[max(0, log.size - size) :]
                else:
                    log.prepare()
                    marks.set_log(stream + 1, log.key, log.size)
                log.append(rest)
            marks.set_logged(stream, True)
            marks.set_log(0, 0, 0)
            marks.set_writing(False)


class PumpedStream:
    """One descriptor of the program: from `source` over the held pipe to the logs and `shown`."""

    def __init__(
        self, spec: dict[str, Any], logs: Logs, marks: Marks, tell: Callable[[int | None], None]
    ) -> None:
        self.number = spec["number"]
        self._source, self._shown = spec["source"], spec["shown"]
        self._held_out, self._held_in = spec["held"]
        self._logs, self._marks, self._tell = logs, marks, tell
        self._copy_out, self._copy_in = os.pipe()
        self._wake_out, self._wake_in = os.pipe()
        self._splices, self._is_file = True, False
        self._asked, self.done = 0, 0.0
        os.set_blocking(self._source, False)

    def recover(self) -> None:
        """Before any stream runs: bring the logs up to what a predecessor left in the held pipe."""
        self._settle()
        if held := _waiting(self._held_out):
            self._logs.write(self.number, self._look(held))
        else:
            self._marks.set_logged(self.number, False)

    def run(self) -> None:
        """Run until no process can write any more. A fault ends the process: another is started."""
        try:
            self._run()
        except BaseException:
            os._exit(1)

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._source, select.POLLIN)
        poll.register(self._wake_out, select.POLLIN)
        self._pass_on()
        is_open = True
        while is_open:
            ready = dict(poll.poll())
            if self._source in ready:
                is_open = self._take()
                self._pass_on()
            else:
                os.read(self._wake_out, 4096)
                self._answer(self._asked)
        self._answer(float("inf"))

    def ask(self, number: int) -> None:
        """Have `number` told once all that was written before is passed on."""
        self._asked = number
        os.write(self._wake_in, b".")

    def _answer(self, number: float) -> None:
        self.done = number
        self._tell(None)

    def _take(self) -> bool:
        """Move what there is into the held pipe, which is empty; False at the end of the stream."""
        try:
            if self._splices:
                return os.splice(self._source, self._held_in, BLOCK) > 0
            data = os.read(self._source, BLOCK)
            return bool(data) and os.write(self._held_in, data) > 0
        except BlockingIOError:
            return True
        except OSError as error:
            if error.errno == errno.EINVAL and self._splices:
                self._splices = False  # an old kernel's pty: a kill may lose a block
                return True
            return error.errno not in _NOTHING_MORE

    def _pass_on(self) -> None:
        while held := _waiting(self._held_out):
            data = self._look(held)
            self._logs.write(self.number, data)
            self._show(data)
            self._marks.set_logged(self.number, False)

    def _look(self, held: int) -> bytes:
        """What the held pipe holds, without taking it."""
        count = _tee(self._held_out, self._copy_in, held, 0)
        if count <= 0:
            raise OSError(ctypes.get_errno(), "tee")
        data = b""
        while len(data) < count:
            data += os.read(self._copy_out, count - len(data))
        return data

    def _show(self, data: bytes) -> None:
        left = len(data)
        while left:
            try:
                if self._shown == _NONE:
                    left -= len(os.read(self._held_out, left))
                elif self._is_file:
                    left -= self._write(data[-left:])
                else:
                    left -= os.splice(self._held_out, self._shown, left)
            except BlockingIOError:
                _wait_for_room(self._shown)
            except OSError as error:
                if error.errno == errno.EINVAL and not self._is_file:
                    self._is_file = True
                else:
                    self._give_up()

    def _write(self, data: bytes) -> int:
        """Write bytes to a target to which the kernel cannot move them, such as a file opened for
        appending, and only then remove them from the held pipe. Returns how many.
        """
        size = os.fstat(self._shown).st_size
        self._marks.set_shown(self.number, _waiting(self._held_out), size)
        written = os.write(self._shown, data)
        os.read(self._held_out, written)
        self._marks.set_no_shown(self.number)
        return written

    def _settle(self) -> None:
        """Take what a predecessor had written and not taken. Only a file tells how much that is."""
        is_pending, held, size = self._marks.shown(self.number)
        if is_pending and self._shown != _NONE:
            about, left = os.fstat(self._shown), _waiting(self._held_out)
            extra = min(about.st_size - size - (held - left), left)
            if stat.S_ISREG(about.st_mode) and extra > 0:
                os.read(self._held_out, extra)
        self._marks.set_no_shown(self.number)

    def _give_up(self) -> None:
        """Without a reader or a terminal, let the program get the error as usual."""
        self._tell(self.number)
        self._shown = _NONE


def _wait_for_room(fd: int) -> None:
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    poll.poll()


def _waiting(fd: int) -> int:
    """Bytes that can be read from a pipe."""
    count: int = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4))[0]
    return count


class Pump:
    """All streams, each with its thread, so that one which blocks holds up no other."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._control = spec["control"]
        self._marks = marks = Marks(spec["marks"])
        self._logs = Logs(spec, marks)
        self._streams = [
            PumpedStream(one, self._logs, marks, self._tell) for one in spec["streams"]
        ]
        self._turn = threading.Lock()
        self._asked, self._told = 0, _NONE

    def run(self) -> None:
        unfinished, _, _ = self._marks.log()
        for stream in sorted(self._streams, key=lambda one: one.number + 1 != unfinished):
            stream.recover()
        threads = [threading.Thread(target=stream.run) for stream in self._streams]
        for thread in (*threads, threading.Thread(target=self._listen, daemon=True)):
            thread.start()
        self._tell(None)
        for thread in threads:
            thread.join()
        self._logs.tell_losses()

    def _listen(self) -> None:
        """What the program wants: {"logs": ...} at once, {"flush": N} answered by flushed N."""
        while message := os.read(self._control, 1 << 16):
            wanted = json.loads(message)
            if "logs" in wanted:
                self._logs.set(wanted["logs"])
            self._asked = wanted["flush"]
            for stream in self._streams:
                stream.ask(self._asked)
            self._tell(None)

    def _tell(self, gone: int | None) -> None:
        """Tell the program that a stream has no reader, or that all is passed on."""
        with self._turn, suppress(OSError):
            if gone is not None:
                os.write(self._control, b"gone %d" % gone)
            elif self._told < self._asked <= min(stream.done for stream in self._streams):
                self._told = self._asked
                os.write(self._control, b"flushed %d" % self._told)


def main() -> None:
    """SPEC: {"control": fd, "marks": fd, "logs": [[key, path]], "limit": bytes, "old": files,
    "streams": [{"number": n, "source": fd, "held": [fd, fd], "shown": fd or -1}]}.
    """
    for number in _UNHEARD:  # it ends with its streams, and not before the program's last word
        signal.signal(number, signal.SIG_IGN)
    Pump(json.loads(sys.argv[1])).run()
    os._exit(0)
