"""Where the rows of a W&B run lie: by the metrics that `define_metric` made its axes, and, of
several logs of one run, one behind the other. Pure.

A definition by name wins over patterns, of those the longest. A step that counts the calls of
`log` begins at 0 again with each offline job: the second job then goes on behind the first, or
where a key that counts on (`epoch`, `global_step`) says that it does.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from albor_core.run.values.lenient import is_number

_COUNTS_ON = re.compile(
    r"(?:.*[/_.])?(steps?|timesteps?|iterations?|iters?|updates?|batch|epochs?|tokens|samples)",
    re.IGNORECASE,
)
_IS_STEP = re.compile(r"(?:.*[/_.])?(global_?steps?|steps?|iterations?|iters?|updates?)", re.I)
_MOST_COUNTERS = 8
_MOST_STEPS = 1 << 48


def is_counter(key: str) -> bool:
    """Whether a key is called like something that only goes up."""
    return not key.startswith("_") and _COUNTS_ON.fullmatch(key) is not None


def is_step(key: str) -> bool:
    """Whether an axis is the step of the program, by its name."""
    return _IS_STEP.fullmatch(key) is not None


@dataclass
class Definition:
    """What `define_metric` said: over which metric, whether that is filled in, which value stands
    for the run, which way is better.
    """

    axis: str = ""
    is_filled: bool = False
    summary: str = ""
    goal: str = ""


@dataclass
class Axes:
    """All definitions of a run, and the newest value of each axis."""

    named: dict[str, Definition] = field(default_factory=dict)
    patterns: dict[str, Definition] = field(default_factory=dict)
    newest: dict[str, float] = field(default_factory=dict)

    def of(self, path: str) -> Definition | None:
        """The definition that a metric falls under."""
        if path in self.named:
            return self.named[path]
        fitting = [p for p in self.patterns if path.startswith(p[:-1])]
        return self.patterns[max(fitting, key=len)] if fitting else None

    @property
    def axes(self) -> frozenset[str]:
        """The metrics that are axes of others."""
        found = (*self.named.values(), *self.patterns.values())
        return frozenset(one.axis for one in found if one.axis)

    def split(self, values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """The values of a row by the axis they belong to, "" for the peer's own step; `values` may
        be nested.
        """
        parts: dict[str, dict[str, Any]] = {}
        axes = self.axes
        for words, value in _leaves(values, ()):
            path = ".".join(words)
            about = self.of(path)
            axis = about.axis if about is not None else ""
            if path in axes:
                axis = path  # an axis lies over itself
            parts.setdefault(axis, {})["/".join(words)] = value
        return parts

    def see(self, values: Mapping[str, Any]) -> frozenset[str]:
        """Take the newest value of each axis from a row; returns the axes that it has."""
        flat = {".".join(words): value for words, value in _leaves(values, ())}
        here = {axis: flat[axis] for axis in self.axes if is_number(flat.get(axis))}
        self.newest |= here
        return frozenset(here)


def _leaves(
    values: Mapping[str, Any], before: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, (*before, key))
        else:
            yield (*before, key), value


def whole_step(value: float | None) -> int | None:
    """The step that a value of an axis is, None where it is none."""
    if value is None or not is_number(value) or not 0 <= value < _MOST_STEPS or value != int(value):
        return None
    return int(value)


@dataclass
class LogSpan:
    """The range of one log, in the peer's own steps, and the positions of its counters."""

    first: int | None = None
    last: int | None = None
    begun: float | None = None
    ended: float | None = None
    counters: dict[str, tuple[list[float], list[int]]] = field(default_factory=dict)
    odd: set[str] = field(default_factory=set)  # counters that went back
    fractions: set[str] = field(default_factory=set)  # metrics that no axis of steps can be

    def see(self, step: int, wall: float | None, values: Mapping[str, Any]) -> None:
        self.first = step if self.first is None else self.first
        self.last = step if self.last is None else max(self.last, step)
        self.begun = wall if self.begun is None else self.begun
        self.ended = wall if wall is not None else self.ended
        for key, value in values.items():
            if is_number(value):
                if whole_step(value) is None:
                    self.fractions.add(key)
                if is_counter(key) and key not in self.odd:
                    self._count(key, value, step)

    def _count(self, key: str, value: float, step: int) -> None:
        if key not in self.counters and len(self.counters) >= _MOST_COUNTERS:
            return
        counts, steps = self.counters.setdefault(key, ([], []))
        if counts and value < counts[-1]:
            self.odd.add(key)
            del self.counters[key]
        elif not counts or value > counts[-1]:
            counts.append(value)
            steps.append(step)


def offsets(spans: list[LogSpan]) -> list[int]:
    """The offset added to the steps of each log, in the order of the logs."""
    found: list[int] = []
    for index, span in enumerate(spans):
        found.append(_offset(span, list(zip(spans[:index], found, strict=True))))
    return found


def _offset(span: LogSpan, before: list[tuple[LogSpan, int]]) -> int:
    known = [(one, add) for one, add in before if one.last is not None]
    if span.first != 0 or not known:
        return 0  # it was told its steps
    if any(_is_beside(one, span) for one, _ in known):
        return 0
    end = max(one.last + add for one, add in known if one.last is not None) + 1
    if end == 1:
        return end if known else 0
    for key, (counts, steps) in sorted(span.counters.items(), key=lambda one: not is_step(one[0])):
        earlier = [(one.counters[key], add) for one, add in known if key in one.counters]
        if not earlier or counts[0] <= min(places[0][0] for places, _ in earlier):
            continue  # it begins anew too, and says nothing
        for (seen, at), add in reversed(earlier):
            place = bisect.bisect_left(seen, counts[0])
            if place < len(seen):
                return max(0, at[place] + add - steps[0])
        return end
    return end


def _is_beside(one: LogSpan, other: LogSpan) -> bool:
    """Whether two programs logged at the same time."""
    if one.ended is None or other.begun is None or one.begun is None or other.ended is None:
        return False
    return other.begun < one.ended and one.begun < other.ended
