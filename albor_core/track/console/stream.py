"""One place that a program prints to, led through a pump: made, restored, looked at."""

from __future__ import annotations

import fcntl
import os
import select
import struct
import sys
import termios
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any


@dataclass
class Stream:
    """What one place that the program prints to became."""

    number: int
    places: tuple[int, ...]  # descriptors of the program
    original: int  # what they were; -1 where nothing is shown
    source: int  # what the pump reads
    held: tuple[int, int]  # the pipe of what was read and not shown
    writer: tuple[int, int]  # device and inode of what the program has there now
    size: bytes | None = None  # of the terminal
    is_gone: bool = False
    pending: tuple[int, int] = (0, 0)

    @property
    def fds(self) -> tuple[int, ...]:
        return tuple(fd for fd in (self.original, self.source, *self.held) if fd >= 0)

    def spec(self) -> dict[str, Any]:
        shown = -1 if self.is_gone else self.original
        return {"number": self.number, "source": self.source, "held": self.held, "shown": shown}

    def restore(self) -> None:
        """Give the program what it had, unless something else was put there since."""
        for place in self.places:
            with suppress(OSError):
                if _identity(place) == self.writer:
                    os.dup2(self.original, place)

    def follow_size(self) -> bool:
        """Make the pty as large as the terminal; whether that changed it."""
        if self.size is None:
            return False
        with suppress(OSError):
            size = _window(self.original)
            if size != self.size:
                self.size = size
                fcntl.ioctl(self.source, termios.TIOCSWINSZ, size)
                return True
        return False

    def look(self) -> int:
        """How many bytes are on their way. 0: what was written is in the log, and was shown."""
        ready([self.source], 0)  # has a pty hand over what was written to its other side
        self.pending = (_waiting(self.source), _waiting(self.held[0]))
        return sum(self.pending)

    def has_ended(self) -> bool:
        """Whether no process can write to it any more, and all was read."""
        poll = select.poll()
        poll.register(self.source, select.POLLIN)
        seen = dict(poll.poll(0)).get(self.source, 0)
        return bool(seen & select.POLLHUP) and not seen & select.POLLIN and not any(self.pending)

    def close(self) -> None:
        for fd in self.fds:
            with suppress(OSError):
                os.close(fd)


def places() -> Iterable[tuple[int, ...]]:
    """Descriptors to capture; both in one where they are one thing, whose order then stays."""
    found = [
        fd
        for fd, stream in ((1, sys.__stdout__), (2, sys.__stderr__))
        if stream is not None and _is_output(fd)
    ]
    if found == [1, 2] and _what_is(1) == _what_is(2):
        return [(1, 2)]
    return [(fd,) for fd in found]


def _is_output(fd: int) -> bool:
    """Whether it is open for writing, and no file that took the place of a closed descriptor: what
    Python opens is not inherited by children, and what a program was given is.
    """
    try:
        is_ours = fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
        return not is_ours and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
    except OSError:
        return False


def _what_is(fd: int) -> tuple[int, ...]:
    """Equal for two descriptors of one thing, and, of a file, at one place."""
    try:
        place = os.lseek(fd, 0, os.SEEK_CUR)
    except OSError:
        place = -1
    return (*_identity(fd), place)


def make_stream(number: int, places: tuple[int, ...]) -> tuple[Stream, int]:
    """Made for what is at `places`, and the end that the program is to write to."""
    first = places[0]
    original = fcntl.fcntl(first, fcntl.F_DUPFD_CLOEXEC, 3)
    fds = [original]
    try:
        size = _window(original) if os.isatty(original) else None
        source, writer = map(above_standard, os.pipe() if size is None else os.openpty())
        fds += [source, writer]
        if size is not None:
            settings = termios.tcgetattr(original)
            settings[1] &= ~termios.OPOST  # the terminal itself does that
            termios.tcsetattr(writer, termios.TCSANOW, settings)
            fcntl.ioctl(writer, termios.TIOCSWINSZ, size)
        held_out, held_in = map(above_standard, os.pipe())
    except (OSError, termios.error) as error:
        for fd in fds:
            os.close(fd)
        raise OSError(*error.args) from error
    held = (held_out, held_in)
    return Stream(number, places, original, source, held, _identity(writer), size), writer


def make_silent_stream(number: int) -> tuple[Stream, int]:
    """As `make_stream`, for what is shown by other means and only to be in the log."""
    source, writer = map(above_standard, os.pipe())
    held_out, held_in = map(above_standard, os.pipe())
    return Stream(number, (), -1, source, (held_out, held_in), _identity(writer)), writer


def above_standard(fd: int) -> int:
    """`fd`, or a duplicate of it where it took the place of a closed 0, 1 or 2."""
    if fd > 2:
        return fd
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(fd)


def _identity(fd: int) -> tuple[int, int]:
    about = os.fstat(fd)
    return about.st_dev, about.st_ino


def _window(fd: int) -> bytes:
    return fcntl.ioctl(fd, termios.TIOCGWINSZ, b"\0" * 8)


def _waiting(fd: int) -> int:
    """Bytes that can be read."""
    try:
        count: int = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4))[0]
    except OSError:
        return 0
    return count


def ready(to_read: Iterable[int], limit_s: float | None, *, to_write: int = -1) -> bool:
    """Wait for one of them, whatever its number; whether one is ready."""
    poll = select.poll()
    for fd in to_read:
        poll.register(fd, select.POLLIN)
    if to_write >= 0:
        poll.register(to_write, select.POLLOUT)
    return bool(poll.poll(None if limit_s is None else 1000 * limit_s))


def relay(streams: list[Stream], passed_on: Callable[[], object]) -> None:
    """Without a pump: what was on its way goes where it was to, of which `passed_on` is told; then
    what children still print.
    """
    poll = select.poll()
    ours = {fd: one for one in streams for fd in (one.held[0], one.source)}
    for fd in ours:
        os.set_blocking(fd, False)
    for one in streams:
        os.close(one.held[1])
        one.held = (one.held[0], -1)
        _copy(one.held[0], one)
        poll.register(one.source, select.POLLIN)
    for one in streams:
        _copy(one.source, one)
    passed_on()
    open_ones = len(streams)
    while open_ones:
        for fd, _ in poll.poll():
            if not _copy(fd, ours[fd]):
                poll.unregister(fd)
                open_ones -= 1


def _copy(fd: int, stream: Stream) -> bool:
    """All that can be read now; False at the end of it."""
    try:
        while data := os.read(fd, 1 << 16):
            while data and stream.original >= 0 and not stream.is_gone:
                try:
                    data = data[os.write(stream.original, data) :]
                except BlockingIOError:
                    ready((), None, to_write=stream.original)
                except OSError:
                    stream.is_gone = True
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
