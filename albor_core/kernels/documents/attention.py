"""Causal attention within the documents of a row, inside a fused QKV buffer: three kernels.

Documents lie one after the other, so what a query sees is one stretch of keys, from the first of
its document to itself, and what sees a key one stretch of queries. A program walks the tiles of
that stretch alone: a tile that no query of its own sees is neither read nor multiplied. Inside of
them one comparison tells documents apart. As in ops/attention/attention.py no program adds to what
another wrote, and the gradients are turned back where they are written.

Shapes  qkv, cos, sin as in ops/attention/attention.py; first, last (B, T) int32: the first token
        that a token sees, and the one behind the last that sees it (`stretches`). Positions go on
        in a row: a rotation tells distances alone. The result is (B T, H E).
Memory  keeps qkv, WHICH THE FORWARD WRITES OVER, the result, and one fp32 per token and head.
Limits  bf16 and fp16, E of 64 or 128, T a multiple of 64, Hopper or later (tensor descriptors).
Speed   H200, bf16, 8 + 2 heads of 128, T 4096, 65,536 tokens, RoPE's gradient with it: 1,774 us at
        documents of 512 tokens on average, 1,871 in a window of 512, 2,796 in one of 1,024, 5,424
        where a row is one (SDPA without a mask 4,102): benchmarks/step/document_attention.py.
Source  Dao 2023, arXiv:2307.08691; gradient derived in docs/concepts/kernels.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from albor_core.kernels.dispatch import Op
from albor_core.kernels.ops.attention import attention, rope_qkv
from albor_core.kernels.ops.attention.attention import (
    BAND,
    QUERIES,
    TILE,
    _at,
    _in_base_2,
    _rows,
    _store_halves,
    _tile_of_queries,
    _turned_back,
    misfit,
    width_of,
)
from albor_core.kernels.ops.attention.rope import tables
from albor_core.kernels.toolchain import (
    IS_INTERPRETED,
    KernelLaunch,
    TensorDescriptor,
    jit,
    steps,
    tl,
)

FORWARD = {64: {"num_warps": 4, "num_stages": 3}, 128: {"num_warps": 4, "num_stages": 2}}
KEYS = {**attention.KEYS, 128: {"num_warps": 4, "num_stages": 2}}


def stretches(document: Tensor) -> tuple[Tensor, Tensor]:
    """(first, last), int32 (B, T) both, of documents (B, T) that are equal within one."""
    T = document.shape[1]
    place = torch.arange(T, device=document.device).expand_as(document)
    begins = torch.ones_like(document, dtype=torch.bool)
    begins[:, 1:] = document[:, 1:] != document[:, :-1]
    first = torch.where(begins, place, 0).cummax(1).values
    ends = torch.roll(begins, -1, 1)
    ends[:, -1] = True
    last = torch.where(ends, place + 1, T).flip(1).cummin(1).values.flip(1)
    return first.int().contiguous(), last.int().contiguous()


def windowed(bounds: tuple[Tensor, Tensor], window: int) -> tuple[Tensor, Tensor]:
    """Stretches where a token sees but itself and the `window` - 1 before it of its document."""
    first, last = bounds
    place = torch.arange(first.shape[1], device=first.device, dtype=torch.int32)
    return torch.maximum(first, place - window + 1), torch.minimum(last, place + window)


def document_attention_reference(
    qkv: Tensor, cos: Tensor, sin: Tensor, first: Tensor, last: Tensor, H: int = 4, K: int = 2
) -> Tensor:
    """Plain PyTorch, in qkv's dtype: (B T, H E)."""
    q, k, v = rope_qkv.rope_qkv_reference(qkv, cos, sin, H, K)
    place = torch.arange(qkv.shape[1], device=qkv.device)
    seen = (place <= place[:, None]) & (place >= first[:, :, None])
    return _rows(
        F.scaled_dot_product_attention(q, k, v, attn_mask=seen[:, None], enable_gqa=H != K)
    )


@jit
def _inside(time, first, seen):
    """Whether queries at `time`, whose documents begin at `first`, see the keys at `seen`; shaped
    to broadcast.
    """
    return (time >= seen) & (first <= seen)


@jit
def _mix(
    qkv, out_ptr, log_sum_ptr, first_ptr, heads, T, factor,
    H: tl.constexpr, K: tl.constexpr, E: tl.constexpr, TILE: tl.constexpr, BAND: tl.constexpr,
):  # fmt: skip
    """The result of a tile of queries, and log(sum(exp(scores)))."""
    place, start, row, query_at, key_at, value_at = _tile_of_queries(heads, T, H, K, E, TILE, BAND)
    scale = _in_base_2(factor)
    lane = tl.arange(0, TILE)
    time = row + lane
    first = tl.load(first_ptr + start + time)
    q = qkv.load([start + row, query_at])
    highest = tl.full((TILE,), float("-inf"), tl.float32)
    total = tl.zeros((TILE,), tl.float32)
    mixed = tl.zeros((TILE, E), tl.float32)
    begin = tl.min(first, 0) // TILE * TILE
    for col in steps(begin, row + TILE, TILE):
        k, v = qkv.load([start + col, key_at]), qkv.load([start + col, value_at])
        seen = col + lane
        scores = tl.dot(q, k.T, input_precision="ieee") * scale
        inside = _inside(time[:, None], first[:, None], seen[None, :])
        scores = tl.where(inside, scores, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, 1))
        shift = tl.where(higher == float("-inf"), 0.0, higher)  # nothing of its document yet
        weights = tl.exp2(scores - shift[:, None])
        fade = tl.exp2(highest - shift)
        total = total * fade + tl.sum(weights, 1)
        mixed = tl.dot(weights.to(v.dtype), v, mixed * fade[:, None], input_precision="ieee")
        highest = higher
    mixed = mixed / total[:, None]
    at = out_ptr + (start + time).to(tl.int64)[:, None] * (H * E) + query_at
    tl.store(at + tl.arange(0, E)[None, :], mixed.to(out_ptr.dtype.element_ty))
    log_sum = (highest + tl.log2(total)) * 0.6931471805599453
    tl.store(log_sum_ptr + place * T + time, log_sum)


@jit
def _queries(
    qkv, dy_rows, y_rows, log_sum_ptr, share_ptr, out_ptr, cos_ptr, sin_ptr, first_ptr, heads, T,
    factor,
    H: tl.constexpr, K: tl.constexpr, E: tl.constexpr, TILE: tl.constexpr, BAND: tl.constexpr,
):  # fmt: skip
    """The gradient of a tile of queries; also the sum of dy * y, which the keys' reads."""
    place, start, row, query_at, key_at, value_at = _tile_of_queries(heads, T, H, K, E, TILE, BAND)
    scale = _in_base_2(factor)
    q = qkv.load([start + row, query_at])
    dy = dy_rows.load([start + row, query_at])
    share = tl.sum(dy.to(tl.float32) * y_rows.load([start + row, query_at]).to(tl.float32), 1)
    lane = tl.arange(0, TILE)
    time = row + lane
    tl.store(share_ptr + place * T + time, share)
    log_sum = _in_base_2(tl.load(log_sum_ptr + place * T + time))
    first = tl.load(first_ptr + start + time)
    dq = tl.zeros((TILE, E), tl.float32)
    begin = tl.min(first, 0) // TILE * TILE
    for col in steps(begin, row + TILE, TILE):
        k, v = qkv.load([start + col, key_at]), qkv.load([start + col, value_at])
        seen = col + lane
        scores = tl.dot(q, k.T, input_precision="ieee")
        inside = _inside(time[:, None], first[:, None], seen[None, :])
        weights = tl.where(inside, tl.exp2(scores * scale - log_sum[:, None]), 0.0)
        ds = weights * (tl.dot(dy, v.T, input_precision="ieee") - share[:, None])
        dq = tl.dot(ds.to(k.dtype), k, dq, input_precision="ieee")
    low, high = _turned_back(dq * factor, cos_ptr, sin_ptr, time, TILE, E)
    at = out_ptr + (start + time).to(tl.int64)[:, None] * ((H + 2 * K) * E) + query_at
    _store_halves(at + tl.arange(0, E // 2)[None, :], low, high, E // 2)


@jit
def _keys(
    qkv, dy_rows, log_sum_ptr, share_ptr, out_ptr, cos_ptr, sin_ptr, first_ptr, last_ptr, heads, T,
    factor,
    H: tl.constexpr, K: tl.constexpr, E: tl.constexpr, TILE: tl.constexpr, BAND: tl.constexpr,
):  # fmt: skip
    """Gradients of a tile of keys and values. Scores lie transposed."""
    SHARED: tl.constexpr = H // K
    tiles = T // TILE
    tile, place = _at(tiles, heads, BAND)
    col = tile * TILE
    head, batch = place % K, place // K
    start = batch * T
    key_at, value_at = (H + head) * E, (H + K + head) * E
    scale = _in_base_2(factor)
    k, v = qkv.load([start + col, key_at]), qkv.load([start + col, value_at])
    lane = tl.arange(0, TILE)
    seen = col + lane
    last = tl.load(last_ptr + start + col + TILE - 1)  # of those of its keys the last
    number = (last - col + TILE - 1) // TILE
    dk = tl.zeros((TILE, E), tl.float32)
    dv = tl.zeros((TILE, E), tl.float32)
    for i in steps(0, SHARED * number):
        query, row = head * SHARED + i // number, col + i % number * TILE
        time = row + lane
        q = qkv.load([start + row, query * E])
        dy = dy_rows.load([start + row, query * E])
        at = (batch * H + query) * T + time
        log_sum = _in_base_2(tl.load(log_sum_ptr + at))
        first = tl.load(first_ptr + start + time)
        inside = _inside(time[None, :], first[None, :], seen[:, None])
        scores = tl.dot(k, q.T, input_precision="ieee")
        weights = tl.where(inside, tl.exp2(scores * scale - log_sum[None, :]), 0.0)
        dv = tl.dot(weights.to(dy.dtype), dy, dv, input_precision="ieee")
        ds = weights * (tl.dot(v, dy.T, input_precision="ieee") - tl.load(share_ptr + at)[None, :])
        dk = tl.dot(ds.to(q.dtype), q, dk, input_precision="ieee")
    low, high = _turned_back(dk * factor, cos_ptr, sin_ptr, seen, TILE, E)
    at = out_ptr + (start + seen).to(tl.int64)[:, None] * ((H + 2 * K) * E)
    _store_halves(at + key_at + tl.arange(0, E // 2)[None, :], low, high, E // 2)
    tl.store(at + value_at + tl.arange(0, E)[None, :], dv.to(out_ptr.dtype.element_ty))


def _flags(H: int, K: int, E: int) -> dict[str, int]:
    return {"H": H, "K": K, "E": E, "TILE": TILE, "BAND": BAND}


def _how(options: dict[str, int]) -> dict[str, int]:
    return {} if IS_INTERPRETED else options


@dataclass
class AttendedDocuments:
    """Saved tensors for the backward pass."""

    qkv: Tensor
    """Rotated."""
    y: Tensor
    log_sum: Tensor
    """(B, H, T)"""
    first: Tensor
    last: Tensor


def attend(
    qkv: Tensor, cos: Tensor, sin: Tensor, first: Tensor, last: Tensor, H: int, K: int
) -> AttendedDocuments:
    """Rotates qkv where it lies, and attends by the kernels. Autograd sees nothing."""
    rope_qkv.rotate_in_place(qkv, cos, sin, H, K)
    return attend_turned(qkv, first, last, H, K)


def attend_turned(qkv: Tensor, first: Tensor, last: Tensor, H: int, K: int) -> AttendedDocuments:
    """`attend` of q and k that are turned already. Writes over nothing."""
    (B, T, width), E = qkv.shape, width_of(qkv, H, K)
    y = qkv.new_empty(B * T, H * E)
    log_sum = torch.empty(B, H, T, dtype=torch.float32, device=qkv.device)
    rows = TensorDescriptor.from_tensor(qkv.view(B * T, width), [TILE, E])
    grid = (B * H * T // TILE,)
    flags = _flags(H, K, E)
    _mix[grid](rows, y, log_sum, first, B * H, T, E**-0.5, **flags, **_how(FORWARD[E]))
    return AttendedDocuments(qkv, y, log_sum, first, last)


def gradient_of(
    kept: AttendedDocuments, dy: Tensor, cos: Tensor, sin: Tensor, H: int, K: int
) -> Tensor:
    """dqkv (B, T, (H + 2 K) E) as it was before RoPE, from dy (B T, H E), contiguous."""
    qkv, (B, T, width), E = kept.qkv, kept.qkv.shape, width_of(kept.qkv, H, K)
    sides = (qkv.view(B * T, width), dy, kept.y)
    rows = [TensorDescriptor.from_tensor(t, [TILE, E]) for t in sides]
    out, share = torch.empty_like(qkv), torch.empty_like(kept.log_sum)
    rest = (kept.log_sum, share, out, cos, sin, kept.first)
    sizes, flags = (T, E**-0.5), _flags(H, K, E)
    _queries[(B * H * T // TILE,)](*rows, *rest, B * H, *sizes, **flags, **_how(QUERIES[E]))
    how = _how(KEYS[E])
    _keys[(B * K * T // TILE,)](*rows[:2], *rest, kept.last, B * K, *sizes, **flags, **how)
    return out


class _DocumentAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, qkv: Tensor, cos: Tensor, sin: Tensor, first: Tensor, last: Tensor, H: int, K: int
    ) -> Tensor:
        mine = qkv.clone(memory_format=torch.contiguous_format)
        kept = attend(mine, cos, sin, first, last, H, K)
        ctx.kept, ctx.rest = kept, (cos, sin, H, K)
        return kept.y.clone()

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        found = gradient_of(ctx.kept, dy.contiguous(), *ctx.rest)
        return found, None, None, None, None, None, None


def document_attention(
    qkv: Tensor, cos: Tensor, sin: Tensor, first: Tensor, last: Tensor, H: int = 4, K: int = 2
) -> Tensor:
    """The kernels behind autograd, on a copy. ValueError if they do not fit."""
    if reason := misfit(qkv, H, K):
        raise ValueError(reason)
    y: Tensor = _DocumentAttention.apply(qkv, cos, sin, first, last, H, K)
    return y


def drawn_documents(B: int, T: int, mean: int, source: torch.Generator) -> Tensor:
    """(B, T) documents whose lengths are about `mean` tokens each, on the generator's device."""
    begins = torch.rand(B, T, generator=source, device=source.device) < 1 / mean
    return begins.cumsum(1)


def _cases(device: torch.device, dtype: torch.dtype) -> Iterator[tuple[Tensor, ...]]:
    """Test cases with four query and two key heads: rows of a few documents, of many, of one; both
    widths."""
    source = torch.Generator(device).manual_seed(2307_08691)
    sizes = ((16, 1024, 200), (3, 192, 10), (2, 256, 4096), (1, 64, 3))
    for E, (B, T, mean) in product((64, 128), sizes):
        qkv = torch.randn(B, T, 8 * E, generator=source, device=device).to(dtype)
        cos, sin = (t.to(device) for t in tables(T, E))
        yield qkv, cos, sin, *stretches(drawn_documents(B, T, mean, source))


def _launches(dtype: str) -> tuple[KernelLaunch, ...]:
    """How 16 + 4 + 4 heads of 64, and half as many of 128, are launched; not at all in fp32."""
    if dtype == "fp32":
        return ()
    made = []
    for E in (64, 128):
        types = dict.fromkeys(("qkv", "dy_rows", "y_rows"), f"tensordesc<{dtype}[{TILE}, {E}]>")
        types |= dict.fromkeys(("log_sum_ptr", "share_ptr", "cos_ptr", "sin_ptr"), "*fp32")
        types |= dict.fromkeys(("first_ptr", "last_ptr"), "*i32")
        types |= {"out_ptr": f"*{dtype}", "heads": "i32", "T": "i32", "factor": "fp32"}
        flags: dict[str, Any] = _flags(1024 // E, 256 // E, E)
        types |= dict.fromkeys(flags, "constexpr")
        for kernel, options in ((_mix, FORWARD[E]), (_queries, QUERIES[E]), (_keys, KEYS[E])):
            signature = {argument: types[argument] for argument in kernel.arg_names}
            made.append(KernelLaunch(kernel, signature, flags, options["num_warps"], options))
    return tuple(made)


OP = Op("document_attention", document_attention_reference, document_attention, _cases, _launches)
"""For `dispatch.rejection`: it is not raced, for nothing else skips what no query sees."""
