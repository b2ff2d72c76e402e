"""From hidden states to a number: what a decoder's head is asked, by autograd and in pieces.

A score belongs to one micro-batch and knows its labels; the decoder knows neither. The plain model
calls it with hidden states and the head's matrix. The fused one makes logits piece by piece, of
which a `HeadPass` writes the gradient over them; one that has to see all of them first reads each
piece before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from albor_core.kernels.ops import cross_entropy

IGNORED = cross_entropy.IGNORED  # label of a position that is not trained on, as in transformers

Scored = tuple[Tensor, Mapping[str, Tensor]]
"""The mean over what counts, fp32 (), and the means that are logged beside it."""


class HeadPass(Protocol):
    """One micro-batch's way through the head, rows of logits (n, V) in half precision or fp32."""

    reads_first: bool
    """Whether `read` sees every row before the first `write`."""
    logit_bytes: int | None
    """That a logit takes with all that is made of it; None: no more than itself."""

    def read(self, rows: slice, logits: Tensor) -> None:
        """See logits, which stay."""

    def write(self, rows: slice, logits: Tensor) -> None:
        """The gradient of the loss, times the upstream, over them."""

    def done(self) -> Scored: ...


class HeadScore(Protocol):
    """Scores the output of a micro-batch."""

    def __call__(self, h: Tensor, weight: Tensor) -> Scored:
        """The loss of hidden states (B, T, D) and the head (V, D), for autograd."""

    def begin(self, upstream: Tensor) -> HeadPass:
        """The same in pieces; `upstream` is the gradient of the mean, fp32 ()."""


def shifted(labels: Tensor) -> Tensor:
    """(B T,) for each position of labels (B, T) the one that follows; IGNORED for the last."""
    return F.pad(labels[:, 1:], (0, 1), value=IGNORED).flatten()


def mean_nats(h: Tensor, head: Tensor, targets: Tensor, piece_bytes: int | None) -> Tensor:
    """Mean cross-entropy of targets (N,) after hidden states h (B, T, D), fp32; IGNORED ones do not
    count, and it is 0 when none counts. Without gradients it is added up piece by piece, if
    `piece_bytes` says how much logits may take with what is made of them.
    """
    if torch.is_grad_enabled() or piece_bytes is None:
        return next_token_loss(F.linear(h, head).float().flatten(0, 1), targets)
    weight, flat = head.to(h.dtype), h.flatten(0, 1)
    rows = max(1, piece_bytes // (8 * len(weight)))  # the logits in fp32 and their log-softmax
    total = torch.zeros((), dtype=torch.float64, device=h.device)
    pieces = zip(flat.split(rows), targets.split(rows), strict=True)  # type: ignore[no-untyped-call]
    for piece, labels in pieces:
        logits = F.linear(piece, weight).float()
        total += F.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum")
    return (total / (targets != IGNORED).sum().clamp_min(1)).float()


def next_token_loss(logits: Tensor, targets: Tensor, z_loss: float = 0.0) -> Tensor:
    """Mean cross-entropy of logits (N, V) fp32, and `z_loss` times the mean of
    log(sum(exp(logits)))^2.
    """
    counted = targets != IGNORED
    loss = F.cross_entropy(logits, targets, ignore_index=IGNORED)
    loss = torch.where(counted.any(), loss, 0.0)  # the mean of nothing is NaN
    if z_loss:
        squares = logits.logsumexp(-1).square() * counted
        loss = loss + z_loss * squares.sum() / counted.sum().clamp_min(1)
    return loss


@dataclass(frozen=True)
class NextTokens:
    """Cross-entropy of the token that follows, with `z_loss`."""

    labels: Tensor
    """(B, T), aligned with the ids."""
    z_loss: float = 0.0

    def __call__(self, h: Tensor, weight: Tensor) -> Scored:
        logits = F.linear(h, weight).float().flatten(0, 1)
        return next_token_loss(logits, shifted(self.labels), self.z_loss), {}

    def begin(self, upstream: Tensor) -> HeadPass:
        return _NextTokenPass(shifted(self.labels), self.z_loss, upstream)


class _NextTokenPass:
    reads_first = False
    logit_bytes: int | None = None

    def __init__(self, targets: Tensor, z_loss: float, upstream: Tensor) -> None:
        self._targets, self._z_loss, self._upstream = targets, z_loss, upstream
        self._count = (targets != IGNORED).sum()
        self._loss = torch.zeros((), device=targets.device)

    def read(self, rows: slice, logits: Tensor) -> None:
        raise AssertionError("reads_first is False")

    def write(self, rows: slice, logits: Tensor) -> None:
        self._loss += cross_entropy.score(
            *(logits, self._targets[rows], self._z_loss, self._upstream),
            writes=True,
            count=self._count,
        )

    def done(self) -> Scored:
        return self._loss, {}
