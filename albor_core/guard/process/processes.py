"""Processes without races: identity by start time, signals through pidfds, trees by proof.

A pid may be reused between a look and a kill; a pidfd may not. Nothing here signals a process whose
identity was not checked after its pidfd was opened.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from albor_core.guard.launch import CODE_ROOT, Launch, clean_environment, python_module
from albor_core.guard.policy import ExitStatus
from albor_core.run.liveness import start_ticks
from albor_core.run.rundir import RunDir

_KILL_LIMIT_S = 5.0  # a process in an uninterruptible call may outlive SIGKILL: do not wait for it
# struct pidfd_info of Linux 6.13: mask, cgroupid, eleven ids, exit_code. The ioctl is
# _IOWR(0xFF, 11, 64 bytes); bit 3 of the mask says that exit_code is there (Linux 6.15).
_PIDFD_INFO = struct.Struct("=QQ11Ii")
_PIDFD_GET_INFO = (3 << 30) | (_PIDFD_INFO.size << 16) | (0xFF << 8) | 11
_HAS_EXIT = 1 << 3


@dataclass
class Process:
    """A process that cannot be mistaken for another: a pidfd, checked against its start time."""

    pid: int
    ticks: int
    pidfd: int
    is_child: bool = False
    _status: ExitStatus | None = field(default=None, repr=False)

    def fileno(self) -> int:
        """Readable once the process has ended."""
        return self.pidfd

    def send(self, number: int) -> bool:
        """Signal it; False if it is gone or not ours."""
        try:
            signal.pidfd_send_signal(self.pidfd, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True

    def has_ended(self) -> bool:
        """Whether it runs no more."""
        return self._status is not None or bool(select.select([self.pidfd], [], [], 0)[0])

    def status(self) -> ExitStatus | None:
        """How it ended; None while it runs. A child is reaped by this."""
        if self._status is None and self.has_ended():
            self._status = self._reap() if self.is_child else exit_of_stranger(self.pidfd)
        return self._status

    def _reap(self) -> ExitStatus:
        try:
            found = os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED)
        except ChildProcessError:
            return exit_of_stranger(self.pidfd)
        if found is None or found.si_code == os.CLD_EXITED:
            return ExitStatus(None if found is None else found.si_status)
        return ExitStatus(128 + found.si_status, core=found.si_code == os.CLD_DUMPED)

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self.pidfd)


def open_process(pid: int, *, is_child: bool = False) -> Process | None:
    """A handle on a live process, None if there is none."""
    ticks = start_ticks(pid)
    if ticks is None:
        return None
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return None
    if start_ticks(pid) != ticks:  # the pid changed hands between the two
        os.close(pidfd)
        return None
    return Process(pid, ticks, pidfd, is_child)


def exit_of_stranger(pidfd: int) -> ExitStatus:
    """Exit status of an ended process that is not our child, where the kernel tells (6.15).

    It does so once the process's own parent has reaped it; before that the code is None.
    """
    buffer = bytearray(_PIDFD_INFO.size)
    _PIDFD_INFO.pack_into(buffer, 0, _HAS_EXIT, *[0] * 13)
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, buffer)
    except OSError:
        return ExitStatus(None, "unknown")
    fields = _PIDFD_INFO.unpack(buffer)
    if not fields[0] & _HAS_EXIT:
        return ExitStatus(None, "unknown")
    raw = fields[-1]
    if os.WIFSIGNALED(raw):
        return ExitStatus(128 + os.WTERMSIG(raw), "pidfd", os.WCOREDUMP(raw))
    return ExitStatus(os.WEXITSTATUS(raw), "pidfd")


def spawn(
    run: RunDir, launch: Launch, attempt: int, nonce: str, log: Path, *, diagnostic: bool
) -> Process:
    """Start the stub, which becomes the program. Its output goes straight to `log`: no pipe that a
    dead guard could block. Raises OSError.
    """
    environment = {
        **clean_environment(),
        **launch.env,
        "PYTHONFAULTHANDLER": "1",
        "ALBOR_RUN_ID": run.id,
        "ALBOR_RUN_DIR": str(run.path),
        "ALBOR_ATTEMPT": str(attempt),
        "ALBOR_NONCE": nonce,
    }
    if diagnostic:
        environment["CUDA_LAUNCH_BLOCKING"] = "1"
    output = _open_log(log)
    try:
        started = subprocess.Popen(
            python_module("albor_core.guard.process.stub", str(run.path), str(attempt), nonce),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=CODE_ROOT,
            env=environment,
        )
    finally:
        os.close(output)
    child = open_process(started.pid, is_child=True)
    assert child is not None, "a child that is not reaped has a pid"
    started.returncode = 0  # we reap it ourselves, through its pidfd
    return child


def _open_log(log: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(log, flags, 0o600)
    except OSError:  # a full disk may pass; a run without its log is better than no run
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


# --- trees ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """A line of the process table."""

    pid: int
    parent: int
    session: int


def process_table() -> list[Entry]:
    """Every live process that /proc shows; zombies are dead."""
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - only names are needed
        if name.isdigit() and (entry := _entry(int(name))) is not None:
            found.append(entry)
    return found


def _entry(pid: int) -> Entry | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = stat.rsplit(b")", 1)[1].split()
    if fields[0] in (b"Z", b"X"):
        return None
    return Entry(pid, int(fields[1]), int(fields[3]))


def environment_of(pid: int) -> dict[str, str]:
    """The environment a process of ours was started with; empty if it may not be read."""
    try:
        if Path(f"/proc/{pid}").stat().st_uid != os.geteuid():
            return {}
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (item.partition(b"=") for item in raw.split(b"\0"))
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def catches(pid: int, number: int) -> bool:
    """Whether a process has its own handler for a signal, so that sending it cannot kill."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    masks = [line.split()[1] for line in lines if line.startswith("SigCgt:")]
    return bool(masks) and bool(int(masks[0], 16) >> (number - 1) & 1)


def belongs(pid: int, run_id: str, nonces: frozenset[str]) -> bool:
    """Whether a process proves by its environment that it is part of these attempts of a run."""
    environment = environment_of(pid)
    return environment.get("ALBOR_RUN_ID") == run_id and environment.get("ALBOR_NONCE") in nonces


def members(
    run_id: str, nonces: frozenset[str], *, root: int | None, spare: frozenset[int]
) -> list[int]:
    """Pids of an attempt's tree: root, its session, those with its nonce, all their descendants.

    As a subreaper the guard also inherits orphans that changed session and cleared their
    environment: each child of ours that is not in `spare` came from the program.
    """
    table = process_table()
    us = os.getpid()
    inside = {
        entry.pid
        for entry in table
        if entry.pid == root
        or (root is not None and entry.session == root)
        or (entry.parent == us and entry.pid not in spare)
        or belongs(entry.pid, run_id, nonces)
    } - spare
    grown = True
    while grown:
        more = {e.pid for e in table if e.parent in inside and e.pid not in spare} - inside
        inside |= more
        grown = bool(more)
    return sorted(inside - {us, 1})


@dataclass(frozen=True)
class ProcessTree:
    """All processes of one attempt."""

    run_id: str
    nonces: frozenset[str]
    root: Process | None
    spare: frozenset[int] = frozenset()

    def pids(self) -> list[int]:
        """Who is in it now."""
        # An ended root's pid may name a stranger's session by now.
        root = None if self.root is None or self.root.has_ended() else self.root.pid
        return members(self.run_id, self.nonces, root=root, spare=self.spare)

    def send(self, number: int) -> int:
        """Signal everybody in it, each through its own pidfd; how many were reached."""
        handles = [handle for pid in self.pids() if (handle := open_process(pid)) is not None]
        # Asked again with the pidfds in hand: a pid that changed hands in between belongs to a
        # process that the pidfd does not mean.
        still = set(self.pids()) if handles else set()
        sent = sum(handle.pid in still and handle.send(number) for handle in handles)
        for handle in handles:
            handle.close()
        return sent

    def clear(self, patience_s: float) -> int:
        """Wait up to `patience_s` for it to be empty, then SIGKILL until it is; how many it took.

        Gives up on what survives SIGKILL for 5 s.
        """
        killed = 0
        patient_until = time.monotonic() + patience_s
        while self.pids() and time.monotonic() < patient_until + _KILL_LIMIT_S:
            if time.monotonic() >= patient_until:
                killed = max(killed, self.send(signal.SIGKILL))
            self.reap_orphans()
            time.sleep(0.01)
        self.reap_orphans()
        return killed

    def reap_orphans(self) -> None:
        """Collect dead children that are neither the root nor spared."""
        reap_orphans(self.spare | ({self.root.pid} if self.root is not None else set()))


def reap_orphans(keep: frozenset[int] | set[int]) -> None:
    """Collect dead children except those in `keep`, whose owners want their status.

    `waitid` with WNOWAIT shows one zombie at a time; one that must be kept hides those behind it,
    so children are found through /proc.
    """
    for pid in _children():
        if pid not in keep:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                continue


def _children() -> list[int]:
    us = os.getpid()
    try:
        return [int(pid) for pid in Path(f"/proc/{us}/task/{us}/children").read_text().split()]
    except OSError:  # CONFIG_PROC_CHILDREN is off
        return [entry.pid for entry in process_table() if entry.parent == us]


def become_subreaper() -> None:
    """Orphans of our programs become our children. Best effort: old kernels lack it."""
    import ctypes  # noqa: PLC0415 - 1 MB that only the guard process needs

    ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


assert sys.platform == "linux", "the guard needs pidfds and /proc"
