"""The gate-up projection and SwiGLU: gate and up are halves of x @ w^T, a = silu(gate) * up.

SwiGLU is done beside the product, not after it (products.py), and up is never written. Numbers are
rounded where two products and swiglu's forward round them. The backward is swiglu's, or
swiglu_down's.

Shapes  x (N, D), w (2 I, D) with gate's rows, then up's, in bf16/fp16. The result (N, 2 I) is gate,
        and a where up would be, as swiglu's `over` leaves them.
Memory  writes each number of the result once, and keeps nothing.
Limits  those of products.py: N and I multiples of 128, D of 64. Elsewhere: two products and swiglu.
Speed   H200, bf16, D 1024, I 4096, at the power limit: 1,753 us for 65,536 rows, 112 for 4,096 (two
        products and swiglu 2,059 and 131; the product alone 1,730 and 107): trials.
Source  Shazeer 2020, arXiv:2002.05202.
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

TILE = {"ROWS": 128, "COLS": 128, "DEPTH": DEPTH}  # COLS of gate and as many of up
BLOCK = (128, DEPTH)  # of x and of w, as they are fetched
FLAGS = {"GROUP": 8, "STAGES": STAGES, "CHUNK": 32, "FINISHERS": 4, "REGISTERS": 120, "FEW": FEW}


def swiglu_up_reference(x: Tensor, w: Tensor) -> Tensor:
    """Plain PyTorch, in x's dtype: a (N, I)."""
    return swiglu_reference(F.linear(x, w))


@gluon_jit
def _finish(
    gate_up_ptr, product, done, taken, down, across,
    ROWS: gl.constexpr, COLS: gl.constexpr, GROUP: gl.constexpr, CHUNK: gl.constexpr,
):  # fmt: skip
    """CHUNK rows at a time, from shared memory to where they belong."""
    SPREAD: gl.constexpr = gl.BlockedLayout([1, 8], [2, 16], [gl.num_warps(), 1], [1, 0])
    below = gl.arange(0, CHUNK, gl.SliceLayout(1, SPREAD))[:, None]
    right = gl.arange(0, COLS, gl.SliceLayout(0, SPREAD))[None, :]
    width = across * COLS
    for tile in range(gl.program_id(0), down * across, gl.num_programs(0)):
        row, col = place(tile, down, across, ROWS, COLS, GROUP)
        mbarrier.wait(done, tile // gl.num_programs(0) & 1)
        for start in gl.static_range(0, ROWS, CHUNK):
            rows = product.slice(start, CHUNK)
            gate = rows.slice(0, COLS, dim=1).load(SPREAD)
            up = rows.slice(COLS, COLS, dim=1).load(SPREAD).to(gl.float32)
            if start + CHUNK == ROWS:
                mbarrier.arrive(taken)
            at = gate_up_ptr + ((row + start + below).to(gl.int64) * (2 * width) + col + right)
            gl.store(at, gate)
            wide = gate.to(gl.float32)
            wide = gl.where(gl.abs(wide) < 2.0**-60, 2.0**-60, wide)  # as swiglu's _floored
            a = wide / (1.0 + gl.exp(-wide)) * up
            gl.store(at + width, a.to(product.dtype))


@gluon_jit
def _project(
    x_tiles, w_tiles, gate_up_ptr, rows, width,
    D: gl.constexpr, ROWS: gl.constexpr, COLS: gl.constexpr, DEPTH: gl.constexpr,
    GROUP: gl.constexpr, STAGES: gl.constexpr, CHUNK: gl.constexpr,
    FINISHERS: gl.constexpr, REGISTERS: gl.constexpr, FEW: gl.constexpr,
):  # fmt: skip
    x_ring, w_ring, product, full, spent, done, taken = room(
        x_tiles, ROWS, 2 * COLS, DEPTH, STAGES, True
    )
    down, across = rows // ROWS, width // COLS
    gl.warp_specialize([
        (multiply, (x_ring, w_ring, product, full, spent, done, taken, down * across,
                    D, ROWS, 2 * COLS, DEPTH, STAGES, True)),
        (_finish, (gate_up_ptr, product, done, taken, down, across, ROWS, COLS, GROUP, CHUNK)),
        (fetch, (x_tiles, w_tiles, x_ring, w_ring, full, spent, down, across,
                 D, ROWS, 2 * COLS, DEPTH, GROUP, STAGES, True)),
    ], [FINISHERS, 1], [REGISTERS, FEW])  # fmt: skip


def misfit(rows: int, *tensors: Tensor) -> str:
    """Why the kernel does not take so many rows and `tensors`, the last w (2 I, D), or ""."""
    tile = (TILE["ROWS"], 2 * TILE["COLS"])
    return products.misfit(tensors, (rows, *tensors[-1].shape), tile)


def decide(w: Tensor) -> None:
    """Check and race now, where the kernel may be used: a first forward has no memory for that."""
    if not misfit(TILE["ROWS"], w):
        use_triton("swiglu_up", w)


def project(x: Tensor, w: Tensor) -> Tensor:
    """gate_up (N, 2 I) with a over up, contiguous, as are x and w. Autograd sees nothing."""
    if not misfit(len(x), x, w) and use_triton("swiglu_up", x):
        return _in_one_pass(x, w)
    return _in_passes(x, w)


def _in_passes(x: Tensor, w: Tensor) -> Tensor:
    """Two products: for half of 8,192 rows cuBLAS has a better kernel than for all (0.5 to 1 % of a
    step of 65,536 tokens, H200).
    """
    gate_up = x.new_empty(x.shape[0], w.shape[0])
    half = w.shape[0] // 2
    for part in (slice(half), slice(half, None)):
        torch.mm(x, w[part].t(), out=gate_up[:, part])
    swiglu_forward(gate_up, over=True)
    return gate_up


def _in_one_pass(x: Tensor, w: Tensor) -> Tensor:
    (rows, D), width = x.shape, w.shape[0] // 2
    gate_up = x.new_empty(rows, 2 * width)
    tiles = rows // TILE["ROWS"] * (width // TILE["COLS"])
    _project[(products.programs(x, tiles),)](
        *(products.tiles_of(t, BLOCK) for t in (x, w)), gate_up, rows, width,
        D=D, num_warps=WARPS, **TILE, **FLAGS,
    )  # fmt: skip
    return gate_up


class _SwiGLUUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, in_one_pass: bool) -> Tensor:
        x, w = x.contiguous(), w.contiguous()
        gate_up = _in_one_pass(x, w) if in_one_pass else _in_passes(x, w)
        ctx.save_for_backward(x, w, gate_up)
        return gate_up[:, w.shape[0] // 2 :].clone()

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor, None]:
        x, w, gate_up = ctx.saved_tensors
        is_over = gate_up.dtype is not torch.float16  # too coarse to give up back
        gate_up = gate_up.clone() if is_over else x @ w.t()
        swiglu_backward(gate_up, dy.contiguous(), over=is_over)
        return gate_up @ w, gate_up.t() @ x, None


def swiglu_up_triton(x: Tensor, w: Tensor) -> Tensor:
    """The kernel behind autograd. ValueError if it does not fit."""
    if reason := misfit(len(x), x, w):
        raise ValueError(reason)
    a: Tensor = _SwiGLUUp.apply(x, w, True)
    return a


def swiglu_up_passes(x: Tensor, w: Tensor) -> Tensor:
    """The same in two products and a pass: what runs where the kernel does not."""
    a: Tensor = _SwiGLUUp.apply(x, w, False)
    return a


def _cases(device: torch.device, dtype: torch.dtype) -> Iterator[tuple[Tensor, ...]]:
    """(N, I, D), the largest first: it is timed. Later ones leave a group of tiles unfilled."""
    source = torch.Generator(device).manual_seed(2002_05202)
    for N, width, D in ((4096, 4096, 1024), (1152, 384, 192), (128, 128, 64)):
        x = torch.randn(N, D, generator=source, device=device)
        w = torch.randn(2 * width, D, generator=source, device=device) / D**0.5
        yield x.to(dtype), w.to(dtype)


def _launches(dtype: str) -> tuple[KernelLaunch, ...]:
    blocks = dict.fromkeys(("x_tiles", "w_tiles"), BLOCK)
    return products.launches(_project, dtype, blocks, TILE | FLAGS)


register(
    Op(
        "swiglu_up",
        swiglu_up_reference,
        swiglu_up_triton,
        _cases,
        _launches,
        instead=swiglu_up_passes,
    )
)
