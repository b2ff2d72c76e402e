"""Replays rules over a finished history: the alerts that they would have raised."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from albor_core.andon.alert import Alert
from albor_core.andon.rules.engine import RuleEngine
from albor_core.andon.rules.sources import Rule

Row = tuple[int, Mapping[str, float]] | tuple[int, Mapping[str, float], float]


def replay(rules: Sequence[Rule], history: Iterable[Row]) -> tuple[Alert, ...]:
    """The alerts and ends over a history of (step, values) or (step, values, wall): a dry run."""
    engine = RuleEngine(rules)
    found: list[Alert] = []
    for step, values, *wall in history:
        found += engine.take_step(step, values, wall[0] if wall else float(step))
    return tuple(found)
