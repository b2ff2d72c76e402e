"""Losses on a decoder's logits, usable with autograd and in the fused step.

A `HeadLoss` sees the whole batch, `extra` too. To write one, extend `TokenLoss`: `values` computes
a value per position from its logits, and `total`, if the loss is not their mean, the loss from all
values of a batch. The plain step differentiates both; the fused step computes the values in chunks,
then the gradient of each, and writes the gradient of the logits over the logits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from albor_core.kernels.dispatch import use_triton
from albor_core.kernels.ops import cross_entropy
from albor_core.kernels.ops.cross_entropy import IGNORED
from albor_core.model.head import HeadPass, HeadScore, NextTokens, Scored, shifted
from albor_core.recipes.batch import Batch

WIDE_BYTES = 20  # of a logit that autograd differentiates: two of it in fp32, two gradients, itself


class HeadLoss(ABC):
    """An objective on the logits of a decoder. Immutable: the same batch gives the same loss."""

    columns: tuple[str, ...] = ()
    """Names of the means that it gives beside the loss, logged as train/NAME."""

    @abstractmethod
    def bind(self, batch: Batch) -> HeadScore:
        """Make the scorer of this micro-batch."""

    def count(self, batch: Batch) -> Tensor:
        """The number that the mean is taken over, int64 (): what the source counts in those
        rows."""
        return (batch.targets[:, 1:] >= 0).sum()


class CrossEntropy(HeadLoss):
    """Cross-entropy of the next token, plus z_loss (`training.stability.z_loss`)."""

    def __init__(self, z_loss: float = 0.0) -> None:
        self.z_loss = z_loss

    def bind(self, batch: Batch) -> HeadScore:
        return NextTokens(batch.targets, self.z_loss)


class TokenLoss(HeadLoss):
    """A loss made of one or several values per position."""

    @abstractmethod
    def values(self, logits: Tensor, batch: Batch, rows: slice) -> Tensor:
        """fp32 (n,) or (n, k), from logits (n, V) fp32, differentiable: the values of the positions
        `rows` among all B T of the batch; 0 for unscored positions.
        """

    def total(self, values: Tensor, batch: Batch) -> Scored:
        """(mean loss (), the means that `columns` names), from the values of all B T positions,
        differentiable. By default their sum over `count`.
        """
        return values.sum() / self.count(batch).clamp_min(1), {}

    def write(self, logits: Tensor, batch: Batch, rows: slice, upstream: Tensor) -> Tensor:
        """The values of logits (n, V) as the head gives them, which are overwritten with the
        gradient of (values * upstream).sum(). A kernel may do both in one pass.
        """
        with torch.enable_grad():
            leaf = logits.detach().clone().requires_grad_()
            values = self.values(leaf.float(), batch, rows)
            (gradient,) = torch.autograd.grad(values, leaf, upstream)
        logits.copy_(gradient)
        return values.detach()

    def read(self, logits: Tensor, batch: Batch, rows: slice) -> Tensor:
        """The values of the logits, which stay unchanged."""
        return self.values(logits.float(), batch, rows)

    @property
    def logit_bytes(self) -> int | None:
        """Bytes per logit, including intermediates of `write` and `read`; None: only the logit
        itself."""
        return WIDE_BYTES

    def bind(self, batch: Batch) -> HeadScore:
        return _TokenScore(self, batch)


class LogLoss(TokenLoss):
    """-ln p of each target: the basis of losses on whole answers."""

    def values(self, logits: Tensor, batch: Batch, rows: slice) -> Tensor:
        return F.cross_entropy(
            logits, shifted(batch.targets)[rows], ignore_index=IGNORED, reduction="none"
        )

    def write(self, logits: Tensor, batch: Batch, rows: slice, upstream: Tensor) -> Tensor:
        if not use_triton("cross_entropy", logits):
            return super().write(logits, batch, rows, upstream)
        return cross_entropy.nats(logits, shifted(batch.targets)[rows], upstream.contiguous())

    def read(self, logits: Tensor, batch: Batch, rows: slice) -> Tensor:
        if not use_triton("cross_entropy", logits):
            return super().read(logits, batch, rows)
        return cross_entropy.nats(logits, shifted(batch.targets)[rows])

    @property
    def logit_bytes(self) -> int | None:
        return None if type(self).values is LogLoss.values else super().logit_bytes


@dataclass(frozen=True)
class _TokenScore:
    loss: TokenLoss
    batch: Batch

    def __call__(self, h: Tensor, weight: Tensor) -> Scored:
        logits = F.linear(h, weight).float().flatten(0, 1)
        values = self.loss.values(logits, self.batch, slice(0, len(logits)))
        return self.loss.total(values, self.batch)

    def begin(self, upstream: Tensor) -> HeadPass:
        return _TokenPass(self.loss, self.batch, upstream)


class _TokenPass:
    """The fused pass of a `TokenLoss` over one micro-batch. If the loss is a mean, the gradient of
    each position is known before its value."""

    def __init__(self, loss: TokenLoss, batch: Batch, upstream: Tensor) -> None:
        self._loss, self._batch, self._upstream = loss, batch, upstream
        self.reads_first = type(loss).total is not TokenLoss.total
        self.logit_bytes = loss.logit_bytes
        self._values: Tensor | None = None
        self._back: Tensor | None = None
        self._scored: Scored | None = None

    def read(self, rows: slice, logits: Tensor) -> None:
        self._keep(rows, self._loss.read(logits, self._batch, rows))

    def write(self, rows: slice, logits: Tensor) -> None:
        if self._back is None:
            self._back = self._turn(logits)
        values = self._loss.write(logits, self._batch, rows, self._back[rows])
        if not self.reads_first:
            self._keep(rows, values)

    def done(self) -> Scored:
        if self._scored is None:
            assert self._values is not None
            self._scored = self._loss.total(self._values, self._batch)
        return self._scored

    def _keep(self, rows: slice, values: Tensor) -> None:
        if self._values is None:
            shape = (self._batch.ids.numel(), *values.shape[1:])
            self._values = values.new_zeros(shape)
        self._values[rows] = values

    def _turn(self, like: Tensor) -> Tensor:
        """The gradient of each value."""
        if not self.reads_first:
            share = self._upstream / self._loss.count(self._batch).clamp_min(1)
            return share.expand(self._batch.ids.numel())
        assert self._values is not None
        with torch.enable_grad():
            leaf = self._values.detach().requires_grad_()
            mean, means = self._loss.total(leaf, self._batch)
            (back,) = torch.autograd.grad(mean, leaf, self._upstream.to(mean.dtype))
        self._scored = mean.detach(), {name: one.detach() for name, one in means.items()}
        return back
