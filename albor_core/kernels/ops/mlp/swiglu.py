"""SwiGLU on a fused gate-up buffer, y = silu(gate) * up, forward and backward.

Shapes  gate_up (..., 2 I) holds gate, then up, in fp32/bf16/fp16; y, dy (..., I). Computed in fp32
        and rounded once.
Memory  keeps gate_up and nothing else. The backward WRITES BOTH GRADIENTS OVER IT: whoever else
        reads the buffer after the forward has to copy it. Autograd knows: a second backward, or
        that of another operation which saved the buffer, raises instead of using wrong numbers.
        `over` puts y where up was: who needs y and gate needs nothing else, since up is y
        over silu(gate), to the precision of y. Not in fp16, whose exponents end too soon.
Limits  copies gate_up if its rows do not lie together; first derivatives only.
Speed   H200, bf16, 16384 x 4096: forward 97 us, with backward 257 us, which is a copy of the same
        bytes (Inductor on this layout 96, 352: its backward concatenates the halves; plain PyTorch
        360, 971): benchmarks/step/kernels.py, torch 2.11.
Source  Shazeer 2020, arXiv:2002.05202; gradient derived in docs/concepts/kernels.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from albor_core.kernels.dispatch import Op, register, use_triton
from albor_core.kernels.toolchain import KernelLaunch, jit, next_power_of_2, tl

BLOCK = 4096  # columns per program: 32 per thread of 4 warps


def swiglu_reference(gate_up: Tensor) -> Tensor:
    """Plain PyTorch, in gate_up's dtype as transformers' LlamaMLP computes it."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


@jit
def _divided(a, b, EXACT: tl.constexpr):
    """a / b; the quick division errs by two units of an fp32 result, more than torch's."""
    return tl.div_rn(a, b) if EXACT else a / b


@jit
def _floored(gate):
    """Away from 0: y over gate is half of up there, which 0 over 0 would forget."""
    FLOOR: tl.constexpr = 2.0**-60
    return tl.where(tl.abs(gate) < FLOOR, FLOOR, gate)


@jit
def _forward(
    gate_up_ptr, y_ptr, width, OVER: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """OVER: y goes over up, and y_ptr is not used."""
    row = tl.program_id(0).to(tl.int64)  # rows * 2 I passes 2^31
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = col < width
    gate_at = gate_up_ptr + row * 2 * width + col
    gate = tl.load(gate_at, inside, 0.0).to(tl.float32)
    up = tl.load(gate_at + width, inside, 0.0).to(tl.float32)
    if OVER:
        gate = _floored(gate)
    y = _divided(gate, 1.0 + tl.exp(-gate), y_ptr.dtype.element_ty == tl.float32) * up
    y_at = gate_at + width if OVER else y_ptr + row * width + col
    tl.store(y_at, y.to(y_ptr.dtype.element_ty), inside)


@jit
def _backward(
    gate_up_ptr, dy_ptr, width, OVER: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Overwrites gate_up with its gradient: every program reads what it writes, and only that.
    OVER: y was written over up.
    """
    row = tl.program_id(0).to(tl.int64)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = col < width
    gate_at = gate_up_ptr + row * 2 * width + col
    gate = tl.load(gate_at, inside, 0.0).to(tl.float32)
    up = tl.load(gate_at + width, inside, 0.0).to(tl.float32)
    dy = tl.load(dy_ptr + row * width + col, inside, 0.0).to(tl.float32)
    EXACT: tl.constexpr = dy_ptr.dtype.element_ty == tl.float32
    if OVER:
        gate = _floored(gate)
    below = 1.0 + tl.exp(-gate)
    sigmoid = _divided(1.0, below, EXACT)
    silu = _divided(gate, below, EXACT)  # one rounding less than gate * sigmoid
    half = _divided(up, gate, EXACT) if OVER else up * sigmoid
    dgate = dy * half * (1.0 + gate * (1.0 - sigmoid))
    tl.store(gate_at, dgate.to(gate_up_ptr.dtype.element_ty), inside)
    tl.store(gate_at + width, (dy * silu).to(gate_up_ptr.dtype.element_ty), inside)


def _block(width: int) -> int:
    return min(BLOCK, next_power_of_2(width))


def swiglu_forward(gate_up: Tensor, *, over: bool = False) -> Tensor:
    """y of a contiguous gate_up; `over`: a view, where up was. Autograd sees nothing."""
    width = gate_up.shape[-1] // 2
    rows, block = gate_up.numel() // (2 * width), _block(width)
    y = gate_up[..., width:] if over else gate_up.new_empty(*gate_up.shape[:-1], width)
    _forward[(rows, -(-width // block))](gate_up, y, width, OVER=over, BLOCK=block, num_warps=4)
    return y


def swiglu_backward(gate_up: Tensor, dy: Tensor, *, over: bool = False) -> None:
    """The gradient over gate_up, both contiguous; `over`: y was written over up."""
    width = dy.shape[-1]
    rows, block = dy.numel() // width, _block(width)
    _backward[(rows, -(-width // block))](gate_up, dy, width, OVER=over, BLOCK=block, num_warps=4)


class _SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate_up: Tensor) -> Tensor:
        gate_up = gate_up.contiguous()
        y = swiglu_forward(gate_up)
        ctx.save_for_backward(gate_up)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        (gate_up,) = ctx.saved_tensors
        swiglu_backward(gate_up, dy.contiguous())
        torch.autograd.graph.increment_version(gate_up)
        gradient: Tensor = gate_up.detach()
        return gradient


def swiglu_triton(gate_up: Tensor) -> Tensor:
    """The fused kernels, wherever Triton can launch them (a GPU, or its interpreter)."""
    y: Tensor = _SwiGLU.apply(gate_up)
    return y


def swiglu(gate_up: Tensor) -> Tensor:
    """silu(gate) * up of the two halves of the last axis; the backward consumes `gate_up`.

    Differentiable once. ValueError if the last axis is odd. Off the GPU it is the reference, which
    consumes nothing.
    """
    if gate_up.shape[-1] % 2:
        raise ValueError(f"gate and up are halves of the last axis, which is {gate_up.shape[-1]}")
    if gate_up.numel() > 0 and use_triton("swiglu", gate_up):
        return swiglu_triton(gate_up)
    return swiglu_reference(gate_up)


def _cases(device: torch.device, dtype: torch.dtype) -> Iterator[tuple[Tensor, ...]]:
    """The largest first: it is timed, and its 128 MiB in bf16 are more than a GPU's L2."""
    source = torch.Generator(device).manual_seed(2002_05202)
    for shape in ((8192, 8192), (300, 128), (5, 3, 246), (1, 1, 2)):
        yield (torch.randn(shape, generator=source, device=device).to(dtype),)


def _launches(dtype: str) -> tuple[KernelLaunch, ...]:
    """How I = 4096 is launched with `dtype` activations."""
    out = []
    for kernel, other in ((_forward, "y_ptr"), (_backward, "dy_ptr")):
        types = {"gate_up_ptr": f"*{dtype}", other: f"*{dtype}", "width": "i32"}
        constants = {"OVER": dtype != "fp16", "BLOCK": _block(4096)}
        signature = types | dict.fromkeys(constants, "constexpr")
        out.append(KernelLaunch(kernel, signature, constants, num_warps=4))
    return tuple(out)


register(Op("swiglu", swiglu_reference, swiglu_triton, _cases, _launches))
