"""AdamW and its learning rate. The rate is a pure function of the step: a resumed run needs no
scheduler state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from albor_core.model.llama import param_groups


@dataclass(frozen=True)
class Schedule:
    """Linear warm-up, then cosine or linear down to `min_lr` at `num_steps`, or constant."""

    lr: float
    min_lr: float
    warmup_steps: int
    num_steps: int
    name: str = "cosine"

    def lr_at(self, step: int) -> float:
        """The rate of step 1, 2, ...: `lr` at the last step of warm-up, `min_lr` at the end."""
        if step < self.warmup_steps:
            return self.lr * step / self.warmup_steps
        if self.name == "constant":
            return self.lr
        span = max(1, self.num_steps - self.warmup_steps)
        done = min(1.0, max(0.0, (step - self.warmup_steps) / span))
        left = 1.0 - done if self.name == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))
        return self.min_lr + (self.lr - self.min_lr) * left


class Optimizer:
    """torch's AdamW, fused on a GPU and one plain loop over the tensors on a CPU (same bits every
    time), with state by parameter name, so that a checkpoint reads like the model's.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        fused: bool,
    ) -> None:
        self.adamw = torch.optim.AdamW(
            param_groups(model, weight_decay),
            lr=lr,
            betas=betas,
            eps=eps,
            fused=fused,
            foreach=None if fused else False,
        )
        self._fused = fused
        self._names = {id(p): name for name, p in model.named_parameters() if p.requires_grad}

    @property
    def parameters(self) -> list[Tensor]:
        """Every trained tensor, in the optimizer's order."""
        return [p for group in self.adamw.param_groups for p in group["params"]]

    def set_lr(self, lr: float) -> None:
        for group in self.adamw.param_groups:
            group["lr"] = lr

    def step(self, skip: Tensor) -> None:
        """Apply the gradients unless `skip` (a float scalar on the device) is 1.

        A skipped step leaves weights, moments and step counts as they are. On a GPU the fused
        kernel reads `skip` itself; on a CPU reading it costs nothing.
        """
        if self._fused:
            self.adamw.found_inf = skip  # type: ignore[attr-defined]  # torch's own protocol with GradScaler
            self.adamw.step()
        elif not skip.item():
            self.adamw.step()
        self.adamw.zero_grad(set_to_none=True)

    def tensors(self) -> dict[str, Tensor]:
        """State as flat names, `exp_avg.<parameter>` and so on; live tensors, not copies."""
        flat = {}
        for parameter, state in self.adamw.state.items():
            for key, value in state.items():
                flat[f"{key}.{self._names[id(parameter)]}"] = value
        return flat

    def load(self, tensors: dict[str, Tensor]) -> None:
        """Take over the state that `tensors` gave. Raises KeyError for an unknown parameter."""
        by_name = {self._names[id(p)]: p for p in self.parameters}
        for flat, value in tensors.items():
            key, name = flat.split(".", 1)
            parameter = by_name[name]
            # step counts live where torch keeps them: on the device only for the fused kernel
            device = "cpu" if key == "step" and not self._fused else parameter.device
            self.adamw.state[parameter][key] = value.to(device, copy=True)


def clip_gradients(parameters: list[Tensor], max_norm: float | None) -> Tensor:
    """The global L2 norm of the gradients before clipping, on the device; no host sync.

    With `max_norm` gradients are scaled to it where they exceed it. A NaN norm makes every gradient
    NaN: the step is skipped anyway.
    """
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm: Any = nn.utils.get_total_norm(gradients)
    if max_norm is not None:
        nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    return norm if isinstance(norm, Tensor) else torch.tensor(norm)


class LossScale:
    """Dynamic loss scaling for fp16, kept on the device: halves after an overflow, doubles after
    GROW_AFTER good steps (Micikevicius et al. 2018, arXiv:1710.03740, section 3.2). Never syncs.
    """

    GROW_AFTER = 2000
    START = 65536.0

    def __init__(self, device: torch.device) -> None:
        self.scale = torch.full((), self.START, device=device)
        self.good_steps = torch.zeros((), device=device)

    def unscale(self, parameters: list[Tensor]) -> None:
        gradients = [p.grad for p in parameters if p.grad is not None]
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
