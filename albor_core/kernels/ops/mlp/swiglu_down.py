"""SwiGLU and the down projection, y = a @ w^T with a = silu(gate) * up: a backward in one pass.

The gradient at a, dy @ w, is never written: SwiGLU's backward is done beside the product
(products.py), and rounds where two passes do. The forward is swiglu's and cuBLAS's, in a training
step swiglu_up's, where a lies over up: all gradients need gate and a only.

Shapes  gate_up (N, 2 I) holds gate, then up; w (D, I), dy (N, D), a (N, I), all in bf16/fp16.
Memory  keeps gate_up, a over up in it, and WRITES BOTH GRADIENTS OVER THEM. In fp16, where a is too
        coarse to give up back, it keeps a beside them.
Limits  those of products.py: N a multiple of 256, I of 128, D of 64. Elsewhere: the product, then
        swiglu's backward. First derivatives only.
Speed   H200, bf16, D 1024, I 4096, at the power limit: 1,090 us for 65,536 rows, 90 for 4,096 (the
        product alone 860 and 54; a Triton kernel with a program a tile 1,520 and 94): trials.
Source  swiglu.py beside this; the gradient is derived in docs/concepts/kernels.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from albor_core.kernels.dispatch import Op, register, use_triton
from albor_core.kernels.ops.mlp import products
from albor_core.kernels.ops.mlp.products import (
    DEPTH,
    FEW,
    STAGES,
    WARPS,
    fetch,
    multiply,
    place,
    room,
)
from albor_core.kernels.ops.mlp.swiglu import swiglu_backward, swiglu_forward, swiglu_reference
from albor_core.kernels.toolchain import KernelLaunch, gl, gluon_jit, mbarrier

TILE = {"ROWS": 256, "COLS": 128, "DEPTH": DEPTH}
BLOCKS = {"dy_tiles": (256, DEPTH), "w_tiles": (DEPTH, 128)}  # as they are fetched
FLAGS = {"GROUP": 4, "STAGES": STAGES, "CHUNK": 16, "FINISHERS": 8, "REGISTERS": 64, "FEW": FEW}


def swiglu_down_reference(gate_up: Tensor, w: Tensor) -> Tensor:
    """Plain PyTorch, in gate_up's dtype."""
    return F.linear(swiglu_reference(gate_up), w)


@gluon_jit
def _finish(
    gate_up_ptr, product, done, taken, down, across,
    ROWS: gl.constexpr, COLS: gl.constexpr, GROUP: gl.constexpr, CHUNK: gl.constexpr,
    OVER: gl.constexpr,
):  # fmt: skip
    """CHUNK rows at a time, and what two chunks later is read on its way. OVER: a is over up."""
    SPREAD: gl.constexpr = gl.BlockedLayout([1, 8], [2, 16], [gl.num_warps(), 1], [1, 0])
    width = across * COLS
    below = gl.arange(0, CHUNK, gl.SliceLayout(1, SPREAD))[:, None]
    at = below * (2 * width) + gl.arange(0, COLS, gl.SliceLayout(0, SPREAD))[None, :]
    for tile in range(gl.program_id(0), down * across, gl.num_programs(0)):
        row, col = place(tile, down, across, ROWS, COLS, GROUP)
        gates = gate_up_ptr + (gl.cast(row, gl.int64) * (2 * width) + col)
        chunk = CHUNK * 2 * width
        gate, up = gl.load(gates + at), gl.load(gates + width + at)
        gate_1, up_1 = gl.load(gates + chunk + at), gl.load(gates + chunk + width + at)
        for start in gl.static_range(0, ROWS, CHUNK):
            # true from the first time on; no load is moved over it, for which registers would lack
            mbarrier.wait(done, tile // gl.num_programs(0) & 1)
            dy = product.slice(start, CHUNK).load(SPREAD).to(gl.float32)
            if start + CHUNK == ROWS:
                mbarrier.arrive(taken)
            wide, other = gate.to(gl.float32), up.to(gl.float32)
            gate, up = gate_1, up_1
            if start + 2 * CHUNK < ROWS:
                later = gates + 2 * chunk
                gate_1, up_1 = gl.load(later + at), gl.load(later + width + at)
            if OVER:
                wide = gl.where(gl.abs(wide) < 2.0**-60, 2.0**-60, wide)  # as swiglu's _floored
            power = gl.exp(gl.minimum(-wide, 60.0))  # no product below overflows
            if OVER:  # one division for two
                both = 1.0 / (wide * (1.0 + power))
                sigmoid, half = wide * both, other * ((1.0 + power) * both)
            else:
                sigmoid = 1.0 / (1.0 + power)
                half = other * sigmoid
            # power * sigmoid is 1 - sigmoid; that would be a last bit times a large gate
            dgate = dy * half * (1.0 + wide * (power * sigmoid))
            gl.store(gates + at, dgate.to(product.dtype))
            gl.store(gates + width + at, (dy * (wide * sigmoid)).to(product.dtype))
            gates += chunk


@gluon_jit
def _backward(
    dy_tiles, w_tiles, gate_up_ptr, rows, width,
    D: gl.constexpr, ROWS: gl.constexpr, COLS: gl.constexpr, DEPTH: gl.constexpr,
    GROUP: gl.constexpr, STAGES: gl.constexpr, CHUNK: gl.constexpr,
    FINISHERS: gl.constexpr, REGISTERS: gl.constexpr, FEW: gl.constexpr, OVER: gl.constexpr,
):  # fmt: skip
    dy_ring, w_ring, product, full, spent, done, taken = room(
        dy_tiles, ROWS, COLS, DEPTH, STAGES, False
    )
    down, across = rows // ROWS, width // COLS
    gl.warp_specialize([
        (multiply, (dy_ring, w_ring, product, full, spent, done, taken, down * across,
                    D, ROWS, COLS, DEPTH, STAGES, False)),
        (_finish, (gate_up_ptr, product, done, taken, down, across,
                   ROWS, COLS, GROUP, CHUNK, OVER)),
        (fetch, (dy_tiles, w_tiles, dy_ring, w_ring, full, spent, down, across,
                 D, ROWS, COLS, DEPTH, GROUP, STAGES, False)),
    ], [FINISHERS, 1], [REGISTERS, FEW])  # fmt: skip


def misfit(rows: int, *tensors: Tensor) -> str:
    """Why the kernel does not take so many rows and `tensors`, the last w (D, I), or ""."""
    D, width = tensors[-1].shape
    return products.misfit(tensors, (rows, width, D), (TILE["ROWS"], TILE["COLS"]))


def decide(w: Tensor) -> None:
    """Check and race now, where the kernel may be used: a first backward has no memory for that."""
    if not misfit(TILE["ROWS"], w):
        use_triton("swiglu_down", w)


def _in_one_pass(dy: Tensor, w: Tensor, gate_up: Tensor, *, over: bool) -> None:
    (rows, D), width = dy.shape, w.shape[1]
    tiles = rows // TILE["ROWS"] * (width // TILE["COLS"])
    _backward[(products.programs(dy, tiles),)](
        products.tiles_of(dy, BLOCKS["dy_tiles"]), products.tiles_of(w, BLOCKS["w_tiles"]),
        gate_up, rows, width, D=D, OVER=over, num_warps=WARPS, **TILE, **FLAGS,
    )  # fmt: skip


def swiglu_down_backward(dy: Tensor, w: Tensor, gate_up: Tensor) -> None:
    """Writes the gradient over what swiglu_forward's `over` left of gate_up. Launches only.

    All contiguous; w may be any row-major view.
    """
    if not misfit(len(dy), dy, gate_up, w) and use_triton("swiglu_down", dy):
        _in_one_pass(dy, w, gate_up, over=True)
    else:
        _in_passes(dy, w, gate_up, over=True)


def _in_passes(dy: Tensor, w: Tensor, gate_up: Tensor, *, over: bool) -> None:
    swiglu_backward(gate_up, dy @ w, over=over)


class _SwiGLUDown(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate_up: Tensor, w: Tensor, over: bool, in_one_pass: bool) -> Tensor:
        gate_up, w = gate_up.contiguous(), w.contiguous()
        a = swiglu_forward(gate_up, over=over)
        if over:
            torch.autograd.graph.increment_version(gate_up)
        ctx.over, ctx.backward_of = over, _in_one_pass if in_one_pass else _in_passes
        ctx.save_for_backward(gate_up, w, *(() if over else (a,)))
        return a @ w.t()

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        gate_up, w, *kept = ctx.saved_tensors
        dy = dy.contiguous()
        dw = dy.t() @ (kept[0] if kept else gate_up[:, w.shape[1] :])
        ctx.backward_of(dy, w, gate_up, over=ctx.over)
        torch.autograd.graph.increment_version(gate_up)
        return gate_up.detach(), dw, None, None


def _recorded(gate_up: Tensor, w: Tensor, in_one_pass: bool) -> Tensor:
    records = gate_up.requires_grad and torch.is_grad_enabled()  # forward() cannot see the latter
    over = records and gate_up.dtype is not torch.float16
    y: Tensor = _SwiGLUDown.apply(gate_up, w, over, in_one_pass)
    return y


def swiglu_down_triton(gate_up: Tensor, w: Tensor) -> Tensor:
    """The kernel behind autograd. ValueError if it does not fit."""
    if reason := misfit(len(gate_up), gate_up, w):
        raise ValueError(reason)
    return _recorded(gate_up, w, True)


def swiglu_down_passes(gate_up: Tensor, w: Tensor) -> Tensor:
    """The same with a backward of a product and a pass: what runs where the kernel does not."""
    return _recorded(gate_up, w, False)


def _cases(device: torch.device, dtype: torch.dtype) -> Iterator[tuple[Tensor, ...]]:
    """(N, I, D), the largest first: it is timed. Later ones leave a group of tiles unfilled."""
    source = torch.Generator(device).manual_seed(2002_05202)
    for N, width, D in ((4096, 4096, 1024), (1280, 384, 192), (256, 128, 64)):
        gate_up = torch.randn(N, 2 * width, generator=source, device=device)
        w = torch.randn(D, width, generator=source, device=device) / width**0.5
        yield gate_up.to(dtype), w.to(dtype)


def _launches(dtype: str) -> tuple[KernelLaunch, ...]:
    flags = {**TILE, **FLAGS, "OVER": dtype != "fp16"}
    return products.launches(_backward, dtype, BLOCKS, flags)


register(
    Op(
        "swiglu_down",
        swiglu_down_reference,
        swiglu_down_triton,
        _cases,
        _launches,
        instead=swiglu_down_passes,
    )
)
