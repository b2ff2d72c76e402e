"""Products whose tiles other warps finish, without a GPU."""

from __future__ import annotations

from types import ModuleType

import gluon_interpreter
import pytest
import torch
import torch.nn.functional as F
from fused_cases import LARGE_GATES, ODD_GATES
from gluon_interpreter import Pointer, Rows, Stuck
from torch import Tensor

from albor_core.kernels import toolchain
from albor_core.kernels.ops.mlp import products, swiglu_down, swiglu_up
from albor_core.kernels.toolchain import HAS_TRITON
from albor_core.model.matrices import Weight
from albor_core.model.mlp import HalfMlp

needs_gluon = pytest.mark.skipif(not HAS_TRITON, reason="Triton is not installed")
FULL, SPENT, DONE, TAKEN = range(4)  # barriers, as they are allocated


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


def floored(gate: Tensor) -> Tensor:
    """What both take a gate for, so that the backward can divide by it."""
    return torch.where(gate.abs() < 2.0**-60, 2.0**-60, gate.double())


@needs_gluon
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("N", "width", "D", "programs"),
    [(640, 256, 320, 3), (384, 256, 64, 1), (128, 128, 64, 1), (256, 384, 128, 6)],
)
def test_the_forward_is_two_products_and_swiglu(N, width, D, programs, kind):
    x, w = whole(N, D, kind), whole(2 * width, D, kind, 32)
    w[:3] = 0  # gates of 0
    product = (x.float() @ w.float().t()).to(kind)
    gate, up = product.chunk(2, 1)
    wide = floored(gate)
    wanted = (wide * wide.sigmoid() * up).to(kind)
    for seed in range(6):
        found = projected(x, w, programs, seed=seed)
        assert torch.equal(found[:, :width], gate)
        error = torch.finfo(kind).eps  # of one rounding that went the other way
        torch.testing.assert_close(found[:, width:], wanted, rtol=error, atol=0)


@needs_gluon
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("N", "width", "D", "programs"),
    [(1280, 256, 192, 3), (1024, 256, 64, 1), (256, 128, 64, 1), (512, 384, 128, 6)],
)
def test_the_backward_is_a_product_and_swiglus(N, width, D, programs, kind):
    dy, w = whole(N, D, kind), whole(D, width, kind, 32)
    gate, up = (whole(N, width, kind, n) + 1 / 8 for n in (2, 4))
    odd = ODD_GATES if kind is torch.float16 else ODD_GATES + LARGE_GATES
    gate.view(-1)[: len(odd)] = torch.tensor(odd)
    leaves = [t.double().requires_grad_() for t in (gate, up)]
    a = leaves[0] * leaves[0].sigmoid() * leaves[1]
    a.backward((dy.float() @ w.float()).to(kind).double())
    wide = floored(gate)
    kept = up if kind is torch.float16 else (wide * wide.sigmoid() * up).to(kind)
    error = torch.finfo(kind).eps * 2  # a is rounded before, gradients after
    for seed in range(4):
        found = turned_back(dy, w, torch.cat((gate, kept), 1), programs, seed=seed)
        dgate, dup = found.double().chunk(2, 1)
        torch.testing.assert_close(dgate, leaves[0].grad, rtol=error, atol=error)
        torch.testing.assert_close(dup, leaves[1].grad, rtol=error, atol=1e-7)


class Launched:
    """A kernel as host code launches it, run by the interpreter."""

    def __init__(self, room: ModuleType, name: str) -> None:
        self.room, self.name, self.kernel, self.grids = room, name, getattr(room, name), []

    def __getitem__(self, grid: tuple[int]):
        self.grids.append(grid[0])

        def launch(*args: object, num_warps: int, **flags: int) -> None:
            assert num_warps == 8
            args = tuple(Pointer(a.view(-1)) if isinstance(a, Tensor) else a for a in args)
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(self.room, self.name, self.kernel)
                gluon_interpreter.run((self.room, products), self.name, grid[0], args, flags)

        return launch


@pytest.fixture
def hopper(monkeypatch) -> list[Launched]:
    """One with three multiprocessors, on which both kernels have won."""
    kernels = [Launched(swiglu_up, "_project"), Launched(swiglu_down, "_backward")]
    for kernel in kernels:
        monkeypatch.setattr(kernel.room, kernel.name, kernel)
        monkeypatch.setattr(kernel.room, "use_triton", lambda *args: True)
    monkeypatch.setattr(products, "tiles_of", Rows)
    monkeypatch.setattr(products, "programs", lambda t, tiles: min(tiles, 3))
    monkeypatch.setattr(products, "is_hopper", lambda device: True)
    return kernels


@needs_gluon
@pytest.mark.parametrize(("N", "launches"), [(512, (1, 1)), (384, (1, 0))])
def test_an_mlp_runs_by_them_where_they_fit(hopper, monkeypatch, N, launches):
    """384 rows are no whole tiles of the backward's."""
    monkeypatch.setattr(swiglu_down, "swiglu_backward", in_plain_pytorch)
    kind, source = torch.bfloat16, torch.Generator().manual_seed(N)
    x, dy, w, v = (
        (torch.randn(shape, generator=source) / shape[1] ** 0.5).to(kind)
        for shape in ((N, 128), (N, 128), (512, 128), (128, 256))
    )
    up, down = (Weight(t, torch.empty_like(t)) for t in (w, v))
    mlp = HalfMlp(up, down)
    y, kept = mlp.forward(x)
    dx = mlp.backward(kept, dy)
    assert tuple(len(kernel.grids) for kernel in hopper) == launches
    assert {n for kernel in hopper for n in kernel.grids} == {3}
    exact = [t.double().requires_grad_() for t in (x, w, v)]
    gate, raised = (exact[0] @ exact[1].t()).chunk(2, 1)
    wanted = F.silu(gate) * raised @ exact[2].t()
    wanted.backward(dy.double())
    pairs = (
        (y, wanted),
        *zip((dx, up.gradient, down.gradient), (t.grad for t in exact), strict=True),
    )
    for found, right in pairs:
        assert (found.double() - right).norm() < 0.01 * right.norm()  # bf16's is 0.004


def in_plain_pytorch(gate_up: Tensor, da: Tensor, *, over: bool) -> None:
    gate, a = gate_up.double().chunk(2, 1)
    leaves = [gate.clone().requires_grad_(), (a / F.silu(gate)).requires_grad_()]
    (F.silu(leaves[0]) * leaves[1]).backward(da.double())
    gate_up.copy_(torch.cat([leaf.grad for leaf in leaves], 1))


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


HALF = torch.bfloat16
AT_2_BYTES = torch.ones(256 * 128 + 1, dtype=HALF)[1:].view(256, 128)


@needs_gluon
@pytest.mark.parametrize(
    ("x", "w", "reason"),
    [
        (torch.ones(100, 128, dtype=HALF), torch.ones(256, 128, dtype=HALF), "100 x 256 x 128"),
        (torch.ones(256, 128, dtype=HALF), torch.ones(257, 128, dtype=HALF), "256 x 257 x 128"),
        (torch.ones(256, 32, dtype=HALF), torch.ones(256, 32, dtype=HALF), "256 x 256 x 32"),
        (torch.ones(0, 128, dtype=HALF), torch.ones(256, 128, dtype=HALF), "0 x 256 x 128"),
        (torch.ones(256, 128, dtype=HALF), torch.ones(256, 128).half(), "neither all bf16"),
        (torch.ones(256, 128), torch.ones(256, 128), "neither all bf16"),
        (AT_2_BYTES, torch.ones(256, 128, dtype=HALF), "16 bytes"),
    ],
)
def test_what_the_kernels_cannot_take_is_refused(monkeypatch, x, w, reason):
    """A grid of whole tiles would leave the rest as it was."""
    monkeypatch.setattr(products, "is_hopper", lambda device: True)
    with pytest.raises(ValueError, match=reason):
        swiglu_up.swiglu_up_triton(x, w)


@needs_gluon
def test_only_hopper_has_such_products(monkeypatch):
    """AMD's numbers are not NVIDIA's: an MI300 is 9.4."""
    found = []
    for capability, hip in ((8, None), (9, None), (9, "6.4"), (10, None)):
        told = (capability, 0)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, told=told: told)
        monkeypatch.setattr(torch.version, "hip", hip)
        found.append(toolchain.is_hopper(torch.device("cuda")))
    assert found == [False, True, False, False]
    half = torch.ones(256, 128, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="no Hopper GPU"):
        swiglu_up.swiglu_up_triton(half, half)
    with pytest.raises(ValueError, match="no Hopper GPU"):
        swiglu_down.swiglu_down_triton(torch.cat((half, half), 1), half)
