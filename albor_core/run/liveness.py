"""Who is alive: record locks, and the identity of a process.

A POSIX record lock survives `exec`, dies with its process (not with forked loader workers, unlike
`flock`) and names its holder's pid, so it answers "is this run alive" with nothing to clean up
after a crash. One trap: closing *any* descriptor of a file drops the process's record locks on it,
so a lock that a process holds itself is asked about by the descriptor that holds it.
"""

from __future__ import annotations

import errno
import fcntl
import math
import os
import signal
import struct
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

from albor_core.run.errors import AlborError, InUseError
from albor_core.run.light_dataclass import dataclass

_held: dict[tuple[int, int], int] = {}  # descriptors of locks taken here, by device and inode
_FLOCK = struct.Struct("hhqqi4x")  # struct flock on 64-bit Linux: type, whence, start, len, pid


def take_lock(path: Path, *, inheritable: bool = False) -> int:
    """Hold the record lock on `path` for the life of this process; returns the descriptor to keep.

    Raises InUseError with the holder's pid. An inheritable descriptor stays locked across `exec`.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EAGAIN):
            os.close(fd)
            raise AlborError(
                f"{path}: cannot be locked: {error.strerror}",
                hint="put runs on a file system with POSIX record locks",
            ) from error
        holder = _query(fd)
        os.close(fd)
        who = f"process {holder}" if holder else "another process"
        raise InUseError(f"{path}: already held by {who}") from error
    os.set_inheritable(fd, inheritable)
    _held[_file_of(os.fstat(fd))] = fd
    return fd


def lock_holder(path: Path) -> int | None:
    """Pid that holds the record lock on `path`; 0 if it is not visible from here; None if no
    process does. Asking takes no right to write: a live run on a mount that we may only read is
    alive. A program may ask about its own run.
    """
    if (own := _own_descriptor(path)) is not None:
        return _query(own) or (os.getpid() if _is_held_by(own) else None)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return _query(fd)
    finally:
        os.close(fd)


_DELETED_S = 2.0  # for which a look through all processes holds
_deleted: tuple[float, dict[str, int]] = (-math.inf, {})


def deleted_lock_holder(path: Path) -> int | None:
    """Pid of the process that holds the record lock on a file that was at `path` and is deleted:
    one whose folder was taken away under it. None where none of our processes does.
    """
    global _deleted
    if time.monotonic() - _deleted[0] > _DELETED_S:
        _deleted = time.monotonic(), dict(_locks_of_deleted())
    try:
        return _deleted[1].get(str(path.parent.resolve() / path.name))
    except (OSError, RuntimeError):  # a loop of links
        return None


def _locks_of_deleted() -> Iterator[tuple[str, int]]:
    """The former paths of deleted lock files that processes hold, and the pids."""
    end = ".lock (deleted)"
    for process in Path("/proc").glob("[0-9]*"):
        try:
            for fd in (process / "fd").iterdir():
                place = os.readlink(fd)  # noqa: PTH115  of thousands, most of them no paths
                if place.endswith(end) and "POSIX" in (process / "fdinfo" / fd.name).read_text():
                    yield place.removesuffix(" (deleted)"), int(process.name)
        except OSError:  # another user's, or gone
            continue


def _own_descriptor(path: Path) -> int | None:
    """The descriptor of this lock that this process has: taken here, or by what it was before an
    `exec` (ALBOR_RUN_LOCK_FD, of a guard's child).
    """
    inherited = os.environ.get("ALBOR_RUN_LOCK_FD", "")
    if not _held and not inherited:
        return None
    try:
        wanted = _file_of(os.stat(path, follow_symlinks=False))  # noqa: PTH116  of thousands
    except (OSError, ValueError):
        return None
    for fd in (_held.get(wanted), int(inherited) if inherited.isdecimal() else None):
        try:
            if fd is not None and _file_of(os.fstat(fd)) == wanted:
                return fd
        except (OSError, OverflowError):  # closed since
            continue
    return None


def _file_of(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _is_held_by(fd: int) -> bool:
    """Whether this process, and not the one that it was forked from, has the lock of `fd`."""
    return "POSIX" in Path(f"/proc/self/fdinfo/{fd}").read_text()


def _query(fd: int) -> int | None:
    answer = fcntl.fcntl(fd, fcntl.F_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    kind, _, _, _, pid = _FLOCK.unpack(answer)
    if kind == fcntl.F_UNLCK:
        return None
    return int(pid) if pid > 0 else 0


def signal_holder(path: Path, number: int, is_meant: Callable[[list[str]], bool]) -> bool:
    """Signal the process that holds the record lock on `path`; False if there is none, or it is
    another user's or not what `is_meant` says of its argv.

    The pidfd is opened between two looks at the lock: whatever a file says, and whatever becomes of
    the pid meanwhile, no other process can be met.
    """
    pid = lock_holder(path)
    if not pid:
        return False
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        place = Path(f"/proc/{pid}")
        argv = (place / "cmdline").read_bytes().decode(errors="surrogateescape").split("\0")
        is_ours = place.stat().st_uid == os.geteuid() and is_meant(argv[:-1])
        if not is_ours or lock_holder(path) != pid:
            return False
        signal.pidfd_send_signal(pidfd, number)
    except OSError:  # it ended, or is not ours to signal
        return False
    finally:
        os.close(pidfd)
    return True


@lru_cache(maxsize=1)
def boot_id() -> str:
    """This boot of this kernel; a pid means nothing in another one."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def start_ticks(pid: int) -> int | None:
    """Start of a process in clock ticks since boot; with the pid it names a process for ever."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    return int(stat.rsplit(b")", 1)[1].split()[19])  # the command name may hold spaces and brackets


@dataclass(frozen=True)
class Liveness:
    """Who holds a run's two locks at this moment.

    0 means held, but by a process not visible here.
    """

    trainer: int | None
    guard: int | None

    @property
    def is_alive(self) -> bool:
        """Whether anything still works on the run."""
        return self.trainer is not None or self.guard is not None


def liveness(run_lock: Path, guard_lock: Path) -> Liveness:
    """Ask the kernel, not a status word."""
    return Liveness(lock_holder(run_lock), lock_holder(guard_lock))
