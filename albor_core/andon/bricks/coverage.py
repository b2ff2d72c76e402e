"""How much of a step's time the bricks explain. Pure.

coverage = 1 - other / step, where `other` is what of the wall time of a step lies in no brick.
Below LEAST the table is not to be trusted: something takes time that has no name. Up to
SMALL_MS a step that is the interpreter between two bricks, which no step of a real model notices.
"""

from __future__ import annotations

from collections.abc import Mapping

from albor_core.andon.bricks.names import OTHER
from albor_core.andon.bricks.window import STEP, BrickWindow

LEAST = 0.95
SMALL_MS = 1.0
COVERAGE_KEY = "perf/brick_coverage"


def coverage(bricks_ms: Mapping[str, float], step_ms: float) -> float | None:
    """0..1; None where it is not known."""
    other = bricks_ms.get(OTHER)
    return None if other is None or not step_ms > 0 else 1 - min(1.0, other / step_ms)


def uncovered(window: BrickWindow) -> float | None:
    """The coverage over a window, if it is too small; one odd interval does not count."""
    typical = window.typical()
    covered = coverage(typical, typical.get(STEP, 0.0)) if window.is_full else None
    is_small = covered is not None and covered < LEAST and typical[OTHER] > SMALL_MS
    return covered if is_small else None
