"""RoPE inside a fused QKV buffer: q and k turn where they lie, the gradients come back as one.

Shapes  qkv (B, T, (H + 2 K) E) contiguous, as one projection writes it: H query heads, then K key
        and K value heads. cos, sin (T, E) in fp32, both halves alike; constants.
Memory  nothing is kept and nothing is copied: q, k, v are views. The forward WRITES OVER qkv; a
        linear layer does not need its output again. The backward gathers dq, dk, dv (any strides
        with a contiguous last axis) into the one buffer that the projection's backward wants.
Limits  E even; H, K, E known when it is compiled; first derivatives only.
Source  Su et al. 2021, arXiv:2104.09864; gradient derived in docs/concepts/kernels.md (RoPE).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from albor_core.kernels.dispatch import Op, register
from albor_core.kernels.ops.attention.rope import rope_reference, tables
from albor_core.kernels.toolchain import KernelLaunch, jit, next_power_of_2, tl

TOKENS, WARPS = 4, 4  # a program turns as many positions of all heads of its group
HEADS = 4


def views(qkv: Tensor, H: int, K: int) -> tuple[Tensor, Tensor, Tensor]:
    """q (B, H, T, E), k and v (B, K, T, E) inside qkv; no copy."""
    B, T, width = qkv.shape
    heads = qkv.view(B, T, H + 2 * K, width // (H + 2 * K)).transpose(1, 2)
    return heads[:, :H], heads[:, H : H + K], heads[:, H + K :]


def rope_qkv_reference(
    qkv: Tensor, cos: Tensor, sin: Tensor, H: int = 4, K: int = 2
) -> tuple[Tensor, Tensor, Tensor]:
    """Plain PyTorch: rotated q, rotated k, v. Writes over nothing."""
    q, k, v = views(qkv, H, K)
    q, k = rope_reference(q, k, cos, sin)
    return q, k, v.clone()


@jit
def _forward(
    qkv_ptr, cos_ptr, sin_ptr, tokens, T,
    TURNED: tl.constexpr, ALL: tl.constexpr, HALF: tl.constexpr,
    TOKENS: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Rotate heads 0 .. TURNED - 1 of ALL in place; every program reads only what it writes."""
    lane = tl.arange(0, TOKENS * HEADS)[:, None]
    pair = tl.arange(0, BLOCK)[None, :]
    GROUPS: tl.constexpr = (TURNED + HEADS - 1) // HEADS  # neighbours in time: in memory, too
    token = tl.program_id(0) // GROUPS * TOKENS + lane // HEADS
    head = tl.program_id(0) % GROUPS * HEADS + lane % HEADS
    inside = (token < tokens) & (pair < HALF) & (head < TURNED)
    angle = (token % T) * (2 * HALF) + pair
    cos = tl.load(cos_ptr + angle, inside, 0.0)
    sin = tl.load(sin_ptr + angle, inside, 0.0)
    at = qkv_ptr + (token.to(tl.int64) * ALL + head) * (2 * HALF) + pair
    low = tl.load(at, inside, 0.0).to(tl.float32)
    high = tl.load(at + HALF, inside, 0.0).to(tl.float32)
    tl.store(at, (low * cos - high * sin).to(qkv_ptr.dtype.element_ty), inside)
    tl.store(at + HALF, (high * cos + low * sin).to(qkv_ptr.dtype.element_ty), inside)


@jit
def _gather(
    x_ptr, out_ptr, x_batch, x_time, x_head, head, first, here, token, T, pair, cos, sin, inside,
    ALL: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    wide = token.to(tl.int64)
    at = x_ptr + (wide // T) * x_batch + (wide % T) * x_time
    at += (head - first).to(tl.int64) * x_head + pair
    inside = inside & here
    low = tl.load(at, inside, 0.0).to(tl.float32)
    high = tl.load(at + HALF, inside, 0.0).to(tl.float32)
    to = out_ptr + (wide * ALL + head) * (2 * HALF) + pair
    tl.store(to, (low * cos + high * sin).to(out_ptr.dtype.element_ty), inside)
    tl.store(to + HALF, (high * cos - low * sin).to(out_ptr.dtype.element_ty), inside)


@jit
def _backward(
    dq_ptr, dk_ptr, dv_ptr, out_ptr, cos_ptr, sin_ptr, tokens, T,
    q_batch, q_time, q_head, k_batch, k_time, k_head, v_batch, v_time, v_head,
    H: tl.constexpr, K: tl.constexpr, HALF: tl.constexpr,
    TOKENS: tl.constexpr, HEADS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Turns dq and dk back, copies dv, into one buffer of H + 2 K heads a token."""
    lane = tl.arange(0, TOKENS * HEADS)[:, None]
    pair = tl.arange(0, BLOCK)[None, :]
    GROUPS: tl.constexpr = (H + 2 * K + HEADS - 1) // HEADS
    token = tl.program_id(0) // GROUPS * TOKENS + lane // HEADS
    start = tl.program_id(0) % GROUPS * HEADS
    head = start + lane % HEADS
    inside = (token < tokens) & (pair < HALF)
    angle = (token % T) * (2 * HALF) + pair
    turns = inside & (head < H + K)
    cos = tl.load(cos_ptr + angle, turns, 1.0)
    sin = tl.load(sin_ptr + angle, turns, 0.0)
    ALL: tl.constexpr = H + 2 * K
    if start < H:
        _gather(dq_ptr, out_ptr, q_batch, q_time, q_head, head, 0, head < H, token, T, pair,
                cos, sin, inside, ALL, HALF)  # fmt: skip
    if (start + HEADS > H) & (start < H + K):
        _gather(dk_ptr, out_ptr, k_batch, k_time, k_head, head, H, (head >= H) & (head < H + K),
                token, T, pair, cos, sin, inside, ALL, HALF)  # fmt: skip
    if start + HEADS > H + K:
        _gather(dv_ptr, out_ptr, v_batch, v_time, v_head, head, H + K,
                (head >= H + K) & (head < ALL), token, T, pair, cos, sin, inside,
                ALL, HALF)  # fmt: skip


def _tile(half: int) -> dict[str, int]:
    return {"TOKENS": TOKENS, "HEADS": HEADS, "BLOCK": next_power_of_2(half)}


def rotate_in_place(qkv: Tensor, cos: Tensor, sin: Tensor, H: int, K: int) -> None:
    """q and k of a contiguous qkv turn where they lie; launches only, autograd sees nothing."""
    B, T, width = qkv.shape
    grid = (-(-B * T // TOKENS) * -(-(H + K) // HEADS),)
    half = width // (H + 2 * K) // 2
    _forward[grid](
        qkv, cos, sin, B * T, T, TURNED=H + K, ALL=H + 2 * K, HALF=half,
        num_warps=WARPS, **_tile(half),
    )  # fmt: skip


def gradient_of(dq: Tensor, dk: Tensor, dv: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """dqkv (B, T, (H + 2 K) E) from the gradients of the rotated views."""
    dq, dk, dv = (t if t.stride(-1) == 1 else t.contiguous() for t in (dq, dk, dv))
    (B, H, T, E), K = dq.shape, dk.shape[1]
    out = torch.empty(B, T, (H + 2 * K) * E, dtype=dq.dtype, device=dq.device)
    strides = [t.stride(axis) for t in (dq, dk, dv) for axis in (0, 2, 1)]
    grid = (-(-B * T // TOKENS) * -(-(H + 2 * K) // HEADS),)
    _backward[grid](
        dq, dk, dv, out, cos, sin, B * T, T, *strides,
        H=H, K=K, HALF=E // 2, num_warps=WARPS, **_tile(E // 2),
    )  # fmt: skip
    return out


class _RopeQKV(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, qkv: Tensor, cos: Tensor, sin: Tensor, H: int, K: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.save_for_backward(cos, sin)
        mine = qkv.clone(memory_format=torch.contiguous_format)  # autograd forbids the views
        rotate_in_place(mine, cos, sin, H, K)
        q, k, v = views(mine, H, K)
        return q.clone(), k.clone(), v.clone()

    @staticmethod
    def backward(ctx: Any, dq: Tensor, dk: Tensor, dv: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin = ctx.saved_tensors
        return gradient_of(dq, dk, dv, cos, sin), None, None, None, None


def rope_qkv_triton(
    qkv: Tensor, cos: Tensor, sin: Tensor, H: int = 4, K: int = 2
) -> tuple[Tensor, Tensor, Tensor]:
    """The kernels behind autograd, which costs copies; a step calls the two launches itself."""
    made: tuple[Tensor, Tensor, Tensor] = _RopeQKV.apply(qkv, cos, sin, H, K)
    return made


def _cases(device: torch.device, dtype: torch.dtype) -> Iterator[tuple[Tensor, ...]]:
    """(B, T, E) with four query and two key heads, the largest first: it is timed."""
    source = torch.Generator(device).manual_seed(2104_09864)
    for B, T, E in ((16, 1024, 64), (3, 37, 24), (1, 1, 2)):
        qkv = torch.randn(B, T, 8 * E, generator=source, device=device).to(dtype)
        cos, sin = (t.to(device) for t in tables(T, E))
        yield qkv, cos, sin


def _launches(dtype: str) -> tuple[KernelLaunch, ...]:
    """How 16 + 4 + 4 heads of 64 are launched with `dtype` activations."""
    tables_ = dict.fromkeys(("cos_ptr", "sin_ptr"), "*fp32")
    sizes = {"tokens": "i32", "T": "i32"}
    strides = {f"{t}_{axis}": "i32" for t in "qkv" for axis in ("batch", "time", "head")}
    out = dict.fromkeys(("dq_ptr", "dk_ptr", "dv_ptr", "out_ptr"), f"*{dtype}")
    made = []
    for kernel, types, constants in (
        (_forward, {"qkv_ptr": f"*{dtype}", **tables_, **sizes}, {"TURNED": 20, "ALL": 24}),
        (_backward, {**out, **tables_, **sizes, **strides}, {"H": 16, "K": 4}),
    ):
        flags = {**constants, "HALF": 32, **_tile(32)}
        made.append(KernelLaunch(kernel, types | dict.fromkeys(flags, "constexpr"), flags, WARPS))
    return tuple(made)


register(Op("rope_qkv", rope_qkv_reference, rope_qkv_triton, _cases, _launches))
