"""Budgets: what a run may use. Each warns at its soft share and acts at its limit, once. Pure.

tokens      training tokens
steps       optimizer steps
wall_hours  hours of every attempt since the first start
gpu_hours   GPUs the run uses, busy or not, times wall hours
energy_kwh  of its GPUs' boards (energy.py)
money       GPU-hours or kWh times a rate
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields
from typing import Any, Self

from albor_core.andon.alert import Alert, make_alert
from albor_core.run.light_dataclass import dataclass

SOFT = 0.9
AMOUNTS = ("tokens", "steps", "wall_hours", "gpu_hours", "energy_kwh", "money")
_UNITS = {"gpu_hours": "GPU-hours", "energy_kwh": "kWh"}


@dataclass(frozen=True)
class Use:
    """The use of all attempts together; None is unknown."""

    tokens: float | None = None
    steps: float | None = None
    wall_hours: float | None = None
    gpu_hours: float | None = None
    energy_kwh: float | None = None
    money: float | None = None


@dataclass(frozen=True)
class BudgetLimits:
    """Limits of one run; None means no limit. `action` is taken at the limit, a warning raised at
    the share `soft`."""

    tokens: float | None = None
    steps: float | None = None
    wall_hours: float | None = None
    gpu_hours: float | None = None
    energy_kwh: float | None = None
    money: float | None = None
    action: str = "stop"
    soft: float = SOFT
    rate_per_gpu_hour: float | None = None
    rate_per_kwh: float | None = None
    currency: str = ""

    @classmethod
    def from_config(cls, monitoring: Mapping[str, Any]) -> Self:
        """Read the `budgets` of a resolved `monitoring` section, or of rules.yaml."""
        found = monitoring.get("budgets") or {}
        known = {f.name for f in fields(cls)}
        return cls(**{k: v for k, v in found.items() if k in known and v is not None})

    def items(self) -> tuple[tuple[str, float], ...]:
        """The limits that are set, in the order of AMOUNTS."""
        return tuple((n, float(v)) for n in AMOUNTS if (v := getattr(self, n)) is not None)

    def unit(self, amount: str) -> str:
        """The unit of an amount: "wall hours", "kWh", "EUR"."""
        if amount == "money":
            return self.currency or "money"
        return _UNITS.get(amount, amount.replace("_", " "))

    def rules(self) -> frozenset[str]:
        """The `rule` of every alert that acts, in contrast to those that only warn."""
        return frozenset(f"budget-{amount}" for amount, _ in self.items())


def use(
    limits: BudgetLimits,
    *,
    tokens: float | None = None,
    steps: float | None = None,
    wall_hours: float | None = None,
    gpu_hours: float | None = None,
    energy_kwh: float | None = None,
) -> Use:
    """The use with its cost: GPU-hours and kWh at their rates."""
    costs = [
        rate * amount
        for rate, amount in (
            (limits.rate_per_gpu_hour, gpu_hours),
            (limits.rate_per_kwh, energy_kwh),
        )
        if rate is not None and amount is not None
    ]
    return Use(tokens, steps, wall_hours, gpu_hours, energy_kwh, sum(costs) if costs else None)


def check_budgets(
    limits: BudgetLimits,
    used: Use,
    *,
    already: Collection[str] = (),
    step: int = 0,
    attempt: int = 1,
) -> tuple[Alert, ...]:
    """New alerts; `already` holds the `rule` of those that fired (keep it in the checkpoint).

    An unknown amount (None, NaN) raises nothing. One that passes both thresholds at once raises
    only the alert of the limit.
    """
    return tuple(
        make_alert(
            rule,
            "budget",
            action,
            metric=amount,
            value=value,
            threshold=threshold,
            message=message,
            step=step,
            attempt=attempt,
        )
        for amount, limit in limits.items()
        if (value := getattr(used, amount)) is not None and not math.isnan(value)
        for rule, action, threshold, message in _crossed(limits, amount, limit, value)
        if rule not in already
    )


def _crossed(
    limits: BudgetLimits, amount: str, limit: float, value: float
) -> Iterator[tuple[str, str, float, str]]:
    name = f"{limit:g} {limits.unit(amount)}"
    if value >= limit:
        yield f"budget-{amount}", limits.action, limit, f"budget of {name} is used up"
    elif value >= limits.soft * limit:
        share = f"{value / limit:.0%} of the budget of {name} is used"
        yield f"budget-{amount}-{100 * limits.soft:g}", "notify", limits.soft * limit, share
