"""One new token of each sequence against its cache: q and k are normed and turned, k and v stored,
and the queries of a group attend, in one launch.

Shapes  qkv (B, (H + 2 K) E) contiguous, as one projection writes it: H query heads, then K key and
        K value heads. cos, sin (C, E) in fp32, both halves alike. positions (B,) int64: where each
        token stands. keys, values (S, C, K, E) with S >= B, the last two axes contiguous: WRITTEN
        at (row, position). q_norm, k_norm (E,), or neither. The result is (B, H E).
Memory  reads the keys and values of each sequence once, up to its position; with few sequences
        their length is split among programs, whose parts in fp32 a second launch puts together.
Limits  E even, at most 256; nothing is kept for a backward.
Source  online softmax: Milakov & Gimelshein 2018, arXiv:1805.02867; parts of a length: Dao et al.
        2023, Flash-Decoding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from albor_core.kernels.dispatch import Op
from albor_core.kernels.ops.attention.rope import rope_reference, tables
from albor_core.kernels.ops.norms.rms_norm import rms_norm_reference
from albor_core.kernels.toolchain import KernelLaunch, jit, next_power_of_2, steps, tl

TILE, WARPS, STAGES = 64, 4, 3  # keys that are read at one time
PROGRAMS, MOST_SPLITS = 128, 16  # about one a multiprocessor; see splits_of
FAR = tl.constexpr(-1e30) if tl is not None else -1e30  # a score that weighs nothing
MAX_HEAD_DIM = 256


@torch.no_grad()
def decode_attention_reference(
    qkv: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, keys: Tensor, values: Tensor,
    q_norm: Tensor | None = None, k_norm: Tensor | None = None, *, eps: float = 1e-6,
    window: int = 0,
) -> Tensor:  # fmt: skip
    """Plain PyTorch. Writes the new keys and values, as the kernel does."""
    B, K, E = len(qkv), keys.shape[2], keys.shape[3]
    q, k, v = _heads(qkv, K, E)
    if q_norm is not None and k_norm is not None:
        q, k = rms_norm_reference(q, q_norm, eps), rms_norm_reference(k, k_norm, eps)
    angles = (table[positions][:, None] for table in (cos, sin))
    q, k = rope_reference(q, k, *angles)
    rows = torch.arange(B, device=qkv.device)
    keys[rows, positions], values[rows, positions] = k, v
    behind = positions[:, None] - torch.arange(keys.shape[1], device=qkv.device)
    seen = (behind >= 0) & (behind < (window or keys.shape[1]))
    y = F.scaled_dot_product_attention(
        q.view(B, K, -1, E), keys[:B].transpose(1, 2), values[:B].transpose(1, 2),
        attn_mask=seen[:, None, None],
    )  # fmt: skip
    return y.reshape(B, -1)


def _heads(qkv: Tensor, K: int, E: int) -> tuple[Tensor, Tensor, Tensor]:
    """(B, H, E) and twice (B, K, E)."""
    heads = qkv.view(len(qkv), -1, E)
    return heads[:, : -2 * K], heads[:, -2 * K : -K], heads[:, -K:]


@jit
def _prepared(
    at, norm_ptr, pair, inside, cos, sin, eps: tl.constexpr, HAS_NORM: tl.constexpr,
    HALF: tl.constexpr,
):  # fmt: skip
    """Rows of heads at `at` (rows, pairs), normed and turned: their two halves, rounded."""
    kind: tl.constexpr = at.dtype.element_ty
    low = tl.load(at, inside, 0.0).to(tl.float32)
    high = tl.load(at + HALF, inside, 0.0).to(tl.float32)
    if HAS_NORM:
        mean = (tl.sum(low * low, 1) + tl.sum(high * high, 1)) / (2 * HALF)
        rstd = tl.rsqrt(mean + eps)[:, None]
        w_low = tl.load(norm_ptr + pair, pair < HALF, 0.0).to(tl.float32)[None, :]
        w_high = tl.load(norm_ptr + HALF + pair, pair < HALF, 0.0).to(tl.float32)[None, :]
        low = (w_low * (low * rstd).to(kind).to(tl.float32)).to(kind).to(tl.float32)
        high = (w_high * (high * rstd).to(kind).to(tl.float32)).to(kind).to(tl.float32)
    return (low * cos - high * sin).to(kind), (high * cos + low * sin).to(kind)


@jit
def _attend(
    qkv_ptr, cos_ptr, sin_ptr, position_ptr, key_ptr, value_ptr, q_norm_ptr, k_norm_ptr,
    out_ptr, lse_ptr, slot_stride, window,
    eps: tl.constexpr, scale: tl.constexpr, HAS_NORM: tl.constexpr, K: tl.constexpr,
    G: tl.constexpr, HALF: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr,
    TILE: tl.constexpr, SPLITS: tl.constexpr, STAGES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A program: the queries of one key head of one sequence, over one part of its keys."""
    row = tl.program_id(0).to(tl.int64)
    kv, split = tl.program_id(1), tl.program_id(2)
    E: tl.constexpr = 2 * HALF
    kind: tl.constexpr = qkv_ptr.dtype.element_ty
    position = tl.load(position_ptr + row)
    at = position.to(tl.int32)
    pair = tl.arange(0, BLOCK)
    head = tl.arange(0, GROUP)
    has_pair = (pair < HALF)[None, :]
    both = (head < G)[:, None] & has_pair
    angle = (position * E + pair)[None, :]
    cos = tl.load(cos_ptr + angle, has_pair, 0.0)
    sin = tl.load(sin_ptr + angle, has_pair, 0.0)
    token = qkv_ptr + row * (K * (G + 2) * E)
    q_at = token + (kv * G + head)[:, None] * E + pair[None, :]
    q_low, q_high = _prepared(q_at, q_norm_ptr, pair, both, cos, sin, eps, HAS_NORM, HALF)
    k_at = token + (K * G + kv) * E + pair[None, :]
    k_low, k_high = _prepared(k_at, k_norm_ptr, pair, has_pair, cos, sin, eps, HAS_NORM, HALF)
    v_at = token + (K * (G + 1) + kv) * E + pair[None, :]
    v_low, v_high = tl.load(v_at, has_pair, 0.0), tl.load(v_at + HALF, has_pair, 0.0)
    slot = row * slot_stride + kv * E
    here = slot + position * (K * E) + pair[None, :]
    is_first = split == 0
    if is_first:
        tl.store(key_ptr + here, k_low, has_pair)
        tl.store(key_ptr + here + HALF, k_high, has_pair)
        tl.store(value_ptr + here, v_low, has_pair)
        tl.store(value_ptr + here + HALF, v_high, has_pair)
    # the new token first, from registers: what this program stores it must not read
    score = tl.sum(q_low.to(tl.float32) * k_low.to(tl.float32), 1)
    score = (score + tl.sum(q_high.to(tl.float32) * k_high.to(tl.float32), 1)) * scale
    most = tl.where(is_first, score, FAR)
    total = tl.where(is_first, 1.0, 0.0) + tl.zeros((GROUP,), tl.float32)
    y_low = tl.where(is_first, v_low.to(tl.float32), 0.0) + tl.zeros((GROUP, BLOCK), tl.float32)
    y_high = tl.where(is_first, v_high.to(tl.float32), 0.0) + tl.zeros((GROUP, BLOCK), tl.float32)
    first = tl.where(window > 0, tl.maximum(at + 1 - window, 0), 0)
    part = (at - first + SPLITS - 1) // SPLITS
    part = (part + TILE - 1) // TILE * TILE
    begin = first + split * part
    end = tl.minimum(begin + part, at)
    for start in steps(begin, end, TILE, num_stages=STAGES):
        time = start + tl.arange(0, TILE)
        there = (time < end)[:, None] & has_pair
        old = slot + time.to(tl.int64)[:, None] * (K * E) + pair[None, :]
        old_low = tl.load(key_ptr + old, there, 0.0)
        old_high = tl.load(key_ptr + old + HALF, there, 0.0)
        scores = tl.dot(q_low, tl.trans(old_low), input_precision=PRECISION)
        scores += tl.dot(q_high, tl.trans(old_high), input_precision=PRECISION)
        scores = tl.where((time < end)[None, :], scores * scale, FAR)
        higher = tl.maximum(most, tl.max(scores, 1))
        share = tl.exp(scores - higher[:, None])
        fade = tl.exp(most - higher)
        total = total * fade + tl.sum(share, 1)
        rounded = share.to(kind)
        old_low = tl.load(value_ptr + old, there, 0.0)
        old_high = tl.load(value_ptr + old + HALF, there, 0.0)
        y_low = y_low * fade[:, None] + tl.dot(rounded, old_low, input_precision=PRECISION)
        y_high = y_high * fade[:, None] + tl.dot(rounded, old_high, input_precision=PRECISION)
        most = higher
    whole = tl.maximum(total, 1e-30)
    place = (row * K + kv) * G + head
    to = out_ptr + ((place * SPLITS + split) * E)[:, None] + pair[None, :]
    tl.store(to, (y_low / whole[:, None]).to(out_ptr.dtype.element_ty), both)
    tl.store(to + HALF, (y_high / whole[:, None]).to(out_ptr.dtype.element_ty), both)
    if SPLITS > 1:
        tl.store(lse_ptr + place * SPLITS + split, most + tl.log(whole), head < G)


@jit
def _combine(
    part_ptr, lse_ptr, out_ptr, E, SPLITS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One head's parts, each weighed by what its keys were of all."""
    head = tl.program_id(0).to(tl.int64)
    split = tl.arange(0, SPLITS)
    col = tl.arange(0, BLOCK)
    lse = tl.load(lse_ptr + head * SPLITS + split)
    share = tl.exp(lse - tl.max(lse, 0))
    share = share / tl.sum(share, 0)
    at = (head * SPLITS + split)[:, None] * E + col[None, :]
    parts = tl.load(part_ptr + at, (col < E)[None, :], 0.0)
    y = tl.sum(parts * share[:, None], 0)
    tl.store(out_ptr + head * E + col, y.to(out_ptr.dtype.element_ty), col < E)


def splits_of(programs: int) -> int:
    """Parts of a length, a power of two, where there are so many key heads of sequences."""
    return min(MOST_SPLITS, next_power_of_2(max(1, PROGRAMS // programs)))


def _constants(K: int, G: int, E: int, dtype: str, splits: int) -> dict[str, Any]:
    half = E // 2
    return {
        "scale": E**-0.5, "K": K, "G": G, "HALF": half, "GROUP": max(16, next_power_of_2(G)),
        "BLOCK": max(16, next_power_of_2(half)), "TILE": TILE, "SPLITS": splits, "STAGES": STAGES,
        "PRECISION": "ieee" if dtype in ("fp32", "float32") else "tf32",
    }  # fmt: skip


def decode_attention(
    qkv: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, keys: Tensor, values: Tensor,
    q_norm: Tensor | None = None, k_norm: Tensor | None = None, *, eps: float = 1e-6,
    window: int = 0, splits: int | None = None,
) -> Tensor:  # fmt: skip
    """(B, H E); launches only. Waits for nothing, so a CUDA graph can hold it for all positions."""
    B, width = qkv.shape
    K, E = keys.shape[2:]
    G = width // E // K - 2
    splits = splits_of(B * K) if splits is None else splits
    out = qkv.new_empty(B, K * G * E)
    parts, lse = out, out
    if splits > 1:
        parts = torch.empty(B, K * G, splits, E, dtype=torch.float32, device=qkv.device)
        lse = torch.empty(B, K * G, splits, dtype=torch.float32, device=qkv.device)
    _attend[(B, K, splits)](
        qkv, cos, sin, positions, keys, values, qkv if q_norm is None else q_norm,
        qkv if k_norm is None else k_norm, parts, lse, keys.stride(0), window,
        eps=eps, HAS_NORM=q_norm is not None, num_warps=WARPS,
        **_constants(K, G, E, str(qkv.dtype).removeprefix("torch."), splits),
    )  # fmt: skip
    if splits > 1:
        _combine[(B * K * G,)](parts, lse, out, E, SPLITS=splits, BLOCK=next_power_of_2(E))
    return out


def _cases(device: torch.device, dtype: torch.dtype) -> Iterator[tuple[Tensor, ...]]:
    """(sequences, heads, key heads, head_dim, context): many and few sequences, odd sizes."""
    source = torch.Generator(device).manual_seed(1805_02867)
    for B, H, K, E, C in ((64, 16, 4, 64, 384), (1, 16, 4, 64, 700), (3, 6, 2, 24, 97)):
        qkv = torch.randn(B, (H + 2 * K) * E, generator=source, device=device)
        keys, values = (
            torch.randn(B + 1, C, K, E, generator=source, device=device) for _ in range(2)
        )
        norms = [1 + 0.1 * torch.randn(E, generator=source, device=device) for _ in range(2)]
        cos, sin = (t.to(device) for t in tables(C, E))
        at = torch.randint(C, (B,), generator=source, device=device)
        at[0] = C - 1
        plain = (qkv.to(dtype), cos, sin, at, keys.to(dtype), values.to(dtype))
        yield plain
        if B != 64:
            yield *plain, *(norm.to(dtype) for norm in norms)


def _launches(dtype: str) -> tuple[KernelLaunch, ...]:
    """How 16 + 4 heads of 64 are launched with `dtype` activations, whole and in parts."""
    data = ("qkv_ptr", "key_ptr", "value_ptr", "q_norm_ptr", "k_norm_ptr")
    types = dict.fromkeys(data, f"*{dtype}") | dict.fromkeys(("cos_ptr", "sin_ptr"), "*fp32")
    types |= {"position_ptr": "*i64", "slot_stride": "i32", "window": "i32"}
    found = []
    for splits, has_norm in ((1, False), (16, True)):
        constants = {"eps": 1e-6, "HAS_NORM": has_norm, **_constants(4, 4, 64, dtype, splits)}
        out = "*fp32" if splits > 1 else f"*{dtype}"
        mine = types | {"out_ptr": out, "lse_ptr": out} | dict.fromkeys(constants, "constexpr")
        found.append(KernelLaunch(_attend, mine, constants, WARPS))
    last = {"part_ptr": "*fp32", "lse_ptr": "*fp32", "out_ptr": f"*{dtype}", "E": "i32"}
    constants = {"SPLITS": 16, "BLOCK": 64}
    found.append(KernelLaunch(_combine, last | dict.fromkeys(constants, "constexpr"), constants, 4))
    return tuple(found)


OP = Op("decode_attention", decode_attention_reference, decode_attention, _cases, _launches)
"""Not raced: what stands in for it is another forward (model/generate/forward.py)."""
