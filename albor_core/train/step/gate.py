"""What a fused or compiled step has to pass before the first step: each of its results against the
plain model's in fp32, on a batch of the run's own data. What it may err is twice what the plain
model errs in bf16, in fp8 with its MLPs' operands rounded alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from albor_core.model.flat import FlatParameters
from albor_core.model.fp8 import emulated
from albor_core.model.fused import FusedLlama
from albor_core.model.head import HeadScore
from albor_core.model.llama import HALF_JITTER, Llama, role_of
from albor_core.recipes.batch import Batch
from albor_core.train.build import Parts
from albor_core.train.optim.adamw import FlatAdamW
from albor_core.train.step.plain import PlainStep

GATE_ROWS = 2  # sequences of a batch that the gate compares at least
SLACK = 2.0
ROOM = 4.0  # between the loss scale of a comparison and one that overflows
UNEVEN = 0.75  # logits about 0.1 large at a width of 1,024, as those of a quiet start


def compared(fused: FusedLlama, ids: Tensor) -> Iterator[Tensor]:
    """What of a batch (B, T) the gate looks at: GATE_ROWS sequences; if some kernels take these but
    not the batch, or the other way round, also as few sequences with which it is as in the batch,
    each as long as may be.
    """
    B, T = ids.shape
    yield ids[:GATE_ROWS]
    whole = set(fused.left_out(B, T))
    unseen = whole ^ set(fused.left_out(min(B, GATE_ROWS), T))
    if unseen:
        sizes = ((rows, tokens) for rows in range(GATE_ROWS, B + 1) for tokens in range(T, 0, -1))
        alike = (at for at in sizes if unseen & whole == unseen & set(fused.left_out(*at)))
        rows, tokens = next(alike)
        yield ids[:rows, :tokens]


@dataclass(frozen=True)
class Seen:
    """What a way to compute the model gives for one batch."""

    loss: Tensor
    logits: Tensor | None
    gradients: dict[str, Tensor]

    def results(self) -> dict[str, Tensor]:
        logits = {} if self.logits is None else {"logits": self.logits}
        return {"loss": self.loss, **logits, **self.gradients}


def compare(parts: Parts, fused: FusedLlama, batch: Batch) -> list[str]:
    """Every result of the fused model that errs too much, with its numbers; [] is a pass."""
    model = parts.decoder
    assert isinstance(parts.optimizer, FlatAdamW)
    assert model is not None
    with uneven(model, parts.optimizer.flat):
        fused.calibrate(batch.ids)
        truth = plain_gradients(parts, batch, half=False)
        with nullcontext() if fused.scales is None else emulated(model):
            plain = plain_gradients(parts, batch, half=True)
        found = fused_gradients(fused, parts.optimizer, batch, parts.score(batch))
        return violations(found, plain, truth)


def compare_compiled(parts: Parts, step: PlainStep, ids: Tensor) -> list[str]:
    """As `compare`, of loss and gradients. One sequence fills the batch again and again, which
    changes neither, nor the shape that was compiled; but each has a smaller part in the mean, and
    what flows back to it is as small in fp16 only if the plain model's loss is scaled by less.
    """
    assert parts.decoder is not None
    with uneven(parts.decoder):
        truth = _averaged(parts, ids[:1], half=False)
        scale = _bearable_scale(parts, ids[:1])
        plain = _averaged(parts, ids[:1], half=True, scale=scale / len(ids))
        loss, gradients = step.loss_and_gradients(ids[:1].repeat(len(ids), 1), scale)
    return violations(Seen(loss, None, gradients), plain, truth)


def _bearable_scale(parts: Parts, ids: Tensor) -> float:
    """What to multiply the loss by: in fp16 the run's scale, halved while the plain model's
    gradients overflow; with ROOM, for a compiled model adds up in another order.
    """
    if parts.scale is None:
        return 1.0
    scale = float(parts.scale.scale)
    while scale > 1 and not _are_finite(_averaged(parts, ids, half=True, scale=scale)):
        scale /= 2
    return scale / ROOM


def _are_finite(seen: Seen) -> bool:
    return all(bool(torch.isfinite(gradient).all()) for gradient in seen.gradients.values())


def _averaged(parts: Parts, ids: Tensor, *, half: bool, scale: float = 1.0) -> Seen:
    """`plain_gradients` without logits, averaged as DDP does, and out of the GPU's memory."""
    seen = plain_gradients(parts, Batch(ids), half=half, scale=scale)
    ranks = parts.ranks
    return Seen(seen.loss, None, {n: ranks.mean(g).cpu() for n, g in seen.gradients.items()})


@contextmanager
def uneven(model: Llama, flat: FlatParameters | None = None) -> Iterator[None]:
    """A start whose blocks write alike to both halves of the residual stream (`residual_scale`) has
    logits near 0 and hardly a gradient behind them: mostly rounding would be compared. In here the
    second half is written UNEVEN times as loudly; weights that have parted stay as they are.
    """
    writers = [p.data for name, p in model.named_parameters() if role_of(name) == "residual"]
    halves = [writer.chunk(2) for writer in writers]
    even = [b for a, b in halves if float((a - b).norm()) < 2 * HALF_JITTER * float(a.norm())]
    kept = [part.clone() for part in even]
    try:
        for part in even:
            part.mul_(UNEVEN)
        if flat is not None:
            flat.refresh()
        yield
    finally:
        for part, before in zip(even, kept, strict=True):
            part.copy_(before)
        if flat is not None:
            flat.refresh()


@contextmanager
def widened(model: nn.Module) -> Iterator[None]:
    """Within the block, also convert tensors frozen in half precision to fp32."""
    narrow = [(p, p.data) for p in model.parameters() if p.dtype in (torch.float16, torch.bfloat16)]
    for parameter, kept in narrow:
        parameter.data = kept.float()
    try:
        yield
    finally:
        for parameter, kept in narrow:
            parameter.data = kept


def plain_gradients(parts: Parts, batch: Batch, *, half: bool, scale: float = 1.0) -> Seen:
    """Autograd through the plain model, in fp32 or under the run's autocast; `scale` as in
    `PlainStep.loss_and_gradients`.
    """
    model, told = parts.model, (batch.ids, None, batch.document)
    with parts.placement.autocast() if half else widened(model):
        _, (loss, _) = model(*told, score=parts.score(batch))
        (loss * scale).backward()
        with torch.no_grad():
            logits, _ = model(*told)
    # in place: there is room for one of each
    named = parts.trainable.trained().items()
    found = {n: p.grad.div_(scale) for n, p in named if p.grad is not None}
    model.zero_grad(set_to_none=True)
    return Seen(loss.detach(), logits.detach(), found)


def fused_gradients(
    fused: FusedLlama, optimizer: FlatAdamW, batch: Batch, score: HeadScore | None = None
) -> Seen:
    """The same by the kernels; gradients are live views."""
    ids, document = batch.ids, batch.document
    logits = fused.logits(ids, document)
    loss = fused.forward(ids, torch.ones((), device=ids.device), None, document, score=score)
    fused.backward(ids)
    return Seen(loss, logits, optimizer.flat.gradients())


def violations(found: Seen, plain: Seen, truth: Seen) -> list[str]:
    """Results whose error is above SLACK times the plain model's, or not a number.

    An error is the norm of the difference over the norm of the truth; half a unit of bf16 is always
    allowed.
    """
    roundoff = torch.finfo(torch.bfloat16).eps / 2
    got, allowed, broken = found.results(), plain.results(), []
    for name, exact in truth.results().items():
        if name not in got:
            broken.append(f"{name}: missing")
            continue
        error, usual = _error(got[name], exact), _error(allowed[name], exact)
        if not error <= SLACK * max(usual, roundoff):
            broken.append(f"{name}: error {error:.2e}, plainly {usual:.2e}")
    return broken


def _error(value: Tensor, exact: Tensor) -> float:
    wide = exact.to(value.device).double()
    tiny = torch.finfo(torch.float64).tiny  # a loss of 0 has gradients of 0
    difference: Any = (value.double() - wide).norm() / wide.norm().clamp_min(tiny)
    return float(difference)
