"""Measures the resources of a program: processor, memory, threads and GPUs of a process and its
descendants.

Read from /proc, about 0.05 ms a process. Processor time is in percent of one core: a program that
keeps four cores busy has 400. Memory that processes share counts in each of them. A descendant
whose parent has ended is another's child and is not seen.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from albor_core.telemetry.sample import GpuSample

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_MOST = 4096  # processes of one program that are looked at


@dataclass(frozen=True)
class ProgramSample:
    """One program at one moment. `cpu_percent` is None in the first sample. `gpus` are the indexes
    of GPUs that its processes use, None if the driver's process ids belong to another namespace.
    """

    cpu_percent: float | None
    rss_bytes: int
    threads: int
    processes: int
    gpus: tuple[int, ...] | None = ()
    gpu_memory_bytes: int | None = None


class ProgramProcesses:
    """Samples a program; remembers the processor time of its processes between samples. `spared`
    and its descendants do not count: a tracked program is the parent of its own index process.
    """

    def __init__(self, spared: Iterable[int] = ()) -> None:
        self._spared = frozenset(spared)
        self._ticks: dict[tuple[int, int], int] = {}
        self._when: float | None = None

    def sample(self, root: int, gpus: Iterable[GpuSample] = ()) -> ProgramSample | None:
        """A sample of the program whose first process is `root`; None if that has ended. Never
        raises."""
        now = time.monotonic()
        ticks: dict[tuple[int, int], int] = {}
        used = pages = threads = 0
        pids = _tree(root, self._spared)
        for pid in pids:
            found = _stat(pid)
            if found is None:
                continue
            key = (pid, found.started)
            ticks[key] = found.ticks
            used += found.ticks - self._ticks.get(key, 0 if self._ticks else found.ticks)
            pages += found.pages
            threads += found.threads
        if not ticks:
            return None
        span = 0.0 if self._when is None else now - self._when
        self._ticks, self._when = ticks, now
        own, memory = _of_gpus(set(pids), list(gpus))
        return ProgramSample(
            cpu_percent=max(0.0, 100 * used / _TICKS / span) if span > 0 else None,
            rss_bytes=pages * _PAGE,
            threads=threads,
            processes=len(ticks),
            gpus=own,
            gpu_memory_bytes=memory,
        )


@dataclass(frozen=True)
class _Stat:
    ticks: int
    threads: int
    started: int
    pages: int


def _stat(pid: int) -> _Stat | None:
    try:
        raw = Path(f"/proc/{pid}/stat").read_bytes()
        fields = raw.rsplit(b")", 1)[1].split()  # a name may hold spaces and brackets
        return _Stat(
            ticks=int(fields[11]) + int(fields[12]),
            threads=int(fields[17]),
            started=int(fields[19]),
            pages=int(fields[21]),
        )
    except (OSError, ValueError, IndexError):
        return None


def _tree(root: int, spared: frozenset[int]) -> list[int]:
    found: list[int] = []
    waiting = [root]
    while waiting and len(found) < _MOST:
        pid = waiting.pop()
        found.append(pid)
        try:
            threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208  names only
        except OSError:
            continue
        for thread in threads:
            try:
                raw = Path(f"/proc/{pid}/task/{thread}/children").read_bytes()
            except OSError:  # ended just now, or a kernel that does not say
                continue
            waiting += [child for child in map(int, raw.split()) if child not in spared]
    return found


def _of_gpus(pids: set[int], gpus: list[GpuSample]) -> tuple[tuple[int, ...] | None, int | None]:
    """The GPUs that these processes use, and how much GPU memory."""
    own, memory, is_known = [], 0, False
    for gpu in gpus:
        mine = [process for process in gpu.processes if process.pid in pids]
        if mine:
            own.append(gpu.index)
            sizes = [process.memory_bytes for process in mine if process.memory_bytes is not None]
            memory += sum(sizes)
            is_known = is_known or bool(sizes)
    strangers = [process.pid for gpu in gpus for process in gpu.processes]
    if not own and strangers and not any(_exists(pid) for pid in strangers):
        return None, None  # the driver counts processes of another namespace
    return tuple(own), memory if is_known else None


def _exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
