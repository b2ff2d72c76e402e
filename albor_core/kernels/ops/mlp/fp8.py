"""Rounding to fp8 (e4m3) where a value is made: both layouts, the scale's next value, in one pass.

Hopper multiplies fp8 only along contiguous axes, so a product's gradients need their operands
transposed: every kernel here writes its result twice, as (N, C) and as (C, N). A value x becomes
round(x * scale), saturated at 448; the largest |x| it saw goes to `seen`, from which the scale of
the next step is made (`model/fp8.py`): no pass over the data is spent on a scale.

Shapes  x (N, C); gate_up (N, 2 I) holds gate, then up; da (N, I), in fp32/bf16/fp16. scale: one
        fp32 on the device. seen (SLOTS,) fp32, only ever raised.
Memory  reads its inputs once, writes two bytes a number; nothing is kept, nothing overwritten.
Limits  N, C and I multiples of 64; sm_89 and later. NaN stays NaN, and is not seen. No autograd:
        a step calls these and the products itself.
Source  Micikevicius et al. 2022, arXiv:2209.05433 (e4m3, per-tensor scales of earlier steps);
        SwiGLU's gradient is derived in docs/concepts/kernels.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from albor_core.kernels.dispatch import Op, register
from albor_core.kernels.ops.mlp.swiglu import _divided, swiglu_reference
from albor_core.kernels.toolchain import IS_INTERPRETED, KernelLaunch, jit, tl

E4M3 = torch.float8_e4m3fn
LARGEST = 448.0  # of e4m3
FIRST_ARCHITECTURE = 89  # with conversions to e4m3
SLOTS = 64  # of a `seen`: 30,000 programs at one address would wait for each other
TILE, WARPS = 64, 8  # 64 x 64
GROUP = 8  # tiles one below the other that run together: their columns' lines meet in the L2


@dataclass
class Both:
    """A rounded matrix in both layouts."""

    rows: Tensor
    """(N, C)."""
    columns: Tensor
    """(C, N)."""


def rounded(x: Tensor, scale: Tensor) -> Tensor:
    """x * scale in e4m3, plainly; fp64 stays fp64 (on e4m3's grid): tests use it as truth."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32)) * scale
    found = wide.clamp(-LARGEST, LARGEST).to(E4M3)
    return found.double() if x.dtype is torch.float64 else found


def fp8_reference(gate_up: Tensor, da: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
    """da, SwiGLU of gate_up and its gradient for da, rounded in both layouts, plainly."""
    wide = gate_up.detach().to(torch.promote_types(gate_up.dtype, torch.float32))
    with torch.enable_grad():
        a = swiglu_reference(wide.requires_grad_())
        (gradient,) = torch.autograd.grad(a, wide, da.to(a.dtype))
    kept = [rounded(x.detach(), scale.detach()) for x in (da, a, gradient)]
    return tuple(t for x in kept for t in (x, x.t().contiguous()))


@jit
def _place(down, across, TILE: tl.constexpr, GROUP: tl.constexpr):
    """(row, column) where this program's tile begins, among `down` x `across` tiles."""
    tile = tl.program_id(0)
    first = tile // (GROUP * across) * GROUP
    high = tl.minimum(down - first, GROUP)
    inside = tile % (GROUP * across)
    return (first + inside % high) * TILE, inside // high * TILE


@jit
def _rounded(x, PLAIN: tl.constexpr):
    """The bytes of e4m3 nearest to x, half to even, saturated; NaN is NaN.

    Four at a time by the machine's own instruction, and past the compiler: Triton's cast, stored in
    two layouts, becomes wrong bytes in ptxas 12.9 (triton-lang/triton#11111). PLAIN: in whole
    numbers, for the interpreter.
    """
    if PLAIN:
        LARGEST: tl.constexpr = 448.0
        inside = tl.clamp(x, -LARGEST, LARGEST, propagate_nan=tl.PropagateNan.ALL)
        # 2^-120: fp32's exponent, subnormals included, is then e4m3's
        bits = (inside * 7.52316384526264e-37).to(tl.int32, bitcast=True)
        size = tl.minimum(bits & 0x7FFFFFFF, 0x7F00000)  # which is NaN
        size = (size + 0x7FFFF + ((size >> 20) & 1)) >> 20
        return (size | ((bits >> 24) & 0x80)).to(tl.uint8)
    return tl.inline_asm_elementwise(
        """{
        .reg .b16 low, high;
        cvt.rn.satfinite.e4m3x2.f32 low, $2, $1;
        cvt.rn.satfinite.e4m3x2.f32 high, $4, $3;
        mov.b32 $0, {low, high};
        }""",
        "=r,f,f,f,f", [x], dtype=tl.uint8, is_pure=False, pack=4,
    )  # fmt: skip


@jit
def _write(
    x, rows_ptr, columns_ptr, seen_ptr, scale, row, col, N, C,
    TILE: tl.constexpr, SLOTS: tl.constexpr, PLAIN: tl.constexpr,
):  # fmt: skip
    """Round a tile of fp32 and store it in both layouts."""
    tl.atomic_max(seen_ptr + tl.program_id(0) % SLOTS, tl.max(tl.abs(x)), sem="relaxed")
    kept = _rounded(x * scale, PLAIN)
    down, right = row + tl.arange(0, TILE), col + tl.arange(0, TILE)
    tl.store(rows_ptr + down.to(tl.int64)[:, None] * C + right[None, :], kept)
    tl.store(columns_ptr + right.to(tl.int64)[:, None] * N + down[None, :], tl.trans(kept))


@jit
def _load(ptr, row, col, C, TILE: tl.constexpr):
    down, right = row + tl.arange(0, TILE), col + tl.arange(0, TILE)
    return tl.load(ptr + down.to(tl.int64)[:, None] * C + right[None, :]).to(tl.float32)


@jit
def _cast(
    x_ptr, rows_ptr, columns_ptr, scale_ptr, seen_ptr, N, C,
    TILE: tl.constexpr, GROUP: tl.constexpr, SLOTS: tl.constexpr, PLAIN: tl.constexpr,
):  # fmt: skip
    row, col = _place(N // TILE, C // TILE, TILE, GROUP)
    x = _load(x_ptr, row, col, C, TILE)
    scale = tl.load(scale_ptr)
    _write(x, rows_ptr, columns_ptr, seen_ptr, scale, row, col, N, C, TILE, SLOTS, PLAIN)


@jit
def _swiglu(
    gate_up_ptr, rows_ptr, columns_ptr, scale_ptr, seen_ptr, N, C,
    TILE: tl.constexpr, GROUP: tl.constexpr, SLOTS: tl.constexpr, PLAIN: tl.constexpr,
):  # fmt: skip
    """C is the width of the result, half of gate_up's."""
    row, col = _place(N // TILE, C // TILE, TILE, GROUP)
    gate = _load(gate_up_ptr, row, col, 2 * C, TILE)
    up = _load(gate_up_ptr, row, col + C, 2 * C, TILE)
    a = _divided(gate, 1.0 + tl.exp(-gate), gate_up_ptr.dtype.element_ty == tl.float32) * up
    scale = tl.load(scale_ptr)
    _write(a, rows_ptr, columns_ptr, seen_ptr, scale, row, col, N, C, TILE, SLOTS, PLAIN)


@jit
def _swiglu_backward(
    gate_up_ptr, da_ptr, rows_ptr, columns_ptr, scale_ptr, seen_ptr, N, C,
    TILE: tl.constexpr, GROUP: tl.constexpr, SLOTS: tl.constexpr, PLAIN: tl.constexpr,
):  # fmt: skip
    """C is da's width; the gradient has twice that, gate's half first."""
    row, col = _place(N // TILE, C // TILE, TILE, GROUP)
    gate = _load(gate_up_ptr, row, col, 2 * C, TILE)
    up = _load(gate_up_ptr, row, col + C, 2 * C, TILE)
    da = _load(da_ptr, row, col, C, TILE)
    sigmoid = _divided(1.0, 1.0 + tl.exp(-gate), gate_up_ptr.dtype.element_ty == tl.float32)
    silu = gate * sigmoid
    scale = tl.load(scale_ptr)
    dgate = da * up * (sigmoid + silu * (1.0 - sigmoid))
    _write(dgate, rows_ptr, columns_ptr, seen_ptr, scale, row, col, N, 2 * C,
           TILE, SLOTS, PLAIN)  # fmt: skip
    dup = da * silu
    _write(dup, rows_ptr, columns_ptr, seen_ptr, scale, row, col + C, N, 2 * C,
           TILE, SLOTS, PLAIN)  # fmt: skip


def _flags(*, plain: bool = IS_INTERPRETED) -> dict[str, int]:
    return {"TILE": TILE, "GROUP": GROUP, "SLOTS": SLOTS, "PLAIN": plain}


def _launch(
    kernel: Any, inputs: tuple[Tensor, ...], C: int, width: int, scale: Tensor, seen: Tensor
) -> Both:
    """A result of `width` columns, made by tiles of N x `C`. ValueError for a part of a tile."""
    N, device = inputs[0].shape[0], scale.device
    if N % TILE or C % TILE:
        raise ValueError(f"{N} x {C} is not a whole number of {TILE} x {TILE} tiles")
    made = [torch.empty(size, dtype=E4M3, device=device) for size in ((N, width), (width, N))]
    kernel[(N // TILE * (C // TILE),)](
        *inputs, *(t.view(torch.uint8) for t in made), scale, seen, N, C,
        **_flags(), num_warps=WARPS,
    )  # fmt: skip
    return Both(*made)


def cast(x: Tensor, scale: Tensor, seen: Tensor) -> Both:
    """x, contiguous."""
    return _launch(_cast, (x,), x.shape[1], x.shape[1], scale, seen)


def swiglu(gate_up: Tensor, scale: Tensor, seen: Tensor) -> Both:
    """silu(gate) * up; contiguous."""
    width = gate_up.shape[1] // 2
    return _launch(_swiglu, (gate_up,), width, width, scale, seen)


def swiglu_backward(gate_up: Tensor, da: Tensor, scale: Tensor, seen: Tensor) -> Both:
    """The gradient at gate_up, (N, 2 I); contiguous."""
    width = da.shape[1]
    return _launch(_swiglu_backward, (gate_up, da), width, 2 * width, scale, seen)


def fp8_triton(gate_up: Tensor, da: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
    """The kernels on what `fp8_reference` takes, for checks and races."""
    seen = torch.zeros(SLOTS, device=da.device)
    gate_up, da = gate_up.detach().contiguous(), da.detach().contiguous()
    made = (
        cast(da, scale, seen),
        swiglu(gate_up, scale, seen),
        swiglu_backward(gate_up, da, scale, seen),
    )
    return tuple(t for both in made for t in (both.rows, both.columns))


def product(
    a: Tensor, b: Tensor, unscale_a: Tensor, unscale_b: Tensor, out: Tensor, *, quick: bool = False
) -> Tensor:
    """out (M, N) = a (M, K) @ b (N, K)^T, times both factors. `quick` adds up in Hopper's own 14
    bits, enough for a forward; otherwise every 128 products go to fp32.
    """
    if a.is_cuda:
        return torch._scaled_mm(
            a, b.t(), unscale_a, unscale_b, out_dtype=out.dtype, use_fast_accum=quick, out=out
        )
    wide = F.linear(a.float(), b.float()) * (unscale_a * unscale_b)
    return out.copy_(wide)


def _cases(device: torch.device, dtype: torch.dtype) -> Iterator[tuple[Tensor, ...]]:
    """The largest first: it is timed. The scale saturates some."""
    source = torch.Generator(device).manual_seed(2209_05433)
    for N, width in ((8192, 4096), (1152, 192), (128, 64)):
        gate_up = torch.randn(N, 2 * width, generator=source, device=device)
        da = torch.randn(N, width, generator=source, device=device)
        scale = torch.tensor(LARGEST / 4.0, device=device)
        yield gate_up.to(dtype), da.to(dtype), scale


def _launches(dtype: str) -> tuple[KernelLaunch, ...]:
    """How activations in `dtype` are rounded, by the machine."""
    made = []
    for kernel, inputs in (
        (_cast, ("x_ptr",)),
        (_swiglu, ("gate_up_ptr",)),
        (_swiglu_backward, ("gate_up_ptr", "da_ptr")),
    ):
        types = dict.fromkeys(inputs, f"*{dtype}")
        types |= dict.fromkeys(("rows_ptr", "columns_ptr"), "*u8")
        types |= dict.fromkeys(("scale_ptr", "seen_ptr"), "*fp32") | {"N": "i32", "C": "i32"}
        flags = _flags(plain=False)
        signature = types | dict.fromkeys(flags, "constexpr")
        made.append(KernelLaunch(kernel, signature, flags, WARPS, first=FIRST_ARCHITECTURE))
    return tuple(made)


register(Op("fp8", fp8_reference, fp8_triton, _cases, _launches))
