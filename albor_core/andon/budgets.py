"""Budgets: tokens and hours a run may use. Each warns at 90 % and acts at 100 %, once. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from albor_core.andon.alert import Alert, make_alert

WARN_AT = 0.9


@dataclass(frozen=True)
class Budgets:
    """Limits of one run; None is no limit. `wall_hours` counts every attempt, `action` at 100 %."""

    tokens: int | None = None
    wall_hours: float | None = None
    action: str = "stop"

    @classmethod
    def from_config(cls, monitoring: Mapping[str, Any]) -> Self:
        """The `budgets` of a resolved `monitoring` section."""
        found = monitoring.get("budgets") or {}
        return cls(found.get("tokens"), found.get("wall_hours"), found.get("action") or "stop")


def check_budgets(
    budgets: Budgets,
    *,
    tokens: float | None,
    wall_hours: float | None,
    already: frozenset[str],
    step: int = 0,
    attempt: int = 1,
) -> tuple[Alert, ...]:
    """New alerts; `already` holds the `rule` of those that fired (keep it in the checkpoint).

    An unknown amount (None) fires nothing. One that jumps over 90 % fires the limit alone.
    """
    return tuple(
        make_alert(
            rule,
            "budget",
            action,
            metric=metric,
            value=used,
            threshold=threshold,
            message=message,
            step=step,
            attempt=attempt,
        )
        for metric, limit, used in _amounts(budgets, tokens, wall_hours)
        for rule, action, threshold, message in _crossed(metric, limit, used, budgets.action)
        if rule not in already
    )


def _amounts(
    budgets: Budgets, tokens: float | None, wall_hours: float | None
) -> Iterator[tuple[str, float, float]]:
    pairs = (("tokens", budgets.tokens, tokens), ("wall_hours", budgets.wall_hours, wall_hours))
    for metric, limit, used in pairs:
        if limit is not None and used is not None and not math.isnan(used):
            yield metric, float(limit), float(used)


def _crossed(
    metric: str, limit: float, used: float, action: str
) -> Iterator[tuple[str, str, float, str]]:
    name = metric.replace("_", " ")
    if used >= limit:
        yield f"budget-{metric}", action, limit, f"budget of {limit:g} {name} is used up"
    elif used >= WARN_AT * limit:
        share = f"{used / limit:.0%} of the budget of {limit:g} {name} is used"
        yield f"budget-{metric}-90", "warn", WARN_AT * limit, share
