"""SwiGLU and the down projection, y = a @ w^T with a = silu(gate) * up: a backward in one pass.

The gradient at a, dy @ w, is used tile by tile where the matrix product leaves it: it is rounded
nowhere and never written. While one program on a multiprocessor waits for memory the other
multiplies. The forward is swiglu's and cuBLAS's: fused the same way it is a tenth slower than both.
In a training step a lies where up was (swiglu's `over`): all gradients need gate and a only.

Shapes  gate_up (N, 2 I) holds gate, then up; w (D, I), dy (N, D), a (N, I), all in fp32/bf16/fp16.
Memory  keeps gate_up, a over up in it, and WRITES BOTH GRADIENTS OVER THEM. In fp16, where a is too
        coarse to give up back, it keeps a beside them.
Limits  the kernel: N and I multiples of 128, D of 64, Hopper or later (nothing else was measured).
        Other shapes take the matrix product and swiglu's backward. First derivatives only.
Speed   H200, bf16, D 1024, I 4096: 89 us for 4,096 rows (two passes 99), 1,290 for 65,536 (1,509);
        measured when it read up instead of a, and finished 8 rows of tiles together.
Source  swiglu.py beside this; the gradient is derived in docs/kernels.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from albor_core.kernels.dispatch import Op, register, use_triton
from albor_core.kernels.swiglu import (
    _divided,
    _floored,
    swiglu_backward,
    swiglu_forward,
    swiglu_reference,
)
from albor_core.kernels.toolchain import (
    IS_INTERPRETED,
    Launch,
    TensorDescriptor,
    jit,
    takes_hoppers,
    tl,
)

GROUP = 4  # rows of tiles that programs finish together: their dy stays in the L2
STREAMED_BYTES = 1 << 27  # a gate_up above this must not push dy and w out of the L2


def swiglu_down_reference(gate_up: Tensor, w: Tensor) -> Tensor:
    """Plain PyTorch, in gate_up's dtype."""
    return F.linear(swiglu_reference(gate_up), w)


@jit
def _apply(
    dy, gate_up_ptr, row, col, width,
    ROWS: tl.constexpr, COLS: tl.constexpr, OVER: tl.constexpr, POLICY: tl.constexpr,
):  # fmt: skip
    """SwiGLU's backward on a tile whose dy is in registers; OVER: a was written over up."""
    down, right = tl.arange(0, ROWS)[:, None], tl.arange(0, COLS)[None, :]
    gate_at = gate_up_ptr + row.to(tl.int64) * (2 * width) + col + down * (2 * width) + right
    gate = tl.load(gate_at, eviction_policy=POLICY).to(tl.float32)
    up = tl.load(gate_at + width, eviction_policy=POLICY).to(tl.float32)
    dtype = gate_up_ptr.dtype.element_ty
    EXACT: tl.constexpr = dtype == tl.float32
    if OVER:
        gate = _floored(gate)
    if OVER and not EXACT:  # one division for two; below 60 no product overflows
        below = 1.0 + tl.exp(tl.minimum(-gate, 60.0))
        both = 1.0 / (gate * below)
        sigmoid, half = gate * both, up * (below * both)
    else:
        sigmoid = _divided(1.0, 1.0 + tl.exp(-gate), EXACT)
        half = _divided(up, gate, EXACT) if OVER else up * sigmoid
    dgate = dy * half * (1.0 + gate * (1.0 - sigmoid))
    tl.store(gate_at, dgate.to(dtype), eviction_policy=POLICY)
    tl.store(gate_at + width, (dy * gate * sigmoid).to(dtype), eviction_policy=POLICY)


@jit
def _backward(
    dy_rows, w_tiles, gate_up_ptr, rows, width,
    D: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, DEPTH: tl.constexpr,
    GROUP: tl.constexpr, OVER: tl.constexpr, POLICY: tl.constexpr,
):  # fmt: skip
    """One tile of dy @ w; its halves are finished one after the other to spare registers."""
    down, across = tl.cdiv(rows, ROWS), tl.cdiv(width, COLS)
    first = tl.program_id(0) // (GROUP * across) * GROUP
    place, high = tl.program_id(0) % (GROUP * across), tl.minimum(down - first, GROUP)
    row, col = (first + place % high) * ROWS, place // high * COLS
    total = tl.zeros((ROWS, COLS), tl.float32)
    for k in range(0, D, DEPTH):
        dy = dy_rows.load([row, k])
        total = tl.dot(dy, w_tiles.load([k, col]), total, input_precision="ieee")
    HALF: tl.constexpr = COLS // 2
    left, right = total.reshape(ROWS, 2, HALF).permute(0, 2, 1).split()
    _apply(left, gate_up_ptr, row, col, width, ROWS, HALF, OVER, POLICY)
    _apply(right, gate_up_ptr, row, col + HALF, width, ROWS, HALF, OVER, POLICY)


def _tile(itemsize: int) -> dict[str, int]:
    """Two programs share a multiprocessor in half precision: 96 KiB and 128 registers a thread."""
    if itemsize == 2:
        return {"ROWS": 128, "COLS": 128, "DEPTH": 64}
    return {"ROWS": 64, "COLS": 64, "DEPTH": 32}


def _options(itemsize: int) -> dict[str, int]:
    half = {"num_warps": 8, "num_stages": 3, "maxnreg": 128}
    return half if itemsize == 2 else {"num_warps": 4, "num_stages": 2}


def fits(w: Tensor, rows: int = 0) -> bool:
    """Whether the kernel takes w and so many rows; without rows, whether it takes any."""
    tile = _tile(w.element_size())
    wanted = (tile["ROWS"], tile["COLS"], tile["DEPTH"])
    sizes = (rows, w.shape[1], w.shape[0])
    if any(size % multiple for size, multiple in zip(sizes, wanted, strict=True)):
        return False
    return takes_hoppers(w.device)


def decide(w: Tensor) -> None:
    """Check and race now, where the kernel may be used: a first backward has no memory for that."""
    if fits(w):
        use_triton("swiglu_down", w)


def _fused_backward(dy: Tensor, w: Tensor, gate_up: Tensor, *, over: bool) -> None:
    (rows, D), width, size = dy.shape, w.shape[1], dy.element_size()
    tile, options = _tile(size), {} if IS_INTERPRETED else _options(size)
    grid = (rows // tile["ROWS"] * (width // tile["COLS"]),)
    _backward[grid](
        TensorDescriptor.from_tensor(dy, [tile["ROWS"], tile["DEPTH"]]),
        TensorDescriptor.from_tensor(w, [tile["DEPTH"], tile["COLS"]]),
        gate_up, rows, width, D=D, GROUP=GROUP, OVER=over,
        POLICY="evict_first" if gate_up.numel() * size > STREAMED_BYTES else "",
        **tile, **options,
    )  # fmt: skip


def swiglu_down_backward(dy: Tensor, w: Tensor, gate_up: Tensor) -> None:
    """Writes the gradient over what swiglu_forward's `over` left of gate_up. Launches only.

    All contiguous; w may be any row-major view.
    """
    if fits(w, dy.shape[0]) and use_triton("swiglu_down", dy):
        _fused_backward(dy, w, gate_up, over=True)
    else:
        swiglu_backward(gate_up, dy @ w, over=True)


class _SwiGLUDown(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate_up: Tensor, w: Tensor, over: bool) -> Tensor:
        gate_up, w = gate_up.contiguous(), w.contiguous()
        a = swiglu_forward(gate_up, over=over)
        if over:
            torch.autograd.graph.increment_version(gate_up)
        ctx.over = over
        ctx.save_for_backward(gate_up, w, *(() if over else (a,)))
        return a @ w.t()

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor, None]:
        gate_up, w, *kept = ctx.saved_tensors
        dy = dy.contiguous()
        dw = dy.t() @ (kept[0] if kept else gate_up[:, w.shape[1] :])
        _fused_backward(dy, w, gate_up, over=ctx.over)
        torch.autograd.graph.increment_version(gate_up)
        return gate_up.detach(), dw, None


def swiglu_down_triton(gate_up: Tensor, w: Tensor) -> Tensor:
    """Both passes behind autograd, where Triton can launch the kernel. ValueError if it does not
    fit.
    """
    if not fits(w, gate_up.shape[0]):
        sizes = f"{gate_up.shape[0]} x {w.shape[1]} x {w.shape[0]}"
        raise ValueError(f"needs Hopper and sizes that fill its tiles, which {sizes} does not")
    records = gate_up.requires_grad and torch.is_grad_enabled()  # forward() cannot see the latter
    y: Tensor = _SwiGLUDown.apply(gate_up, w, records and gate_up.dtype is not torch.float16)
    return y


def _cases(device: torch.device, dtype: torch.dtype) -> Iterator[tuple[Tensor, ...]]:
    """(N, I, D), the largest first: it is timed. Later ones leave a group of tiles unfilled."""
    source = torch.Generator(device).manual_seed(2002_05202)
    for N, width, D in ((4096, 4096, 1024), (1152, 384, 192), (128, 128, 64)):
        gate_up = torch.randn(N, 2 * width, generator=source, device=device)
        w = torch.randn(D, width, generator=source, device=device) / width**0.5
        yield gate_up.to(dtype), w.to(dtype)


def _launches(dtype: str) -> tuple[Launch, ...]:
    """How 65,536 rows of a 350M model are launched."""
    size = 4 if dtype == "fp32" else 2
    tile, options = _tile(size), _options(size)
    types = {
        "dy_rows": f"tensordesc<{dtype}[{tile['ROWS']}, {tile['DEPTH']}]>",
        "w_tiles": f"tensordesc<{dtype}[{tile['DEPTH']}, {tile['COLS']}]>",
        "gate_up_ptr": f"*{dtype}",
        **dict.fromkeys(("rows", "width"), "i32"),
    }
    flags = {"D": 1024, "GROUP": GROUP, "OVER": dtype != "fp16", "POLICY": "evict_first", **tile}
    warps = options.pop("num_warps")
    signature = types | dict.fromkeys(flags, "constexpr")
    return (Launch(_backward, signature, flags, warps, options),)


register(Op("swiglu_down", swiglu_down_reference, swiglu_down_triton, _cases, _launches))
