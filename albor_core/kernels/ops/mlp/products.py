"""Matrix products whose tiles are finished by other warps than those that multiply: Gluon.

A program takes tile after tile. One warp asks for the operands of the tiles to come, eight multiply
and leave a tile, rounded, in shared memory, and others do with it what an op is about, while the
next is multiplied. So an elementwise pass is done beside the product instead of after it; what it
needs of memory, or of an SM's other units, is free as long as it takes no longer than a tile.

An op's module adds who finishes, and a kernel that starts all three. A tile of ROWS x COLS is one
of x @ w, x (N, D); or, `IS_TURNED`, of x @ w^T with COLS / 2 rows of either half of w: gates and
ups side by side.

Limits  Hopper: its products of warpgroups, 209 of its 227 KiB of shared memory, registers that
        warps hand over. bf16, fp16; whole tiles. Gluon is Triton's, and has no interpreter.
Source  Shah et al. 2024, arXiv:2407.08608 (warps that differ).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from albor_core.kernels.toolchain import (
    KernelLaunch,
    SwizzledDescriptor,
    fetch_tile,
    gl,
    gluon_jit,
    hopper,
    is_hopper,
    mbarrier,
)

DEPTH = 64  # of what is summed, a step
STAGES = 3  # steps whose operands are on their way or being multiplied
WARPS = 8  # that multiply
FEW = 24  # registers of a thread that asks for operands


@gluon_jit
def place(
    tile, down, across,
    ROWS: gl.constexpr, COLS: gl.constexpr, GROUP: gl.constexpr,
):  # fmt: skip
    """First row and column of a tile; GROUP rows of tiles follow each other: x stays in the L2."""
    first = tile // (GROUP * across) * GROUP
    at, high = tile % (GROUP * across), gl.minimum(down - first, GROUP)
    return (first + at % high) * ROWS, at // high * COLS


@gluon_jit
def room(
    x_tiles, ROWS: gl.constexpr, COLS: gl.constexpr, DEPTH: gl.constexpr,
    STAGES: gl.constexpr, IS_TURNED: gl.constexpr,
):  # fmt: skip
    """Operands, a tile of the product, and barriers: those are full, spent; this is done, taken."""
    kind: gl.constexpr = x_tiles.dtype
    x_ring = gl.allocate_shared_memory(kind, [STAGES, ROWS, DEPTH], x_tiles.layout)
    if IS_TURNED:
        w_ring = gl.allocate_shared_memory(kind, [STAGES, COLS, DEPTH], x_tiles.layout)
    else:
        w_ring = gl.allocate_shared_memory(kind, [STAGES, DEPTH, COLS], x_tiles.layout)
    product = gl.allocate_shared_memory(kind, [ROWS, COLS], x_tiles.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    spent = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    done = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    taken = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(spent.index(i), count=1)
    mbarrier.init(done, count=1)
    mbarrier.init(taken, count=1)
    return x_ring, w_ring, product, full, spent, done, taken


@gluon_jit
def fetch(
    x_tiles, w_tiles, x_ring, w_ring, full, spent, down, across,
    D: gl.constexpr, ROWS: gl.constexpr, COLS: gl.constexpr, DEPTH: gl.constexpr,
    GROUP: gl.constexpr, STAGES: gl.constexpr, IS_TURNED: gl.constexpr,
):  # fmt: skip
    """One warp: asks for operands as soon as there is room, of the next tile, too."""
    HALF: gl.constexpr = COLS // 2
    WIDTH: gl.constexpr = HALF if IS_TURNED else COLS
    step = 0
    for tile in range(gl.program_id(0), down * across, gl.num_programs(0)):
        row, col = place(tile, down, across, ROWS, WIDTH, GROUP)
        for k in range(0, D, DEPTH):
            at = step % STAGES
            ready, w = full.index(at), w_ring.index(at)
            mbarrier.wait(spent.index(at), (step // STAGES & 1) ^ 1)
            mbarrier.expect(ready, (ROWS + COLS) * DEPTH * 2)
            fetch_tile(x_tiles, [row, k], ready, x_ring.index(at))
            if IS_TURNED:
                fetch_tile(w_tiles, [col, k], ready, w.slice(0, HALF))
                fetch_tile(w_tiles, [across * HALF + col, k], ready, w.slice(HALF, HALF))
            else:
                fetch_tile(w_tiles, [k, col], ready, w)
            step += 1


@gluon_jit
def multiply(
    x_ring, w_ring, product, full, spent, done, taken, tiles,
    D: gl.constexpr, ROWS: gl.constexpr, COLS: gl.constexpr, DEPTH: gl.constexpr,
    STAGES: gl.constexpr, IS_TURNED: gl.constexpr,
):  # fmt: skip
    """Multiply with eight warps: sums in fp32, rounded once."""
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, 128, 16])
    step = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        total = gl.zeros((ROWS, COLS), gl.float32, SUMS)
        for k in range(0, D, DEPTH):
            at = step % STAGES
            mbarrier.wait(full.index(at), step // STAGES & 1)
            w = w_ring.index(at).permute((1, 0)) if IS_TURNED else w_ring.index(at)
            total = hopper.warpgroup_mma(x_ring.index(at), w, total, use_acc=k > 0, is_async=True)
            total = hopper.warpgroup_mma_wait(1, deps=(total,))  # the one before has read its own
            mbarrier.arrive(spent.index((step + STAGES - 1) % STAGES), pred=k > 0)
            step += 1
        total = hopper.warpgroup_mma_wait(0, deps=(total,))
        mbarrier.arrive(spent.index((step + STAGES - 1) % STAGES))
        mbarrier.wait(taken, (tile // gl.num_programs(0) & 1) ^ 1)
        product.store(total.to(product.dtype))
        mbarrier.arrive(done)


def misfit(tensors: tuple[Tensor, ...], sizes: tuple[int, ...], tile: tuple[int, int]) -> str:
    """Why no such kernel takes these tensors and a product of these sizes (rows, columns, what is
    summed), or "".
    """
    kinds, places = {t.dtype for t in tensors}, {t.device for t in tensors}
    whole = all(n > 0 and n % part == 0 for n, part in zip(sizes, (*tile, DEPTH), strict=True))
    reasons = {
        "this Triton has no Gluon": gl is None,
        "neither all bf16 nor all fp16": kinds not in ({torch.bfloat16}, {torch.float16}),
        f"{' x '.join(map(str, sizes))} do not fill its tiles": not whole,
        "a matrix that does not begin at 16 bytes": any(t.data_ptr() % 16 for t in tensors),
        "no Hopper GPU": not all(is_hopper(place) for place in places),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def tiles_of(t: Tensor, block: tuple[int, int]) -> Any:
    """A matrix with contiguous rows, as `fetch` takes it."""
    return SwizzledDescriptor.from_tensor(t, list(block), layout())


def launches(
    kernel: Any, dtype: str, blocks: dict[str, tuple[int, int]], flags: dict[str, int]
) -> tuple[KernelLaunch, ...]:
    """How a kernel over a gate-up buffer is launched, D 1024, `blocks` of its operands; not at all
    in fp32, nor by a Triton without Gluon.
    """
    if dtype == "fp32" or gl is None:
        return ()
    types = {n: f"tensordesc<{dtype}[{h}, {w}],{layout()!r}>" for n, (h, w) in blocks.items()}
    types |= {"gate_up_ptr": f"*{dtype}", "rows": "i32", "width": "i32"}
    constants = {"D": 1024, **flags}
    signature = types | dict.fromkeys(constants, "constexpr")
    return (KernelLaunch(kernel, signature, constants, WARPS, first=90),)


@cache
def layout() -> Any:
    """The layout of all tensors in shared memory, whatever their shape: rows of 64 16-bit
    numbers."""
    return gl.NVMMASharedLayout.get_default_for([128, DEPTH], gl.bfloat16)


def programs(t: Tensor, tiles: int) -> int:
    """One for each multiprocessor, which has shared memory for one."""
    return min(tiles, torch.cuda.get_device_properties(t.device).multi_processor_count)
