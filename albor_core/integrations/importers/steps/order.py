"""Histories whose author gave no step: every value of a metric lies on one step, though their times
differ, or its steps are times. Such values are numbered by their order, and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from albor_core.integrations.importers.foreign import (
    NO_STEP,
    ORDER,
    Example,
    Item,
    Losses,
    Point,
)
from albor_core.run.values.lenient import is_number, number_of

_UNITS = (1.0, 1e-3, 1e-6, 1e-9)  # of a time that stands where a step belongs, in seconds
_DAY = 86_400.0
_EARLIEST = 1e8  # seconds: a wall time, not seconds of a run


@dataclass
class _Span:
    """What is known of one metric: how many values, the ends of their steps and times, and in
    which units each of its steps was the time so far.
    """

    count: int = 0
    first: float = 0.0
    is_one_step: bool = True
    units: tuple[float, ...] = _UNITS
    wall: float | None = None
    has_times: bool = False

    def see(self, step: float, wall: float | None) -> None:
        if not self.count:
            self.first, self.wall = step, wall
        self.count += 1
        self.is_one_step &= step == self.first
        self.has_times |= wall != self.wall
        if wall is None or wall < _EARLIEST:
            self.units = ()
        elif self.units:
            self.units = tuple(unit for unit in self.units if abs(step * unit - wall) < _DAY)

    @property
    def has_no_step(self) -> bool:
        return bool(self.units) or (self.count > 1 and self.is_one_step and self.has_times)


def stepless(items: Iterable[Item]) -> frozenset[str]:
    """The metrics whose values have to be numbered by order. Reads a history once."""
    spans: dict[str, _Span] = {}
    for item in items:
        if isinstance(item, Point) and is_number(item.step):
            for key in item.values:
                spans.setdefault(key, _Span()).see(item.step, item.wall)
    return frozenset(key for key, span in spans.items() if span.has_no_step)


def numbered(items: Iterable[Item], keys: frozenset[str], losses: Losses) -> Iterator[Item]:
    """A history in which the values of `keys` lie at 0, 1, 2, ... in the order they come."""
    counts: Counter[str] = Counter()
    for item in items:
        if not isinstance(item, Point) or keys.isdisjoint(item.values):
            yield item
            continue
        if rest := {key: value for key, value in item.values.items() if key not in keys}:
            yield replace(item, values=rest)
        for key in keys.intersection(item.values):
            value, step = item.values[key], counts[key]
            counts[key] += 1
            losses.note(NO_STEP, example=Example(key, step, number_of(value)))
            yield Point(step, item.wall, {key: value}, axis=ORDER)
