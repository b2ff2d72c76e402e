"""The gate-up projection and SwiGLU: gate and up are halves of x @ w^T, a = silu(gate) * up.

One pass in which warps differ in what they do: one asks for tiles of x and w, eight multiply, and
four finish the tile that was multiplied before, out of shared memory. So SwiGLU is done beside the
products instead of after them, and up is never written. Numbers are rounded where two products and
swiglu's forward round them. The backward is swiglu's, or swiglu_down's.

Shapes  x (N, D), w (2 I, D) with gate's rows, then up's, in bf16/fp16. The result (N, 2 I) is gate,
        and a where up would be, as swiglu's `over` leaves them.
Memory  writes each number of the result once, reads x and w, and keeps nothing.
Limits  Hopper (its products of warpgroups; 209 of its 227 KiB of shared memory), Triton with Gluon,
        N and I multiples of 128, D of 64. Elsewhere: two products, then swiglu.
Speed   H200, bf16, D 1024, I 4096, at the power limit: 1,800 us for 65,536 rows, 110 for 4,096 (two
        products and swiglu 2,090 and 138, one product alone 1,730 and 107; trials).
Source  Shazeer 2020, arXiv:2002.05202; Shah et al. 2024, arXiv:2407.08608 (what each warp does).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from albor_core.kernels.dispatch import Op, register, use_triton
from albor_core.kernels.swiglu import swiglu_backward, swiglu_forward, swiglu_reference
from albor_core.kernels.toolchain import (
    HOPPER,
    Launch,
    SwizzledDescriptor,
    fetch_tile,
    gl,
    gluon_jit,
    hopper,
    mbarrier,
)

TILE = {"ROWS": 128, "COLS": 128, "DEPTH": 64}  # COLS of gate and as many of up
STAGES = 3  # tiles of x and w that are on their way or being multiplied
GROUP = 8  # rows of tiles that follow each other: their x stays in the L2
CHUNK = 32  # rows of a tile that are finished at a time
WARPS = 8  # that multiply
OTHERS = {"FINISHERS": 4, "REGISTERS": 120, "FEW": 24}  # warps that finish; a thread's registers


def swiglu_up_reference(x: Tensor, w: Tensor) -> Tensor:
    """Plain PyTorch, in x's dtype: a (N, I)."""
    return swiglu_reference(F.linear(x, w))


@gluon_jit
def _place(
    tile, down, across,
    ROWS: gl.constexpr, COLS: gl.constexpr, GROUP: gl.constexpr,
):  # fmt: skip
    """First row and first column of a tile."""
    first = tile // (GROUP * across) * GROUP
    place, high = tile % (GROUP * across), gl.minimum(down - first, GROUP)
    return (first + place % high) * ROWS, place // high * COLS


@gluon_jit
def _fetch(
    x_rows, w_rows, x_ring, w_ring, full, spent, down, across,
    D: gl.constexpr, ROWS: gl.constexpr, COLS: gl.constexpr, DEPTH: gl.constexpr,
    GROUP: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """One warp: asks for what products read as soon as there is room, of the next tile, too."""
    step = 0
    for tile in range(gl.program_id(0), down * across, gl.num_programs(0)):
        row, col = _place(tile, down, across, ROWS, COLS, GROUP)
        for k in range(0, D, DEPTH):
            at = step % STAGES
            ready, w_tile = full.index(at), w_ring.index(at)
            mbarrier.wait(spent.index(at), (step // STAGES & 1) ^ 1)
            mbarrier.expect(ready, (ROWS + 2 * COLS) * DEPTH * 2)
            fetch_tile(x_rows, [row, k], ready, x_ring.index(at))
            fetch_tile(w_rows, [col, k], ready, w_tile.slice(0, COLS))
            fetch_tile(w_rows, [across * COLS + col, k], ready, w_tile.slice(COLS, COLS))
            step += 1


@gluon_jit
def _multiply(
    x_ring, w_ring, result, full, spent, done, taken, down, across,
    D: gl.constexpr, ROWS: gl.constexpr, COLS: gl.constexpr, DEPTH: gl.constexpr,
    STAGES: gl.constexpr,
):  # fmt: skip
    """Eight warps: a tile's gates and ups, rounded, side by side in `result`."""
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, 128, 16])
    step = 0
    for tile in range(gl.program_id(0), down * across, gl.num_programs(0)):
        total = gl.zeros((ROWS, 2 * COLS), gl.float32, SUMS)
        for k in range(0, D, DEPTH):
            at = step % STAGES
            mbarrier.wait(full.index(at), step // STAGES & 1)
            total = hopper.warpgroup_mma(
                x_ring.index(at), w_ring.index(at).permute((1, 0)), total,
                use_acc=k > 0, is_async=True,
            )  # fmt: skip
            total = hopper.warpgroup_mma_wait(1, deps=(total,))  # the one before has read its tiles
            mbarrier.arrive(spent.index((step + STAGES - 1) % STAGES), pred=k > 0)
            step += 1
        total = hopper.warpgroup_mma_wait(0, deps=(total,))
        mbarrier.arrive(spent.index((step + STAGES - 1) % STAGES))
        mbarrier.wait(taken, (tile // gl.num_programs(0) & 1) ^ 1)
        result.store(total.to(result.dtype))
        mbarrier.arrive(done)


@gluon_jit
def _finish(
    gate_up_ptr, result, done, taken, down, across,
    ROWS: gl.constexpr, COLS: gl.constexpr, GROUP: gl.constexpr, CHUNK: gl.constexpr,
):  # fmt: skip
    """Four warps: SwiGLU of a tile, while the next is multiplied."""
    SPREAD: gl.constexpr = gl.BlockedLayout([1, 8], [2, 16], [gl.num_warps(), 1], [1, 0])
    below = gl.arange(0, CHUNK, gl.SliceLayout(1, SPREAD))[:, None]
    right = gl.arange(0, COLS, gl.SliceLayout(0, SPREAD))[None, :]
    width = across * COLS
    for tile in range(gl.program_id(0), down * across, gl.num_programs(0)):
        row, col = _place(tile, down, across, ROWS, COLS, GROUP)
        mbarrier.wait(done, tile // gl.num_programs(0) & 1)
        for start in gl.static_range(0, ROWS, CHUNK):
            rows = result.slice(start, CHUNK)
            gate = rows.slice(0, COLS, dim=1).load(SPREAD)
            up = rows.slice(COLS, COLS, dim=1).load(SPREAD).to(gl.float32)
            if start + CHUNK == ROWS:
                mbarrier.arrive(taken)
            place = (row + start + below).to(gl.int64) * (2 * width) + col + right
            gl.store(gate_up_ptr + place, gate)
            wide = gate.to(gl.float32)
            wide = gl.where(gl.abs(wide) < 2.0**-60, 2.0**-60, wide)  # as swiglu's _floored
            a = wide / (1.0 + gl.exp(-wide)) * up
            gl.store(gate_up_ptr + place + width, a.to(result.dtype))


@gluon_jit
def _project(
    x_rows, w_rows, gate_up_ptr, rows, width,
    D: gl.constexpr, ROWS: gl.constexpr, COLS: gl.constexpr, DEPTH: gl.constexpr,
    GROUP: gl.constexpr, STAGES: gl.constexpr, CHUNK: gl.constexpr,
    FINISHERS: gl.constexpr, REGISTERS: gl.constexpr, FEW: gl.constexpr,
):  # fmt: skip
    """As many programs as multiprocessors; each takes every so many-th tile."""
    kind: gl.constexpr = x_rows.dtype
    x_ring = gl.allocate_shared_memory(kind, [STAGES, ROWS, DEPTH], x_rows.layout)
    w_ring = gl.allocate_shared_memory(kind, [STAGES, 2 * COLS, DEPTH], x_rows.layout)
    result = gl.allocate_shared_memory(kind, [ROWS, 2 * COLS], x_rows.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    spent = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    done = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    taken = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(spent.index(i), count=1)
    mbarrier.init(done, count=1)
    mbarrier.init(taken, count=1)
    down, across = rows // ROWS, width // COLS
    gl.warp_specialize([
        (_multiply, (x_ring, w_ring, result, full, spent, done, taken, down, across,
                     D, ROWS, COLS, DEPTH, STAGES)),
        (_finish, (gate_up_ptr, result, done, taken, down, across, ROWS, COLS, GROUP, CHUNK)),
        (_fetch, (x_rows, w_rows, x_ring, w_ring, full, spent, down, across,
                  D, ROWS, COLS, DEPTH, GROUP, STAGES)),
    ], [FINISHERS, 1], [REGISTERS, FEW])  # fmt: skip


def misfit(x: Tensor, w: Tensor) -> str:
    """Why the kernel does not take x (N, D) and w (2 I, D) on their device, or ""."""
    rows, (height, depth) = x.shape[0], w.shape
    sizes = f"{rows} x {height // 2} x {depth}"
    is_whole = rows % TILE["ROWS"] == 0 and height % (2 * TILE["COLS"]) == 0
    reasons = {
        "this Triton has no Gluon": gl is None,
        "neither bf16 nor fp16": x.element_size() != 2,
        f"{sizes} do not fill its tiles": not is_whole or depth % TILE["DEPTH"] != 0,
        "no Hopper GPU": not x.is_cuda or _capability(x.device) != HOPPER,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _capability(device: torch.device) -> int:
    return torch.cuda.get_device_capability(device)[0]


def decide(w: Tensor) -> None:
    """Check and race now, where the kernel may be used: a first forward has no memory for that."""
    if not misfit(w, w):
        use_triton("swiglu_up", w)


def project(x: Tensor, w: Tensor) -> Tensor:
    """gate_up (N, 2 I) with a over up, contiguous. Autograd sees nothing."""
    if not misfit(x, w) and use_triton("swiglu_up", x):
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
    (rows, depth), width = x.shape, w.shape[0] // 2
    gate_up = x.new_empty(rows, 2 * width)
    tiles = rows // TILE["ROWS"] * (width // TILE["COLS"])
    together = torch.cuda.get_device_properties(x.device).multi_processor_count
    _project[(min(tiles, together),)](
        _tiles_of(x, TILE["ROWS"]), _tiles_of(w, TILE["COLS"]), gate_up, rows, width,
        D=depth, GROUP=GROUP, STAGES=STAGES, CHUNK=CHUNK, num_warps=WARPS, **TILE, **OTHERS,
    )  # fmt: skip
    return gate_up


def _tiles_of(t: Tensor, rows: int) -> Any:
    return SwizzledDescriptor.from_tensor(t, [rows, TILE["DEPTH"]], _layout(rows, t.dtype))


@cache
def _layout(rows: int, dtype: torch.dtype) -> Any:
    """The same for tiles of any number of rows."""
    kind = gl.float16 if dtype is torch.float16 else gl.bfloat16
    return gl.NVMMASharedLayout.get_default_for([rows, TILE["DEPTH"]], kind)


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
    if reason := misfit(x, w):
        raise ValueError(reason)
    a: Tensor = _SwiGLUUp.apply(x, w, True)
    return a


def swiglu_up_passes(x: Tensor, w: Tensor) -> Tensor:
    """The same in two products and a pass: what runs where the kernel does not."""
    a: Tensor = _SwiGLUUp.apply(x, w, False)
    return a


def _cases(device: torch.device, dtype: torch.dtype) -> Iterator[tuple[Tensor, ...]]:
    """(N, I, D), the largest first: it is timed. Later ones leave a group of tiles unfilled."""
    source = torch.Generator(device).manual_seed(2407_08608)
    for N, width, D in ((4096, 4096, 1024), (1152, 384, 192), (128, 128, 64)):
        x = torch.randn(N, D, generator=source, device=device)
        w = torch.randn(2 * width, D, generator=source, device=device) / D**0.5
        yield x.to(dtype), w.to(dtype)


def _launches(dtype: str) -> tuple[Launch, ...]:
    """How D 1024 is launched; not at all in fp32, nor by a Triton without Gluon."""
    if dtype == "fp32" or gl is None:
        return ()
    kind = torch.float16 if dtype == "fp16" else torch.bfloat16
    types = {
        name: f"tensordesc<{dtype}[{rows}, {TILE['DEPTH']}],{_layout(rows, kind)!r}>"
        for name, rows in (("x_rows", TILE["ROWS"]), ("w_rows", TILE["COLS"]))
    }
    types |= {"gate_up_ptr": f"*{dtype}", "rows": "i32", "width": "i32"}
    flags = {"D": 1024, "GROUP": GROUP, "STAGES": STAGES, "CHUNK": CHUNK, **TILE, **OTHERS}
    signature = types | dict.fromkeys(flags, "constexpr")
    return (Launch(_project, signature, flags, WARPS, first=90),)


register(
    Op("swiglu_up", swiglu_up_reference, swiglu_up_triton, _cases, _launches, swiglu_up_passes)
)
