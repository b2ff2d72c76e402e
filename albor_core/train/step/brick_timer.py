"""Where the time of a step goes, brick by brick (andon/bricks/names.py has what each is).

On a CPU by the wall clock. On a GPU the bricks of a step lie between events on its stream, read at
the log interval only, so that timing never makes the host wait for the device. Host work in such a
brick counts for as long as the device waits for it: data that is read while the device is busy
costs a step nothing. What happens between steps is on the clock on either.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import torch

from albor_core.andon.bricks.names import OTHER, in_order, is_of_step

Events = tuple[torch.cuda.Event, torch.cuda.Event]
Span = tuple[str, Events]  # of a stream, from event to event


@dataclass(frozen=True)
class BrickTimes:
    """The bricks of some steps: seconds of the host, and spans of the device."""

    seconds: Mapping[str, float]
    spans: Sequence[Span]
    used: list[Events] = field(default_factory=list)
    """Where the events go that have been read."""

    def ms(self, steps: int, step_ms: float) -> dict[str, float]:
        """Milliseconds of each, per step or, if it is not part of a step, in all; once. The
        device must be done with those steps.

        `other` is what of `step_ms` no brick explains.
        """
        found = {name: 1000 * seconds for name, seconds in self.seconds.items()}
        for name, (begin, end) in self.spans:
            found[name] = found.get(name, 0.0) + begin.elapsed_time(end)
        self.used.extend(events for _, events in self.spans)
        measured = {name: ms / steps if is_of_step(name) else ms for name, ms in found.items()}
        explained = sum(ms for name, ms in measured.items() if is_of_step(name))
        measured[OTHER] = max(0.0, step_ms - explained)
        return {name: measured[name] for name in in_order(measured)}


class BrickTimer:
    """Sums the time of named bricks until `drain`."""

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._seconds: dict[str, float] = {}
        self._spans: list[Span] = []
        self._free: list[Events] = []  # making events costs the host more than recording them
        self.is_traced = False
        """Whether a profiler runs that bricks are to be seen in."""

    def brick(self, name: str) -> AbstractContextManager[None]:
        """Count the time inside towards `name`; bricks do not lie in one another."""
        return self._traced(name) if self.is_traced else self._timed(name)

    @contextmanager
    def _traced(self, name: str) -> Iterator[None]:
        with torch.profiler.record_function(f"brick {name}"), self._timed(name):
            yield

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        if self._on_gpu and is_of_step(name):
            begin, end = self._free.pop() if self._free else (_event(), _event())
            begin.record()
            yield
            end.record()
            self._spans.append((name, (begin, end)))
        else:
            begun = time.perf_counter()
            yield
            self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - begun

    def drain(self) -> BrickTimes:
        """What was measured since the last call. Nothing waits."""
        taken = BrickTimes(self._seconds, self._spans, self._free)
        self._seconds, self._spans = {}, []
        return taken


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class StepEnd:
    """A point between two steps."""

    at: float
    """On the host's clock."""
    paused: float
    """Seconds that the clock stood still before it."""
    event: torch.cuda.Event | None
    """On the device's, behind the steps that were launched; None on a CPU."""

    def until(self, later: StepEnd) -> float:
        """Seconds from here, pauses left out; the device must have come past both."""
        paused = later.paused - self.paused
        if self.event is None or later.event is None:
            return later.at - self.at - paused
        return float(self.event.elapsed_time(later.event)) / 1000 - paused


class StepClock:
    """Wall time of steps alone: it stands still while `held` (evaluation, copies, pauses).

    A GPU is steps behind the host that launches them, so a step ends where the device says that it
    has done it. What it computes in a pause would be steps that took no time, so a pause begins
    when it has done the steps that were asked of it, and ends when it has done what the pause
    asked. That costs next to nothing: nearly every pause reads something from the device anyway,
    and no step is launched in one.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._paused = 0.0
        self._held_since: float | None = None
        self.is_disturbed = False
        """Whether something that leaves caches cold has held it since `begin_interval`."""
        self._last: StepEnd = self.mark()

    @contextmanager
    def held(self, *, disturbs: bool = True) -> Iterator[None]:
        self.is_disturbed |= disturbs
        if self._held_since is not None:  # a save in a pause: it stands still already
            yield
            return
        self.settle()
        since = self._held_since = time.perf_counter()
        try:
            yield
            self.settle()
        finally:
            self._paused += time.perf_counter() - since
            self._held_since = None

    def settle(self) -> None:
        """Wait for the device."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def mark(self) -> StepEnd:
        """Behind what was launched so far. Nothing waits."""
        now = time.perf_counter()
        held = 0.0 if self._held_since is None else now - self._held_since
        return StepEnd(now, self._paused + held, self._recorded())

    def _recorded(self) -> torch.cuda.Event | None:
        if self._device.type != "cuda":
            return None
        event = _event()
        event.record()
        return event

    def lap(self, mark: StepEnd) -> float:
        """Seconds from the last call to `mark`, which the device has come past."""
        last, self._last = self._last, mark
        return last.until(mark)

    def restart(self) -> None:
        """Start a new step now: earlier time belongs to none."""
        self._last = self.mark()

    def begin_interval(self) -> None:
        """Begin a log interval: it is not disturbed until something disturbs it."""
        self.is_disturbed = False
