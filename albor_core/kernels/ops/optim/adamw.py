"""AdamW on flat buffers: clip, moments, decay, weights and bf16 shadow weights in one pass.

p -= lr * decay * p, then p -= lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps), where the
gradient is scaled by the global-norm clip on its way in. Everything that changes from step to step
(`Control`) lies on the device: no host sync, and a CUDA graph can replay it.

Shapes  p, m, v (N,) fp32; g (N,) fp32, bf16 or fp16; shadow (N,) in g's place in the forward, or
        None. Computed in fp32.
Memory  nothing but the partial sums of the norm.
Limits  all tensors contiguous, no complex numbers, no amsgrad.
Source  Loshchilov & Hutter 2019, arXiv:1711.05101, algorithm 2; clip: Pascanu et al. 2013.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from albor_core.kernels.dispatch import Op, register
from albor_core.kernels.toolchain import KernelLaunch, jit, tl

BLOCK, WARPS = 2048, 4
SUM_BLOCK, SUM_PROGRAMS = 4096, 1056  # of the norm; each adds up its own share: no atomics

SKIP, SCALE, LR, STEP_SIZE, ROOT = range(5)
"""Places in a control tensor (5,) fp32: 1 to change nothing, the clip's factor on gradients, the
rate, the rate over 1 - b1^t, and 1 / sqrt(1 - b2^t)."""
BETA1, BETA2, EPS = 0.9, 0.95, 1e-8  # of the checks


@torch.no_grad()
def adamw_reference(
    p: Tensor,
    m: Tensor,
    v: Tensor,
    g: Tensor,
    control: Tensor,
    betas: tuple[float, float] = (BETA1, BETA2),
    eps: float = EPS,
    decay: float = 0.1,
) -> tuple[Tensor, Tensor, Tensor]:
    """Plain PyTorch: (p, m, v) after a step. Writes over nothing."""
    skip, scale, lr, step_size, root = control.unbind()
    g = g.to(p.dtype) * scale
    moment = m.lerp(g, 1 - betas[0])
    square = v * betas[1] + (1 - betas[1]) * g * g
    new = p * (1 - lr * decay) - step_size * moment / (square.sqrt() * root + eps)
    old = skip != 0
    return torch.where(old, p, new), torch.where(old, m, moment), torch.where(old, v, square)


@jit
def _adamw(
    p_ptr, m_ptr, v_ptr, g_ptr, shadow_ptr, control_ptr, N,
    beta1: tl.constexpr, beta2: tl.constexpr, eps: tl.constexpr, decay: tl.constexpr,
    HAS_SHADOW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    if tl.load(control_ptr) == 0.0:
        scale, lr = tl.load(control_ptr + 1), tl.load(control_ptr + 2)
        step_size, root = tl.load(control_ptr + 3), tl.load(control_ptr + 4)
        at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        inside = at < N
        p = tl.load(p_ptr + at, inside, 0.0)
        m = tl.load(m_ptr + at, inside, 0.0)
        v = tl.load(v_ptr + at, inside, 0.0)
        g = tl.load(g_ptr + at, inside, 0.0).to(tl.float32) * scale
        m += (g - m) * (1.0 - beta1)
        v = v * beta2 + (1.0 - beta2) * g * g
        p = p * (1.0 - lr * decay) - step_size * m / (tl.sqrt_rn(v) * root + eps)
        tl.store(p_ptr + at, p, inside)
        tl.store(m_ptr + at, m, inside)
        tl.store(v_ptr + at, v, inside)
        if HAS_SHADOW:
            tl.store(shadow_ptr + at, p.to(shadow_ptr.dtype.element_ty), inside)


@jit
def _square_sum(
    g_ptr, parts_ptr, N, BLOCK: tl.constexpr,
):  # fmt: skip
    total = tl.zeros((BLOCK,), tl.float32)
    start = tl.program_id(0).to(tl.int64) * BLOCK
    while start < N:
        at = start + tl.arange(0, BLOCK)
        g = tl.load(g_ptr + at, at < N, 0.0).to(tl.float32)
        total += g * g
        start += tl.num_programs(0).to(tl.int64) * BLOCK
    tl.store(parts_ptr + tl.program_id(0), tl.sum(total, 0))


def square_sum(g: Tensor) -> Tensor:
    """Sum of squares of a contiguous tensor, fp32; the same bits every time."""
    programs = min(SUM_PROGRAMS, -(-g.numel() // SUM_BLOCK))
    parts = torch.empty(programs, dtype=torch.float32, device=g.device)
    _square_sum[(programs,)](g, parts, g.numel(), BLOCK=SUM_BLOCK, num_warps=8)
    return parts.sum()


def adamw(
    p: Tensor,
    m: Tensor,
    v: Tensor,
    g: Tensor,
    shadow: Tensor | None,
    control: Tensor,
    *,
    betas: tuple[float, float],
    eps: float,
    decay: float,
) -> None:
    """One step in place; `shadow` gets the new weights in its own dtype."""
    _adamw[(-(-p.numel() // BLOCK),)](
        p, m, v, g, p if shadow is None else shadow, control, p.numel(),
        beta1=betas[0], beta2=betas[1], eps=eps, decay=decay,
        HAS_SHADOW=shadow is not None, BLOCK=BLOCK, num_warps=WARPS,
    )  # fmt: skip


@torch.no_grad()
def adamw_triton(
    p: Tensor, m: Tensor, v: Tensor, g: Tensor, control: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The fused kernel on copies, for checks and races."""
    p, m, v = p.clone(), m.clone(), v.clone()
    adamw(p, m, v, g, None, control, betas=(BETA1, BETA2), eps=EPS, decay=0.1)
    return p, m, v


def _cases(device: torch.device, dtype: torch.dtype) -> Iterator[tuple[Tensor, ...]]:
    """Gradients in `dtype`, the rest fp32; the largest first: it is timed."""
    source = torch.Generator(device).manual_seed(1711_05101)
    for N in (1 << 23, 4099, 1):
        p, m, g = (torch.randn(N, generator=source, device=device) for _ in range(3))
        control = torch.tensor([0.0, 0.5, 3e-4, 1e-3, 2.0], device=device)
        yield p, 0.1 * m, (0.1 * m).square() + 1e-4, g.to(dtype), control


def _launches(dtype: str) -> tuple[KernelLaunch, ...]:
    """How gradients in `dtype` are applied and measured."""
    types = dict.fromkeys(("p_ptr", "m_ptr", "v_ptr", "control_ptr"), "*fp32")
    types |= dict.fromkeys(("g_ptr", "shadow_ptr"), f"*{dtype}") | {"N": "i32"}
    flags = {"beta1": BETA1, "beta2": BETA2, "eps": EPS, "decay": 0.1}
    flags |= {"HAS_SHADOW": True, "BLOCK": BLOCK}
    sums = {"g_ptr": f"*{dtype}", "parts_ptr": "*fp32", "N": "i32", "BLOCK": "constexpr"}
    return (
        KernelLaunch(_adamw, types | dict.fromkeys(flags, "constexpr"), flags, WARPS),
        KernelLaunch(_square_sum, sums, {"BLOCK": SUM_BLOCK}, 8),
    )


register(Op("adamw", adamw_reference, adamw_triton, _cases, _launches))
