"""A step by autograd through the model, compiled or as it stands; the fused one is held to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext

import torch
from torch import Tensor, nn

from albor_core.andon.bricks.names import Brick
from albor_core.recipes.batch import Batch
from albor_core.recipes.recipe import Forward
from albor_core.train.build import BatchWeight, Parts
from albor_core.train.optim.adamw import Optimizer
from albor_core.train.optim.gradients import Updated, gradient_norms, scale_gradients
from albor_core.train.ranks.sharding import (
    local,
    ran_eagerly,
    replicate,
    reset_ran_eagerly,
    sync_gradients,
)


class PlainStep:
    """Autograd through `parts.forward`; the reference, and the only one on a CPU."""

    clips_in = "clip"
    """As `GraphedStep.clips_in`."""

    def __init__(self, parts: Parts, event: Callable[..., None] | None = None) -> None:
        """`event` is told if the first step turns out not to be compiled, as it should be."""
        assert isinstance(parts.optimizer, Optimizer)
        self.parts, self.optimizer = parts, parts.optimizer
        self._doubted = event if parts.placement.compiles else None
        self._model = self._spread(parts)
        self._next_brick: Callable[[], None] | None = None
        self._blocks, self._trunk = parts.recipe.blocks(parts.model), None
        if not parts.placement.compiles:  # nor would a compiler see through a hook
            self._trunk = parts.recipe.trunk(parts.model)
        if self._trunk is not None:
            self._trunk.register_forward_hook(self._end_of_forward)
        self._loss: Tensor | None = None
        self._named: Mapping[str, Tensor] = {}
        self._norms: dict[str, Tensor] = {}

    @staticmethod
    def _spread(parts: Parts) -> Forward:
        """Over the other ranks, if there are any."""
        if parts.ranks.is_alone or parts.ranks.is_sharded:
            return parts.forward
        placement = parts.placement
        is_exact = parts.config.training.deterministic or not placement.is_gpu
        copies = replicate(parts.model, is_exact=is_exact)
        forward: Forward = torch.compile(copies, dynamic=False) if placement.compiles else copies
        return forward

    def forward(
        self,
        batch: Batch,
        loss_factor: float = 1.0,
        grad_factor: float = 1.0,
        *,
        weight: BatchWeight | None = None,
        is_last: bool = True,
        brick: Brick = nullcontext,
    ) -> Tensor:
        """What a micro-batch adds to the loss of its step, by its `weight` (`Parts.weights`; as
        much as each of those that are accumulated, if none is given); the factors are injected
        faults.

        `is_last`: of the step, so that its backward ends with the gradients of all ranks.
        """
        scored, whole = weight or BatchWeight(1, self.parts.share.accumulation)
        if isinstance(self._model, nn.Module):
            sync_gradients(self._model, syncs=is_last)
        if self._doubted is not None:
            reset_ran_eagerly(self._blocks)
        with self._forward_bricks(brick), self.parts.placement.autocast():
            recipe = self.parts.recipe
            loss, self._named = recipe.share_of_loss(self._model, batch, scored, whole)
            loss = loss if loss_factor == 1 else loss * loss_factor
        self._loss = loss if grad_factor == 1 else loss * grad_factor
        if self._doubted is not None:
            self._check_compiled(self._doubted)
        return loss.detach()

    @contextmanager
    def _forward_bricks(self, brick: Brick) -> Iterator[None]:
        """Forward and loss: one after the other where Python runs in between."""
        with ExitStack() as now:
            if self._trunk is None:
                now.enter_context(brick("forward+loss"))
                yield
                return

            def turn() -> None:
                now.close()
                now.enter_context(brick("loss"))

            now.enter_context(brick("forward"))
            self._next_brick = turn
            try:
                yield
            finally:
                self._next_brick = None

    def _end_of_forward(self, *_: object) -> None:
        """A forward hook of the decoder, whose other callers have no bricks."""
        if self._next_brick is not None:
            self._next_brick()

    def _check_compiled(self, event: Callable[..., None]) -> None:
        """A compiler that has used up its graphs says nothing and runs what it was given."""
        self._doubted = None
        if ran_eagerly(self._blocks):
            reason = "no compiled graph ran in the first step: it is slower and needs more memory"
            event("step.chosen", severity="warning", backend="plain", reason=reason)

    def named(self) -> Tensor:
        """(n,) what the last micro-batch adds to the recipe's own figures of the step."""
        return torch.stack([self._named[name].detach() for name in self.parts.recipe.columns])

    def backward(self, micro: int, brick: Brick = nullcontext) -> None:
        """Run the backward pass of a micro-batch; gradients add up over a step's micro-batches."""
        loss, scale = self._loss, self.parts.scale
        assert loss is not None
        with brick("backward"):
            whole = loss if scale is None else loss * scale.scale
            whole.backward()  # type: ignore[no-untyped-call]
        self._loss = None

    def loss_and_gradients(
        self, ids: Tensor, scale: float = 1.0
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """As a step takes them, but for accumulation; `scale` is the loss's on the way back, as
        fp16 has one, and gone from both.
        """
        if isinstance(self._model, nn.Module):
            sync_gradients(self._model, syncs=True)
        with self.parts.placement.autocast():
            _, (loss, _) = self._model(ids, score=self.parts.score(Batch(ids)))
        (loss * scale).backward()
        named = self.parts.trainable.trained().items()
        found = {name: p.grad / scale for name, p in named if p.grad is not None}
        self.drop()
        return loss.detach(), found

    def norm(self) -> Tensor:
        """L2, of the gradients so far, on the device."""
        norms = self._norms_of(list(self._gradients().values()))
        norm: Tensor = torch.linalg.vector_norm(norms)
        return norm if self.parts.scale is None else norm / self.parts.scale.scale

    def first_norm(self, divisor: float) -> Tensor | None:
        """The norm of the first of several micro-batches, by itself, on this rank; None if its
        gradients cannot be read.
        """
        if self.parts.ranks.is_sharded:
            return None
        return self.norm() * divisor

    def _norms_of(self, gradients: list[Tensor]) -> Tensor:
        """(n,) of whole gradients; a collective where they are sharded."""
        norms = gradient_norms(gradients)
        ranks = self.parts.ranks
        return ranks.total(norms.square()).sqrt() if ranks.is_sharded else norms

    def drop(self) -> None:
        """Forget the gradients so far."""
        for parameter in self.optimizer.named().values():
            parameter.grad = None

    def norms(self) -> dict[str, Tensor]:
        """Gradient norm () of each parameter in the last update, before clipping; 0 without one."""
        if not self._norms:
            return {}
        none = torch.zeros_like(next(iter(self._norms.values())))
        return {name: self._norms.get(name, none) for name in self.optimizer.named()}

    def update(self, total: Tensor, brick: Brick = nullcontext) -> Updated:
        """Clip and apply the gradients, unless loss (`total`) or gradients are not finite: then the
        weights stay as they are, the step counts, and so does the skip.
        """
        with brick(self.clips_in):
            clipped = self._clip(total)
        with brick("optimizer"):
            self.optimizer.step(clipped.skip)
        return clipped

    def _clip(self, total: Tensor) -> Updated:
        scale, named = self.parts.scale, self._gradients()  # parts of them, where sharded
        gradients = list(named.values())
        if scale is not None:
            scale.unscale(gradients)
        norms = self._norms_of(gradients)
        self._norms = dict(zip(named, norms.unbind(), strict=True))
        norm: Tensor = torch.linalg.vector_norm(norms)
        skip = (~(torch.isfinite(norm) & torch.isfinite(total))).float()
        counts = skip
        if scale is not None:  # overflowing is how the scale is found, until it is at 1
            counts = skip * (~torch.isfinite(total) | (scale.scale <= 1.0))
            scale.update(skip)
        factor, spike = self.parts.clip.factor(norm, skip)
        scale_gradients(gradients, factor)
        return Updated(norm, skip, counts, spike)

    def _gradients(self) -> dict[str, Tensor]:
        named = self.optimizer.named()
        return {name: local(p.grad) for name, p in named.items() if p.grad is not None}
