"""Products whose tiles other warps finish, without a GPU."""

from __future__ import annotations

from types import ModuleType

import gluon_interpreter
import pytest
import torch
from gluon_interpreter import Pointer, Rows, Stuck
from torch import Tensor

from albor_core.kernels import products, swiglu_down, swiglu_up
from albor_core.kernels.toolchain import gl

needs_gluon = pytest.mark.skipif(gl is None, reason="this Triton has no Gluon")
FULL, SPENT, DONE, TAKEN = range(4)  # barriers, as they are allocated
ODD_GATES = (0.0, -0.0, 1e-30, -1e-30, 1e-19, 0.5, -7.0, 50.0, -50.0, 100.0, -100.0, 1e4, -1e4)


def whole(rows: int, columns: int, kind: torch.dtype, over: int = 1) -> Tensor:
    """Products of these are exact in fp32, in whatever order they are added."""
    source = torch.Generator().manual_seed(rows + columns)
    return (torch.randint(-3, 4, (rows, columns), generator=source) / over).to(kind)


def launched(
    room: ModuleType, kernel: str, tiles: list[Rows], gate_up: Tensor, programs: int, **how: int
) -> None:
    """GROUP of 2: the last group of tiles is not full."""
    size = {"D": tiles[0].matrix.shape[1], **room.TILE, **room.FLAGS, "GROUP": 2}
    size |= {"OVER": gate_up.dtype is not torch.float16} if room is swiglu_down else {}
    args = (*tiles, Pointer(gate_up.view(-1)), len(gate_up), gate_up.shape[1] // 2)
    gluon_interpreter.run((room, products), kernel, programs, args, size, **how)


def projected(x: Tensor, w: Tensor, programs: int, **how: int) -> Tensor:
    gate_up = torch.full((len(x), len(w)), float("nan"), dtype=x.dtype)
    tiles = [Rows(t, swiglu_up.BLOCK) for t in (x, w)]
    launched(swiglu_up, "_project", tiles, gate_up, programs, **how)
    return gate_up


def turned_back(dy: Tensor, w: Tensor, gate_up: Tensor, programs: int, **how: int) -> Tensor:
    """Over a copy of gate_up."""
    found = gate_up.clone()
    tiles = [Rows(t, b) for t, b in zip((dy, w), swiglu_down.BLOCKS.values(), strict=True)]
    launched(swiglu_down, "_backward", tiles, found, programs, **how)
    return found


@needs_gluon
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("N", "width", "D", "programs"), [(640, 256, 320, 3), (128, 128, 64, 1), (256, 384, 128, 6)]
)
def test_the_forward_is_two_products_and_swiglu(N, width, D, programs, kind):
    x, w = whole(N, D, kind), whole(2 * width, D, kind, 32)
    for seed in range(3):
        found = projected(x, w, programs, seed=seed)
        product = (x.float() @ w.float().t()).to(kind)
        gate, up = product.float().chunk(2, 1)
        assert torch.equal(found[:, :width], product[:, :width])
        torch.testing.assert_close(found[:, width:], (gate * gate.sigmoid() * up).to(kind))


@needs_gluon
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("N", "width", "D", "programs"), [(1280, 256, 192, 3), (256, 128, 64, 1), (512, 384, 128, 6)]
)
def test_the_backward_is_a_product_and_swiglus(N, width, D, programs, kind):
    dy, w = whole(N, D, kind), whole(D, width, kind, 32)
    gate, up = (whole(N, width, kind, n) + 1 / 8 for n in (2, 4))
    gate.view(-1)[: len(ODD_GATES)] = torch.tensor(ODD_GATES)
    leaves = [t.double().requires_grad_() for t in (gate, up)]
    a = leaves[0] * leaves[0].sigmoid() * leaves[1]
    a.backward((dy.float() @ w.float()).to(kind).double())
    floored = torch.where(gate.abs() < 2.0**-60, 2.0**-60, gate.double())  # as the forward has it
    kept = up if kind is torch.float16 else (floored * floored.sigmoid() * up).to(kind)
    error = torch.finfo(kind).eps * 2  # a is rounded before, gradients after
    for seed in range(3):
        found = turned_back(dy, w, torch.cat((gate, kept), 1), programs, seed=seed)
        for part, leaf in zip(found.double().chunk(2, 1), leaves, strict=True):
            torch.testing.assert_close(part, leaf.grad, rtol=error, atol=error)


@needs_gluon
@pytest.mark.parametrize("barrier", [FULL, SPENT, DONE, TAKEN])
@pytest.mark.parametrize("backwards", [False, True])
def test_every_barrier_is_needed(barrier, backwards):
    """Or the tests above would not notice one that is missing."""
    kind = torch.bfloat16
    gate_up = torch.ones(1024, 512, dtype=kind)

    def result(**how: int) -> Tensor:
        if backwards:
            return turned_back(whole(1024, 64, kind), whole(64, 256, kind, 32), gate_up, 1, **how)
        return projected(whole(384, 64, kind), whole(512, 64, kind, 32), 1, **how)

    right, broken = result(), []
    for seed in range(3):
        try:
            broken.append(not torch.equal(result(seed=seed, never_waited_for=barrier), right))
        except Stuck:
            broken.append(True)
    assert any(broken)


def test_what_does_not_fill_its_tiles_or_has_no_hopper_gpu_is_refused():
    """A grid of whole tiles would leave the rest as it was."""
    half = torch.ones(256, 128, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="100 x 128 x 128 do not fill" if gl else "Gluon"):
        swiglu_up.swiglu_up_triton(half[:100], half)
    with pytest.raises(ValueError, match="256 x 128 x 32 do not fill" if gl else "Gluon"):
        swiglu_down.swiglu_down_triton(torch.cat((half, half), 1), half[:32])
    with pytest.raises(ValueError, match="Hopper" if gl else "Gluon"):
        swiglu_up.swiglu_up_triton(half, half)
    with pytest.raises(ValueError, match="neither" if gl else "Gluon"):
        swiglu_up.swiglu_up_triton(half.float(), half.float())
