"""The last values of a figure, and functions over them.

`at` of a value is its step, or on the machine its time; a window of N holds the values after `at -
N`. A function is unknown until its window is full, so that the unsteady first values of a run
trigger nothing. Non-finite values are left out. After a rollback the values of lost steps are
dropped.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from typing import Any

from albor_core.andon.rules.condition import Function, Windowed
from albor_core.run.headlines import HEADLINES

MORE_IS_BETTER = frozenset(one.key for one in HEADLINES if one.better == "max")


class Window:
    """The values of one `Windowed` expression."""

    def __init__(self, expression: Windowed) -> None:
        self.function: Function = expression.function
        self.size, self.metric = expression.size, expression.of.key
        self.first: float | None = None  # the earliest `at` that was seen
        self.points: deque[tuple[float, float]] = deque()
        self._sorted: list[float] = []
        self._needs_order = self.function in ("median", "min", "max")
        self._ema: float | None = None
        self._last: float | None = None
        self._keep = 1.0 - 2.0 / (self.size + 1.0)  # of an ema, per step

    def push(self, at: float, value: float) -> None:
        """Add a finite value."""
        self.forget(at)
        if self.first is None:
            self.first = at
        if self.function == "ema":
            self._push_ema(at, value)
            return
        self.points.append((at, value))
        if self._needs_order:
            insort(self._sorted, value)
        while self.points[0][0] <= at - self.size:
            self._drop(self.points.popleft()[1])

    def forget(self, at: float) -> None:
        """Drop values at `at` or later: the run returned to before that."""
        while self.points and self.points[-1][0] >= at:
            self._drop(self.points.pop()[1])

    def _drop(self, value: float) -> None:
        if self._needs_order:
            del self._sorted[bisect_left(self._sorted, value)]

    def _push_ema(self, at: float, value: float) -> None:
        if self._ema is None or self._last is None:
            self._ema = value
        else:
            steps = max(1.0, at - self._last)
            keep = self._keep if steps == 1.0 else self._keep**steps
            self._ema = keep * self._ema + (1.0 - keep) * value
        self._last = at

    def value(self, at: float) -> float | None:
        """The current value of the function; None while its window is not full."""
        if self.first is None or self.first > at - self.size + 1:
            return None
        if self.function == "ema":
            return self._ema
        if not self.points:
            return None
        if self.function == "plateau":
            return self._plateau(at)
        if self.function == "mean":
            return sum(value for _, value in self.points) / len(self.points)
        return ordered(self.function, self._sorted)

    def _plateau(self, at: float) -> float | None:
        half = at - self.size / 2
        values = [value for _, value in self.points]
        cut = sum(1 for when, _ in self.points if when <= half)
        return improvement(values[:cut], values[cut:], self.metric)

    def to_json(self) -> dict[str, Any]:
        return {
            "first": self.first,
            "points": [list(point) for point in self.points],
            "ema": self._ema,
            "last": self._last,
        }

    def load(self, saved: Any) -> None:
        """Restore the state that `to_json` returned. Raises TypeError, ValueError, KeyError for
        anything else."""
        points = [(float(at), float(value)) for at, value in saved["points"]]
        numbers = [saved[name] for name in ("first", "ema", "last")]
        first, ema, last = (None if one is None else float(one) for one in numbers)
        self.first, self._ema, self._last = first, ema, last
        self.points = deque(points)
        self._sorted = sorted(value for _, value in points) if self._needs_order else []


def ordered(function: Function, values: list[float]) -> float:
    """The minimum, median or maximum of sorted values."""
    if function == "min":
        return values[0]
    if function == "max":
        return values[-1]
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def improvement(older: list[float], newer: list[float], metric: str) -> float | None:
    """The share by which the mean of the newer half is better than that of the older one: lower, or
    higher for a figure for which more is better."""
    if not older or not newer:
        return None
    before, now = sum(older) / len(older), sum(newer) / len(newer)
    if not before:
        return None
    gain = (before - now) / abs(before)
    return -gain if metric in MORE_IS_BETTER else gain
