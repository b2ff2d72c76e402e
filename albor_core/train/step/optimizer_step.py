"""One optimizer step, as every rank takes it: micro-batches, gradients, update."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import Tensor

from albor_core.andon.bricks.names import Brick
from albor_core.recipes.batch import Batch
from albor_core.train.build import BatchWeight, Parts
from albor_core.train.optim.gradients import Updated
from albor_core.train.process.faults import Faults
from albor_core.train.step.fused import GraphedStep
from albor_core.train.step.plain import PlainStep

Stepper = PlainStep | GraphedStep


def take_step(
    parts: Parts,
    stepper: Stepper,
    faults: Faults,
    brick: Brick,
    *,
    step: int,
    start: int,
    sequences: int,
    batch: int,
) -> tuple[Tensor, Updated, tuple[Tensor, ...]]:
    """Train step `step`, with which the run has seen `sequences`, on the global batch of `batch`
    that begins at `start`: (loss of the whole batch, its update, the recipe's own figures of it).

    Nothing here waits for the device. `brick` times the parts of it.
    """
    brick, parts = faults.slowed(brick, step), parts.at(sequences - batch)
    accumulation, weights = parts.share.accumulation, parts.weights(start)
    parts.optimizer.set_lr(parts.lr(sequences))
    number = parts.clock.batch_number(start)
    factors = [faults.factor(point, number) for point in ("loss", "grad")]
    small = _norm_for_noise_scale(parts, stepper, brick, step, start)
    total = torch.zeros((), device=parts.placement.device)
    named = torch.zeros(len(parts.recipe.columns), device=parts.placement.device)
    for micro in range(accumulation):
        loss = stepper.forward(
            parts.batch(start, micro, brick),
            *factors,
            weight=weights[micro],
            is_last=micro == accumulation - 1,
            brick=brick,
        )
        stepper.backward(micro, brick)
        total += loss
        if len(named):
            named += stepper.named()
        if micro == 0 and accumulation > 1:
            small = stepper.first_norm(weights[0].divisor)
    with brick(stepper.clips_in):
        total = parts.ranks.mean(total)
        named = parts.ranks.mean(named) if len(named) else named
    judged = torch.zeros_like(total) if parts.recipe.judges_loss else total
    updated = stepper.update(judged, brick)
    if small is not None:
        parts.measure_noise(small, updated.norm)
    return total, updated, named.unbind()


def _norm_for_noise_scale(
    parts: Parts, stepper: Stepper, brick: Brick, step: int, start: int
) -> Tensor | None:
    """Gradient norm of half the batch, where that is the only way to the noise scale."""
    every = parts.config.training.stability.noise_scale_interval
    if every is None or step % every or parts.share.accumulation > 1:
        return None
    rows = parts.share.batch_size // 2
    world = range(parts.ranks.world_size)
    scored = [2 * parts.source.count(parts.rows(start, 0, rank)[:rows]) for rank in world]
    weight = BatchWeight(scored[parts.ranks.rank], sum(scored) / len(scored))
    return half_batch_norm(stepper, parts.batch(start, 0, brick), brick, weight)


def half_batch_norm(
    step: Stepper,
    batch: Batch,
    brick: Brick = nullcontext,
    weight: BatchWeight | None = None,
) -> Tensor:
    """Gradient norm of the first half of a micro-batch, B even; nothing else changes.

    The half goes in twice: shapes stay, so nothing is compiled or captured anew. `weight`: of both.
    """
    step.forward(batch.first(len(batch) // 2).repeated(2), weight=weight, brick=brick)
    step.backward(0, brick)
    norm = step.norm()
    step.drop()
    return norm
