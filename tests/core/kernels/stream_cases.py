"""A residual stream to which many small terms are added, with and without what rounding leaves."""

from __future__ import annotations

import torch
from torch import Tensor

from albor_core.kernels import add_rms_norm, rms_norm

ADDITIONS = 48  # of 24 layers


def largest_error(dtype: torch.dtype) -> float:
    """Of ADDITIONS roundings of numbers below 8 to 8 bits more than dtype's."""
    return ADDITIONS * torch.finfo(dtype).eps / 64 / 2


def together(kept: Tensor, rest: Tensor | None) -> Tensor:
    """fp64 of rounded numbers and the 8 bits of a mantissa that follow theirs."""
    if rest is None:
        return kept.double()
    below = {torch.float16: 5, torch.bfloat16: 8}[kept.dtype]
    return (kept.float().view(torch.int32) + (rest.int() << below)).view(torch.float32).double()


def small(like: Tensor, seed: int) -> Tensor:
    source = torch.Generator().manual_seed(seed)
    return 1e-3 * torch.randn(like.shape, generator=source).to(like)


def rest_of(kept: Tensor, *, carries: bool) -> Tensor | None:
    return torch.zeros_like(kept, dtype=torch.int8) if carries else None


def stream_errors(like: Tensor, *, carries: bool) -> tuple[float, float]:
    """(largest error of a sum of many small terms like `like`, of its norm relative to 1)."""
    total = 1000 * small(like, 0)
    exact, weight = total.double(), torch.ones(like.shape[-1], device=like.device)
    rest = rest_of(total, carries=carries)
    for number in range(1, ADDITIONS + 1):
        x = small(like, number)
        exact += x.double()
        y, total, _ = add_rms_norm.add_norm_forward(x, total, weight, 1e-5, rest=rest)
    normed = rms_norm.rms_norm_reference(exact, weight.double())
    found = together(total, rest)
    return float((found - exact).abs().max()), float((y.double() - normed).abs().max())


def gradient_error(like: Tensor, *, carries: bool) -> float:
    """Largest error of the gradient of a stream that many norms read, each adding little."""
    rows = like.shape[0]
    x, weight = 1000 * small(like, 0), 1 + 100 * small(like[0], 1).float()
    _, rstd = rms_norm.norm_forward(x, weight, 1e-5)
    normed, parts = x.double() * rstd.double()[:, None], rms_norm.empty_parts(1, rows, x)
    dsum = 1000 * small(like, 2)
    exact, rest = dsum.double(), rest_of(dsum, carries=carries)
    for number in range(3, ADDITIONS + 3):
        dy = small(like, number)
        g = dy.double() * weight.double()
        inner = (g * normed).mean(-1, keepdim=True)
        exact += rstd.double()[:, None] * (g - normed * inner)
        dsum = rms_norm.norm_dx(x, weight, rstd, dy, dsum, parts[0], rest=rest)
    return float((together(dsum, rest) - exact).abs().max())


def stream_is_as_good_as_fp32(like: Tensor) -> bool:
    (kept, normed), (lost, _) = (stream_errors(like, carries=c) for c in (True, False))
    rounded = 4 * torch.finfo(like.dtype).eps / 2  # numbers below 8
    return kept < largest_error(like.dtype) and normed < rounded + kept and lost > 50 * kept


def gradient_is_as_good_as_fp32(like: Tensor) -> bool:
    kept, lost = (gradient_error(like, carries=c) for c in (True, False))
    return kept < largest_error(like.dtype) and lost > 50 * kept
