"""What the steps of a run took, from the step times that its journal has."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Sequence


def step_seconds(step_ms: Sequence[tuple[int, float]], begins: Collection[int] = (0,)) -> float:
    """All steps of a journal's (step, mean ms since the line before), in seconds; those right after
    `begins`, where an attempt may have compiled, at the median.
    """
    usual = statistics.median(ms for _, ms in step_ms)
    before, total = 0, 0.0
    for step, ms in step_ms:
        total += (step - before) * (usual if before in begins else ms)
        before = step
    return total / 1000
