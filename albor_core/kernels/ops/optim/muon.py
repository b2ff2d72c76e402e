"""What of Muon is elementwise, on flat buffers: momentum into an update, an update into weights.

u = Nesterov(g, m) in half precision, then (elsewhere) its matrices are orthogonalised in place,
then p = p (1 - lr * decay) - lr * u, with half-precision shadow weights. As in `adamw`, what
changes from step to step lies on the device.

Shapes  p, m (N,) fp32; g, u (N,) fp32, bf16 or fp16; shadow (N,) in g's place, or None. Computed in
        fp32.
Memory  u, which a caller keeps.
Limits  all tensors contiguous.
Source  Jordan et al. 2024, kellerjordan.github.io/posts/muon; momentum as a running mean, which
        orthogonalising makes the same as a sum.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from albor_core.kernels.dispatch import Op, register
from albor_core.kernels.toolchain import KernelLaunch, jit, tl

BLOCK, WARPS = 2048, 4
MOMENTUM, DECAY = 0.95, 0.1  # of the checks

SKIP, SCALE, LR = range(3)
"""Places in a control tensor (3,) fp32: 1 to change nothing, the clip's factor on gradients, and
Muon's rate."""


@torch.no_grad()
def muon_reference(
    p: Tensor,
    m: Tensor,
    g: Tensor,
    u: Tensor,
    control: Tensor,
    momentum: float = MOMENTUM,
    decay: float = DECAY,
) -> tuple[Tensor, Tensor, Tensor]:
    """Plain PyTorch: (update of m and g, m, p after the update u). Writes over nothing."""
    skip, scale, lr = control.unbind()
    g = g.to(p.dtype) * scale
    averaged = m.lerp(g, 1 - momentum)
    ahead = g.lerp(averaged, momentum)
    new = p * (1 - lr * decay) - lr * u.to(p.dtype)
    old = skip != 0
    made = torch.where(old, torch.zeros_like(ahead), ahead).to(u.dtype)
    return made, torch.where(old, m, averaged), torch.where(old, p, new)


@jit
def _update(
    m_ptr, g_ptr, u_ptr, control_ptr, N, momentum: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < N
    if tl.load(control_ptr) == 0.0:
        g = tl.load(g_ptr + at, inside, 0.0).to(tl.float32) * tl.load(control_ptr + 1)
        m = tl.load(m_ptr + at, inside, 0.0)
        m += (g - m) * (1.0 - momentum)
        tl.store(m_ptr + at, m, inside)
        ahead = m + (g - m) * (1.0 - momentum)  # from the nearer end: it is small beside g
        tl.store(u_ptr + at, ahead.to(u_ptr.dtype.element_ty), inside)
    else:  # not what was there: a caller's products over it may not take for ever on NaN
        tl.store(u_ptr + at, tl.zeros((BLOCK,), u_ptr.dtype.element_ty), inside)


@jit
def _move(
    p_ptr, u_ptr, shadow_ptr, control_ptr, N,
    decay: tl.constexpr, HAS_SHADOW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    if tl.load(control_ptr) == 0.0:
        lr = tl.load(control_ptr + 2)
        at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        inside = at < N
        p = tl.load(p_ptr + at, inside, 0.0)
        u = tl.load(u_ptr + at, inside, 0.0).to(tl.float32)
        p = p * (1.0 - lr * decay) - lr * u
        tl.store(p_ptr + at, p, inside)
        if HAS_SHADOW:
            tl.store(shadow_ptr + at, p.to(shadow_ptr.dtype.element_ty), inside)


def update(m: Tensor, g: Tensor, u: Tensor, control: Tensor, *, momentum: float) -> None:
    """Advance `m` by a gradient and write what is to be orthogonalised into `u`; zeros if the step
    is skipped.
    """
    _update[(-(-m.numel() // BLOCK),)](
        m, g, u, control, m.numel(), momentum=momentum, BLOCK=BLOCK, num_warps=WARPS
    )


def move(p: Tensor, u: Tensor, shadow: Tensor | None, control: Tensor, *, decay: float) -> None:
    """Apply `u`, orthogonalised and scaled, in place; `shadow` gets the new weights."""
    _move[(-(-p.numel() // BLOCK),)](
        p, u, p if shadow is None else shadow, control, p.numel(),
        decay=decay, HAS_SHADOW=shadow is not None, BLOCK=BLOCK, num_warps=WARPS,
    )  # fmt: skip


@torch.no_grad()
def muon_triton(
    p: Tensor, m: Tensor, g: Tensor, u: Tensor, control: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Both kernels on copies, for checks and races."""
    p, m, made = p.clone(), m.clone(), torch.empty_like(u)
    update(m, g, made, control, momentum=MOMENTUM)
    move(p, u, None, control, decay=DECAY)
    return made, m, p


def _cases(device: torch.device, dtype: torch.dtype) -> Iterator[tuple[Tensor, ...]]:
    """Gradients and updates in `dtype`, the rest fp32; the largest first: it is timed."""
    source = torch.Generator(device).manual_seed(2502_16982)
    for N in (1 << 23, 4099, 1):
        p, m, g, u = (torch.randn(N, generator=source, device=device) for _ in range(4))
        control = torch.tensor([0.0, 0.5, 0.02], device=device)
        yield p, 0.1 * m, g.to(dtype), u.to(dtype), control


def _launches(dtype: str) -> tuple[KernelLaunch, ...]:
    """How gradients in `dtype` become an update and an update is applied."""
    half, wide = f"*{dtype}", "*fp32"
    first = {"m_ptr": wide, "g_ptr": half, "u_ptr": half, "control_ptr": wide, "N": "i32"}
    flags = {"momentum": MOMENTUM, "BLOCK": BLOCK}
    second = {"p_ptr": wide, "u_ptr": half, "shadow_ptr": half, "control_ptr": wide, "N": "i32"}
    others = {"decay": DECAY, "HAS_SHADOW": True, "BLOCK": BLOCK}
    return (
        KernelLaunch(_update, first | dict.fromkeys(flags, "constexpr"), flags, WARPS),
        KernelLaunch(_move, second | dict.fromkeys(others, "constexpr"), others, WARPS),
    )


register(Op("muon", muon_reference, muon_triton, _cases, _launches))
