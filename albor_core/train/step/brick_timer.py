"""Where the time of a step goes: data, forward, backward, optimizer, and what is left over.

On a CPU by the wall clock. On a GPU by events on its stream, read at the log interval only, so that
timing never makes the host wait for the device; the data brick is host work and stays on the clock.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from albor_core.andon.bricks import BRICKS

NAMES = BRICKS
Span = tuple[str, torch.cuda.Event, torch.cuda.Event]  # of a stream, from event to event


@dataclass(frozen=True)
class BrickTimes:
    """The bricks of some steps: seconds of the host, and spans of the device."""

    seconds: Mapping[str, float]
    spans: Sequence[Span]

    def ms(self, steps: int, step_ms: float) -> dict[str, float]:
        """Milliseconds per step of each; the device must be done with those steps.

        `other` is what of `step_ms` no brick explains.
        """
        found = {name: 1000 * seconds for name, seconds in self.seconds.items()}
        for name, begin, end in self.spans:
            found[name] = found.get(name, 0.0) + begin.elapsed_time(end)
        measured = {name: ms / steps for name, ms in found.items()}
        return {**measured, "other": max(0.0, step_ms - sum(measured.values()))}


class BrickTimer:
    """Sums the time of named bricks until `take`."""

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._seconds: dict[str, float] = {}
        self._events: list[Span] = []

    @contextmanager
    def brick(self, name: str) -> Iterator[None]:
        """Count the time inside towards `name`."""
        if self._on_gpu and name != "data":
            begin, end = _event(), _event()
            begin.record()
            yield
            end.record()
            self._events.append((name, begin, end))
        else:
            begun = time.perf_counter()
            yield
            self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - begun

    def drain(self) -> BrickTimes:
        """What was measured since the last call. Nothing waits."""
        taken = BrickTimes(self._seconds, self._events)
        self._seconds, self._events = {}, []
        return taken


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


class StepClock:
    """Wall time of steps alone: it stands still while `held` (evaluation, copies, pauses)."""

    def __init__(self) -> None:
        self._seconds, self._since = 0.0, time.perf_counter()
        self._is_held = False
        self.is_disturbed = False
        """Whether something that leaves caches cold has held it since `begin_interval`."""

    @contextmanager
    def held(self, *, disturbs: bool = True) -> Iterator[None]:
        self.is_disturbed |= disturbs
        if self._is_held:  # a save in a pause: it stands still already
            yield
            return
        self._seconds += time.perf_counter() - self._since
        self._is_held = True
        try:
            yield
        finally:
            self._since, self._is_held = time.perf_counter(), False

    def lap(self) -> float:
        """Seconds since the last call."""
        now = time.perf_counter()
        seconds = self._seconds + now - self._since
        self._seconds, self._since = 0.0, now
        return seconds

    def begin_interval(self) -> None:
        """A new log interval: what disturbed the last one is over."""
        self.is_disturbed = False
