"""RMSNorm of each head of q and k inside a fused QKV buffer, and RoPE behind it, in one pass.

Shapes  qkv (B, T, (H + 2 K) E) contiguous, as one projection writes it: H query heads, then K key
        and K value heads. q_weight, k_weight (E,) in fp32, each for all of its heads. cos, sin
        (T, E) in fp32, both halves alike; constants. Statistics in fp32.
Memory  keeps qkv as the projection wrote it, beside the NEW buffer of the same size that attention
        reads: (H + 2 K) E numbers a token more than a layer without these norms. Nothing else is
        kept: the backward makes each head's rstd again, and WRITES OVER the gradient it is given.
        It takes at most 2 * PROGRAMS * E fp32 for the weights' gradients while it runs.
Limits  E even; H, K, E known when it is compiled; first derivatives only.
Source  Henry et al. 2020, arXiv:2010.04245, in the form of Dehghani et al. 2023, arXiv:2302.05442,
        and Qwen3; gradients derived in docs/concepts/kernels.md (QK-norm).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from albor_core.kernels.dispatch import Op, register
from albor_core.kernels.ops.attention import rope_qkv
from albor_core.kernels.ops.attention.rope import rope_reference, tables
from albor_core.kernels.ops.norms.rms_norm import rms_norm_reference, sum_parts
from albor_core.kernels.toolchain import KernelLaunch, jit, next_power_of_2, steps, tl

TOKENS, HEADS, WARPS = 4, 4, 4  # of a forward's program, as rope_qkv's
TILE = 1024  # pairs of a backward's program at a time: four sums of them stay in registers
PROGRAMS = 396  # of the backward, at most; each sums its own rows: no atomics, same bits always


def qk_norm_reference(
    qkv: Tensor, q_weight: Tensor, k_weight: Tensor, cos: Tensor, sin: Tensor,
    H: int = 4, K: int = 2, eps: float = 1e-5,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Plain PyTorch: normed and rotated q, the same of k, v. Writes over nothing."""
    q, k, v = rope_qkv.views(qkv, H, K)
    q, k = rms_norm_reference(q, q_weight, eps), rms_norm_reference(k, k_weight, eps)
    q, k = rope_reference(q, k, cos, sin)
    return q, k, v.clone()


@jit
def _rstd(low, high, HALF: tl.constexpr, eps: tl.constexpr):
    """The reciprocal root mean square of rows given as halves, as a column."""
    squares = tl.sum(low * low, 1) + tl.sum(high * high, 1)
    return tl.rsqrt(squares / (2 * HALF) + eps)[:, None]


@jit
def _weight(q_ptr, k_ptr, at, is_query, inside):
    """The norm weights of each row's head; `at` and `inside` are a row of columns."""
    q, k = tl.load(q_ptr + at, inside, 0.0), tl.load(k_ptr + at, inside, 0.0)
    return tl.where(is_query, q.to(tl.float32), k.to(tl.float32))


@jit
def _forward(
    x_ptr, q_ptr, k_ptr, y_ptr, cos_ptr, sin_ptr, tokens, T,
    eps: tl.constexpr, H: tl.constexpr, K: tl.constexpr, HALF: tl.constexpr,
    TOKENS: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Values are copied. Rounded once, behind the rotation."""
    ALL: tl.constexpr = H + 2 * K
    GROUPS: tl.constexpr = (ALL + HEADS - 1) // HEADS  # neighbours in time: in memory, too
    lane = tl.arange(0, TOKENS * HEADS)[:, None]
    pair = tl.arange(0, BLOCK)[None, :]
    token = tl.program_id(0) // GROUPS * TOKENS + lane // HEADS
    head = tl.program_id(0) % GROUPS * HEADS + lane % HEADS
    inside = (token < tokens) & (pair < HALF) & (head < ALL)
    turns = inside & (head < H + K)
    at = (token.to(tl.int64) * ALL + head) * (2 * HALF) + pair
    kept_low, kept_high = tl.load(x_ptr + at, inside, 0.0), tl.load(x_ptr + at + HALF, inside, 0.0)
    low, high = kept_low.to(tl.float32), kept_high.to(tl.float32)
    rstd = _rstd(low, high, HALF, eps)
    low = low * rstd * _weight(q_ptr, k_ptr, pair, head < H, pair < HALF)
    high = high * rstd * _weight(q_ptr, k_ptr, HALF + pair, head < H, pair < HALF)
    angle = (token % T) * (2 * HALF) + pair
    cos = tl.load(cos_ptr + angle, turns, 0.0)
    sin = tl.load(sin_ptr + angle, turns, 0.0)
    turned_low = (low * cos - high * sin).to(kept_low.dtype)
    turned_high = (high * cos + low * sin).to(kept_low.dtype)
    tl.store(y_ptr + at, tl.where(turns, turned_low, kept_low), inside)
    tl.store(y_ptr + at + HALF, tl.where(turns, turned_high, kept_high), inside)


@jit
def _backward(
    x_ptr, q_ptr, k_ptr, dy_ptr, dq_ptr, dk_ptr, rows, tiles,
    eps: tl.constexpr, H: tl.constexpr, K: tl.constexpr, HALF: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Rows are the H + K heads of every token. Gradients of what was normed become those of what
    the projection wrote, where they lie; a program's sums for the weights go to its row of dq_ptr
    and dk_ptr. The last rows first, as in rms_norm.
    """
    TURNED: tl.constexpr = H + K
    ALL: tl.constexpr = H + 2 * K
    lane = tl.arange(0, ROWS)[:, None]
    pair = tl.arange(0, BLOCK)[None, :]
    q_low = tl.zeros((ROWS, BLOCK), tl.float32)
    q_high = tl.zeros((ROWS, BLOCK), tl.float32)
    k_low = tl.zeros((ROWS, BLOCK), tl.float32)
    k_high = tl.zeros((ROWS, BLOCK), tl.float32)
    for tile in steps(tl.program_id(0), tiles, tl.num_programs(0)):
        row = (tiles - 1 - tile) * ROWS + lane
        head = row % TURNED
        inside = (row < rows) & (pair < HALF)
        at = ((row // TURNED).to(tl.int64) * ALL + head) * (2 * HALF) + pair
        low = tl.load(x_ptr + at, inside, 0.0).to(tl.float32)
        high = tl.load(x_ptr + at + HALF, inside, 0.0).to(tl.float32)
        dy_low = tl.load(dy_ptr + at, inside, 0.0).to(tl.float32)
        dy_high = tl.load(dy_ptr + at + HALF, inside, 0.0).to(tl.float32)
        rstd = _rstd(low, high, HALF, eps)
        low, high = low * rstd, high * rstd
        g_low = dy_low * _weight(q_ptr, k_ptr, pair, head < H, pair < HALF)
        g_high = dy_high * _weight(q_ptr, k_ptr, HALF + pair, head < H, pair < HALF)
        mean = ((tl.sum(g_low * low, 1) + tl.sum(g_high * high, 1)) / (2 * HALF))[:, None]
        dx_low, dx_high = rstd * (g_low - low * mean), rstd * (g_high - high * mean)
        tl.store(dy_ptr + at, dx_low.to(dy_ptr.dtype.element_ty), inside)
        tl.store(dy_ptr + at + HALF, dx_high.to(dy_ptr.dtype.element_ty), inside)
        q_low += tl.where(head < H, dy_low * low, 0.0)
        q_high += tl.where(head < H, dy_high * high, 0.0)
        k_low += tl.where(head < H, 0.0, dy_low * low)
        k_high += tl.where(head < H, 0.0, dy_high * high)
    column = tl.arange(0, BLOCK)
    to = tl.program_id(0) * (2 * HALF) + column
    tl.store(dq_ptr + to, tl.sum(q_low, 0), column < HALF)
    tl.store(dq_ptr + to + HALF, tl.sum(q_high, 0), column < HALF)
    tl.store(dk_ptr + to, tl.sum(k_low, 0), column < HALF)
    tl.store(dk_ptr + to + HALF, tl.sum(k_high, 0), column < HALF)


def _tile(half: int) -> dict[str, int]:
    return {"HALF": half, "BLOCK": next_power_of_2(half)}


def _tile_rows(half: int) -> int:
    return max(1, min(64, TILE // next_power_of_2(half)))


def norm_and_turn(
    qkv: Tensor, q_weight: Tensor, k_weight: Tensor, cos: Tensor, sin: Tensor, H: int, K: int,
    eps: float,
) -> Tensor:  # fmt: skip
    """A buffer like a contiguous qkv with q and k normed and turned; launches only, autograd sees
    nothing.
    """
    (B, T, width), ALL = qkv.shape, H + 2 * K
    y = torch.empty_like(qkv)
    grid = (-(-B * T // TOKENS) * -(-ALL // HEADS),)
    _forward[grid](
        qkv, q_weight, k_weight, y, cos, sin, B * T, T, eps=eps, H=H, K=K,
        **_tile(width // ALL // 2), TOKENS=TOKENS, HEADS=HEADS, num_warps=WARPS,
    )  # fmt: skip
    return y


def empty_parts(weights: int, tokens: int, H: int, K: int, like: Tensor) -> Tensor:
    """(weights, programs, E) fp32 for the partial gradients of `weights` weights like (E,) `like`,
    in backwards over so many tokens.
    """
    E = len(like)
    programs = min(PROGRAMS, -(-tokens * (H + K) // _tile_rows(E // 2)))
    return torch.empty(weights, programs, E, dtype=torch.float32, device=like.device)


def norm_gradient(
    qkv: Tensor, q_weight: Tensor, k_weight: Tensor, dqkv: Tensor, q_parts: Tensor,
    k_parts: Tensor, H: int, K: int, eps: float,
) -> None:  # fmt: skip
    """dqkv, of q and k as they were normed and not yet turned, becomes the gradient of qkv; both
    contiguous. Partial gradients of the weights go to q_parts and k_parts (programs, E), two of
    `empty_parts`, for `sum_parts`.
    """
    B, T, width = qkv.shape
    half, rows = width // (H + 2 * K) // 2, B * T * (H + K)
    tile_rows = _tile_rows(half)
    _backward[(len(q_parts),)](
        qkv, q_weight, k_weight, dqkv, q_parts, k_parts, rows, -(-rows // tile_rows), eps=eps,
        H=H, K=K, **_tile(half), ROWS=tile_rows, num_warps=WARPS,
    )  # fmt: skip


class _QKNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, qkv: Tensor, q_weight: Tensor, k_weight: Tensor, cos: Tensor, sin: Tensor,
        H: int, K: int, eps: float,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        qkv = qkv.contiguous()
        ctx.save_for_backward(qkv, q_weight, k_weight, cos, sin)
        ctx.sizes = H, K, eps
        y = norm_and_turn(qkv, q_weight, k_weight, cos, sin, H, K, eps)
        q, k, v = rope_qkv.views(y, H, K)
        return q.clone(), k.clone(), v.clone()  # autograd forbids the views

    @staticmethod
    def backward(ctx: Any, dq: Tensor, dk: Tensor, dv: Tensor) -> tuple[Tensor | None, ...]:
        qkv, q_weight, k_weight, cos, sin = ctx.saved_tensors
        H, K, eps = ctx.sizes
        found = rope_qkv.gradient_of(dq, dk, dv, cos, sin)
        parts = empty_parts(2, qkv.shape[0] * qkv.shape[1], H, K, q_weight)
        norm_gradient(qkv, q_weight, k_weight, found, parts[0], parts[1], H, K, eps)
        weights = torch.empty_like(parts[:, 0])
        sum_parts(parts, weights)
        d_q, d_k = weights[0].to(q_weight.dtype), weights[1].to(k_weight.dtype)
        return found, d_q, d_k, None, None, None, None, None


def qk_norm_triton(
    qkv: Tensor, q_weight: Tensor, k_weight: Tensor, cos: Tensor, sin: Tensor,
    H: int = 4, K: int = 2, eps: float = 1e-5,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The kernels behind autograd, which costs copies; a step calls the launches itself."""
    made: tuple[Tensor, Tensor, Tensor] = _QKNorm.apply(
        qkv, q_weight, k_weight, cos, sin, H, K, eps
    )
    return made


def _cases(device: torch.device, dtype: torch.dtype) -> Iterator[tuple[Tensor, ...]]:
    """(B, T, E) with four query and two key heads, the largest first: it is timed."""
    source = torch.Generator(device).manual_seed(2010_04245)
    for B, T, E in ((16, 1024, 64), (3, 37, 24), (1, 1, 2)):
        qkv = torch.randn(B, T, 8 * E, generator=source, device=device).to(dtype)
        weights = 1 + 0.1 * torch.randn(2, E, generator=source, device=device)
        cos, sin = (t.to(device) for t in tables(T, E))
        yield qkv, weights[0], weights[1], cos, sin


def _launches(dtype: str) -> tuple[KernelLaunch, ...]:
    """How 16 + 4 + 4 heads of 64 are launched with `dtype` activations, fp32 weights."""
    wide = ("q_ptr", "k_ptr", "cos_ptr", "sin_ptr", "dq_ptr", "dk_ptr")
    types = {
        **dict.fromkeys(("x_ptr", "y_ptr", "dy_ptr"), f"*{dtype}"),
        **dict.fromkeys(wide, "*fp32"),
    }
    types |= dict.fromkeys(("tokens", "T", "rows", "tiles"), "i32")
    flags: dict[str, Any] = {"eps": 1e-6, "H": 16, "K": 4, **_tile(32)}
    made = []
    for kernel, own in (
        (_forward, {"TOKENS": TOKENS, "HEADS": HEADS}),
        (_backward, {"ROWS": _tile_rows(32)}),
    ):
        constants = {**flags, **own}
        known = types | dict.fromkeys(constants, "constexpr")
        signature = {argument: known[argument] for argument in kernel.arg_names}
        made.append(KernelLaunch(kernel, signature, constants, WARPS))
    return tuple(made)


register(Op("qk_norm", qk_norm_reference, qk_norm_triton, _cases, _launches))
