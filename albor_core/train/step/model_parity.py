"""The whole model as it trains here, against the plain one on the CPU in fp32.

One short batch of the run's own data, logits and loss, forward alone and without gradients: nothing
is drawn at random and no state changes, so training has the same bits with and without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import psutil
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from albor_core.andon.alert import Alert, make_alert
from albor_core.kernels import dispatch
from albor_core.kernels.toolchain import IS_INTERPRETED
from albor_core.model.llama import Llama
from albor_core.train.build import Parts
from albor_core.train.step.choose import PlainStep
from albor_core.train.step.fused import GraphedStep

PARITY_AFTER = 10  # steps of an attempt, behind which it is compared again
MIN_COSINE = 0.98  # of a whole model in half precision; each kernel is held to 0.9999
MORE_THAN_ROUNDING = 1.5  # times what the plain model loses in the same precision
ROWS, LENGTH = 2, 64
HOST_SHARE = 0.5  # of the free host memory that weights in fp32 may take

Look = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Logits (B, T, V) and loss () of ids (B, T)."""


@dataclass(frozen=True)
class ModelParity:
    """How far the model is from its reference; None where it was not compared."""

    how: str | None = None
    """What was compared: "fused" or "plain"."""
    cosine: float | None = None
    """Of the logits; None also where they are no numbers."""
    max_error: float | None = None
    """Largest difference of the logits, as a fraction of the largest of the reference."""
    loss: float | None = None
    """Nats per token, as the next."""
    reference_loss: float | None = None
    rounded_cosine: float | None = None
    """As `cosine`, of the plain model in the precision of the training; where `cosine` is low."""
    skipped: str | None = None
    """Why it was not compared."""

    @property
    def is_bad(self) -> bool:
        """NaN is. A low cosine is not where rounding alone takes as much: a model with loud blocks
        has one before its first steps.
        """
        if self.skipped is not None or (self.cosine or 0.0) >= MIN_COSINE:
            return False
        by_rounding = 1.0 - (1.0 if self.rounded_cosine is None else self.rounded_cosine)
        return self.cosine is None or 1.0 - self.cosine > MORE_THAN_ROUNDING * by_rounding

    def to_json(self) -> dict[str, Any]:
        """Plain data for an event."""
        return asdict(self)

    def alert(self, step: int, attempt: int) -> Alert:
        """A warning that names the figures."""
        cosine = "no number" if self.cosine is None else f"{self.cosine:.4f}"
        if self.rounded_cosine is not None:
            cosine += f" (the plain model in the same precision: {self.rounded_cosine:.4f})"
        return make_alert(
            "kernels.parity",
            "health",
            "warn",
            metric="kernels/parity_cosine",
            value=math.nan if self.cosine is None else self.cosine,
            threshold=MIN_COSINE,
            message=f"logits have a cosine of {cosine} with the CPU's in fp32, below {MIN_COSINE}"
            "; next: ALBOR_KERNELS=reference",
            step=step,
            attempt=attempt,
        )


def model_parity(
    parts: Parts, step: PlainStep | GraphedStep, look: Look | None = None
) -> ModelParity:
    """Compare what `step` trains with; `look` in its place, for a backend under test."""
    how = "fused" if isinstance(step, GraphedStep) else "plain"
    if why := _obstacle(parts, step, is_injected=look is not None):
        return ModelParity(skipped=why)
    assert isinstance(parts.model, Llama)
    ids = parts.host_batch(parts.source, parts.rows(0, 0, 0)).ids[:ROWS, :LENGTH].contiguous()
    try:
        there = ids.to(parts.placement.device)
        found = compare(
            how, (look or _looker(parts, step))(there), truth := _on_cpu(parts.model, ids.cpu())
        )
        if found.is_bad:
            rounded = compare(how, _rounded(parts, there), truth).cosine
            found = replace(found, rounded_cosine=rounded)
    except (RuntimeError, MemoryError) as error:  # a comparison is no reason to lose the run
        return ModelParity(skipped=f"{type(error).__name__}: {str(error)[:200]}")
    return found


def compare(how: str, found: tuple[Tensor, Tensor], truth: tuple[Tensor, Tensor]) -> ModelParity:
    """Logits and loss against those of the reference."""
    (logits, loss), (exact, exact_loss) = found, truth
    a, b = logits.detach().cpu().double(), exact.double()
    cosine = float(F.cosine_similarity(a.flatten(), b.flatten(), dim=0))
    largest = float((a - b).abs().max() / b.abs().max().clamp_min(torch.finfo(b.dtype).tiny))
    return ModelParity(
        how, _finite(cosine), _finite(largest), _finite(float(loss)), _finite(float(exact_loss))
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _obstacle(parts: Parts, step: PlainStep | GraphedStep, *, is_injected: bool) -> str:
    model = parts.model
    if not isinstance(model, Llama):
        return "only Albor's decoder has a plain version to compare with"
    if parts.ranks.is_sharded:
        return "no rank has the whole model"
    if not (parts.placement.is_gpu or is_injected or _takes_kernels()):
        return "trained on the CPU by plain PyTorch: both are the same"
    if isinstance(step, GraphedStep) and step.model.scales is not None:
        return "a forward would move the scales of fp8"
    need = 4 * sum(p.numel() for p in model.parameters())
    if need > HOST_SHARE * (free := psutil.virtual_memory().available):
        return f"{need >> 20} MiB of weights in fp32, and {free >> 20} MiB of host memory free"
    return ""


def _takes_kernels() -> bool:
    return dispatch.FORCED == "triton" and IS_INTERPRETED


def _looker(parts: Parts, step: PlainStep | GraphedStep) -> Look:
    if isinstance(step, GraphedStep):
        fused = step.model
        return lambda ids: (fused.logits(ids), fused.score(ids, ids))

    if parts.placement.compiles:  # its graph takes whole batches alone, and passed parity on one
        return lambda ids: _rounded(parts, ids)
    return lambda ids: _plain(parts, ids)


def _plain(parts: Parts, ids: Tensor) -> tuple[Tensor, Tensor]:
    with parts.placement.autocast():
        return _forward(parts.model, lambda *given: parts.model(*given), ids)


def _rounded(parts: Parts, ids: Tensor) -> tuple[Tensor, Tensor]:
    """The plain model without any kernel, in the precision of the training."""
    with dispatch.deciding_anew(pinned=dict.fromkeys(dispatch.OPS, "reference")):
        return _plain(parts, ids)


def _on_cpu(model: Llama, ids: Tensor) -> tuple[Tensor, Tensor]:
    cpu = torch.device("cpu")
    named = (*model.named_parameters(), *model.named_buffers())
    weights = {name: t.detach().to(cpu, torch.float32) for name, t in named}
    plain = {
        (op, cpu, torch.float32, False): dispatch.Choice(op, "reference", "the judge")
        for op in dispatch.OPS
    }
    with (
        dispatch.deciding_anew(choices=plain),
        torch.autocast("cpu", enabled=False),
    ):
        return _forward(model, lambda *given: functional_call(model, weights, given), ids)


def _forward(model: nn.Module, call: Callable[..., Any], ids: Tensor) -> tuple[Tensor, Tensor]:
    was = model.training
    model.eval()
    try:
        with torch.no_grad():
            return call(ids)[0], call(ids, ids)[1]
    finally:
        model.train(was)
