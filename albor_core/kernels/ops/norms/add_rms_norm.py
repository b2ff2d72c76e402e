"""Residual add and RMSNorm in one pass: s = x + residual, y = w * s * rsqrt(mean(s^2) + eps).

Shapes  x, residual, s, y (..., D) in fp32/bf16/fp16; w (D,) in their dtype or fp32. s is rounded to
        that dtype before it is normalised, as two separate operations would (not where it has a
        rest, below); statistics in fp32.
Memory  keeps s, which the residual stream needs anyway, and one fp32 per row (rstd). The backward
        is rms_norm's; x and residual share one gradient. A step in bf16 may carry `rest` beside s,
        the 8 bits of the mantissa that rounding left (int8): 16 bits of a sum to which many small
        terms are added, and 8 of them to keep. The same for the gradient of s.
Limits  D <= 65536 (a row is one block); copies inputs that are not contiguous; first derivatives.
Speed   H200, bf16, fp32 w, 16384 x 1024: forward 35 us, with backward 70 us (Inductor 35, 83; plain
        PyTorch 305, 971; a copy of the same bytes 32, 65): benchmarks/step/kernels.py, torch 2.11.
Source  rms_norm.py beside this; the gradient that arrives at s is added in the same pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from albor_core.kernels.dispatch import Op, register, use_triton
from albor_core.kernels.ops.norms.rms_norm import (
    FORWARD_TILE,
    MAX_WIDTH,
    backward_launch,
    keep,
    launch_of,
    norm_backward,
    rms_norm_reference,
    tile_of,
    whole,
)
from albor_core.kernels.toolchain import KernelLaunch, jit, tl


def add_rms_norm_reference(
    x: Tensor, residual: Tensor, w: Tensor, eps: float = 1e-5
) -> tuple[Tensor, Tensor]:
    """Plain PyTorch: (normalised, sum)."""
    total = x + residual
    return rms_norm_reference(total, w, eps), total


@jit  # constexpr eps: a float argument arrives as fp64 under Inductor and widens every row
def _forward(
    x_ptr, residual_ptr, rest_ptr, w_ptr, y_ptr, sum_ptr, rstd_ptr, rows, D,
    eps: tl.constexpr, HAS_REST: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)  # rows * D passes 2^31
    col = tl.arange(0, BLOCK)
    at = row[:, None] * D + col[None, :]
    inside = (row < rows)[:, None] & (col < D)[None, :]
    x = tl.load(x_ptr + at, inside, 0.0).to(tl.float32)
    residual = tl.load(residual_ptr + at, inside, 0.0)
    residual = whole(residual, rest_ptr, at, inside) if HAS_REST else residual.to(tl.float32)
    w = tl.load(w_ptr + col, col < D, 0.0).to(tl.float32)
    s = keep(x + residual, sum_ptr, rest_ptr, at, inside, HAS_REST)
    rstd = tl.rsqrt(tl.sum(s * s, 1) / D + eps)
    normed = s * rstd[:, None]
    if not HAS_REST:
        normed = normed.to(y_ptr.dtype.element_ty).to(tl.float32)  # rounded before w
    tl.store(rstd_ptr + row, rstd, row < rows)
    tl.store(y_ptr + at, (w[None, :] * normed).to(y_ptr.dtype.element_ty), inside)


def add_norm_forward(
    x: Tensor, residual: Tensor, w: Tensor, eps: float, *, rest: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """(y, sum, rstd) of contiguous inputs; launches only, autograd sees nothing. `rest` (int8, x's
    shape): what rounding left of the residual, or zeros; that of the sum is written over it.
    """
    D = x.shape[-1]
    rows = x.numel() // D
    y, total = torch.empty_like(x), torch.empty_like(x)
    rstd = torch.empty(rows, dtype=torch.float32, device=x.device)
    tile_rows, block, warps = tile_of(D, FORWARD_TILE)
    _forward[(-(-rows // tile_rows),)](
        x, residual, x if rest is None else rest, w, y, total, rstd, rows, D,
        eps=eps, HAS_REST=rest is not None, ROWS=tile_rows, BLOCK=block, num_warps=warps,
    )  # fmt: skip
    return y, total, rstd


class _AddRMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, residual: Tensor, w: Tensor, eps: float
    ) -> tuple[Tensor, Tensor]:
        x, residual, w = x.contiguous(), residual.contiguous(), w.contiguous()
        y, total, rstd = add_norm_forward(x, residual, w, eps)
        ctx.save_for_backward(total, w, rstd)
        ctx.set_materialize_grads(False)  # the last sum of a model goes nowhere: no zeros to read
        return y, total

    @staticmethod
    def backward(
        ctx: Any, dy: Tensor | None, dsum: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        if dy is None:
            return dsum, dsum, None, None
        total, w, rstd = ctx.saved_tensors
        dx, dw = norm_backward(total, w, rstd, dy, dsum)
        return dx, dx, dw, None


def add_rms_norm_triton(
    x: Tensor, residual: Tensor, w: Tensor, eps: float = 1e-5
) -> tuple[Tensor, Tensor]:
    """The fused kernels, wherever Triton can launch them (a GPU, or its interpreter)."""
    both: tuple[Tensor, Tensor] = _AddRMSNorm.apply(x, residual, w, eps)
    return both


def add_rms_norm(
    x: Tensor, residual: Tensor, w: Tensor, eps: float = 1e-5
) -> tuple[Tensor, Tensor]:
    """(RMSNorm of x + residual over the last axis, x + residual), both in x's dtype.

    x and residual have one shape and dtype; differentiable in both and in w. Off the GPU it is the
    reference.
    """
    fits = x.numel() > 0 and x.shape[-1] <= MAX_WIDTH
    alike = x.shape == residual.shape and x.dtype is residual.dtype
    if fits and alike and use_triton("add_rms_norm", x):
        return add_rms_norm_triton(x, residual, w, eps)
    return add_rms_norm_reference(x, residual, w, eps)


def _cases(device: torch.device, dtype: torch.dtype) -> Iterator[tuple[Tensor, ...]]:
    """The largest first: it is timed, and its 128 MiB in bf16 are more than a GPU's L2."""
    source = torch.Generator(device).manual_seed(1910_07467)
    for shape in ((32768, 1024), (300, 64), (5, 3, 123), (1, 1, 1)):
        x, residual = (
            torch.randn(shape, generator=source, device=device).to(dtype) for _ in range(2)
        )
        w = 1 + 0.1 * torch.randn(shape[-1], generator=source, device=device)
        yield x, residual, w  # fp32 master weight, as in training
        if shape[0] == 300:
            yield x, residual, w.to(dtype)


def _launches(dtype: str) -> tuple[KernelLaunch, ...]:
    """How width 1024 is launched with `dtype` activations ("fp32", "bf16", "fp16"), fp32 w."""
    data = ("x_ptr", "residual_ptr", "rest_ptr", "w_ptr", "y_ptr", "sum_ptr", "rstd_ptr")
    names, rest = (*data, "rows", "D"), dtype != "fp32"
    forward = launch_of(_forward, names, dtype, FORWARD_TILE, eps=1e-5, HAS_REST=rest)
    last, others = (backward_launch(dtype, has_dsum=d, has_rest=rest) for d in (False, True))
    return forward, last, others


register(Op("add_rms_norm", add_rms_norm_reference, add_rms_norm_triton, _cases, _launches))
