"""A decoder that predicts the next token: all that its shape says."""

from __future__ import annotations

from albor_core.config.load import Config
from albor_core.plan.facts import PlanFacts
from albor_core.plan.memory import Lots, fusion_obstacles, memory
from albor_core.plan.recipes.cost import Cost


def cost(config: Config, facts: PlanFacts) -> Cost:
    """A checkpoint is fp32 weights and the optimizer's state, 12 N bytes with AdamW."""
    shape = config.model.architecture.shape()
    lots = Lots.of_all(shape)
    window = "" if shape.sliding_window is None else f", window {shape.sliding_window:,}"
    pattern = config.model.architecture.window_pattern
    return Cost(
        title=f"{shape.model_type} ({shape.num_hidden_layers}L, {shape.hidden_size}H, "
        f"{shape.num_attention_heads}A, {shape.num_key_value_heads}KV)"
        f"{window}{pattern and f' in {pattern}'}",
        shape=shape,
        parameters=shape.num_parameters,
        flops_per_token=shape.flops_per_token(config.data.seq_len),
        memory=memory(config, facts, lots),
        checkpoint=lots.checkpoint(config),
        obstacles=fusion_obstacles(config, facts.device, facts.gpu_capability),
    )
