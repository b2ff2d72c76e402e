"""Detects troubles of the GPUs of a run from samples of the machine. Pure.

A condition counts once it has held for a while and is over once it has been gone for a while, so
that neither one odd sample nor the pause of an evaluation or a save says anything:

    hot         temperature >= 85 C, or the card's own slowdown limit where that is lower
    throttled   NVML's clock reasons name heat, the power brake or a hardware slowdown. The power
                cap is none: a GPU at full load is meant to reach it
    straggling  busy at most 0.75 times the median of the run's other GPUs, and 20 points below it
    idle        busy below 10 %, although the run takes its steps
                (how busy is the median of five samples)
    ecc         the count of uncorrectable memory errors has grown
    xid         the driver reported an error (an Xid), not the clean-up after a killed process

Units: percent, degrees C, wall seconds. Source: NVML API reference (clock event reasons, ECC
counters); NVIDIA, "XID Errors"; the slack of a data-parallel step is the slowest rank's.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from albor_core.run.light_dataclass import dataclass

HOT_C = 85.0
STRAGGLER_RATIO, STRAGGLER_POINTS = 0.75, 20.0
IDLE_PERCENT = 10.0
_BUSY_SIBLINGS = 30.0  # a group that hardly works has no straggler
_SMOOTH = 5  # samples whose median is how busy a GPU is: NVML's figure is of a sixth of a second
_THROTTLES = ("thermal", "power brake", "hardware slowdown")
_HARMLESS_XIDS = frozenset({45})  # "preemptive cleanup, due to previous errors" or a kill
_XIDS: Mapping[int, str] = {
    13: "graphics engine exception, mostly the program's",
    31: "memory page fault, mostly the program's",
    43: "the GPU stopped processing, mostly the program's",
    48: "double bit memory error",
    63: "memory row remapped",
    64: "memory row could not be remapped",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    92: "many single bit memory errors",
    94: "contained memory error",
    95: "uncontained memory error",
    119: "the GPU's system processor timed out",
    120: "error of the GPU's system processor",
}


class GpuHold(NamedTuple):
    """How long a condition has to last before it counts."""

    seconds: float
    samples: int


HOLDS: Mapping[str, GpuHold] = {
    "hot": GpuHold(2.0, 3),
    "throttled": GpuHold(2.0, 3),
    "straggling": GpuHold(30.0, 5),
    "idle": GpuHold(300.0, 5),
    "ecc": GpuHold(0.0, 1),
    "xid": GpuHold(0.0, 1),
}
KINDS = tuple(HOLDS)
GONE = GpuHold(10.0, 3)
"""Without the condition, before it is over."""


class GpuReading(Protocol):
    """A sample of one GPU; None is unknown. Optional: temperature_limit_c, ecc_uncorrected, xid,
    processes, as in telemetry.sample.GpuSample."""

    @property
    def index(self) -> int: ...
    @property
    def util_percent(self) -> float | None: ...
    @property
    def temperature_c(self) -> float | None: ...
    @property
    def throttle_reasons(self) -> Sequence[str]: ...


class MachineReading(Protocol):
    """The GPUs of a host at one moment, as in telemetry.machine_ring.MachineSample."""

    @property
    def wall(self) -> float: ...
    @property
    def gpus(self) -> Sequence[GpuReading]: ...


@dataclass(frozen=True)
class GpuTrouble:
    """One trouble of one GPU, now."""

    index: int
    kind: str
    """One of KINDS."""
    since_wall: float
    value: float
    """Degrees, percent busy, or a count or number of errors; 1 for throttled."""
    against: float | None
    """What `value` is held against: a limit, or the siblings' median."""
    words: str
    """For people: "88 C, limit 85 C"."""


class _Seen(NamedTuple):
    """A condition as seen in one sample."""

    is_bad: bool
    value: float
    against: float | None
    words: str


@dataclass
class _Course:
    """The course of one condition over time."""

    hold: GpuHold
    since: float | None = None
    """Of the trouble, once it is one."""
    newest: _Seen | None = None
    _bad: tuple[float, int] | None = None  # wall of the first, and how many
    _good: tuple[float, int] | None = None

    def take(self, wall: float, seen: _Seen) -> None:
        if seen.is_bad:
            start, count = self._bad or (wall, 0)
            self._bad, self._good, self.newest = (start, count + 1), None, seen
            if self.since is None and _is_long(self.hold, wall - start, count + 1):
                self.since = start
            return
        start, count = self._good or (wall, 0)
        self._good = (start, count + 1)
        if self.since is None or _is_long(GONE, wall - start, count + 1):
            self.since = self._bad = self.newest = None


def _is_long(hold: GpuHold, seconds: float, samples: int) -> bool:
    return seconds >= hold.seconds and samples >= hold.samples


class GpuWatch:
    """The conditions of every GPU, sample by sample; the function `troubles` runs one over a
    window."""

    def __init__(self, own_gpus: Collection[int] | None = None) -> None:
        """`own_gpus` are the run's; None means unknown: straggling and idle are then not judged."""
        self.own = None if own_gpus is None else frozenset(own_gpus)
        self._courses: dict[tuple[int, str], _Course] = {}
        self._ecc: dict[int, float] = {}
        self._busy: dict[int, deque[float]] = {}
        self._wall = float("-inf")

    def take(self, sample: MachineReading, *, at_work: bool = True) -> None:
        """Add the next sample; older ones are ignored. `at_work` is false while the run evaluates,
        saves or is paused, when its GPUs need not be busy.
        """
        if not sample.wall > self._wall:
            return
        self._wall = sample.wall
        for index, kind, seen in self._conditions(sample, at_work):
            course = self._courses.setdefault((index, kind), _Course(HOLDS[kind]))
            course.take(sample.wall, seen)

    def found(self) -> tuple[GpuTrouble, ...]:
        """Present troubles, by GPU and kind."""
        return tuple(
            GpuTrouble(index, kind, c.since, c.newest.value, c.newest.against, c.newest.words)
            for (index, kind), c in sorted(
                self._courses.items(), key=lambda item: (item[0][0], KINDS.index(item[0][1]))
            )
            if c.since is not None and c.newest is not None
        )

    def _conditions(
        self, sample: MachineReading, at_work: bool
    ) -> Iterator[tuple[int, str, _Seen]]:
        gpus = [gpu for gpu in sample.gpus if self.own is None or gpu.index in self.own]
        for gpu in gpus:
            if gpu.temperature_c is not None:
                yield (
                    gpu.index,
                    "hot",
                    _hot(gpu.temperature_c, _optional(gpu, "temperature_limit_c")),
                )
            yield gpu.index, "throttled", _throttled(gpu.throttle_reasons)
            yield from self._errors(gpu)
        if self.own is not None and at_work:
            yield from self._loads(gpus)

    def _loads(self, gpus: Sequence[GpuReading]) -> Iterator[tuple[int, str, _Seen]]:
        for gpu in gpus:
            if gpu.util_percent is not None:
                recent = self._busy.setdefault(gpu.index, deque(maxlen=_SMOOTH))
                recent.append(gpu.util_percent)
        usual = {index: statistics.median(recent) for index, recent in self._busy.items()}
        for index, percent in usual.items():
            yield index, "idle", _idle(percent)
            others = [other for sibling, other in usual.items() if sibling != index]
            if others:
                yield index, "straggling", _straggling(percent, others)

    def _errors(self, gpu: GpuReading) -> Iterator[tuple[int, str, _Seen]]:
        count = _optional(gpu, "ecc_uncorrected")
        if count is not None:
            grown = count - self._ecc.setdefault(gpu.index, count)
            if grown < 0:  # the driver was loaded anew
                self._ecc[gpu.index] = grown = 0.0 * count
            words = f"{grown:g} uncorrectable memory errors"
            if grown > 0:
                yield gpu.index, "ecc", _Seen(True, grown, 0.0, words)
        xid = _optional(gpu, "xid")
        if xid is not None and int(xid) not in _HARMLESS_XIDS and xid > 0:
            said = _XIDS.get(int(xid), "see NVIDIA's list of Xid errors")
            yield gpu.index, "xid", _Seen(True, xid, None, f"Xid {int(xid)}: {said}")


def troubles(
    samples: Iterable[MachineReading],
    own_gpus: Collection[int] | None = None,
    *,
    pauses: Sequence[tuple[float, float]] = (),
) -> tuple[GpuTrouble, ...]:
    """Troubles at the end of a window of samples, oldest first; five minutes are enough for all
    conditions.

    `pauses` are stretches of wall time in which the run took no steps.
    """
    watch = GpuWatch(own_gpus)
    for sample in samples:
        watch.take(sample, at_work=not any(a <= sample.wall <= b for a, b in pauses))
    return watch.found()


def gpus_of(gpus: Iterable[Any], pids: Collection[int]) -> frozenset[int] | None:
    """The GPUs on which one of these processes holds memory; None if none is found, as in a
    container whose process ids the driver does not know.
    """
    found = frozenset(g.index for g in gpus if any(p.pid in pids for p in g.processes))
    return found or None


def _optional(gpu: GpuReading, name: str) -> float | None:
    value = getattr(gpu, name, None)
    return None if value is None else float(value)


def _hot(temperature: float, own_limit: float | None) -> _Seen:
    limit = HOT_C if own_limit is None or own_limit <= 0 else min(HOT_C, own_limit)
    return _Seen(
        temperature >= limit, temperature, limit, f"{temperature:.0f} C, limit {limit:.0f} C"
    )


def _throttled(reasons: Sequence[str]) -> _Seen:
    named = [reason for reason in reasons if reason.startswith(_THROTTLES)]
    return _Seen(bool(named), 1.0 if named else 0.0, None, f"slowed down: {', '.join(named)}")


def _idle(percent: float) -> _Seen:
    words = f"{percent:.0f} % busy while the run is active"
    return _Seen(percent < IDLE_PERCENT, percent, IDLE_PERCENT, words)


def _straggling(percent: float, others: Sequence[float]) -> _Seen:
    usual = statistics.median(others)
    is_behind = percent <= min(STRAGGLER_RATIO * usual, usual - STRAGGLER_POINTS)
    words = f"{percent:.0f} % busy, the run's other GPUs {usual:.0f} %"
    return _Seen(is_behind and usual >= _BUSY_SIBLINGS, percent, usual, words)
