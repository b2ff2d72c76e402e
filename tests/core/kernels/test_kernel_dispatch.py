"""Which backend runs an op: measured and checked on a GPU, and said aloud when one is refused."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
import torch
from oracle import python

from albor_core.kernels import dispatch
from albor_core.kernels.rms_norm import rms_norm_reference

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


@pytest.fixture(autouse=True)
def forgetful(monkeypatch):
    """Each test decides anew, on the ops as registered."""
    dispatch.op("rms_norm")
    monkeypatch.setattr(dispatch, "_choices", {})
    monkeypatch.setattr(dispatch, "_pinned", {})
    monkeypatch.setattr(dispatch, "_ops", dict(dispatch._ops))
    monkeypatch.setattr(dispatch, "FORCED", "")


def broken(x, w, eps=1e-5):
    return rms_norm_reference(x, w, eps) * 1.01


def uncompilable(x, w, eps=1e-5):
    raise RuntimeError("ptxas said no")


def test_on_a_cpu_the_reference_runs_and_the_evidence_says_why():
    choice = dispatch.choose("rms_norm", "cpu", torch.float32)
    assert (choice.backend, choice.rejected) == ("reference", ())
    assert "CUDA" in choice.evidence
    assert dispatch.choices() == (choice,)


def test_a_choice_is_made_once():
    first = dispatch.choose("rms_norm", "cpu", torch.float32)
    assert dispatch.choose("rms_norm", torch.device("cpu"), torch.float32) is first


def test_inside_torch_compile_the_reference_is_left_to_inductor():
    choice = dispatch.choose("rms_norm", "cpu", torch.float32, compiled=True)
    assert choice.backend == "inductor"


def test_an_unknown_op_is_refused_by_name():
    with pytest.raises(KeyError, match="rms_morn"):
        dispatch.choose("rms_morn", "cpu", torch.float32)


def test_an_unknown_value_of_the_override_is_refused():
    child = python("-c", "import albor_core.kernels.dispatch", ALBOR_KERNELS="fastest")
    assert child.returncode != 0
    assert "ALBOR_KERNELS" in child.stderr


def test_a_pin_to_an_unknown_backend_is_refused():
    with pytest.raises(ValueError, match="cudnn"):
        dispatch.pin({"rms_norm": "cudnn"})


@pytest.mark.parametrize("bad, reason", [(broken, "output"), (uncompilable, "ptxas said no")])
def test_why_a_backend_is_refused_is_known(bad, reason):
    """The check itself needs no GPU: it is given a wrong backend on the CPU."""
    op = dispatch.op("rms_norm")
    few = replace(op, triton=bad, cases=small_cases)
    assert reason in dispatch._rejection(few, torch.device("cpu"), torch.float32)


def test_a_correct_backend_is_not_refused():
    op = replace(dispatch.op("rms_norm"), triton=rms_norm_reference, cases=small_cases)
    assert dispatch._rejection(op, torch.device("cpu"), torch.float32) == ""


def small_cases(device, dtype):
    source = torch.Generator().manual_seed(0)
    yield torch.randn(8, 32, generator=source).to(device, dtype), torch.ones(32, device=device)


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_on_a_gpu_the_fastest_backend_that_passes_is_chosen(dtype):
    choice = dispatch.choose("rms_norm", "cuda", dtype)
    assert choice.backend == "triton", choice  # the reference is a dozen launches
    assert "us" in choice.evidence
    assert choice.rejected == ()


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize("forced", ["", "triton"])
@pytest.mark.parametrize("bad", [broken, uncompilable])
def test_a_failing_backend_is_never_used_and_loudly_so(bad, forced, monkeypatch, caplog):
    monkeypatch.setattr(dispatch, "FORCED", forced)
    dispatch.register(replace(dispatch.op("rms_norm"), triton=bad, cases=small_cases))
    with caplog.at_level(logging.WARNING):
        choice = dispatch.choose("rms_norm", "cuda", torch.float32)
    assert choice.backend == "reference"
    assert choice.rejected[0].startswith("triton: ")
    assert "NOT used" in caplog.text


@needs_gpu
@pytest.mark.gpu
def test_a_pin_overrules_the_race_and_deciding_leaves_the_rng_alone():
    before = torch.cuda.get_rng_state(), torch.get_rng_state()
    dispatch.pin({"rms_norm": "reference"})
    assert dispatch.choose("rms_norm", "cuda", torch.float32).backend == "reference"
    dispatch.pin({"rms_norm": "triton"})
    assert dispatch.choose("rms_norm", "cuda", torch.float32).backend == "triton"
    assert torch.equal(before[0], torch.cuda.get_rng_state())
    assert torch.equal(before[1], torch.get_rng_state())
