"""The error rule: against fp64 truth a kernel errs at most `slack` times as much as PyTorch.

Both run on the same inputs in the same dtype; truth is the plain version in fp64. Output and every
gradient are held to the rule twice, in the root-mean-square and in the largest error, since a mean
over a million numbers hides one wrong column. Two details keep the rule honest:
- an error no larger than the dtype's unit roundoff of the result is always allowed: correct
  rounding costs that;
- errors are pooled over a few scalings of the inputs, so that one lucky rounding of the reference
  in a tiny tensor fails no candidate.
One of the passes has upstream gradients of 1e5 where the dtype holds them: what is fine at 1 and
not a number there (an accumulator of half the width, a product of transposed tiles) is found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

MIN_COSINE = 0.9999
SCALES = (1.0, 0.7, 1.3, 0.9, 1.1)  # not powers of two: those would repeat the same mantissas
UPSTREAMS = (1.0, 1.0, 1.0, 1.0, 131072.0)  # of two: an upstream gradient must stay exact


@dataclass(frozen=True)
class Deviation:
    """How far one result is from fp64 truth, as fractions of it; the worst of the pooled inputs."""

    result: str
    """"output", "output N" for a later one, or "gradient N" for the N-th input."""
    kernel_rms: float
    reference_rms: float
    kernel_max: float
    reference_max: float
    cosine: float
    """Between kernel and truth, the lowest seen."""
    roundoff: float
    """Unit roundoff of the result's dtype."""

    def is_accurate(self, slack: float = 2.0) -> bool:
        """NaN is never accurate."""
        return (
            self.cosine >= MIN_COSINE
            and self.kernel_rms <= slack * max(self.reference_rms, self.roundoff)
            and self.kernel_max <= slack * max(self.reference_max, self.roundoff)
        )

    def __str__(self) -> str:
        return (
            f"{self.result}: rms error {self.kernel_rms:.2e} (torch {self.reference_rms:.2e}), "
            f"largest {self.kernel_max:.2e} (torch {self.reference_max:.2e}), "
            f"cosine {self.cosine:.6f}"
        )


Outputs = Tensor | tuple[Tensor, ...]


def results(
    fn: Callable[..., Outputs], inputs: tuple[Tensor, ...], upstream: float = 1.0
) -> dict[str, Tensor]:
    """Every output and the gradient of every floating input, for one fixed upstream gradient of
    that size.

    Of an op without gradients (an optimizer's step) the outputs alone.
    An input without a gradient (a table that the op treats as constant) has no entry.
    """
    with torch.inference_mode(False), torch.enable_grad():  # whoever asks first may be scoring
        leaves = [t.detach().clone().requires_grad_(t.is_floating_point()) for t in inputs]
        made = fn(*leaves)
        outs = made if isinstance(made, tuple) else (made,)
        found = {_named("output", i): out.detach().clone() for i, out in enumerate(outs)}
        if not any(out.requires_grad for out in outs):
            return found
        wanted = {i: leaf for i, leaf in enumerate(leaves) if leaf.requires_grad}
        upstreams = [_upstream(out) * upstream for out in outs]
        grads = torch.autograd.grad(outs, list(wanted.values()), upstreams, allow_unused=True)
    named = zip((f"gradient {i}" for i in wanted), grads, strict=True)
    return found | {name: grad for name, grad in named if grad is not None}


def _named(what: str, index: int) -> str:
    return f"{what} {index}" if index else what


def _upstream(out: Tensor) -> Tensor:
    """A wave whose values are exact in every dtype: a rounding here would be taken for the kernel's
    error where a sum over an axis cancels most of it.
    """
    wave = torch.cos(torch.arange(out.numel(), dtype=torch.float64, device=out.device))
    wave = wave.to(torch.bfloat16).to(torch.float16)  # 8 bits each, no exponent below fp16's
    return wave.to(out.dtype).view(out.shape)


def _cosine(a: Tensor, b: Tensor) -> float:
    norms = a.norm() * b.norm()
    if norms == 0:
        return 1.0 if a.norm() == b.norm() else 0.0
    return float((a * b).sum() / norms)


def deviations(
    kernel: Callable[..., Outputs], reference: Callable[..., Outputs], *inputs: Tensor
) -> tuple[Deviation, ...]:
    """Outputs first, then each floating input's gradient. Runs everything len(SCALES) times.

    ValueError if the kernel gives a gradient where the reference gives none, or the reverse.
    """
    worst: list[Deviation] = []
    is_narrow = any(t.dtype is torch.float16 for t in inputs)  # which ends at 65,504
    for scale, size in zip(SCALES, UPSTREAMS, strict=True):
        scaled = tuple(t * scale if t.is_floating_point() else t for t in inputs)
        exact = tuple(t.double() if t.is_floating_point() else t for t in scaled)
        upstream = 1.0 if is_narrow else size
        got, plain = results(kernel, scaled, upstream), results(reference, scaled, upstream)
        truth = results(reference, exact, upstream)
        if got.keys() != plain.keys():
            raise ValueError(f"it gives {', '.join(got)}; the reference {', '.join(plain)}")
        here = [_deviation(name, got[name], plain[name], truth[name]) for name in plain]
        worst = [_worse(a, b) for a, b in zip(worst, here, strict=True)] if worst else here
    return tuple(worst)


def _deviation(name: str, got: Tensor, plain: Tensor, truth: Tensor) -> Deviation:
    if got.shape != truth.shape or got.dtype != plain.dtype:
        raise ValueError(f"{name} is {got.dtype} {tuple(got.shape)}, the reference {plain.dtype}")
    rms, largest = truth.square().mean().sqrt(), truth.abs().max()
    tiny = torch.finfo(torch.float64).tiny
    errors = [(t.double() - truth) for t in (got, plain)]
    kernel_rms, plain_rms = (float(e.square().mean().sqrt() / rms.clamp_min(tiny)) for e in errors)
    kernel_max, plain_max = (float(e.abs().max() / largest.clamp_min(tiny)) for e in errors)
    roundoff = torch.finfo(got.dtype).eps / 2
    cosine = _cosine(got.double(), truth)
    return Deviation(name, kernel_rms, plain_rms, kernel_max, plain_max, cosine, roundoff)


def _worse(a: Deviation, b: Deviation) -> Deviation:
    return Deviation(
        a.result,
        max(a.kernel_rms, b.kernel_rms, key=_nan_last),
        max(a.reference_rms, b.reference_rms),
        max(a.kernel_max, b.kernel_max, key=_nan_last),
        max(a.reference_max, b.reference_max),
        min(a.cosine, b.cosine, key=lambda c: -_nan_last(-c)),
        a.roundoff,
    )


def _nan_last(value: float) -> float:
    return float("inf") if value != value else value
