"""Budgets of a config beside what the plan says the run will use. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from albor_core.andon.budgets.limits import BudgetLimits, use
from albor_core.config.config import Config
from albor_core.plan.estimates import Duration, PlannedSteps
from albor_core.plan.facts import PlanFacts
from albor_core.run.values.quantity import percent

_EXACT = ("tokens", "steps")


@dataclass(frozen=True)
class PlannedBudget:
    """One limit; `planned` is the use at completion, None if unknown before."""

    amount: str
    unit: str
    limit: float
    planned: float | None
    action: str
    soft: float

    @property
    def share(self) -> float | None:
        """The share of the plan that the budget covers; 1 and more is all of it."""
        return self.limit / self.planned if self.planned else None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def words(self) -> str:
        """ "100 GPU-hours, the plan takes about 84.1 (84%)"."""
        limit = f"{self.limit:,.10g} {self.unit}"
        if self.planned is None:
            return f"{limit}, the plan cannot tell its use"
        about = "" if self.amount in _EXACT else "about "
        used = percent(self.planned / self.limit)
        return f"{limit}, the plan takes {about}{self.planned:,.4g} ({used})"


@dataclass(frozen=True)
class Expenses:
    """Energy and money of a run; None is unknown."""

    gpu_hours: float | None = None
    watts: float | None = None
    """Of its GPUs together."""
    watts_source: str = ""
    """How it is known: "measured", or "limit", the most that the GPUs may take."""
    energy_kwh: float | None = None
    money: float | None = None
    currency: str = ""


def expenses(config: Config, facts: PlanFacts, time: Duration | None) -> Expenses:
    """GPU-hours of all ranks, busy or not; energy by the power that was measured, else by the
    limit of the GPUs; money by the rates of monitoring.budgets, where what they need is known.
    """
    limits = BudgetLimits.from_config(config.resolved()["monitoring"])
    if time is None or facts.device != "cuda":
        return Expenses(currency=limits.currency)
    ranks, hours = config.training.distributed.world_size, time.seconds / 3600
    measured = None if facts.measured is None else facts.measured.watts
    limit = None if facts.gpu_power_limit_w is None else facts.gpu_power_limit_w * ranks
    watts = measured or limit
    energy = None if watts is None else watts * hours / 1000
    spent = use(limits, gpu_hours=hours * ranks, energy_kwh=energy)
    is_known = energy is not None or limits.rate_per_kwh is None
    return Expenses(
        hours * ranks,
        watts,
        "" if watts is None else "measured" if measured else "limit",
        energy,
        spent.money if is_known else None,
        limits.currency,
    )


def planned_budgets(
    config: Config, steps: PlannedSteps, time: Duration | None, spent: Expenses, *, device: str
) -> tuple[PlannedBudget, ...]:
    """Every limit of the config. Hours are those that the plan takes, energy what was measured."""
    limits = BudgetLimits.from_config(config.resolved()["monitoring"])
    hours = None if time is None else time.seconds / 3600
    gpus = config.training.distributed.world_size if device == "cuda" else 0
    is_measured = spent.watts_source == "measured"
    planned = use(
        limits,
        tokens=steps.total_tokens,
        steps=steps.max_steps,
        wall_hours=hours,
        gpu_hours=None if hours is None else hours * gpus,
        energy_kwh=spent.energy_kwh if is_measured else None,
    )
    is_money_known = limits.rate_per_kwh is None or is_measured
    return tuple(
        PlannedBudget(
            amount,
            limits.unit(amount),
            limit,
            None if amount == "money" and not is_money_known else getattr(planned, amount),
            limits.action,
            limits.soft,
        )
        for amount, limit in limits.items()
    )


def budget_notes(budgets: Sequence[PlannedBudget], max_steps: int | None) -> Iterator[str]:
    """Notes on where budgets end that the plan exceeds."""
    for one in budgets:
        if one.share is None or one.share >= 1 or max_steps is None:
            continue
        step = math.ceil(one.share * max_steps)
        about = "" if one.amount in _EXACT else "about "
        budget = f"the budget of {one.limit:,.10g} {one.unit}"
        yield f"{budget} is used up at {about}step {step:,} of {max_steps:,}"
