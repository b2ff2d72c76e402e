"""How fast a config trains, as measured: by a probe, or by earlier runs of its shape. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, stdev
from typing import Literal

DISCARDED = 5
"""Steps at the beginning of a probe: memory is taken, kernels are compiled, caches fill. The end of
the next one is where counting begins."""
LEAST = 0.05
"""The least that is said of a measured rate's uncertainty, of the rate."""


@dataclass(frozen=True)
class MeasuredSpeed:
    """Seconds of a config's parts; None where nothing says it."""

    source: Literal["probe", "runs"]
    words: str
    """Where it was measured, for people."""
    tokens_per_s: float
    """Between evaluations and checkpoints."""
    low: float
    high: float
    """Between which that lies."""
    start_s: float = 0.0
    """From the command to the first step, and from the last to the end."""
    eval_s: float | None = None
    """An evaluation."""
    checkpoint_s: float | None = None
    """What one holds the loop up."""
    watts: float | None = None
    """Of the GPUs together, while they train."""
    capped: float | None = None
    """Share of the samples in which a GPU was held back by its power limit."""

    def seconds(self, tokens: int, evaluations: int, checkpoints: int, rate: float) -> float:
        """The time of a run of `tokens`, at `rate`."""
        saves = checkpoints * (self.checkpoint_s or 0.0)
        return self.start_s + saves + evaluations * (self.eval_s or 0.0) + tokens / rate


@dataclass(frozen=True)
class ProbeLine:
    """A logged step of a probe, and what of the time since the one before was an evaluation."""

    step: int
    wall: float
    eval_s: float = 0.0
    tokens: float = 0.0
    """Trained on so far."""


@dataclass(frozen=True)
class ProbeTimes:
    """The recorded times of a probe."""

    began: float
    """When its process was started."""
    ended: float
    lines: Sequence[ProbeLine]
    saves: Sequence[int]
    """Steps behind which a checkpoint was begun."""


def measured_window(times: ProbeTimes) -> tuple[float, float] | None:
    """The time range in which a probe's steps count; None if there were too few."""
    lines = counted_lines(times)
    return (lines[0].wall, lines[-1].wall) if len(lines) >= 3 else None


def counted_lines(times: ProbeTimes) -> Sequence[ProbeLine]:
    """The log lines between which a probe's steps count; the first is where counting begins."""
    return times.lines[max(0, min(DISCARDED, len(times.lines) - 4)) :]


def from_probe(
    times: ProbeTimes, where: str, *, watts: float | None = None, capped: float | None = None
) -> MeasuredSpeed | None:
    """The parts of a run by a probe that logged every step; None of too few steps.

    A step right behind a checkpoint tells, by what it takes more than the others, what a
    checkpoint costs. The first evaluation is one like the others, and what it takes more than
    they do is a part of the start.
    """
    if measured_window(times) is None:
        return None
    lines = times.lines
    paces: list[tuple[float, float]] = []
    saving: list[tuple[float, float]] = []
    for before, line in pairwise(counted_lines(times)):
        took = line.wall - before.wall - line.eval_s
        (saving if before.step in times.saves else paces).append(
            (took, line.tokens - before.tokens)
        )
    paces = paces or saving
    seconds, tokens = sum(t for t, _ in paces), sum(n for _, n in paces)
    if seconds <= 0 or tokens <= 0:
        return None
    rate = tokens / seconds
    spread = _uncertainty([took / number for took, number in paces if number > 0])
    evals = [line.eval_s for line in lines if line.eval_s > 0]
    eval_s = fmean(evals[1:] or evals) if evals else None
    first = (lines[0].tokens / rate) + (eval_s or 0.0)
    slower = [max(0.0, took - number / rate) for took, number in saving]
    return MeasuredSpeed(
        "probe",
        where,
        rate,
        rate * (1 - spread),
        rate * (1 + spread),
        start_s=max(0.0, lines[0].wall - times.began - first) + times.ended - lines[-1].wall,
        eval_s=eval_s,
        checkpoint_s=fmean(slower) if slower else None,
        watts=watts,
        capped=capped,
    )


def from_runs(runs: Sequence[MeasuredSpeed]) -> MeasuredSpeed | None:
    """One answer of several runs: the mean, between the slowest and the fastest."""
    if not runs:
        return None
    rates = [one.tokens_per_s for one in runs]
    names = ", ".join(one.words for one in runs[:3]) + (" ..." if len(runs) > 3 else "")
    count = "1 earlier run" if len(runs) == 1 else f"{len(runs)} earlier runs"
    margin = 2 * LEAST if len(runs) == 1 else LEAST
    return MeasuredSpeed(
        "runs",
        f"{count} of this shape here ({names})",
        fmean(rates),
        min(rates) * (1 - margin),
        max(rates) * (1 + margin),
        start_s=fmean(one.start_s for one in runs),
        eval_s=_mean([one.eval_s for one in runs]),
        checkpoint_s=_mean([one.checkpoint_s for one in runs]),
        watts=_mean([one.watts for one in runs]),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _uncertainty(paces: Sequence[float]) -> float:
    """Two standard errors of their mean, as a share of it."""
    if len(paces) < 2:
        return 4 * LEAST
    return max(LEAST, min(0.5, 2 * stdev(paces) / math.sqrt(len(paces)) / fmean(paces)))
