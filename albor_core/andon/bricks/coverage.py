"""The share of a step's time that the bricks explain. Pure.

coverage = 1 - other / step, where `other` is the wall time of a step that lies in no brick. Below
LEAST the table is not reliable: something takes time that has no name. Up to SMALL_MS per step is
the interpreter between two bricks, negligible in steps of real models.
"""

from __future__ import annotations

from collections.abc import Mapping

from albor_core.andon.bricks.names import OTHER
from albor_core.andon.bricks.window import STEP, BrickWindow

LEAST = 0.95
SMALL_MS = 1.0
COVERAGE_KEY = "perf/brick_coverage"


def coverage(bricks_ms: Mapping[str, float], step_ms: float) -> float | None:
    """The coverage, 0..1; None if unknown."""
    other = bricks_ms.get(OTHER)
    return None if other is None or not step_ms > 0 else 1 - min(1.0, other / step_ms)


def uncovered(window: BrickWindow) -> float | None:
    """The coverage over a window if it is too small, else None; one odd interval does not count."""
    typical = window.typical()
    covered = coverage(typical, typical.get(STEP, 0.0)) if window.is_full else None
    is_small = covered is not None and covered < LEAST and typical[OTHER] > SMALL_MS
    return covered if is_small else None
