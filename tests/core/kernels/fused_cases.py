"""Inputs for the fused ops at aligned, ragged and minimal shapes, for the interpreter and a GPU."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import torch
from torch import Tensor

from albor_core.kernels.dispatch import OPS
from albor_core.kernels.ops import cross_entropy
from albor_core.kernels.ops.attention import rope

SHAPES: dict[str, list[tuple[int, ...]]] = {
    "add_rms_norm": [(2, 16, 512), (5, 3, 123), (1, 1, 1), (70, 64)],
    "swiglu": [(2, 16, 512), (5, 3, 246), (1, 1, 2), (3, 9000)],  # last: more than one block
    "embedding": [(300, 50, 123), (700, 9, 16), (128, 1, 8), (1, 1, 1)],  # N V D; whole chunks
    "rope": [(2, 4, 2, 16, 64), (3, 5, 2, 7, 24), (1, 1, 1, 1, 2), (1, 8, 8, 3, 128)],  # B H K T E
    "qk_norm": [(2, 9, 64), (3, 7, 24), (1, 1, 2)],  # B T E, of 4 + 2 heads
    "attention": [(1, 192), (1, 64)],  # B T, of 4 + 2 heads of 64
    "attention_128": [(1, 192), (1, 64)],
    "cross_entropy": [(7, 512), (5, 123), (1, 1), (2, 3, 640)],
}
HALF_ONLY = {"attention", "attention_128", "swiglu_up", "swiglu_down"}  # on a GPU
WIDE = {  # for a GPU only: interpreted they take too long, or are not at all (test_products.py)
    "add_rms_norm": [(20000, 1024), (3, 65536)],
    "swiglu": [(20000, 2048)],
    "swiglu_up": [(4096, 4096, 1024), (1152, 384, 192), (128, 128, 64)],  # N I D
    "swiglu_down": [(4096, 4096, 1024), (1280, 384, 192), (256, 128, 64)],
    "embedding": [(16384, 32768, 1024)],
    "rope": [(4, 16, 4, 1024, 64)],
    "qk_norm": [(16, 1024, 64), (4, 1024, 128)],
    "attention": [(32, 1024), (3, 320)],  # first: several bands of heads
    "attention_128": [(32, 1024), (3, 320)],
    "cross_entropy": [(600, 32768), (40, 50257), (9, 131072)],
}


def inputs(
    op: str, shape: tuple[int, ...], dtype: torch.dtype, device: str = "cpu"
) -> list[Tensor]:
    source = torch.Generator().manual_seed(1)

    def draw(*size: int) -> Tensor:
        return torch.randn(size, generator=source).to(device, dtype)

    if op == "add_rms_norm":
        w = 1 + 0.1 * torch.randn(shape[-1], generator=source)
        return [draw(*shape), draw(*shape), w.to(device)]
    if op == "swiglu":
        return [draw(*shape)]
    if op == "swiglu_up":
        N, width, D = shape
        return [draw(N, D), draw(2 * width, D) / D**0.5]
    if op == "swiglu_down":
        N, width, D = shape
        return [draw(N, 2 * width), draw(D, width) / width**0.5]
    if op == "embedding":
        N, V, D = shape
        ids = torch.randint(0, V, (N,), generator=source)
        ids[::3] = V // 2  # a frequent token
        return [ids.to(device), draw(V, D)]
    if op == "rope":
        B, H, K, T, E = shape
        turned = (draw(B, T, heads, E).transpose(1, 2) for heads in (H, K))
        return [*turned, *(table.to(device) for table in rope.tables(T, E))]
    if op == "qk_norm":
        B, T, E = shape
        weights = (1 + 0.1 * torch.randn(2, E, generator=source)).to(device)
        angles = (table.to(device) for table in rope.tables(T, E))
        return [draw(B, T, 8 * E), weights[0], weights[1], *angles]
    if op.startswith("attention"):  # not so large that the order of a score's sums decides in fp32
        E = 128 if op.endswith("_128") else 64
        qkv = draw(*shape, 8 * E) / 2
        return [qkv, *(table.to(device) for table in rope.tables(shape[1], E))]
    labels = torch.randint(0, shape[-1], shape[:-1], generator=source)
    labels.view(-1)[1::3] = cross_entropy.IGNORED
    return [draw(*shape), labels.to(device)]


def pair(op: str) -> tuple[Callable[..., object], Callable[..., object]]:
    """(kernel, reference); cross-entropy with its z-loss, which has all of its terms."""
    if op == "cross_entropy":
        return (
            lambda x, y: cross_entropy.cross_entropy_triton(x, y, 1e-2),
            lambda x, y: cross_entropy.cross_entropy_reference(x, y, 1e-2),
        )
    room = importlib.import_module(f"albor_core.kernels.ops.{OPS[op]}")
    op = op.removesuffix("_128")
    return getattr(room, f"{op}_triton"), getattr(room, f"{op}_reference")


ODD_GATES = (0.0, -0.0, 1e-30, -1e-30, 1e-19, 0.5, -7.0, 50.0, -50.0, 100.0, -100.0, 1e4, -1e4)
LARGE_GATES = (1e6, -1e6, 1e9, -1e9)  # not in fp16

RESULTS = {  # outputs and gradients
    "add_rms_norm": 5,
    "swiglu": 2,
    "embedding": 2,
    "rope": 4,
    "qk_norm": 6,
    "attention": 2,
    "attention_128": 2,
    "cross_entropy": 2,
}
