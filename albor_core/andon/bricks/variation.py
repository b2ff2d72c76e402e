"""Decides when a profiler trace of single kernels is worth recording, and how often it may be.
Pure.

variation  of a brick: the coefficient of variation over MANY blocks, robustly 1.4826 MAD / median
           (Hampel 1974, J. Amer. Stat. Assoc. 69, 383-393), which for normal deviations is standard
           deviation / mean; single odd blocks do not count. Above MOST_VARIATION it is
           worth a look, for bricks that are LEAST_SHARE of the step or more.
efficiency model FLOPs utilisation (MFU): the floating-point operations that the model needs for the
           interval's tokens, per second, over the peak of the devices. Unknown where the peak is
           (every CPU). Below LEAST_EFFICIENCY it is worth a look.

Either is judged once an attempt has trained for SETTLED_S: what is over by then does not matter.
"""

from __future__ import annotations

from collections.abc import Collection
from statistics import median

from albor_core.andon.bricks.learned import LEAST_SHARE
from albor_core.andon.bricks.names import OTHER, is_of_step
from albor_core.andon.bricks.window import MANY, STEP, BrickWindow

MOST_VARIATION = 0.15
LEAST_EFFICIENCY = 0.25
SETTLED_S = 60.0
_NORMAL = 1.4826  # a standard deviation in median absolute deviations

TRACES = 5
"""That a run keeps at most."""
TRACE_BYTES = 10 << 20
"""Of one at most."""
TRACE_STEPS = 3
TRACE_GAP_S = 3600.0


def variation(past: Collection[float]) -> float:
    """The robust coefficient of variation; 0 of values around 0."""
    middle = median(past) if past else 0.0
    if middle <= 0:
        return 0.0
    return _NORMAL * median(abs(value - middle) for value in past) / middle


def unsteadiest(window: BrickWindow) -> tuple[str, float] | None:
    """The brick with the largest variation, and that variation, if it is above the limit."""
    typical = window.typical()
    step = typical.get(STEP, 0.0)
    if len(window.blocks) < MANY or window.seconds < SETTLED_S:
        return None
    found = [
        (variation(window.past(brick)), brick)
        for brick, ms in typical.items()
        if brick not in (STEP, OTHER) and is_of_step(brick) and ms >= LEAST_SHARE * step
    ]
    worst, brick = max(found, default=(0.0, ""))
    return (brick, worst) if worst > MOST_VARIATION else None


def is_wasteful(window: BrickWindow, efficiency: float | None) -> bool:
    """Whether the device reaches too little of its peak."""
    is_settled = window.is_full and window.seconds >= SETTLED_S
    return is_settled and efficiency is not None and efficiency < LEAST_EFFICIENCY


def may_trace(taken_at: Collection[float], wall: float) -> bool:
    """Whether a run with traces at those times may record another one now."""
    is_rested = all(wall - taken >= TRACE_GAP_S for taken in taken_at)
    return len(taken_at) < TRACES and is_rested
