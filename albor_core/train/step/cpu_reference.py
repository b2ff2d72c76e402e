"""The judge of a whole model: the plain one on the CPU in fp32, from weights that were copied.

It has no part in a run: it draws nothing at random, touches no module that trains, and runs each op
by its reference. `reference_process.py` runs it beside training.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F

from albor_core.andon.alert import Alert, make_alert
from albor_core.kernels import dispatch
from albor_core.model.llama import Llama, LlamaConfig

REFUSALS = (RuntimeError, MemoryError, OSError)  # a comparison that fails must not end the run
MIN_COSINE = 0.98  # of a whole model in half precision; each kernel is held to 0.9999
MORE_THAN_ROUNDING = 1.5  # times what the plain model loses in the same precision


@dataclass(frozen=True)
class ModelParity:
    """How far the model is from its reference; None where it was not compared."""

    how: str | None = None
    """What was compared: "fused" or "plain"."""
    cosine: float | None = None
    """Between the logits and those of the reference; None also if they are not numbers."""
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

    def alert(self, step: int, attempt: int, *, stops: bool, then: str) -> Alert:
        """A warning that names the figures, and what happens `then`; with `stops`, a stop."""
        cosine = "no number" if self.cosine is None else f"{self.cosine:.4f}"
        if self.rounded_cosine is not None:
            cosine += f" (the plain model in the same precision: {self.rounded_cosine:.4f})"
        return make_alert(
            "kernels.parity",
            "health",
            "stop" if stops else "warn",
            metric="kernels/parity_cosine",
            value=math.nan if self.cosine is None else self.cosine,
            threshold=MIN_COSINE,
            message=f"logits have a cosine of {cosine} with the CPU's in fp32, below {MIN_COSINE}"
            f"; {then}",
            step=step,
            attempt=attempt,
        )


def not_compared(error: Exception) -> ModelParity:
    """The result of a comparison that was not possible, with the reason."""
    return ModelParity(skipped=f"{type(error).__name__}: {str(error)[:200]}")


@dataclass(frozen=True)
class ParityCase:
    """What a device made of some ids, and what it had to make it with."""

    how: str
    config: LlamaConfig
    ids: Tensor
    """(B, T), on the CPU, as the next two."""
    logits: Tensor
    """(B, T, V)."""
    rounded: Tensor
    """The same, of the plain model in the precision of the training."""
    loss: float
    weights: dict[str, Tensor]
    """Those that train, on their device: the next step changes them."""


def answer(case: ParityCase) -> ModelParity:
    """Compute the reference on the CPU, by the weights as they are now, and compare."""
    truth, loss = _reference(case)
    found = compare(case.how, (case.logits, case.loss), (truth, loss))
    if found.is_bad:
        rounded = compare(case.how, (case.rounded, case.loss), (truth, loss)).cosine
        found = replace(found, rounded_cosine=rounded)
    return found


def _reference(case: ParityCase) -> tuple[Tensor, float]:
    cpu, ids = torch.device("cpu"), case.ids
    with torch.device("meta"):  # a module of its own that has no weights and draws none
        plain = Llama(case.config).eval()
    weights = {name: t.detach().to(cpu, torch.float32) for name, t in case.weights.items()}
    with _references_alone(), torch.autocast("cpu", enabled=False), torch.no_grad():
        logits: Tensor = functional_call(plain, weights, (ids,))[0]
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    return logits, float(loss)


def _references_alone() -> AbstractContextManager[None]:
    """Every op on the CPU in fp32 by its reference; what a run decided stays as it is."""
    cpu = torch.device("cpu")
    return dispatch.deciding_anew(
        choices={
            (op, cpu, torch.float32, False): dispatch.Choice(op, "reference", "the judge")
            for op in dispatch.OPS
        }
    )


def compare(how: str, found: tuple[Tensor, float], truth: tuple[Tensor, float]) -> ModelParity:
    """Logits and loss against those of the reference."""
    (logits, loss), (exact, exact_loss) = found, truth
    a, b = logits.detach().cpu().double(), exact.double()
    cosine = float(F.cosine_similarity(a.flatten(), b.flatten(), dim=0))
    largest = float((a - b).abs().max() / b.abs().max().clamp_min(torch.finfo(b.dtype).tiny))
    return ModelParity(how, _finite(cosine), _finite(largest), _finite(loss), _finite(exact_loss))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
