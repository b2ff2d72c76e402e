"""Breaks down the time of traced steps: phases, kernels, idle time and its causes, calls, copies.
Pure functions of a trace; times in microseconds.

The counted time is from the beginning of the first step to the end of the last one, or of the last
work that it left to a device. Explained time is what a device (on a CPU: an operator) was busy for,
plus idle time whose cause the trace names; the rest is reported as unexplained.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from albor_core.andon.bricks.names import in_order, is_brick, parts_of
from albor_core.profile.intervals import (
    Span,
    gaps,
    self_times,
    shared,
    total,
    union,
    within,
    without,
)
from albor_core.profile.names import clean_name
from albor_core.profile.products import GEMM_KERNEL, GEMM_OPS
from albor_core.profile.trace import BRICK, STEP, StepTrace, TraceEvent
from albor_core.run.errors import DataError

_SYNC = re.compile(r"^(cuda|hip)((Stream|Device|Event)Synchronize|Memcpy)$|^cuCtxSynchronize$")
_LAUNCH = re.compile(r"^(cuda|cu|hip|hipExt)(Module)?Launch(Cooperative)?Kernel")
_GRAPH = re.compile(r"^(cuda|cu|hip)GraphLaunch")
_ITEM = "aten::_local_scalar_dense"
_COPY = re.compile(r"Memcpy (\w+)")
_Asked = dict[int | None, TraceEvent]
QUEUED, LAUNCHING = "between kernels that were queued", "launch latency"
COPYING = "copies alone, no kernel"


@dataclass(frozen=True)
class Phase:
    """A brick, or a named range of another program. Microseconds of all steps."""

    name: str
    host: float
    """Of the range on the host."""
    busy: float
    """That a device worked for it (on a CPU: operators), whenever it did."""
    launches: int
    syncs: int


@dataclass(frozen=True)
class Idle:
    """Time in which nothing was computed, by cause."""

    why: str
    time: float
    is_named: bool = True


@dataclass(frozen=True)
class KernelRow:
    """All kernels (on a CPU: operators by their own time) of one name. Microseconds of all
    steps."""

    name: str
    time: float
    count: int


@dataclass(frozen=True)
class Copies:
    """Copies in one direction."""

    direction: str
    count: int
    bytes: int
    time: float

    @property
    def gb_per_s(self) -> float | None:
        return self.bytes / self.time / 1000 if self.time else None


@dataclass(frozen=True)
class Breakdown:
    """The whole breakdown; counts and microseconds are totals over all steps."""

    steps: int
    wall: float
    is_gpu: bool
    phases: tuple[Phase, ...]
    busy: float
    """Something was computed."""
    idle: tuple[Idle, ...]
    kernels: tuple[KernelRow, ...]
    """The longest first."""
    by_phase: dict[str, tuple[KernelRow, ...]]
    launches: int
    graph_launches: int
    syncs: dict[str, int]
    items: int
    copies: tuple[Copies, ...]
    counters: dict[str, int]
    missing: tuple[str, ...]
    """What the trace does not have, in words."""

    @property
    def named_idle(self) -> float:
        return sum(one.time for one in self.idle if one.is_named)

    @property
    def coverage(self) -> float:
        """Share of the wall time that is explained: busy, or idle for a named cause."""
        return min(1.0, (self.busy + self.named_idle) / self.wall)

    @property
    def step_us(self) -> float:
        return self.wall / self.steps


def break_down(trace: StepTrace) -> Breakdown:
    """Break down a trace. Raises DataError for a trace without any work."""
    steps, window, missing = _steps(trace)
    is_gpu, phases = bool(trace.device), _phases(trace, window)
    work = [event for event in trace.device or trace.operators if _is_in(event, window)]
    calls = [event for event in trace.calls if _is_in(event, window)]
    syncs = [event for event in calls if _SYNC.match(event.name)]
    launched = [event for event in calls if _LAUNCH.match(event.name) or _GRAPH.match(event.name)]
    where = _Places(phases)
    asked: _Asked = {call.call: call for call in trace.calls if call.call is not None}
    own = _own_times(work, is_gpu)
    homes = [where.at(_asked_at(event, asked, is_gpu)) for event in work]
    busy = union(within(_spans(work), window))
    missing += _missing(trace, is_gpu, phases, asked)
    graphs = sum(1 for call in launched if _GRAPH.match(call.name))
    return Breakdown(
        steps,
        window[1] - window[0],
        is_gpu,
        _phase_rows(phases, work, homes, launched, syncs, where),
        *_busy_and_idle(busy, work, window, phases, syncs, asked, is_gpu),
        _kernel_rows(work, own),
        _kernels_by_phase(work, own, homes),
        len(launched) - graphs,
        graphs,
        dict(Counter(event.name for event in syncs).most_common()),
        sum(1 for op in trace.operators if op.name == _ITEM and _is_in(op, window)),
        _copies(work),
        _counters(trace, work, window, is_gpu),
        tuple(missing),
    )


def _is_in(event: TraceEvent, window: Span) -> bool:
    return window[0] <= event.begin < window[1]


def _spans(events: Iterable[TraceEvent]) -> list[Span]:
    return [(event.begin, event.end) for event in events]


def _steps(trace: StepTrace) -> tuple[int, Span, list[str]]:
    """The number of steps, their time span, and notes on what had to be guessed."""
    marked = [event for event in trace.ranges if event.name.startswith(STEP)]
    if marked:
        first, last = marked[0].begin, max(event.end for event in marked)
        in_steps = {call.call for call in trace.calls if call.begin < last} - {None}
        late = [e.end for e in trace.device if e.begin < last or e.call in in_steps]
        return len({e.name for e in marked}), (first, max([last, *late])), []
    bricks = [event for event in trace.ranges if event.name.startswith(BRICK)]
    work = bricks or [*trace.ranges, *trace.operators, *trace.device, *trace.calls]
    if not work:
        raise DataError(
            f"{trace.path}: nothing happens in it",
            hint="trace a step with torch.profiler, then run it again",
        )
    ends = [event.end for event in (*work, *trace.device)]
    window = (min(event.begin for event in work), max(ends))
    if window[1] <= window[0]:
        raise DataError(f"{trace.path}: all of it happens in no time", hint="trace a whole step")
    updates = sum("optimizer" in parts_of(e.name.removeprefix(BRICK)) for e in bricks)
    if updates:
        said = "no ranges of steps: counted by their optimizer, from the first brick to the last"
        return updates, window, [said]
    said = f"no ranges of steps ({STEP}N): all of the trace is taken for one step"
    return 1, window, [said]


def _phases(trace: StepTrace, window: Span) -> list[TraceEvent]:
    """Bricks, including those between steps; if a trace has none, the outermost ranges of the
    thread that names most. They do not overlap.
    """
    named = [e for e in trace.ranges if _is_in(e, window) and not e.name.startswith(STEP)]
    bricks = [e for e in named if e.name.startswith(BRICK)]
    if bricks:
        found = bricks
    else:
        lanes = Counter(event.lane for event in named)
        main = lanes.most_common(1)[0][0] if lanes else None
        found = [event for event in named if event.lane == main]
    apart: list[TraceEvent] = []
    for event in sorted(found, key=lambda event: (event.begin, -event.end)):
        if not apart or event.begin >= apart[-1].end:
            apart.append(event)
    return apart


class _Places:
    """Finds the phase of a moment."""

    def __init__(self, phases: Sequence[TraceEvent]) -> None:
        self._phases, self._begins = phases, [event.begin for event in phases]

    def at(self, moment: float | None) -> str | None:
        if moment is None:
            return None
        place = bisect_right(self._begins, moment) - 1
        if place < 0 or self._phases[place].end < moment:
            return None
        return phase_name(self._phases[place].name)


def phase_name(name: str) -> str:
    return name.removeprefix(BRICK)


def _asked_at(event: TraceEvent, asked: _Asked, is_gpu: bool) -> float | None:
    """The time when the host launched it; an operator is its own launch."""
    if not is_gpu:
        return event.begin
    call = asked.get(event.call) if event.call is not None else None
    return None if call is None else call.begin


def _own_times(work: Sequence[TraceEvent], is_gpu: bool) -> list[float]:
    """The whole time of kernels; of operators, which are nested, the time outside their
    children."""
    if is_gpu:
        return [event.end - event.begin for event in work]
    by_lane: dict[object, list[int]] = defaultdict(list)
    for at, event in enumerate(work):
        by_lane[event.lane].append(at)
    own = [0.0] * len(work)
    for places in by_lane.values():
        times = self_times([(work[at].begin, work[at].end) for at in places])
        for at, time in zip(places, times, strict=True):
            own[at] = time
    return own


def _phase_rows(
    phases: Sequence[TraceEvent],
    work: Sequence[TraceEvent],
    homes: Sequence[str | None],
    launched: Sequence[TraceEvent],
    syncs: Sequence[TraceEvent],
    where: _Places,
) -> tuple[Phase, ...]:
    host: dict[str, float] = defaultdict(float)
    for event in phases:
        host[phase_name(event.name)] += event.end - event.begin
    spans: dict[str, list[Span]] = defaultdict(list)
    for event, home in zip(work, homes, strict=True):
        if home is not None:
            spans[home].append((event.begin, event.end))
    launches = Counter(where.at(event.begin) for event in launched)
    waits = Counter(where.at(event.begin) for event in syncs)
    known = all(is_brick(name) for name in host)
    names = in_order(host) if known else sorted(host, key=lambda name: -host[name])
    return tuple(
        Phase(name, host[name], total(union(spans[name])), launches[name], waits[name])
        for name in names
    )


def _busy_and_idle(
    busy: Sequence[Span],
    work: Sequence[TraceEvent],
    window: Span,
    phases: Sequence[TraceEvent],
    syncs: Sequence[TraceEvent],
    asked: _Asked,
    is_gpu: bool,
) -> tuple[float, tuple[Idle, ...]]:
    """The time in which something was computed, and the rest of `window` by cause."""
    found: dict[str, float] = defaultdict(float)
    host: list[Span] = []
    unknown = 0.0
    starts = {event.begin: event for event in reversed(work)}
    waits, where = _Covering(syncs), _Places(phases)
    for begin, end in gaps(busy, window):
        next_up = starts.get(end) if is_gpu else None
        call = None if next_up is None else asked.get(next_up.call)
        if next_up is not None and call is None:
            unknown += end - begin
            continue
        if call is not None and call.begin <= begin:
            found[QUEUED] += end - begin
            continue
        at = end if call is None else min(max(call.end, begin), end)
        if (wait := waits.at(begin)) is None:
            host.append((begin, at))
        else:  # the host let the device run dry, and only then went on
            found[f"after {wait.name} in {where.at(wait.begin) or 'no range'}"] += at - begin
        found[LAUNCHING] += end - at
    computed = busy
    if is_gpu:
        kernels = union(within(_spans(e for e in work if e.kind == "kernel"), window))
        found[COPYING] += total(without(busy, kernels))
        computed = kernels
    unknown += _host_causes(host, phases, is_gpu, found)
    rows = [Idle(why, time) for why, time in sorted(found.items(), key=lambda x: -x[1]) if time > 0]
    if unknown > 0:
        rows.append(Idle("no range and no known cause", unknown, is_named=False))
    return total(computed), tuple(rows)


class _Covering:
    """Finds the host call that covers a moment; calls are in the order of their beginning."""

    def __init__(self, calls: Sequence[TraceEvent]) -> None:
        self._calls, self._begins = calls, [event.begin for event in calls]

    def at(self, moment: float) -> TraceEvent | None:
        place = bisect_right(self._begins, moment) - 1
        if place < 0 or self._calls[place].end < moment:
            return None
        return self._calls[place]


def _host_causes(
    idle: Sequence[Span], phases: Sequence[TraceEvent], is_gpu: bool, found: dict[str, float]
) -> float:
    """Add the host's phase during idle time to `found`; return the time in no phase."""
    by_name: dict[str, list[Span]] = defaultdict(list)
    for event in phases:
        by_name[phase_name(event.name)].append((event.begin, event.end))
    told = 0.0
    for name, spans in by_name.items():
        inside = total(shared(idle, union(spans)))
        words = "waits for the host in {}" if is_gpu else "in {}, outside of operators"
        found[words.format(name)] += inside
        told += inside
    return total(idle) - told


def _name_of(event: TraceEvent) -> str:
    return clean_name(event.name) if event.kind == "kernel" else event.name


def _kernel_rows(work: Sequence[TraceEvent], own: Sequence[float]) -> tuple[KernelRow, ...]:
    times: dict[str, float] = defaultdict(float)
    counts: Counter[str] = Counter()
    for event, time in zip(work, own, strict=True):
        name = _name_of(event)
        times[name] += time
        counts[name] += 1
    order = sorted(times, key=lambda name: (-times[name], name))
    return tuple(KernelRow(name, times[name], counts[name]) for name in order)


def _kernels_by_phase(
    work: Sequence[TraceEvent], own: Sequence[float], homes: Sequence[str | None]
) -> dict[str, tuple[KernelRow, ...]]:
    places: dict[str, list[int]] = defaultdict(list)
    for at, home in enumerate(homes):
        if home is not None:
            places[home].append(at)
    return {
        home: _kernel_rows([work[at] for at in inside], [own[at] for at in inside])
        for home, inside in places.items()
    }


def _copies(work: Sequence[TraceEvent]) -> tuple[Copies, ...]:
    found: dict[str, list[TraceEvent]] = defaultdict(list)
    for event in work:
        if event.kind == "copy":
            match = _COPY.match(event.name)
            found[match[1] if match else event.name].append(event)
    return tuple(
        Copies(
            direction,
            len(events),
            sum(event.bytes or 0 for event in events),
            sum(event.end - event.begin for event in events),
        )
        for direction, events in sorted(found.items())
    )


def _counters(
    trace: StepTrace, work: Sequence[TraceEvent], window: Span, is_gpu: bool
) -> dict[str, int]:
    operators = [op for op in trace.operators if _is_in(op, window)]
    gemms = sum(op.name in GEMM_OPS for op in operators)
    if is_gpu:
        gemms = sum(e.kind == "kernel" and bool(GEMM_KERNEL.search(e.name)) for e in work)
    pcie = [e for e in work if e.kind == "copy" and re.search(r"HtoD|DtoH", e.name)]
    return {
        "operators": len(operators),
        "kernels": sum(event.kind == "kernel" for event in work),
        "matrix_products": gemms,
        "pcie_bytes": sum(event.bytes or 0 for event in pcie),
        "streams": len({event.lane for event in work}) if is_gpu else 0,
        "threads": len({event.lane for event in operators}),
    }


def _missing(
    trace: StepTrace,
    is_gpu: bool,
    phases: Sequence[TraceEvent],
    asked: _Asked,
) -> list[str]:
    """Data that a report would need and the trace lacks."""
    found = []
    if trace.truncated:
        found.append("the end: the file breaks off, and what follows is not counted")
    if not any(event.name.startswith(BRICK) for event in phases):
        other = "its own outermost ranges are shown instead" if phases else "no phases are told"
        found.append(f"bricks: it is not of albor train; {other}")
    if not trace.device:
        found.append("device work: operators of the CPU are shown instead of kernels")
    elif not any(event.call in asked for event in trace.device if event.call is not None):
        found.append("calls of the driver: no launches, and why a device is idle is not told")
    if not trace.has_shapes and not any(op.dims for op in trace.operators):
        found.append("shapes of operators (record_shapes): no product is measured")
    return found
