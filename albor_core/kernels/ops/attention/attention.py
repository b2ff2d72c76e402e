"""Causal attention inside a fused QKV buffer, RoPE with it: its backward in two kernels.

The forward is SDPA's, on an H200 cuDNN's (391 us; a kernel here took 441). cuDNN's backward adds up
the queries' gradient in fp32 and rounds it in a second pass, sums those of keys and values over
query heads in a third, and RoPE's is a fourth. Here no program adds to what another wrote: keys and
values belong to one for all query heads that share them, queries to another, which makes a score's
exponential and two products again; each turns back what it holds and writes it where the
projection's backward reads it. Bits do not depend on who is first.

Shapes  qkv (B, T, (H + 2 K) E) contiguous, as one projection writes it: H query heads, then K key
        and K value heads, each for H / K query heads; cos, sin (T, E) in fp32, constants. The
        result is (B T, H E). Scores and sums in fp32, scaled by 1 / sqrt(E).
Memory  keeps qkv, WHICH THE FORWARD WRITES OVER, the result, and one fp32 per token and head.
Limits  the kernels: bf16 and fp16, E of 64 or 128, T a multiple of 64, Hopper or later (nothing
        else was measured), SDPA backends that keep their sums of exponentials; elsewhere SDPA's
        backward and rope_qkv's. B K T / 64 programs share the keys: below some 256 a GPU waits for
        the longest. Heads of 128 race by themselves (`attention_128`).
Speed   H200, bf16, 16 + 4 heads, T 1024, RoPE's gradient with it: 1,110 us for 65,536 tokens (cuDNN
        and rope_qkv 1,520), 110 for 4,096 (130). 8 + 2 heads of 128 with the forward, T 2048: 4,051
        for 65,536 tokens (by SDPA 2,543), T 4096: 7,388 (4,102): such rows
        are SDPA's.
Source  Dao 2023, arXiv:2307.08691 (tiles, and the sum of dy * y in place of a row of scores);
        gradient derived in docs/concepts/kernels.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from albor_core.kernels.dispatch import Op, register, use_triton
from albor_core.kernels.ops.attention import rope_qkv
from albor_core.kernels.ops.attention.rope import tables
from albor_core.kernels.toolchain import (
    IS_INTERPRETED,
    KernelLaunch,
    TensorDescriptor,
    jit,
    steps,
    takes_hoppers,
    tl,
)

OPS = {64: "attention", 128: "attention_128"}
"""By the width of a head: each is checked and raced by itself."""
TILE = 64  # of queries, and of keys
BAND = 32  # heads whose rows stay in the L2 while their tiles are finished
_USUAL = {"num_warps": 4, "num_stages": 2}
QUERIES = {64: _USUAL, 128: _USUAL}  # four programs share a multiprocessor, two of wide heads
KEYS = {64: {**_USUAL, "maxnreg": 168}, 128: {**_USUAL, "num_warps": 8}}  # three, one
LONGEST = {64: None, 128: 1024}
"""Tokens of a row beyond which SDPA's backward is the quicker one, by the width of a head; where
rows are no longer, a race decides, which is one of 1,024 tokens."""


def attention_reference(qkv: Tensor, cos: Tensor, sin: Tensor, H: int = 4, K: int = 2) -> Tensor:
    """Plain PyTorch, in qkv's dtype: (B T, H E)."""
    return _rows(_sdpa(*rope_qkv.rope_qkv_reference(qkv, cos, sin, H, K)))


def _sdpa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    shares = q.shape[1] != k.shape[1]
    if shares and q.element_size() > 2:  # no fp32 kernel on a GPU does: it would build T x T
        k, v = (t.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for t in (k, v))
        shares = False
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=shares)


def _rows(mixed: Tensor) -> Tensor:
    """(B, H, T, E) to (B T, H E); no copy where attention lays its result out like q."""
    B, H, T, width = mixed.shape
    return mixed.transpose(1, 2).reshape(B * T, H * width)


@jit
def _at(tiles, heads, BAND: tl.constexpr):
    """(tile, head) of this program: the first tiles of a band of heads first."""
    band = tl.program_id(0) // (BAND * tiles) * BAND
    place, wide = tl.program_id(0) % (BAND * tiles), tl.minimum(heads - band, BAND)
    return place // wide, band + place % wide


@jit
def _tile_of_queries(
    heads, T, H: tl.constexpr, K: tl.constexpr, E: tl.constexpr, TILE: tl.constexpr,
    BAND: tl.constexpr,
):  # fmt: skip
    """(head of all, first token of its row, first query in the row, columns of q, k and v) of this
    program: the last tiles, which see most keys, first.
    """
    tiles = T // TILE
    tile, place = _at(tiles, heads, BAND)
    row = (tiles - 1 - tile) * TILE
    head, start = place % H, place // H * T
    shared = head // (H // K)
    return place, start, row, head * E, (H + shared) * E, (H + K + shared) * E


@jit
def _in_base_2(logarithm):
    return logarithm * 1.4426950408889634


@jit
def _weights(scores, scale, log_sum, time, seen, IS_DIAGONAL: tl.constexpr):
    """The softmax weights, by powers of two; `time` of the queries and `seen` of the keys, shaped
    to broadcast.
    """
    weights = tl.exp2(scores * scale - log_sum)
    return tl.where(time >= seen, weights, 0.0) if IS_DIAGONAL else weights


@jit
def _turned_back(gradient, cos_ptr, sin_ptr, time, TILE: tl.constexpr, E: tl.constexpr):
    """The halves of rows (TILE, E) before RoPE turned them."""
    HALF: tl.constexpr = E // 2
    low, high = gradient.reshape(TILE, 2, HALF).permute(0, 2, 1).split()
    angle = time[:, None] * E + tl.arange(0, HALF)[None, :]
    cos, sin = tl.load(cos_ptr + angle), tl.load(sin_ptr + angle)
    return low * cos + high * sin, high * cos - low * sin


@jit
def _store_halves(at, low, high, HALF: tl.constexpr):
    tl.store(at, low.to(at.dtype.element_ty))
    tl.store(at + HALF, high.to(at.dtype.element_ty))


@jit
def _query_step(
    q, dy, log_sum, share, dq, qkv, start, key_at, value_at, scale, row, col,
    IS_DIAGONAL: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    k, v = qkv.load([start + col, key_at]), qkv.load([start + col, value_at])
    lane = tl.arange(0, TILE)
    scores = tl.dot(q, k.T, input_precision="ieee")
    weights = _weights(scores, scale, log_sum[:, None], row + lane[:, None], col + lane[None, :],
                       IS_DIAGONAL)  # fmt: skip
    ds = weights * (tl.dot(dy, v.T, input_precision="ieee") - share[:, None])
    return tl.dot(ds.to(k.dtype), k, dq, input_precision="ieee")


@jit
def _queries(
    qkv, dy_rows, y_rows, log_sum_ptr, share_ptr, out_ptr, cos_ptr, sin_ptr, heads, T, factor,
    H: tl.constexpr, K: tl.constexpr, E: tl.constexpr, TILE: tl.constexpr, BAND: tl.constexpr,
):  # fmt: skip
    """The gradient of a tile of queries; also the sum of dy * y, which the keys' reads."""
    place, start, row, query_at, key_at, value_at = _tile_of_queries(heads, T, H, K, E, TILE, BAND)
    scale = _in_base_2(factor)
    q = qkv.load([start + row, query_at])
    dy = dy_rows.load([start + row, query_at])
    share = tl.sum(dy.to(tl.float32) * y_rows.load([start + row, query_at]).to(tl.float32), 1)
    time = row + tl.arange(0, TILE)
    tl.store(share_ptr + place * T + time, share)
    log_sum = _in_base_2(tl.load(log_sum_ptr + place * T + time))
    dq = tl.zeros((TILE, E), tl.float32)
    for col in steps(0, row, TILE):
        dq = _query_step(q, dy, log_sum, share, dq, qkv, start, key_at, value_at, scale,
                         row, col, False, TILE)  # fmt: skip
    for col in steps(row, row + TILE, TILE):  # once; without a loop the kernel takes a tenth longer
        dq = _query_step(q, dy, log_sum, share, dq, qkv, start, key_at, value_at, scale,
                         row, col, True, TILE)  # fmt: skip
    low, high = _turned_back(dq * factor, cos_ptr, sin_ptr, time, TILE, E)
    at = out_ptr + (start + time).to(tl.int64)[:, None] * ((H + 2 * K) * E) + query_at
    _store_halves(at + tl.arange(0, E // 2)[None, :], low, high, E // 2)


@jit
def _key_step(
    k, v, dk, dv, qkv, dy_rows, log_sum_ptr, share_ptr, place, start, head, T, scale, row, col,
    IS_DIAGONAL: tl.constexpr, TILE: tl.constexpr, E: tl.constexpr,
):  # fmt: skip
    """Scores lie transposed: both products that follow take them out of registers."""
    lane = tl.arange(0, TILE)
    q = qkv.load([start + row, head * E])
    at = (place + head) * T + row + lane
    log_sum = _in_base_2(tl.load(log_sum_ptr + at))
    scores = tl.dot(k, q.T, input_precision="ieee")
    weights = _weights(scores, scale, log_sum[None, :], row + lane[None, :], col + lane[:, None],
                       IS_DIAGONAL)  # fmt: skip
    dy = dy_rows.load([start + row, head * E])
    dv = tl.dot(weights.to(dy.dtype), dy, dv, input_precision="ieee")
    share = tl.load(share_ptr + at)
    ds = weights * (tl.dot(v, dy.T, input_precision="ieee") - share[None, :])
    return tl.dot(ds.to(q.dtype), q, dk, input_precision="ieee"), dv


@jit
def _keys(
    qkv, dy_rows, log_sum_ptr, share_ptr, out_ptr, cos_ptr, sin_ptr, heads, T, factor,
    H: tl.constexpr, K: tl.constexpr, E: tl.constexpr, TILE: tl.constexpr, BAND: tl.constexpr,
):  # fmt: skip
    """Gradients of a tile of keys and values."""
    SHARED: tl.constexpr = H // K
    tiles = T // TILE
    tile, place = _at(tiles, heads, BAND)
    col = tile * TILE  # the first are seen by most queries
    head, batch = place % K, place // K
    first, start = head * SHARED, batch * T
    key_at, value_at = (H + head) * E, (H + K + head) * E
    scale = _in_base_2(factor)
    k, v = qkv.load([start + col, key_at]), qkv.load([start + col, value_at])
    dk = tl.zeros((TILE, E), tl.float32)
    dv = tl.zeros((TILE, E), tl.float32)
    for i in steps(0, SHARED):
        dk, dv = _key_step(k, v, dk, dv, qkv, dy_rows, log_sum_ptr, share_ptr, batch * H, start,
                           first + i, T, scale, col, col, True, TILE, E)  # fmt: skip
    after = tiles - 1 - tile
    for i in steps(0, SHARED * after):
        row = col + TILE + i % after * TILE
        dk, dv = _key_step(k, v, dk, dv, qkv, dy_rows, log_sum_ptr, share_ptr, batch * H, start,
                           first + i // after, T, scale, row, col, False, TILE, E)  # fmt: skip
    time = col + tl.arange(0, TILE)
    low, high = _turned_back(dk * factor, cos_ptr, sin_ptr, time, TILE, E)
    at = out_ptr + (start + time).to(tl.int64)[:, None] * ((H + 2 * K) * E)
    _store_halves(at + key_at + tl.arange(0, E // 2)[None, :], low, high, E // 2)
    tl.store(at + value_at + tl.arange(0, E)[None, :], dv.to(out_ptr.dtype.element_ty))


def width_of(qkv: Tensor, H: int, K: int) -> int:
    """The width of a head."""
    return qkv.shape[2] // (H + 2 * K)


def misfit(qkv: Tensor, H: int, K: int) -> str:
    """Why the kernels do not take a buffer of that shape and dtype on its device, or ""."""
    T, E = qkv.shape[1], width_of(qkv, H, K)
    reasons = {
        f"heads of {E} numbers, neither of 64 nor of 128": E not in OPS
        or qkv.shape[2] != (H + 2 * K) * E,
        f"{T} tokens in a row, not a multiple of {TILE}": T % TILE != 0,
        "neither bf16 nor fp16": not (IS_INTERPRETED or qkv.element_size() == 2),
        "no Hopper GPU, nor a later one": not takes_hoppers(qkv.device),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _gradient(
    qkv: Tensor, y: Tensor, log_sum: Tensor, dy: Tensor, cos: Tensor, sin: Tensor, H: int, K: int
) -> Tensor:
    """dqkv from rotated qkv, result, its gradient, and log(sum(exp(scores))) (B, H, T)."""
    (B, T, width), E = qkv.shape, width_of(qkv, H, K)
    rows = [TensorDescriptor.from_tensor(t, [TILE, E]) for t in (qkv.view(B * T, width), dy, y)]
    out, share = torch.empty_like(qkv), torch.empty_like(log_sum)
    rest = (log_sum, share, out, cos, sin)
    flags = {"H": H, "K": K, "E": E, "TILE": TILE, "BAND": BAND}

    for kernel, heads, read, options in (
        (_queries, B * H, rows, QUERIES[E]),
        (_keys, B * K, rows[:2], KEYS[E]),
    ):
        how = {} if IS_INTERPRETED else options
        kernel[(heads * T // TILE,)](*read, *rest, heads, T, E**-0.5, **flags, **how)
    return out


@dataclass
class Attended:
    """Saved tensors for the backward pass."""

    qkv: Tensor
    """Rotated."""
    y: Tensor
    log_sum: Tensor | None
    """(B, H, T); None: by the graph below."""
    graph: tuple[Tensor, list[Tensor]] | None
    """SDPA's result and the leaves q, k, v of its own little graph."""


def attend(
    qkv: Tensor, cos: Tensor, sin: Tensor, H: int, K: int, *, by_kernels: bool | None = None
) -> Attended:
    """Rotates qkv where it lies, and attends. Autograd sees nothing.

    `by_kernels`: what the backward will be, if SDPA keeps what it takes; None: what is quickest
    here of what passes parity, which the first call finds out.
    """
    rope_qkv.rotate_in_place(qkv, cos, sin, H, K)
    return attend_turned(qkv, H, K, by_kernels=by_kernels)


def attend_turned(qkv: Tensor, H: int, K: int, *, by_kernels: bool | None = None) -> Attended:
    """`attend` of q and k that are turned already. Writes over nothing."""
    if by_kernels is None:
        by_kernels = takes_kernels(qkv, H, K)
    leaves = [t.detach().requires_grad_() for t in rope_qkv.views(qkv, H, K)]
    with torch.enable_grad():
        mixed = _sdpa(*leaves)
    y = _rows(mixed.detach())
    log_sum = _log_sum(mixed) if by_kernels else None
    return Attended(qkv, y, log_sum, (mixed, leaves) if log_sum is None else None)


def takes_kernels(qkv: Tensor, H: int, K: int) -> bool:
    """Whether they fit such a buffer, pass parity and are quicker than SDPA's backward."""
    if misfit(qkv, H, K):
        return False
    E = width_of(qkv, H, K)
    longest = LONGEST[E]
    return (longest is None or qkv.shape[1] <= longest) and use_triton(OPS[E], qkv)


def _log_sum(mixed: Tensor) -> Tensor | None:
    """log(sum(exp(scores))) (B, H, T), which SDPA keeps for its backward; None if it does not."""
    kept = getattr(mixed.grad_fn, "_saved_logsumexp", None)
    if not isinstance(kept, Tensor) or kept.shape[:3] != mixed.shape[:3]:
        return None
    return kept.reshape(mixed.shape[:3]).contiguous()


def gradient_of(kept: Attended, dy: Tensor, cos: Tensor, sin: Tensor, H: int, K: int) -> Tensor:
    """dqkv (B, T, (H + 2 K) E) as it was before RoPE, from dy (B T, H E), contiguous."""
    if kept.log_sum is not None:
        return _gradient(kept.qkv, kept.y, kept.log_sum, dy, cos, sin, H, K)
    assert kept.graph is not None
    mixed, leaves = kept.graph
    B, _, T, width = mixed.shape
    d_mixed = dy.view(B, T, H, width).transpose(1, 2)
    dq, dk, dv = torch.autograd.grad(mixed, leaves, d_mixed)
    return rope_qkv.gradient_of(dq, dk, dv, cos, sin)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, qkv: Tensor, cos: Tensor, sin: Tensor, H: int, K: int, by_kernels: bool
    ) -> Tensor:
        mine = qkv.clone(memory_format=torch.contiguous_format)
        kept = attend(mine, cos, sin, H, K, by_kernels=by_kernels)
        if by_kernels and kept.log_sum is None:
            raise ValueError("SDPA keeps no sums of exponentials here")
        ctx.kept, ctx.rest = kept, (cos, sin, H, K)
        return kept.y.clone()

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin, H, K = ctx.rest
        found = gradient_of(ctx.kept, dy.contiguous(), cos, sin, H, K)
        return found, None, None, None, None, None


def attention_triton(qkv: Tensor, cos: Tensor, sin: Tensor, H: int = 4, K: int = 2) -> Tensor:
    """The kernels behind autograd, on a copy. ValueError if they do not fit."""
    if reason := misfit(qkv, H, K):
        raise ValueError(reason)
    y: Tensor = _Attention.apply(qkv, cos, sin, H, K, True)
    return y


def attention_sdpa(qkv: Tensor, cos: Tensor, sin: Tensor, H: int = 4, K: int = 2) -> Tensor:
    """The same with SDPA's backward and rope_qkv's kernels: what runs where ours do not."""
    y: Tensor = _Attention.apply(qkv, cos, sin, H, K, False)
    return y


def _cases(E: int, device: torch.device, dtype: torch.dtype) -> Iterator[tuple[Tensor, ...]]:
    """(B, T) with four query and two key heads, the largest first: it is timed, and fills a GPU."""
    source = torch.Generator(device).manual_seed(2307_08691)
    for B, T in ((1024 // E, 1024), (3, 192), (1, 64)):
        qkv = torch.randn(B, T, 8 * E, generator=source, device=device).to(dtype)
        cos, sin = (t.to(device) for t in tables(T, E))
        yield qkv, cos, sin


def _launches(E: int, dtype: str) -> tuple[KernelLaunch, ...]:
    """How 16 + 4 + 4 heads of 64, or half as many of 128, are launched; not at all in fp32."""
    if dtype == "fp32":
        return ()
    types = dict.fromkeys(("qkv", "dy_rows", "y_rows"), f"tensordesc<{dtype}[{TILE}, {E}]>")
    types |= dict.fromkeys(("log_sum_ptr", "share_ptr", "cos_ptr", "sin_ptr"), "*fp32")
    types |= {"out_ptr": f"*{dtype}", "heads": "i32", "T": "i32", "factor": "fp32"}
    flags = {"H": 1024 // E, "K": 256 // E, "E": E, "TILE": TILE, "BAND": BAND}
    types |= dict.fromkeys(flags, "constexpr")
    made = []
    for kernel, options in ((_queries, QUERIES[E]), (_keys, KEYS[E])):
        signature = {argument: types[argument] for argument in kernel.arg_names}
        made.append(KernelLaunch(kernel, signature, flags, options["num_warps"], options))
    return tuple(made)


for _width, _name in OPS.items():
    register(
        Op(
            _name,
            attention_reference,
            attention_triton,
            partial(_cases, _width),
            partial(_launches, _width),
            instead=attention_sdpa,
        )
    )
