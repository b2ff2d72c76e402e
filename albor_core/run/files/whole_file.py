"""A file that appears whole or not at all, whatever happens to the process that writes it.

Small documents: `write_json`, `write_bytes`. What is written piece by piece: `whole_file`. Where
room must be kept before a disk fills up: reserved_file.py; where two writers must not meet:
publish.py. Standard library only: the guard imports this.
"""

from __future__ import annotations

import errno
import json
import os
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from albor_core.run.errors import AlborError, NotFoundError, UsageError

NAMELESS = getattr(os, "O_TMPFILE", 0)
_NOT_HERE = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL)  # file systems without nameless files
_HALF = re.compile(r"\..+\.(\d+)\.[0-9a-f]{8}\.tmp")  # as temporary_beside names them


def temporary_beside(path: Path) -> Path:
    """A new name in the folder of `path`, hidden, that tells `clear_halves` whose file it is."""
    return path.with_name(f".{path.name[:64]}.{os.getpid()}.{os.urandom(4).hex()}.tmp")


def write_json(path: Path, document: Mapping[str, Any], *, durable: bool = False) -> None:
    """Replace `path` in one step: readers see the old document or the new, never half of one."""
    write_bytes(path, json.dumps(document, allow_nan=False, indent=None).encode(), durable=durable)


def write_bytes(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Temp file in the same folder, rename; `durable` adds fsync of file and folder. Raises
    OSError, leaves nothing.
    """
    temporary = temporary_beside(path)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content)
            file.flush()
            if durable:
                os.fsync(fd)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        fsync_dir(path.parent)


def clear_halves(folder: Path) -> None:
    """Remove what writers of documents in `folder` left when they were killed; a live one's stays.

    As well as the disk allows: leftovers are harmless, and a start must not fail for them.
    """
    with suppress(OSError):
        for name in os.listdir(folder):  # noqa: PTH208  names only, for a match
            half = _HALF.fullmatch(name)
            if half is not None and not Path("/proc", half[1]).exists():
                (folder / name).unlink(missing_ok=True)


def fsync_dir(folder: Path) -> None:
    """Make renames in `folder` survive a power cut."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def whole_file(out: Path, *, replace: bool) -> Iterator[int]:
    """A file descriptor to write to, whose bytes are `out` when the block has ended well.

    Until then the file has no name, so that even kill -9 and a power cut leave nothing behind;
    where the file system has no such files it has a temporary name beside `out`, removed however
    the block ends, SIGTERM and SIGHUP included. Raises UsageError if `out` exists and `replace` is
    False, also if it came to exist meanwhile; OSError. For the main thread.
    """
    if not replace and os.path.lexists(out):
        raise already_there(out)
    beside = temporary_beside(out)
    with ended_by_signals():
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
        return os.open(folder, NAMELESS | os.O_WRONLY | os.O_CLOEXEC, 0o666), True
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
        raise already_there(out) from None


def no_folder(path: Path) -> AlborError:
    """The error that the folder of a file to write does not exist, or is a file."""
    import shlex  # noqa: PLC0415  the guard does without

    there = next((one for one in path.parents if one.exists()), path.parent)
    if not there.is_dir():
        what = f"cannot write {str(path)!r}: {str(there)!r} is not a folder"
        return AlborError(what, hint="name another place")
    return NotFoundError(
        f"cannot write {str(path)!r}: there is no folder {str(path.parent)!r}",
        hint=f"mkdir -p {shlex.quote(str(path.parent))}, or name another place",
    )


def already_there(out: Path) -> UsageError:
    return UsageError(f"{out}: exists", hint="another --out, or --force")


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end the block like any failure does, unless a caller has them ignored
    (`nohup`) or handled. For the main thread.
    """

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    both = (signal.SIGTERM, signal.SIGHUP)
    mine = [name for name in both if signal.getsignal(name) is signal.SIG_DFL]
    before = {name: signal.signal(name, leave) for name in mine}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
