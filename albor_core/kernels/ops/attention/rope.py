"""Rotary positions on queries and keys in one launch, forward and backward.

y = x * cos + (-high, low) * sin, where low and high are the halves of the head axis, not pairs:
the layout of transformers' Llama.

Shapes  q (B, H, T, E), k (B, K, T, E) in fp32/bf16/fp16, any strides with a contiguous last axis: a
        transposed projection and a slice of a fused QKV buffer need no copy. cos, sin (T, E) in
        fp32, both halves alike as the layout wants; constants, no gradient flows to them.
        Results are the transpose of a contiguous (B, T, heads, E).
Memory  keeps the tables only: the gradient is the same rotation by the opposite angle.
Limits  E even and at most 512; first derivatives only.
Speed   H200, bf16, 16384 tokens of 16 + 4 heads of 64: forward 22 us, with backward 45 (Inductor
        28, 116; plain PyTorch 429, 867; a copy of the same bytes 20, 40):
        benchmarks/step/kernels.py.
Source  Su et al. 2021, arXiv:2104.09864; gradient derived in docs/concepts/kernels.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from albor_core.kernels.dispatch import Op, register, use_triton
from albor_core.kernels.toolchain import KernelLaunch, jit, next_power_of_2, tl

PAIRS, WARPS = 512, 4  # per program
HEADS = 4  # of a program's pairs; a power of two. Their angles come from the first-level cache
MAX_HEAD_DIM = 512


def rope_reference(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Plain PyTorch, computed in fp32 and rounded once."""
    return _rotate(q, cos.detach(), sin.detach()), _rotate(k, cos.detach(), sin.detach())


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    wide = x.to(torch.promote_types(x.dtype, torch.float32))  # fp64 stays fp64
    low, high = wide.chunk(2, dim=-1)
    return (wide * cos + torch.cat((-high, low), dim=-1) * sin).to(x.dtype)


@jit
def _turn(
    x_ptr, y_ptr, x_batch, x_time, x_head, head, token, T, pair, cos, sin, inside,
    HEADS_OF_X: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    batch, time, wide = (token // T).to(tl.int64), (token % T).to(tl.int64), token.to(tl.int64)
    x_at = x_ptr + batch * x_batch + time * x_time + head.to(tl.int64) * x_head + pair
    y_at = y_ptr + (wide * HEADS_OF_X + head) * (2 * HALF) + pair
    inside = inside & (head < HEADS_OF_X)
    low = tl.load(x_at, inside, 0.0).to(tl.float32)
    high = tl.load(x_at + HALF, inside, 0.0).to(tl.float32)
    tl.store(y_at, (low * cos - high * sin).to(y_ptr.dtype.element_ty), inside)
    tl.store(y_at + HALF, (high * cos + low * sin).to(y_ptr.dtype.element_ty), inside)


@jit
def _rope(
    q_ptr, k_ptr, q_out_ptr, k_out_ptr, cos_ptr, sin_ptr, tokens, T,
    q_batch, q_time, q_head, k_batch, k_time, k_head,
    INVERSE: tl.constexpr, H: tl.constexpr, K: tl.constexpr, HALF: tl.constexpr,
    TOKENS: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One program turns TOKENS positions of HEADS heads, of q or, in the last groups, of k."""
    lane = tl.arange(0, TOKENS * HEADS)[:, None]  # one tile: every load is out before a store
    pair = tl.arange(0, BLOCK)[None, :]
    K_FIRST: tl.constexpr = (H + HEADS - 1) // HEADS
    GROUPS: tl.constexpr = K_FIRST + (K + HEADS - 1) // HEADS
    program = tl.program_id(0)  # neighbours in time are neighbours in memory
    if INVERSE:  # from the last token on: what was written last may still be in the L2
        program = tl.num_programs(0) - 1 - program
    token = program // GROUPS * TOKENS + lane // HEADS
    inside = (token < tokens) & (pair < HALF)
    angle = (token % T) * (2 * HALF) + pair
    cos = tl.load(cos_ptr + angle, inside, 0.0)
    sin = tl.load(sin_ptr + angle, inside, 0.0)
    if INVERSE:
        sin = -sin
    group = program % GROUPS
    head = group * HEADS + lane % HEADS
    if group < K_FIRST:
        _turn(
            q_ptr, q_out_ptr, q_batch, q_time, q_head, head, token, T, pair, cos, sin, inside,
            H, HALF,
        )  # fmt: skip
    else:
        _turn(
            k_ptr, k_out_ptr, k_batch, k_time, k_head, head - K_FIRST * HEADS, token, T, pair, cos,
            sin, inside, K, HALF,
        )  # fmt: skip


def _tile(half: int) -> dict[str, int]:
    block = next_power_of_2(half)
    return {"TOKENS": max(1, PAIRS // (HEADS * block)), "HEADS": HEADS, "BLOCK": block}


def _launch(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, inverse: bool) -> tuple[Tensor, Tensor]:
    q, k = (t if t.stride(-1) == 1 else t.contiguous() for t in (q, k))
    B, H, T, E = q.shape
    K = k.shape[1]
    q_out = torch.empty(B, T, H, E, dtype=q.dtype, device=q.device)
    k_out = torch.empty(B, T, K, E, dtype=k.dtype, device=k.device)
    tile = _tile(E // 2)
    grid = (-(-B * T // tile["TOKENS"]) * (-(-H // HEADS) + -(-K // HEADS)),)
    _rope[grid](
        q, k, q_out, k_out, cos, sin, B * T, T,
        q.stride(0), q.stride(2), q.stride(1), k.stride(0), k.stride(2), k.stride(1),
        INVERSE=inverse, H=H, K=K, HALF=E // 2, num_warps=WARPS, **tile,
    )  # fmt: skip
    return q_out.transpose(1, 2), k_out.transpose(1, 2)


class _RoPE(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = cos.contiguous(), sin.contiguous()
        ctx.save_for_backward(cos, sin)
        return _launch(q, k, cos, sin, False)

    @staticmethod
    def backward(ctx: Any, dq: Tensor, dk: Tensor) -> tuple[Tensor, Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return *_launch(dq, dk, cos, sin, True), None, None


def rope_triton(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """The fused kernel, wherever Triton can launch it (a GPU, or its interpreter)."""
    turned: tuple[Tensor, Tensor] = _RoPE.apply(q, k, cos, sin)
    return turned


def rope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """q and k rotated to their positions, in their dtype; differentiable in q and k.

    cos and sin are (T, E): row t is position t. Off the GPU it is the reference.
    """
    fits = q.numel() > 0 and q.shape[-1] % 2 == 0 and q.shape[-1] <= MAX_HEAD_DIM
    if fits and cos.dtype is torch.float32 and use_triton("rope", q):
        return rope_triton(q, k, cos, sin)
    return rope_reference(q, k, cos, sin)


def tables(T: int, E: int, theta: float = 10000.0) -> tuple[Tensor, Tensor]:
    """cos and sin (T, E) in fp32, as transformers computes them, for checks and timing."""
    rate = theta ** -(torch.arange(0, E, 2, dtype=torch.float32) / E)
    angle = torch.outer(torch.arange(T, dtype=torch.float32), rate).repeat(1, 2)
    return angle.cos(), angle.sin()


def _cases(device: torch.device, dtype: torch.dtype) -> Iterator[tuple[Tensor, ...]]:
    """(B, H, K, T, E), the largest first: it is timed, and its 80 MiB in bf16 exceed a GPU's L2."""
    source = torch.Generator(device).manual_seed(2104_09864)
    for B, H, K, T, E in (
        (32, 16, 4, 1024, 64),
        (3, 5, 2, 37, 24),
        (2, 3, 3, 9, 128),
        (1, 1, 1, 1, 2),
    ):
        q, k = (torch.randn(B, T, n, E, generator=source, device=device).to(dtype) for n in (H, K))
        cos, sin = (t.to(device) for t in tables(T, E))
        yield q.transpose(1, 2), k.transpose(1, 2), cos, sin


def _launches(dtype: str) -> tuple[KernelLaunch, ...]:
    """How 16 + 4 heads of 64 are launched with `dtype` activations."""
    data = ("q_ptr", "k_ptr", "q_out_ptr", "k_out_ptr")
    types = dict.fromkeys(data, f"*{dtype}") | dict.fromkeys(("cos_ptr", "sin_ptr"), "*fp32")
    strides = ("q_batch", "q_time", "q_head", "k_batch", "k_time", "k_head")
    types |= dict.fromkeys(("tokens", "T", *strides), "i32")
    out = []
    for inverse in (False, True):
        constants = {"INVERSE": inverse, "H": 16, "K": 4, "HALF": 32, **_tile(32)}
        signature = types | dict.fromkeys(constants, "constexpr")
        out.append(KernelLaunch(_rope, signature, constants, num_warps=WARPS))
    return tuple(out)


register(Op("rope", rope_reference, rope_triton, _cases, _launches))
