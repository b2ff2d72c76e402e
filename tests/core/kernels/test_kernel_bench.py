"""`albor kernels bench`: what is timed, what is not, and what the numbers are."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from albor_core.kernels import bench as room
from albor_core.kernels import dispatch
from albor_core.kernels.bench import Sizes, bench

SMALL = Sizes(rows=48, hidden=32, intermediate=64, vocab=96, heads=4, kv_heads=2)
CPU = torch.device("cpu")


@pytest.mark.parametrize("name", dispatch.OPS)
def test_every_op_has_inputs_that_its_reference_takes(name):
    result = bench(name, SMALL, CPU, torch.float32, rounds=1)
    reference, triton = result.candidates
    assert (reference.backend, result.chosen) == ("reference", "reference")
    assert reference.forward_us > 0
    assert (reference.step_us is None) == (name in ("adamw", "muon", "fp8"))  # no gradient
    assert triton.forward_us is triton.step_us is None
    assert "CUDA" in triton.why


def test_a_step_is_a_forward_and_a_backward(monkeypatch):
    """On a clock that shows a second, and one for each backward."""
    true_grad, passes = torch.autograd.grad, []

    def grad(*arguments, **how):
        passes.append(1)
        return true_grad(*arguments, **how)

    def timer(work, leaves, device, repeats):
        before = len(passes)
        work(leaves[0])
        return 1 + len(passes) - before

    monkeypatch.setattr(torch.autograd, "grad", grad)
    (reference, _) = bench("swiglu", SMALL, CPU, torch.float32, rounds=3, timer=timer).candidates
    assert (reference.forward_us, reference.step_us) == (1e6, 2e6)


@pytest.mark.parametrize(
    ("fault", "why"), [(lambda y: y * 1.01, "cosine"), (lambda y: 1 / 0, "ZeroDivisionError")]
)
def test_a_compiled_candidate_that_fails_is_named_and_not_timed(fault, why, monkeypatch):
    """`fault` in place of what torch.compile makes of a result."""
    monkeypatch.setattr(torch, "compile", lambda fn, **options: lambda *args: fault(fn(*args)))
    small = (torch.randn(7, 64), torch.ones(64))
    op = replace(dispatch.op("rms_norm"), cases=lambda device, dtype: iter([small]))
    with dispatch.deciding_anew():
        dispatch.register(op)
        result = bench("rms_norm", SMALL, CPU, torch.float32, rounds=1, compiled=True)
    found = {one.backend: one for one in result.candidates}
    assert why in found["inductor"].why
    assert found["inductor"].forward_us is None
    assert found["reference"].forward_us is not None


def test_a_kernel_that_does_not_take_the_sizes_is_refused_and_not_what_runs(monkeypatch):
    def picky(gate_up):
        raise ValueError("48 rows")

    op = replace(dispatch.op("swiglu"), triton=picky)
    monkeypatch.setattr(dispatch, "obstacle", lambda *_: "")
    monkeypatch.setattr(dispatch, "choose", lambda *_: dispatch.Choice("swiglu", "triton", ""))
    with dispatch.deciding_anew():
        dispatch.register(op)
        result = bench("swiglu", SMALL, CPU, torch.float32, rounds=1)
    assert result.chosen == "reference"
    assert [(one.backend, one.why) for one in result.candidates] == [
        ("reference", ""),
        ("triton", "48 rows"),
    ]


def test_a_round_lasts_longer_than_the_clocks_noise(monkeypatch):
    calls = []
    monkeypatch.setattr(room, "ROUND_S", 0.02)
    op = dispatch.op("swiglu")

    def counted(gate_up):
        calls.append(1)
        return op.reference(gate_up)

    with dispatch.deciding_anew():
        dispatch.register(replace(op, reference=counted))
        bench("swiglu", SMALL, CPU, torch.float32, rounds=1)
    assert len(calls) > 20  # microseconds each: repeated within a round


@pytest.mark.parametrize(
    "sizes",
    [replace(SMALL, heads=3), replace(SMALL, hidden=4)]
    + [replace(SMALL, kv_heads=kv_heads) for kv_heads in (3, 8)],
)
def test_sizes_that_make_no_heads_are_a_problem(sizes):
    assert "heads" in sizes.problem(["rms_norm", "rope"])
    assert sizes.problem(["rms_norm", "muon"]) == ""
    assert SMALL.problem(["rope"]) == ""


@pytest.mark.parametrize("name", dispatch.OPS)
def test_what_an_allocator_says_of_too_much_is_understood_and_the_sizes_to_lower_are_known(name):
    first, second = room.GROWS_WITH[name]
    assert getattr(SMALL, second)
    with pytest.raises(RuntimeError) as caught:  # beyond any address space
        bench(name, replace(SMALL, **{first: 1 << 44}), CPU, torch.float32, rounds=1)
    assert room.is_out_of_memory(caught.value)
    assert not room.is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


def test_an_unknown_op_is_refused_by_name():
    with pytest.raises(KeyError, match="rms_morn"):
        bench("rms_morn", SMALL, CPU, torch.float32)
