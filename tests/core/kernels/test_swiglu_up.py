"""The one pass of the gate-up projection and SwiGLU, without a GPU."""

from __future__ import annotations

import gluon_interpreter
import pytest
import torch
from gluon_interpreter import Pointer, Rows, Stuck
from torch import Tensor

from albor_core.kernels import swiglu_up
from albor_core.kernels.toolchain import gl

needs_gluon = pytest.mark.skipif(gl is None, reason="this Triton has no Gluon")
FULL, SPENT, DONE, TAKEN = range(4)  # barriers, as they are allocated


def drawn(N: int, width: int, D: int, kind: torch.dtype = torch.bfloat16) -> tuple[Tensor, Tensor]:
    """Products of these are exact in fp32, in whatever order they are added."""
    source = torch.Generator().manual_seed(N + width)
    x, w = (torch.randint(-3, 4, (n, D), generator=source) for n in (N, 2 * width))
    return x.to(kind), (w / 32).to(kind)


def projected(x: Tensor, w: Tensor, programs: int, **how: int) -> Tensor:
    (N, D), width = x.shape, len(w) // 2
    tile = swiglu_up.TILE
    gate_up = torch.full((N, 2 * width), float("nan"), dtype=x.dtype)
    args = (
        Rows(x, (tile["ROWS"], tile["DEPTH"])),
        Rows(w, (tile["COLS"], tile["DEPTH"])),
        Pointer(gate_up.view(-1)),
        N,
        width,
    )
    flags = {"GROUP": 2, "STAGES": swiglu_up.STAGES, "CHUNK": swiglu_up.CHUNK}
    flags |= {"D": D, **tile, **swiglu_up.OTHERS}
    gluon_interpreter.run(swiglu_up, "_project", programs, args, flags, **how)
    return gate_up


@needs_gluon
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("N", "width", "D", "programs"), [(640, 256, 320, 3), (128, 128, 64, 1), (256, 384, 128, 6)]
)
def test_tiles_come_out_as_two_products_and_swiglu(N, width, D, programs, kind):
    x, w = drawn(N, width, D, kind)
    for seed in range(3):
        found = projected(x, w, programs, seed=seed)
        product = (x.float() @ w.float().t()).to(kind)
        gate, up = product.float().chunk(2, 1)
        assert torch.equal(found[:, :width], product[:, :width])
        torch.testing.assert_close(found[:, width:], (gate * gate.sigmoid() * up).to(kind))


@needs_gluon
@pytest.mark.parametrize("barrier", [FULL, SPENT, DONE, TAKEN])
def test_every_barrier_is_needed(barrier):
    """Or the test above would not notice one that is missing."""
    x, w = drawn(384, 256, 64)
    whole = projected(x, w, 1)
    broken = []
    for seed in range(3):
        try:
            found = projected(x, w, 1, seed=seed, never_waited_for=barrier)
            broken.append(not torch.equal(found, whole))
        except Stuck:
            broken.append(True)
    assert any(broken)
