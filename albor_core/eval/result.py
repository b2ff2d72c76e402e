"""Results of an evaluation: scores, their basis, and the files of items. No torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from albor_core.eval.interval import binomial_interval

Better = Literal["min", "max"]


@dataclass(frozen=True)
class Score:
    """One number. A run records it as `eval/NAME`."""

    name: str
    """Task and figure: "humaneval/pass@1"."""
    value: float
    better: Better
    n: int
    """Items that it is of."""
    stderr: float | None = None
    """Of the mean over items; None where the figure is not one, and where all items passed or none
    did: the interval says it then."""
    low: float | None = None
    """Of the exact 95 % interval where each item has 0 or 1; None elsewhere, as `high`."""
    high: float | None = None


@dataclass(frozen=True)
class TaskResult:
    """The result of one task."""

    task: str
    kind: str
    scores: tuple[Score, ...]
    items: str
    """The file beside the result that has a line of JSON an item."""
    seconds: float = 0.0
    """Filled in by whoever runs the task; of a resumed one, since it went on."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """How it came about, strict JSON: what of the settings decides the figures."""


@dataclass(frozen=True)
class Likelihood:
    """The likelihood of a continuation after its context."""

    sum: float
    """ln p, added up over tokens in fp64."""
    tokens: int
    is_greedy: bool
    """Whether each of its tokens was the likeliest."""


def mean_score(name: str, values: Sequence[float], better: Better = "max") -> Score:
    """The mean of one value per item, with its standard error (n - 1 degrees of freedom) and, if
    items pass or fail, its exact interval; NaN without items.
    """
    n = len(values)
    if n == 0:
        return Score(name, math.nan, better, 0)
    mean = math.fsum(values) / n
    low, high = None, None
    if all(value in (0, 1) for value in values):
        low, high = binomial_interval(round(math.fsum(values)), n)
    if n == 1 or (low is not None and mean in (0, 1)):
        return Score(name, mean, better, n, None, low, high)
    spread = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    return Score(name, mean, better, n, math.sqrt(spread / n), low, high)
