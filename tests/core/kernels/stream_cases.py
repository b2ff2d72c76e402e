"""A residual stream to which many small terms are added, with and without what rounding leaves."""

from __future__ import annotations

import torch
from torch import Tensor

from albor_core.kernels.ops.norms import add_rms_norm, rms_norm

ADDITIONS = 48  # of 24 layers


def largest_error(dtype: torch.dtype) -> float:
    """Of ADDITIONS roundings of numbers below 8 to 8 bits more than dtype's."""
    return ADDITIONS * torch.finfo(dtype).eps / 64 / 2


BELOW = {torch.float16: 5, torch.bfloat16: 8}
"""Bits of an fp32 mantissa that neither the dtype nor 8 bits more hold."""


def together(kept: Tensor, rest: Tensor | None) -> Tensor:
    """fp64 of rounded numbers and the 8 bits of a mantissa that follow theirs."""
    if rest is None:
        return kept.double()
    bits = kept.float().view(torch.int32) + (rest.int() << BELOW[kept.dtype])
    return bits.view(torch.float32).double()


def apart(total: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The same of fp32 sums, in plain PyTorch: (rounded to dtype, rest)."""
    kept, below = total.to(dtype), BELOW[dtype]
    left = total.view(torch.int32) - kept.float().view(torch.int32)
    return kept, ((left + (1 << (below - 1))) >> below).clamp(-128, 127).to(torch.int8)


def small(like: Tensor, seed: int) -> Tensor:
    source = torch.Generator().manual_seed(seed)
    return 1e-3 * torch.randn(like.shape, generator=source).to(like)


def rest_of(kept: Tensor, *, carries: bool) -> Tensor | None:
    return torch.zeros_like(kept, dtype=torch.int8) if carries else None


def stream_is_what_plain_pytorch_keeps(like: Tensor) -> bool:
    """Sum and rest, to the bit."""
    total, weight = 1000 * small(like, 0), torch.ones(like.shape[-1], device=like.device)
    wanted, rest, left = total, torch.zeros_like(total, dtype=torch.int8), None
    for number in range(1, ADDITIONS + 1):
        x = small(like, number)
        wanted, left = apart(x.float() + together(wanted, left).float(), like.dtype)
        _, total, _ = add_rms_norm.add_norm_forward(x, total, weight, 1e-5, rest=rest)
        if not (torch.equal(total, wanted) and torch.equal(rest, left)):
            return False
    return True


def stream_errors(like: Tensor, *, carries: bool) -> tuple[Tensor, Tensor]:
    """(errors of sums of many small terms like `like`, of their norms relative to 1)."""
    total = 1000 * small(like, 0)
    exact, weight = total.double(), torch.ones(like.shape[-1], device=like.device)
    rest = rest_of(total, carries=carries)
    for number in range(1, ADDITIONS + 1):
        x = small(like, number)
        exact += x.double()
        y, total, _ = add_rms_norm.add_norm_forward(x, total, weight, 1e-5, rest=rest)
    normed = rms_norm.rms_norm_reference(exact, weight.double())
    return together(total, rest) - exact, y.double() - normed


def gradient_errors(like: Tensor, *, carries: bool) -> Tensor:
    """Of the gradient of a stream that many norms read, each adding little."""
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
    return together(dsum, rest) - exact


def stream_is_as_good_as_fp32(like: Tensor) -> bool:
    (kept, normed), (lost, _) = (stream_errors(like, carries=c) for c in (True, False))
    rounded = 4 * torch.finfo(like.dtype).eps / 2  # numbers below 8
    is_rounded_once = float(normed.abs().max()) < rounded + float(kept.abs().max())
    return is_rounded_once and is_kept(kept, lost, like.dtype)


def gradient_is_as_good_as_fp32(like: Tensor) -> bool:
    kept, lost = (gradient_errors(like, carries=c) for c in (True, False))
    return is_kept(kept, lost, like.dtype)


def is_kept(kept: Tensor, lost: Tensor, dtype: torch.dtype) -> bool:
    """Next to a number near 1, bf16 alone loses the terms, 48^(1/2) thousandths; 8 bits more round
    them by 48^(1/2) 2^-15 / 12^(1/2): a hundredth.
    """
    ratio = lost.square().mean().sqrt() / kept.square().mean().sqrt()
    return float(kept.abs().max()) < largest_error(dtype) and float(ratio) > 50
