"""One optimizer step, as every rank takes it: micro-batches, gradients, update."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from albor_core.train.build import Parts
from albor_core.train.optim.gradients import Updated
from albor_core.train.process.faults import Faults
from albor_core.train.step.choose import PlainStep, half_batch_norm
from albor_core.train.step.fused import GraphedStep

Stepper = PlainStep | GraphedStep
Brick = Callable[[str], AbstractContextManager[None]]


def take_step(
    parts: Parts,
    stepper: Stepper,
    faults: Faults,
    brick: Brick,
    *,
    step: int,
    start: int,
    sequences: int,
) -> tuple[Tensor, Updated]:
    """Train step `step`, with which the run has seen `sequences`, on the global batch that begins
    at `start`: (loss of the whole batch, its update).

    Nothing here waits for the device. `brick` times the parts of it.
    """
    accumulation, divisors = parts.share.accumulation, parts.divisors(start)
    parts.optimizer.set_lr(parts.lr(sequences))
    number = parts.clock.batch_number(start)
    factors = [faults.factor(point, number) for point in ("loss", "grad")]
    small = _half_batch_norm(parts, stepper, step, start)
    total = torch.zeros((), device=parts.placement.device)
    for micro in range(accumulation):
        with brick("data"):
            faults.at("data", step)
            ids, labels = parts.labelled(start, micro)
        with brick("forward"):
            loss = stepper.forward(
                ids,
                *factors,
                labels=labels,
                divisor=divisors[micro],
                is_last=micro == accumulation - 1,
            )
        with brick("backward"):
            stepper.backward(micro)
        total += loss
        if micro == 0 and accumulation > 1:
            small = stepper.first_norm(divisors[0])
    with brick("optimizer"):
        total = parts.ranks.mean(total)
        updated = stepper.update(total)
    if small is not None:
        parts.measure_noise(small, updated.norm)
    return total, updated


def _half_batch_norm(parts: Parts, stepper: Stepper, step: int, start: int) -> Tensor | None:
    """Gradient norm of half the batch, where that is the only way to the noise scale."""
    every = parts.config.training.stability.noise_scale_interval
    if every is None or step % every or parts.share.accumulation > 1:
        return None
    return half_batch_norm(stepper, *parts.labelled(start, 0))
