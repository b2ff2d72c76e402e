"""Sleep until the kernel tells of something: a file written (inotify), a process ended (pidfd).

Between two events there is no wake-up. Where the kernel cannot tell (no inotify, or its limit of
watches reached; a process of another host), `blind` says why and `wait` sleeps at most INTERVAL_S.
Standard library only.
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import select
import struct
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

INTERVAL_S = 2.0
"""How often to look where nothing can be told."""
MODIFY, CLOSE_WRITE, MOVED_TO, CREATE = 0x2, 0x8, 0x80, 0x100  # as <sys/inotify.h> has them
DELETE_SELF, MOVE_SELF = 0x400, 0x800
_IGNORED, _NO_LINK = 0x8000, 0x02000000
_HEAD = struct.Struct("iIII")
_WHY = {
    errno.ENOSPC: "the limit of inotify watches is reached (fs.inotify.max_user_watches)",
    errno.EMFILE: "the limit of inotify instances or open files is reached",
    errno.ENOSYS: "this kernel has no inotify",
}


class Notifier:
    """Belongs to one thread. `wakes` counts the events that ended a `wait`, `timeouts` the times
    that ended one.
    """

    def __init__(self) -> None:
        self.wakes = self.timeouts = 0
        self.blind = ""
        self._poll = select.poll()
        self._inotify = -1
        self._watches: dict[int, tuple[Path, int]] = {}
        self._processes: dict[int, int] = {}  # pidfd: pid
        self._unseen: set[int] = set()
        try:
            self._inotify = _inotify_init()
        except OSError as error:
            self._be_blind(error)
        else:
            self._poll.register(self._inotify, select.POLLIN)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of all watches."""
        for fd in (*self._processes, *((self._inotify,) if self._inotify >= 0 else ())):
            os.close(fd)
        self._processes.clear()
        self._inotify = -1

    def want(self, paths: Mapping[Path, int], pids: Collection[int]) -> bool:
        """Watch these files and folders, for these events, and these processes, and nothing else.

        True where a watch is new or gone: what happened before is not told, so look again. A path
        that is not there is left out.
        """
        has_new = False
        known = dict(self._watches.values())
        for watch, (path, mask) in list(self._watches.items()):
            if paths.get(path) != mask:
                del self._watches[watch]
                _inotify_remove(self._inotify, watch)
                has_new = True
        if has_new:
            self._drain()  # the kernel tells of each removal; what else it told is looked at now
        for path, mask in paths.items():
            if known.get(path) != mask:
                has_new |= self._add_path(path, mask)
        for pidfd, pid in list(self._processes.items()):
            if pid not in pids:
                self._forget(pidfd)
        for pid in set(pids) - set(self._processes.values()):
            has_new |= self._add_process(pid)
        return has_new

    def wait(self, timeout_s: float | None) -> bool:
        """Sleep until something that is wanted happened, or the time is up; whether it happened."""
        if self.blind:
            timeout_s = INTERVAL_S if timeout_s is None else min(timeout_s, INTERVAL_S)
        ready = self._poll.poll(None if timeout_s is None else math.ceil(max(0.0, timeout_s) * 1e3))
        if not ready:
            self.timeouts += 1
            return False
        self.wakes += 1
        for fd, _ in ready:
            if fd in self._processes:
                self._forget(fd)
            else:
                self._drain()
        return True

    def _add_path(self, path: Path, mask: int) -> bool:
        if self._inotify < 0:
            return False
        try:
            watch = _inotify_add(self._inotify, path, mask)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES):
                self._be_blind(error)
            return False
        is_new = watch not in self._watches  # else another name of the same file
        self._watches.setdefault(watch, (path, mask))
        return is_new

    def _add_process(self, pid: int) -> bool:
        """A pid of 0 is a process that is not visible here."""
        try:
            if pid <= 0:
                raise ProcessLookupError(errno.ESRCH, "no such process")
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            if pid > 0 and pid not in self._unseen:
                self._unseen.add(pid)
                return True  # it has just ended: look again
            self.blind = self.blind or "the process is not visible here (another host or container)"
            return False
        except OSError as error:
            self._be_blind(error)
            return False
        self._processes[pidfd] = pid
        self._poll.register(pidfd, select.POLLIN)
        return True

    def _forget(self, pidfd: int) -> None:
        self._poll.unregister(pidfd)
        del self._processes[pidfd]
        os.close(pidfd)

    def _drain(self) -> None:
        """Read what was told; which it was is not of interest, whoever waits looks at all."""
        with suppress(BlockingIOError):
            while data := os.read(self._inotify, 1 << 16):
                at = 0
                while at < len(data):
                    watch, mask, _, length = _HEAD.unpack_from(data, at)
                    at += _HEAD.size + length
                    if mask & _IGNORED:  # its file is gone
                        self._watches.pop(watch, None)
                    elif mask & MOVE_SELF and watch in self._watches:  # it lies elsewhere now
                        del self._watches[watch]
                        _inotify_remove(self._inotify, watch)

    def _be_blind(self, error: OSError) -> None:
        self.blind = self.blind or _WHY.get(error.errno or 0) or f"inotify: {error.strerror}"


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def _inotify_init() -> int:
    return _checked(_libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))


def _inotify_add(fd: int, path: Path, mask: int) -> int:
    return _checked(_libc().inotify_add_watch(fd, os.fsencode(path), mask | _NO_LINK))


def _inotify_remove(fd: int, watch: int) -> None:
    _libc().inotify_rm_watch(fd, watch)
