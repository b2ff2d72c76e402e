"""What runs take, by the values of training.mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from albor_core.config.load import Config
from albor_core.plan.facts import PlanFacts
from albor_core.plan.recipes import causal_lm, own
from albor_core.plan.recipes.cost import Cost

COSTS: Mapping[str, Callable[[Config, PlanFacts], Cost]] = {"causal_lm": causal_lm.cost}


def cost_of(config: Config, facts: PlanFacts) -> Cost:
    return COSTS.get(config.training.mode, own.cost)(config, facts)
