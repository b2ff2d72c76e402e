"""The machine as attention judges it: which GPU is in trouble, and what room is left.

Where samples are taken once a host (telemetry.machine_ring) those are read; a run of another host,
or of a machine without such a ring, is judged by the figures in its own state file. Judgement is
andon.health.gpu's alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from albor_core.andon.health.gpu import GpuTrouble, GpuWatch, gpus_of
from albor_core.feed.view.run_view import RunView
from albor_core.telemetry.machine_ring import MachineSample
from albor_core.telemetry.sample import GpuSample, HostSample

_AT_WORK = ("training", "", None)


class Reading(NamedTuple):
    """The GPUs of a host at one moment."""

    wall: float
    gpus: Sequence[GpuSample]


Sample = Reading | MachineSample


@dataclass(frozen=True)
class MachineTrouble:
    """A GPU of a host in trouble, and the run that it belongs to ("" where that is not known)."""

    host: str
    gpu: GpuTrouble
    run_id: str = ""


@dataclass(frozen=True)
class MachineView:
    """The machines of all runs now. `hosts` is what is left of memory and disk by host, `run_gpus`
    how many GPUs each run is known to use, `homes` by host what is said of a home that is nearly
    full, `caps` of one whose size cannot be read.
    """

    troubles: tuple[MachineTrouble, ...] = ()
    hosts: Mapping[str, HostSample] = field(default_factory=dict)
    run_gpus: Mapping[str, int] = field(default_factory=dict)
    homes: Mapping[str, str] = field(default_factory=dict)
    caps: Mapping[str, str] = field(default_factory=dict)


class MachineWatch:
    """Samples in, troubles out. Belongs to one thread."""

    def __init__(self) -> None:
        self._host = os.uname().nodename
        self._here: tuple[Sample, ...] = ()  # of this machine, the newest last
        self._anybody = GpuWatch()  # of this machine, without knowing whose a GPU is
        self._own: dict[str, tuple[frozenset[int] | None, GpuWatch]] = {}
        self._pids: dict[int, tuple[float, frozenset[int]]] = {}
        self._system: HostSample | None = None

    def take(self, readings: Sequence[Sample], system: HostSample | None = None) -> None:
        """Samples of this machine, oldest first; those that were taken before are left out."""
        for reading in readings:
            self._anybody.take(reading)
        self._here = tuple(readings) or self._here[-1:]
        self._system = system or self._system

    def look(self, active: Sequence[RunView], now: float) -> MachineView:
        """Present troubles of the machine. `active` are the active runs."""
        hosts: dict[str, HostSample] = {}
        if self._system is not None:
            hosts[self._host] = self._system
        troubles: dict[tuple[str, int, str], MachineTrouble] = {}
        counts = {}
        for view in active:
            if view.system is not None and view.is_live:
                hosts[view.host] = _tightest(hosts.get(view.host), view.system)
            own, found = self._of_run(view, now)
            if own:
                counts[view.id] = len(own)
            for one in found:
                troubles[view.host, one.index, one.kind] = MachineTrouble(view.host, one, view.id)
        for gone in self._own.keys() - {view.id for view in active}:
            del self._own[gone]
        for one in self._anybody.found():
            key = (self._host, one.index, one.kind)
            troubles.setdefault(key, MachineTrouble(self._host, one))
        return MachineView(tuple(troubles.values()), hosts, counts)

    def _of_run(
        self, view: RunView, now: float
    ) -> tuple[frozenset[int] | None, tuple[GpuTrouble, ...]]:
        """The GPUs of a run and what is wrong with them, by this machine's samples where it works
        here and they show its processes, else by what its own file tells."""
        pids = self._processes(view.trainer_pid, now)
        readings: Sequence[Sample] = self._here if view.host == self._host else ()
        own = gpus_of(readings[-1].gpus, pids) if readings else None
        if own is None and view.gpu and view.is_live and view.last_wall is not None:
            readings = (Reading(view.last_wall, view.gpu),)
            own = gpus_of(view.gpu, pids)
        elif own is None:
            return None, ()  # what is wrong with a GPU of this machine is said without a run
        known, watch = self._own.get(view.id, (None, None))
        if watch is None or known != own:
            watch = GpuWatch(own)
        self._own[view.id] = (own, watch)
        is_at_work = view.status == "running" and view.phase in _AT_WORK and not view.is_silent
        began = _began(view)
        for reading in readings:
            if reading.wall >= began:
                watch.take(reading, at_work=is_at_work)
        return own, watch.found()

    def _processes(self, pid: int | None, now: float) -> frozenset[int]:
        """A program and what it started, asked for twice a minute."""
        if not pid:
            return frozenset()
        asked, found = self._pids.get(pid, (float("-inf"), frozenset()))
        if now - asked >= 30.0:
            found = frozenset({pid, *_children(pid)})
            self._pids = {**{p: k for p, k in self._pids.items() if now - k[0] < 300.0}}
            self._pids[pid] = (now, found)
        return found


def _began(view: RunView) -> float:
    """When the present attempt of a run began: before that its GPUs were not its own."""
    starts = [one.started for one in view.diagnostics.attempts if one.started is not None]
    return max(starts, default=view.created or 0.0)


def _children(pid: int) -> list[int]:
    import psutil  # noqa: PLC0415  only where a machine has GPUs

    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return []


def _tightest(known: HostSample | None, other: HostSample) -> HostSample:
    """Of two samples of a host, the one with less free disk: runs lie on several."""
    if known is None or known.disk_free_bytes is None:
        return other
    if other.disk_free_bytes is None:
        return known
    return min(known, other, key=lambda one: one.disk_free_bytes or 0)
