"""Gradients between the backward pass and the update: their norms, clipping, fp16's loss scale."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Updated(NamedTuple):
    """The results of one optimizer update, as scalars on the device."""

    norm: Tensor
    """Of the gradients, before clipping."""
    skip: Tensor
    """1.0 if something was not finite and nothing moved, else 0.0."""
    counts: Tensor
    """`skip`, but 0.0 for an overflow by which a loss scale is found."""
    spike: Tensor
    """1.0 if ZClip scaled the gradients down, else 0.0."""


def gradient_norms(gradients: list[Tensor]) -> Tensor:
    """(n,) the L2 norm of each gradient, on the device; no host sync."""
    return torch.stack(list(torch._foreach_norm(gradients)))


def scale_gradients(gradients: list[Tensor], factor: Tensor | None) -> None:
    """Scale gradients in place. A factor of NaN makes every gradient NaN: such a step is skipped
    anyway."""
    if factor is not None:
        torch._foreach_mul_(gradients, factor)


class LossScale:
    """Dynamic loss scaling for fp16, kept on the device: halves after an overflow, doubles after
    GROW_AFTER good steps (Micikevicius et al. 2018, arXiv:1710.03740, section 3.2). Never syncs.
    """

    GROW_AFTER = 2000
    START = 65536.0

    def __init__(self, device: torch.device) -> None:
        self.scale = torch.full((), self.START, device=device)
        self.good_steps = torch.zeros((), device=device)

    def reset(self) -> None:
        self.load([self.START, 0.0])

    def unscale(self, gradients: list[Tensor]) -> None:
        torch._foreach_mul_(gradients, self.scale.reciprocal())

    def update(self, overflowed: Tensor) -> None:
        """Adapt to one step; `overflowed` is a float scalar, 1 if its gradients were not finite."""
        bad = overflowed > 0
        good_steps = torch.where(bad, 0.0, self.good_steps + 1)
        grown = good_steps >= self.GROW_AFTER
        factor = torch.where(bad, 0.5, torch.where(grown, 2.0, 1.0))
        self.scale.copy_(torch.clamp(self.scale * factor, 2.0**-14, 2.0**24))
        self.good_steps.copy_(torch.where(grown, 0.0, good_steps))

    def to_json(self) -> list[float]:
        return [float(self.scale), float(self.good_steps)]

    def load(self, saved: list[float]) -> None:
        self.scale.fill_(saved[0])
        self.good_steps.fill_(saved[1])
