"""What runs take, by the values of training.mode: bytes made of each recipe's numbers."""

from __future__ import annotations

from albor_core.config.load import Config
from albor_core.config.recipes.registry import entry_of
from albor_core.plan.facts import PlanFacts
from albor_core.plan.memory import fusion_obstacles, memory, optimizer_bytes
from albor_core.plan.recipes import own
from albor_core.plan.recipes.cost import Cost


def cost_of(config: Config, facts: PlanFacts) -> Cost:
    """A checkpoint is fp32 weights and the optimizer's state, 12 N bytes with AdamW."""
    entry = entry_of(config.training.mode)
    if entry is None:
        return own.cost(config, facts)
    found = entry.numbers(config)
    counts = found.counts
    return Cost(
        title=found.title,
        shape=found.shape,
        parameters=found.shape.num_parameters,
        flops_per_token=found.flops_per_token,
        memory=memory(config, facts, counts, found.obstacles),
        checkpoint=4 * counts.in_checkpoint + optimizer_bytes(config, counts),
        obstacles=(
            *found.obstacles,
            *fusion_obstacles(config, facts.device, facts.gpu_capability),
        ),
    )
