"""Tokens and seconds along the steps of a run, also between the steps that they were logged at."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

from albor_core.run.light_dataclass import dataclass


@dataclass(frozen=True)
class Ruler:
    """Another measure of a step (tokens seen, seconds since the start): piecewise linear between
    known places, both ascending, by the overall slope beyond them."""

    steps: tuple[float, ...]
    values: tuple[float, ...]

    @classmethod
    def of(cls, pairs: Sequence[tuple[float, float]]) -> Ruler | None:
        """A ruler through places in order of steps; None where fewer than one of them is finite
        and beyond zero. Places that go back (a clock set back) are left out."""
        steps, values = [0.0], [0.0]
        for step, value in pairs:
            if math.isfinite(value) and step > steps[-1] and value >= values[-1]:
                steps.append(step)
                values.append(value)
        known = values[-1] > values[0]
        return cls(tuple(steps), tuple(values)) if known else None

    def at(self, step: float) -> float:
        """The measure of a step."""
        return _interpolated(self.steps, self.values, step)

    def step_at(self, value: float) -> float:
        """The step at which the measure is reached."""
        return _interpolated(self.values, self.steps, value)


def _interpolated(xs: tuple[float, ...], ys: tuple[float, ...], x: float) -> float:
    i = bisect_right(xs, x)
    if 0 < i < len(xs):
        share = (x - xs[i - 1]) / (xs[i] - xs[i - 1])
        return ys[i - 1] + share * (ys[i] - ys[i - 1])
    edge = 0 if i == 0 else -1
    slope = (ys[-1] - ys[0]) / (xs[-1] - xs[0])
    return ys[edge] + (x - xs[edge]) * slope
