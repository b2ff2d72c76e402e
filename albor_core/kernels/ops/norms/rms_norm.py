"""RMSNorm, y = w * x * rsqrt(mean(x^2) + eps), fused forward and backward.

Shapes  x, y, dy (..., D) in fp32/bf16/fp16, y and dy in half precision beside an fp32 x, too;
        w (D,) in x's dtype or fp32; statistics in fp32.
Memory  keeps x and one fp32 per row (rstd); the normalised rows are recomputed. The backward takes
        at most PROGRAMS * D fp32 for dw while it runs.
Limits  D <= 65536 (a row is one block); copies x if it is not contiguous; first derivatives only.
Speed   H200, bf16, fp32 w, 16384 x 1024: forward 19 us, with backward 48 us (Inductor 20, 59; plain
        PyTorch 279, 920; a copy of the same bytes 16, 41): benchmarks/step/kernels.py, torch 2.11.
Source  Zhang & Sennrich 2019, arXiv:1910.07467. With n = x * rstd and g = w * dy:
        dx = rstd * (g - n * mean(g * n)), dw = sum over rows of dy * n.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from albor_core.kernels.dispatch import Op, register, use_triton
from albor_core.kernels.toolchain import KernelLaunch, jit, next_power_of_2, steps, tl

PROGRAMS = 396  # of the backward, at most; each sums its own dw row: no atomics, same bits always
FORWARD_TILE, BACKWARD_TILE = 2048, 2048  # numbers; see tile_of
SUM_BLOCK = 8  # columns per program of the last sum over partial dw
MAX_WIDTH = 65536


def rms_norm_reference(
    x: Tensor, w: Tensor, eps: float = 1e-5, dtype: torch.dtype | None = None
) -> Tensor:
    """Plain PyTorch; rounds to x's dtype before w, like transformers' LlamaRMSNorm."""
    # fp64 stays fp64: tests use it as truth
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    normed = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype)
    return (w * normed).to(dtype or x.dtype)  # an fp32 master weight must not widen bf16 rows


@jit  # constexpr eps: a float argument arrives as fp64 under Inductor and widens every row
def _forward(
    x_ptr, w_ptr, y_ptr, rstd_ptr, rows, D,
    eps: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)  # rows * D passes 2^31
    col = tl.arange(0, BLOCK)
    at = row[:, None] * D + col[None, :]
    inside = (row < rows)[:, None] & (col < D)[None, :]
    x = tl.load(x_ptr + at, inside, 0.0).to(tl.float32)
    w = tl.load(w_ptr + col, col < D, 0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(x * x, 1) / D + eps)
    normed = (x * rstd[:, None]).to(x_ptr.dtype.element_ty).to(tl.float32)  # rounded before w
    tl.store(rstd_ptr + row, rstd, row < rows)
    tl.store(y_ptr + at, (w[None, :] * normed).to(y_ptr.dtype.element_ty), inside)


@jit
def whole(kept, rest_ptr, at, inside):
    """Restore, as fp32, a number that `keep` rounded to `kept`: the 8 further bits of its mantissa
    at `rest_ptr` are added to its bits, which are in order for floats of one sign. Bits beyond them
    are lost. For bf16, and for fp16 in its normal range.
    """
    below: tl.constexpr = 23 - kept.dtype.fp_mantissa_width - 8
    rest = tl.load(tl.max_contiguous(rest_ptr + at, (1, 8)), inside, 0).to(tl.int32)
    bits = kept.to(tl.float32).to(tl.int32, bitcast=True) + (rest << below)
    return bits.to(tl.float32, bitcast=True)


@jit
def keep(total, kept_ptr, rest_ptr, at, inside, HAS_REST: tl.constexpr):
    """Stores total at kept_ptr, rounded, and returns what was kept of it in fp32. HAS_REST: the
    next 8 bits at rest_ptr, too.
    """
    kept = total.to(kept_ptr.dtype.element_ty)
    tl.store(kept_ptr + at, kept, inside)
    kept = kept.to(tl.float32)
    if HAS_REST:
        below: tl.constexpr = 23 - kept_ptr.dtype.element_ty.fp_mantissa_width - 8
        left = total.to(tl.int32, bitcast=True) - kept.to(tl.int32, bitcast=True)
        rest = (left + (1 << (below - 1))) >> below
        to = tl.max_contiguous(rest_ptr + at, (1, 8))
        rest = tl.minimum(tl.maximum(rest, -128), 127)
        tl.store(to, rest.to(tl.int8), inside)
        kept = total
    return kept


@jit
def _backward(
    x_ptr, w_ptr, dy_ptr, dsum_ptr, rest_ptr, rstd_ptr, dx_ptr, dw_ptr, rows, D, tiles,
    HAS_DSUM: tl.constexpr, HAS_REST: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """dx += dsum where x was a sum with a gradient of its own (add_rms_norm). The last rows first:
    what the forward, or whoever made dy, wrote last may still be in the L2.
    """
    col = tl.arange(0, BLOCK)
    w = tl.load(w_ptr + col, col < D, 0.0).to(tl.float32)
    dw = tl.zeros((BLOCK,), tl.float32)
    for tile in steps(tl.program_id(0), tiles, tl.num_programs(0), num_stages=STAGES):
        row = ((tiles - 1 - tile) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
        at = row[:, None] * D + col[None, :]
        inside = (row < rows)[:, None] & (col < D)[None, :]
        x = tl.load(x_ptr + at, inside, 0.0)
        dy = tl.load(dy_ptr + at, inside, 0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row, row < rows, 0.0)[:, None]
        normed = x.to(tl.float32) * rstd
        g = dy * w[None, :]
        dx = rstd * (g - normed * (tl.sum(g * normed, 1) / D)[:, None])
        if HAS_DSUM:
            dsum = tl.load(dsum_ptr + at, inside, 0.0)
            dx += whole(dsum, rest_ptr, at, inside) if HAS_REST else dsum.to(tl.float32)
        keep(dx, dx_ptr, rest_ptr, at, inside, HAS_REST)
        rounded = normed.to(x.dtype).to(tl.float32)  # as the forward did that had no rest
        dw += tl.sum(dy * rounded, 0)
    tl.store(dw_ptr + tl.program_id(0).to(tl.int64) * D + col, dw, col < D)


@jit
def _sum_rows(
    parts_ptr, out_ptr, rows, D, out_stride, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A block of columns; for 132 rows of 1024 it took 2.3 us where torch.sum takes 4.2 (H200)."""
    col = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    norm = tl.program_id(1).to(tl.int64)
    row = tl.arange(0, ROWS)
    inside = (row < rows)[:, None] & (col < D)[None, :]
    parts = tl.load(parts_ptr + (norm * rows + row[:, None]) * D + col[None, :], inside, 0.0)
    to = out_ptr + norm * out_stride + col
    tl.store(to, tl.sum(parts, 0).to(out_ptr.dtype.element_ty), col < D)


def tile_of(width: int, elements: int) -> tuple[int, int, int]:
    """(ROWS, BLOCK, num_warps) of a program: `elements` numbers or, above 2048 columns, one row.

    Measured on an H200 in bf16 for D = 512, 1024, 4096: four warps beat eight up to 8192 numbers,
    and two rows of 4096 columns cost the backward a quarter more than one.
    """
    block = next_power_of_2(width)
    rows = max(1, min(16, elements // block)) if block <= 2048 else 1
    return rows, block, max(4, min(16, block // 512))


def _stages(tile_bytes: int) -> int:
    """Tiles on their way: three where x, dy and dsum of two fit 48 KiB of shared memory, else one.

    With dsum, 16384 x 1024, bf16, H200: 37 us; 45 us with the next tile loaded into registers.
    """
    return 3 if 6 * tile_bytes <= 48 * 1024 else 1


def norm_forward(
    x: Tensor, w: Tensor, eps: float, dtype: torch.dtype | None = None
) -> tuple[Tensor, Tensor]:
    """(y in `dtype` or x's, rstd) of a contiguous x; launches only, autograd sees nothing."""
    D = x.shape[-1]
    rows = x.numel() // D
    y = torch.empty_like(x, dtype=dtype)
    rstd = torch.empty(rows, dtype=torch.float32, device=x.device)
    tile_rows, block, warps = tile_of(D, FORWARD_TILE)
    _forward[(-(-rows // tile_rows),)](
        x, w, y, rstd, rows, D, eps=eps, ROWS=tile_rows, BLOCK=block, num_warps=warps
    )
    return y, rstd


def norm_backward(
    x: Tensor, w: Tensor, rstd: Tensor, dy: Tensor, dsum: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """(dx, dw) of w * x * rstd; dsum is what else arrives at x."""
    parts = empty_parts(1, rstd.numel(), x)
    dx, dw = norm_dx(x, w, rstd, dy, dsum, parts[0]), torch.empty_like(w)
    sum_parts(parts, dw[None])
    return dx, dw


def empty_parts(norms: int, rows: int, x: Tensor) -> Tensor:
    """(norms, programs, D) fp32 for the partial dw of `norms` backwards over `rows` rows like x."""
    tile_rows, *_ = tile_of(x.shape[-1], BACKWARD_TILE)
    programs = min(PROGRAMS, -(-rows // tile_rows))
    return torch.empty(norms, programs, x.shape[-1], dtype=torch.float32, device=x.device)


def norm_dx(
    x: Tensor,
    w: Tensor,
    rstd: Tensor,
    dy: Tensor,
    dsum: Tensor | None,
    parts: Tensor,
    *,
    rest: Tensor | None = None,
) -> Tensor:
    """dx in x's dtype; the partial dw go to parts (programs, D), one of `empty_parts`. `rest`: what
    rounding left of dsum, or zeros; what it leaves of dx is written over that.
    """
    rows, (programs, D) = rstd.numel(), parts.shape
    dy, dx = dy.contiguous(), torch.empty_like(x)
    tile_rows, block, warps = tile_of(D, BACKWARD_TILE)
    _backward[(programs,)](
        x, w, dy, dy if dsum is None else dsum.contiguous(), dy if rest is None else rest, rstd, dx,
        parts, rows, D, -(-rows // tile_rows), HAS_DSUM=dsum is not None,
        HAS_REST=rest is not None, ROWS=tile_rows, BLOCK=block,
        STAGES=_stages(tile_rows * block * x.element_size()), num_warps=warps,
    )  # fmt: skip
    return dx


def sum_parts(parts: Tensor, dw: Tensor) -> None:
    """Each norm's dw, a row of dw (norms, D) with a contiguous last axis: one launch for all."""
    norms, programs, D = parts.shape
    _sum_rows[(-(-D // SUM_BLOCK), norms)](
        parts, dw, programs, D, dw.stride(0), ROWS=next_power_of_2(programs), BLOCK=SUM_BLOCK,
        num_warps=4,
    )  # fmt: skip


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, eps: float, dtype: torch.dtype | None) -> Tensor:
        x, w = x.contiguous(), w.contiguous()
        y, rstd = norm_forward(x, w, eps, dtype)
        ctx.save_for_backward(x, w, rstd)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor, None, None]:
        x, w, rstd = ctx.saved_tensors
        return *norm_backward(x, w, rstd, dy), None, None


def rms_norm_triton(
    x: Tensor, w: Tensor, eps: float = 1e-5, dtype: torch.dtype | None = None
) -> Tensor:
    """The fused kernels, wherever Triton can launch them (a GPU, or its interpreter)."""
    y: Tensor = _RMSNorm.apply(x, w, eps, dtype)
    return y


def rms_norm(x: Tensor, w: Tensor, eps: float = 1e-5, dtype: torch.dtype | None = None) -> Tensor:
    """RMSNorm over the last axis, in `dtype` or x's; differentiable in x and w.

    The reference computes it off the GPU, where dispatch chose it, and where the last axis is empty
    or wider than MAX_WIDTH.
    """
    if use_triton("rms_norm", x) and x.numel() > 0 and x.shape[-1] <= MAX_WIDTH:
        return rms_norm_triton(x, w, eps, dtype)
    return rms_norm_reference(x, w, eps, dtype)


def _cases(device: torch.device, dtype: torch.dtype) -> Iterator[tuple[Tensor, ...]]:
    """The largest first: it is timed, and its 64 MiB in bf16 are more than a GPU's L2 (50 MB)."""
    # Never the global RNG: resume is bit-exact. On the device: one core takes a minute for all ops.
    source = torch.Generator(device).manual_seed(1910_07467)
    for shape in ((32768, 1024), (300, 64), (5, 3, 123), (1, 1, 1)):
        x = torch.randn(shape, generator=source, device=device)
        w = 1 + 0.1 * torch.randn(shape[-1], generator=source, device=device)
        yield x.to(dtype), w  # fp32 master weight, as in training
        if shape[0] == 300:
            yield x.to(dtype), w.to(dtype)


def _launches(dtype: str) -> tuple[KernelLaunch, ...]:
    """How width 1024 is launched with `dtype` activations ("fp32", "bf16", "fp16"), fp32 w."""
    names = ("x_ptr", "w_ptr", "y_ptr", "rstd_ptr", "rows", "D")
    forward = launch_of(_forward, names, dtype, FORWARD_TILE, eps=1e-5)
    parts = {"parts_ptr": "*fp32", "out_ptr": "*fp32", "rows": "i32", "D": "i32"}
    parts |= {"out_stride": "i32"}
    constants = {"ROWS": next_power_of_2(PROGRAMS), "BLOCK": SUM_BLOCK}
    sums = KernelLaunch(_sum_rows, parts | dict.fromkeys(constants, "constexpr"), constants, 4)
    return forward, backward_launch(dtype, has_dsum=False), sums


def launch_of(
    kernel: Any, names: tuple[str, ...], dtype: str, tile: int, **flags: float | bool
) -> KernelLaunch:
    """`kernel` on rows of 1024: pointers to `dtype`, but w, rstd and dw to fp32."""
    rows, block, warps = tile_of(1024, tile)
    wide = dict.fromkeys(("w_ptr", "rstd_ptr", "dw_ptr"), "*fp32")
    types = {n: wide.get(n, f"*{dtype}") if n.endswith("_ptr") else "i32" for n in names}
    types |= {"rest_ptr": "*i8"} if "rest_ptr" in names and flags["HAS_REST"] else {}
    constants = {**flags, "ROWS": rows, "BLOCK": block}
    return KernelLaunch(kernel, types | dict.fromkeys(constants, "constexpr"), constants, warps)


def backward_launch(dtype: str, *, has_dsum: bool, has_rest: bool = False) -> KernelLaunch:
    """norm_dx's kernel."""
    data = ("x_ptr", "w_ptr", "dy_ptr", "dsum_ptr", "rest_ptr", "rstd_ptr", "dx_ptr", "dw_ptr")
    stages = _stages(BACKWARD_TILE * (4 if dtype == "fp32" else 2))
    return launch_of(
        _backward, (*data, "rows", "D", "tiles"), dtype, BACKWARD_TILE,
        HAS_DSUM=has_dsum, HAS_REST=has_rest, STAGES=stages,
    )  # fmt: skip


register(Op("rms_norm", rms_norm_reference, rms_norm_triton, _cases, _launches))
