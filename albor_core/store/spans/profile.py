"""What a profiler trace of a few steps says of each brick: its time and its kernels by name. Pure.

On a GPU kernels are what ran there, counted to the brick that launched them; without one they are
the operators of the host, each by the time that is in no operator inside it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from albor_core.profile.trace import StepTrace, TraceEvent
from albor_core.run.values.lenient import finite_of

MOST_KERNELS = 16
"""Kernels of a brick that have a span each, the longest first; the rest share one."""
OTHERS = "other kernels"
_RANGE = "brick "


@dataclass
class KernelTime:
    count: int = 0
    us: float = 0.0


@dataclass
class BrickTime:
    """Microseconds of all its ranges, and of each kernel."""

    count: int = 0
    us: float = 0.0
    kernels: dict[str, KernelTime] = field(default_factory=dict)


@dataclass(frozen=True)
class ProfiledSteps:
    """Times are UTC seconds. Bricks are in the order in which they first ran."""

    start: float
    end: float
    bricks: Mapping[str, BrickTime]


def profile_of(trace: StepTrace) -> ProfiledSteps | None:
    """The steps of a trace; None if it has no brick."""
    base = finite_of(trace.metadata.get("baseTimeNanoseconds")) or 0.0
    ranges = _outermost(
        (one.begin, one.end, one.name.removeprefix(_RANGE))
        for one in trace.ranges
        if one.name.startswith(_RANGE)
    )
    if not ranges:
        return None
    bricks: dict[str, BrickTime] = defaultdict(BrickTime)
    for start, end, name in ranges:
        bricks[name].count += 1
        bricks[name].us += end - start
    for at, kernel, us in _of_device(trace) or _of_host(trace):
        if (inside := _brick_at(ranges, at)) is not None:
            one = bricks[inside].kernels.setdefault(kernel, KernelTime())
            one.count += 1
            one.us += us
    for brick in bricks.values():
        brick.kernels = _longest(brick.kernels)
    last = max(end for _, end, _ in ranges)
    return ProfiledSteps(base / 1e9 + ranges[0][0] / 1e6, base / 1e9 + last / 1e6, dict(bricks))


Range = tuple[float, float, str]


def _outermost(ranges: Iterable[Range]) -> list[Range]:
    """The ranges that lie in no other range."""
    kept: list[Range] = []
    for one in ranges:
        if not kept or one[0] >= kept[-1][1]:
            kept.append(one)
    return kept


def _brick_at(ranges: Sequence[Range], at: float) -> str | None:
    index = bisect_right(ranges, (at, float("inf"), "")) - 1
    return ranges[index][2] if index >= 0 and at <= ranges[index][1] else None


def _of_device(trace: StepTrace) -> list[tuple[float, str, float]]:
    """(when it was launched, its name, us) of all that ran on a GPU."""
    launched = {one.call: one.begin for one in trace.calls if one.call is not None}
    return [
        (launched[one.call], one.name, one.end - one.begin)
        for one in trace.device
        if one.call in launched
    ]


def _of_host(trace: StepTrace) -> list[tuple[float, str, float]]:
    """(begin, name, us of its own) of all operators of the host."""
    lanes: dict[object, list[TraceEvent]] = defaultdict(list)
    for one in trace.operators:
        lanes[one.lane].append(one)
    made: list[tuple[float, str, float]] = []
    for lane in lanes.values():
        made += _of_lane(sorted(lane, key=lambda one: (one.begin, -one.end)))
    return made


def _of_lane(lane: Sequence[TraceEvent]) -> list[tuple[float, str, float]]:
    own = [one.end - one.begin for one in lane]
    above: list[int] = []
    for index, one in enumerate(lane):
        while above and one.begin >= lane[above[-1]].end:
            above.pop()
        if above:
            own[above[-1]] -= one.end - one.begin
        above.append(index)
    return [(one.begin, one.name, max(0.0, us)) for one, us in zip(lane, own, strict=True)]


def _longest(kernels: Mapping[str, KernelTime]) -> dict[str, KernelTime]:
    ordered = sorted(kernels.items(), key=lambda item: (-item[1].us, item[0]))
    kept, rest = dict(ordered[:MOST_KERNELS]), ordered[MOST_KERNELS:]
    if rest:
        others = sum(one.count for _, one in rest), sum(one.us for _, one in rest)
        kept[OTHERS] = KernelTime(*others)
    return kept
