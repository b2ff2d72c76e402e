"""What runs take, by the values of training.mode: bytes made of each recipe's numbers."""

from __future__ import annotations

from dataclasses import replace

from albor_core.config.config import Config
from albor_core.config.recipes.registry import entry_of
from albor_core.plan.facts import PlanFacts
from albor_core.plan.memory import fusion_obstacles, memory, optimizer_bytes
from albor_core.plan.recipes.cost import Cost


def cost_of(config: Config, facts: PlanFacts) -> Cost:
    """A checkpoint is fp32 weights and the optimizer's state, 12 N bytes with AdamW."""
    mode = config.training.mode
    entry = entry_of(mode)
    found = facts.numbers if entry is None else entry.numbers(config)
    if found is None:
        title = f"{mode}, a class of your own"
        return Cost(title, obstacles=(f"{mode} has no form of it",))
    counts = found.counts
    made = Cost(
        title=found.title if entry is not None else f"{found.title}, of {mode}",
        parameters=counts.trained,
        flops_per_token=found.flops_per_token,
        checkpoint=4 * counts.in_checkpoint + optimizer_bytes(config, counts),
        obstacles=found.obstacles,
    )
    if found.shape is None:
        return made
    fusion = fusion_obstacles(config, facts.device, facts.gpu_capability)
    return replace(
        made,
        shape=None if entry is None else found.shape,
        memory=memory(config, facts, counts, found.obstacles),
        obstacles=(*found.obstacles, *fusion),
    )
