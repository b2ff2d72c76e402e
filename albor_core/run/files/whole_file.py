"""A file that appears whole or not at all, whatever happens to the process that writes it."""

from __future__ import annotations

import errno
import os
import secrets
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from albor_core.run.errors import UsageError

_NAMELESS = getattr(os, "O_TMPFILE", 0)
_NOT_HERE = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)  # file systems without nameless files


@contextmanager
def whole_file(out: Path, *, replace: bool) -> Iterator[int]:
    """A file descriptor to write to, whose bytes are `out` when the block has ended well.

    Until then the file has no name, so that even kill -9 and a power cut leave nothing behind;
    where the file system has no such files it has a temporary name beside `out`, removed however
    the block ends, SIGTERM and SIGHUP included. Raises UsageError if `out` exists and `replace` is
    False, also if it came to exist meanwhile; OSError. For the main thread.
    """
    if not replace and os.path.lexists(out):
        raise _exists(out)
    beside = out.with_name(f".{out.name[:64]}.{secrets.token_hex(4)}.tmp")
    with _ended_by_signals():
        fd, is_nameless = _open(out.parent, beside)
        try:
            yield fd
            os.fsync(fd)
            if is_nameless:
                _give_name(fd, beside if replace else out)
            if replace:
                beside.replace(out)
            elif not is_nameless:
                _link(beside, out)
        finally:
            os.close(fd)
            with suppress(FileNotFoundError):
                beside.unlink()


def _open(folder: Path, beside: Path) -> tuple[int, bool]:
    """A new file in `folder`, and whether it is nameless."""
    try:
        return os.open(folder, _NAMELESS | os.O_WRONLY | os.O_CLOEXEC, 0o666), True
    except OSError as error:
        if error.errno not in _NOT_HERE:
            raise
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
    return os.open(beside, flags, 0o666), False


def _give_name(fd: int, out: Path) -> None:
    """See open(2), O_TMPFILE. A directory is named because only then Python calls linkat()."""
    _link(Path(f"/proc/self/fd/{fd}"), out, src_dir_fd=fd)


def _link(source: Path, out: Path, src_dir_fd: int | None = None) -> None:
    try:  # unlike a rename it never takes the place of another file
        os.link(source, out, src_dir_fd=src_dir_fd)
    except FileExistsError:
        raise _exists(out) from None


def _exists(out: Path) -> UsageError:
    return UsageError(f"{out}: exists", hint="another --out, or --force")


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end the block like any failure does."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {name: signal.signal(name, leave) for name in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
