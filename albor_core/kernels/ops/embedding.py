"""Rows of an embedding, and their gradient without atomics: the same bits every time.

dW[v] = sum of dx over the positions that hold token v: positions are sorted by token once, then one
program owns one row of dW and adds up its own, so no program waits for another. A frequent token's
positions are summed in chunks by many programs before.

Shapes  ids (N,) int64 in [0, V), W (V, D), dx (N, D) in fp32/bf16/fp16. Sums in fp32.
Memory  the sorted ids, V + 1 offsets, and one fp32 row per CHUNK positions.
Limits  first derivatives only.
Source  the gradient of a gather is a scatter-add; docs/concepts/kernels.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from albor_core.kernels.dispatch import Op, register
from albor_core.kernels.toolchain import KernelLaunch, jit, next_power_of_2, tl

ROWS, BLOCK, WARPS = 8, 1024, 4  # positions at a time, columns of a program
CHUNK = 128  # positions in a row whose sum is made in advance if they all hold one token


def embedding_reference(ids: Tensor, weight: Tensor) -> Tensor:
    """Plain PyTorch, summed in fp32 and rounded once as its own backward does not."""
    wide = weight.to(torch.promote_types(weight.dtype, torch.float32))
    return F.embedding(ids, wide).to(weight.dtype)


@jit
def _summed(
    total, order_ptr, dx_ptr, begin, end, D, col,
    ROWS: tl.constexpr,
):  # fmt: skip
    """total plus the rows of dx at sorted positions begin .. end - 1."""
    at = begin
    while at < end:
        lane = at + tl.arange(0, ROWS)
        position = tl.load(order_ptr + lane, lane < end, 0).to(tl.int64)
        inside = (lane < end)[:, None] & (col < D)[None, :]
        dx = tl.load(dx_ptr + position[:, None] * D + col[None, :], inside, 0.0)
        total += tl.sum(dx.to(tl.float32), 0)
        at += ROWS
    return total


@jit
def _chunks(
    ordered_ptr, order_ptr, dx_ptr, parts_ptr, D,
    CHUNK: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Sums of whole chunks of one token; others are left unset and never read."""
    chunk = tl.program_id(0)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    begin = chunk * CHUNK
    if tl.load(ordered_ptr + begin) == tl.load(ordered_ptr + begin + CHUNK - 1):
        total = tl.zeros((BLOCK,), tl.float32)
        total = _summed(total, order_ptr, dx_ptr, begin, begin + CHUNK, D, col, ROWS)
        tl.store(parts_ptr + chunk.to(tl.int64) * D + col, total, col < D)


@jit
def _backward(
    order_ptr, offset_ptr, dx_ptr, parts_ptr, dw_ptr, D,
    ADDS: tl.constexpr, CHUNK: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One token: the rows before its first whole chunk, the chunks' sums, the rows after them."""
    token = tl.program_id(0)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    begin, end = tl.load(offset_ptr + token), tl.load(offset_ptr + token + 1)
    if (not ADDS) | (end > begin):
        to = dw_ptr + token.to(tl.int64) * D + col
        total = tl.zeros((BLOCK,), tl.float32)
        if ADDS:
            total += tl.load(to, col < D, 0.0).to(tl.float32)
        first, last = (begin + CHUNK - 1) // CHUNK, end // CHUNK
        before = tl.minimum(first * CHUNK, end)
        total = _summed(total, order_ptr, dx_ptr, begin, before, D, col, ROWS)
        chunk = first
        while chunk < last:
            lane = chunk + tl.arange(0, ROWS)
            inside = (lane < last)[:, None] & (col < D)[None, :]
            parts = tl.load(parts_ptr + lane.to(tl.int64)[:, None] * D + col[None, :], inside, 0.0)
            total += tl.sum(parts, 0)
            chunk += ROWS
        after = tl.maximum(last * CHUNK, before)
        total = _summed(total, order_ptr, dx_ptr, after, end, D, col, ROWS)
        tl.store(to, total.to(dw_ptr.dtype.element_ty), col < D)


def embedding_backward(ids: Tensor, dx: Tensor, dw: Tensor, *, adds: bool) -> None:
    """Writes the gradient of every row into dw (V, D), or adds it (a tied head was there first)."""
    V, D = dw.shape
    ordered, order = torch.sort(ids.flatten().int(), stable=True)
    bounds = torch.arange(V + 1, dtype=torch.int32, device=ids.device)
    offset = torch.searchsorted(ordered, bounds, out_int32=True)
    block, chunks = min(BLOCK, next_power_of_2(D)), ids.numel() // CHUNK
    parts = torch.empty(max(1, chunks), D, dtype=torch.float32, device=dx.device)
    same = {"CHUNK": CHUNK, "ROWS": ROWS, "BLOCK": block, "num_warps": WARPS}
    if chunks:
        _chunks[(chunks, -(-D // block))](ordered, order, dx, parts, D, **same)
    _backward[(V, -(-D // block))](order, offset, dx, parts, dw, D, ADDS=adds, **same)


class _Embedding(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, ids: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.like = weight
        return F.embedding(ids, weight)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[None, Tensor]:
        (ids,) = ctx.saved_tensors
        dw = torch.empty_like(ctx.like)
        embedding_backward(ids, dy.contiguous(), dw, adds=False)
        return None, dw


def embedding_triton(ids: Tensor, weight: Tensor) -> Tensor:
    """The fused backward, wherever Triton can launch it (a GPU, or its interpreter)."""
    rows: Tensor = _Embedding.apply(ids, weight)
    return rows


def _cases(device: torch.device, dtype: torch.dtype) -> Iterator[tuple[Tensor, ...]]:
    """(N, V, D), the largest first: it is timed. A third of the positions hold one token."""
    source = torch.Generator(device).manual_seed(2018)
    for N, V, D in ((16384, 32768, 1024), (300, 50, 123), (1, 1, 1)):
        ids = torch.randint(0, V, (N,), generator=source, device=device)
        ids[::3] = V // 2
        yield ids, torch.randn(V, D, generator=source, device=device).to(dtype)


def _launches(dtype: str) -> tuple[KernelLaunch, ...]:
    """How rows of 1024 are added up from gradients in `dtype`."""
    types = {"order_ptr": "*i64", "parts_ptr": "*fp32", "D": "i32", "dx_ptr": f"*{dtype}"}
    flags = {"CHUNK": CHUNK, "ROWS": ROWS, "BLOCK": BLOCK}
    constants = dict.fromkeys(flags, "constexpr")
    own = {"offset_ptr": "*i32", "dw_ptr": f"*{dtype}", "ADDS": "constexpr"}
    return (
        KernelLaunch(_chunks, types | {"ordered_ptr": "*i32"} | constants, flags, WARPS),
        KernelLaunch(_backward, types | own | constants, {**flags, "ADDS": True}, WARPS),
    )


register(Op("embedding", embedding_reference, embedding_triton, _cases, _launches))
