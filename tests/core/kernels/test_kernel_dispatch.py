"""Which backend runs an op: measured and checked on a GPU, and said aloud when one is refused."""

from __future__ import annotations

import logging
import time
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from oracle import python

from albor_core.kernels import dispatch
from albor_core.kernels.ops.attention import rope
from albor_core.kernels.ops.norms.rms_norm import rms_norm_reference
from albor_core.telemetry.peaks import DevicePeaks
from albor_core.train.build import chosen_kernels

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


@pytest.fixture(autouse=True)
def forgetful(monkeypatch):
    """Each test decides anew, on the ops as registered."""
    dispatch.op("rms_norm")
    monkeypatch.setattr(dispatch, "FORCED", "")
    with dispatch.deciding_anew():
        yield


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
    assert "ALBOR_KERNELS is 'fastest'; it may be unset, reference or triton" in child.stderr


def test_a_pin_to_an_unknown_backend_is_refused():
    with pytest.raises(ValueError, match="cudnn"):
        dispatch.pin({"rms_norm": "cudnn"})


def test_what_was_taken_on_a_device_is_pinned_for_its_dtype_alone():
    """A GPU run of a process that has also asked for the CPU, or in other dtypes."""
    raced = dispatch.Choice("rms_norm", "triton", "passes parity; ...", "cuda:0", "float32")
    narrow = replace(raced, backend="reference", dtype="bfloat16")
    traced = replace(raced, backend="inductor", dtype="float16")
    with dispatch.deciding_anew(choices=dict(enumerate((raced, narrow, traced)))):
        dispatch.choose("rms_norm", "cpu", torch.float32)
        taken = dispatch.taken("cuda")
    assert taken == {"rms_norm float32": "triton", "rms_norm bfloat16": "reference"}
    dispatch.pin(taken)
    wide, pinned = (dispatch.choose("rms_norm", "cuda", t) for t in (torch.float32, torch.bfloat16))
    assert pinned.evidence == "as in the attempt before, not measured"
    assert wide.evidence != pinned.evidence
    dispatch.pin({"rms_norm": "reference"})  # an older checkpoint
    assert dispatch.choose("rms_norm", "cuda", torch.float16).evidence == pinned.evidence


@pytest.mark.parametrize("bad, reason", [(broken, "output"), (uncompilable, "ptxas said no")])
def test_why_a_backend_is_refused_is_known(bad, reason):
    """The check itself needs no GPU: it is given a wrong backend on the CPU."""
    op = dispatch.op("rms_norm")
    few = replace(op, triton=bad, cases=small_cases)
    assert reason in dispatch.rejection(few, torch.device("cpu"), torch.float32)


def test_a_correct_backend_is_not_refused():
    op = replace(dispatch.op("rms_norm"), triton=rms_norm_reference, cases=small_cases)
    assert dispatch.rejection(op, torch.device("cpu"), torch.float32) == ""


def test_a_correct_backend_is_not_refused_where_the_first_who_asks_is_scoring():
    """`albor eval` is in inference mode, whose tensors no backward may keep."""
    op = replace(dispatch.op("rms_norm"), triton=rms_norm_reference, cases=small_cases)
    with torch.inference_mode():
        assert dispatch.rejection(op, torch.device("cpu"), torch.float32) == ""


# Faults that backends have had, each in an op where it is natural. What the gate of an op must see;
# the gate of the whole model has its own in test_fused_step.


class FaultyBackward(torch.autograd.Function):
    """RMSNorm whose backward goes through a transposed product in fp16: fine at 1, NaN at 1e5."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return rms_norm_reference(x, w, 1e-5)

    @staticmethod
    def backward(ctx, dy):
        x, w = (t.detach().requires_grad_() for t in ctx.saved_tensors)
        with torch.enable_grad():
            y = rms_norm_reference(x, w, 1e-5)
        dx, dw = torch.autograd.grad(y, (x, w), dy)
        large = dy.T.abs().amax() > 65504
        return torch.where(large, torch.nan, dx), dw


def swapped_strides(x, w):
    wrong = x.as_strided(x.shape, (1, x.shape[0]))
    return rms_norm_reference(wrong, w, 1e-5)


def zeroed_output(x, w):
    return rms_norm_reference(x, w, 1e-5) * 0


def half_overflow(x, w):
    """The sum of squares of large activations in fp16."""
    square = (x * 300).half().square().mean(-1, keepdim=True).to(x.dtype) / 300**2
    return (w * (x * torch.rsqrt(square + 1e-5))).to(x.dtype)


def missing_rope(q, k, cos, sin):
    return q.clone(), k.clone()


def rope_cases(device, dtype):
    source = torch.Generator().manual_seed(0)
    q, k = (torch.randn(2, n, 9, 8, generator=source).to(dtype) for n in (4, 2))
    yield q, k, *rope.tables(9, 8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("name", "fault", "found"),
    [
        ("rms_norm", swapped_strides, "output: rms error"),
        ("rms_norm", zeroed_output, "cosine 0.000000"),
        ("rms_norm", half_overflow, "output: rms error"),
        ("rms_norm", FaultyBackward.apply, "gradient 0: rms error nan"),
        ("rope", missing_rope, "output: rms error"),
    ],
    ids=["swapped strides", "zeroed output", "fp16 overflow", "NaN at 1e5", "missing RoPE"],
)
def test_the_gate_of_an_op_catches_an_injected_fault_with_its_number(name, fault, found, dtype):
    op, cpu = dispatch.op(name), torch.device("cpu")
    cases = {"rms_norm": small_cases, "rope": rope_cases}[name]
    healthy = replace(op, triton=op.reference, cases=cases)
    assert dispatch.rejection(healthy, cpu, dtype) == ""
    assert found in dispatch.rejection(replace(healthy, triton=fault), cpu, dtype)


def small_cases(device, dtype):
    source = torch.Generator().manual_seed(0)
    yield torch.randn(8, 32, generator=source).to(device, dtype), torch.ones(32, device=device)


@pytest.fixture
def pretended(monkeypatch):
    """rms_norm as on a GPU, where kernels pass parity unless told; milliseconds by backend."""
    monkeypatch.setattr(dispatch, "HAS_TRITON", True)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    op = replace(dispatch.op("rms_norm"), cases=lambda *_: small_cases("cpu", torch.float32))
    dispatch.register(op)

    def decide(triton_ms, reference_ms, rejection=""):
        times = {op.triton: triton_ms, op.reference: reference_ms}
        with dispatch.deciding_anew(
            check=lambda *_: dispatch.ParityVerdict(rejection), timer=lambda fn, _: times[fn]
        ):
            return dispatch.choose("rms_norm", "cuda", torch.bfloat16)

    return decide


@pytest.mark.slow
@pytest.mark.parametrize(
    ("triton_ms", "reference_ms", "faster"), [(1.0, 2.0, "triton"), (2.0, 1.0, "reference")]
)
def test_the_faster_of_two_that_pass_is_chosen(pretended, triton_ms, reference_ms, faster):
    choice = pretended(triton_ms, reference_ms)
    assert (choice.backend, choice.rejected) == (faster, ())


def test_what_each_candidate_took_is_kept_with_what_no_candidate_can_do_without(pretended):
    choice = pretended(1.0, 2.0)
    assert {c.backend: c.us for c in choice.candidates} == {"triton": 1000.0, "reference": 2000.0}
    # operands, output, what arrives, gradients: of x (8, 32) four, of the weight (32,) two
    assert choice.cost == (4 * (4 * 8 * 32 + 2 * 32), 0)


def test_a_share_of_the_floor_needs_the_figures_of_the_device():
    timed = dispatch.Candidate("triton", 0.99999, 1e-3, 1e-2, us=10.0)
    choice = dispatch.Choice(
        "swiglu_up",
        "triton",
        "",
        "cuda",
        "bfloat16",
        (),
        (timed,),
        dispatch.FloorCost(2000, 80_000),
    )
    with dispatch.deciding_anew(choices={("swiglu_up",): choice}):
        (unknown,) = chosen_kernels(None)
        (narrow,) = chosen_kernels(DevicePeaks(1e12, None, 4e8))
        (slow,) = chosen_kernels(DevicePeaks(1e10, None, 4e8))
    shares = [one["candidates"][0]["floor_share"] for one in (unknown, narrow, slow)]
    assert shares == [None, 0.5, 0.8]


@pytest.mark.parametrize("forced", ["", "triton"])
def test_a_backend_that_was_rejected_is_not_used_however_fast(pretended, forced, monkeypatch):
    monkeypatch.setattr(dispatch, "FORCED", forced)
    choice = pretended(1.0, 2.0, rejection="output: rms error 3.0e-01")
    assert (choice.backend, choice.rejected) == (
        "reference",
        ("triton: output: rms error 3.0e-01",),
    )


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
def test_the_race_is_by_the_time_of_the_device_not_of_the_host_that_launches():
    def late(x, w, eps=1e-5):
        time.sleep(5e-4)  # the busy host that this test is about
        return rms_norm_reference(x, w, eps)

    def laborious(x, w, eps=1e-5):
        torch.cuda._sleep(200_000)  # 0.1 ms
        return rms_norm_reference(x, w, eps)

    dispatch.register(replace(dispatch.op("rms_norm"), triton=late, reference=laborious))
    choice = dispatch.choose("rms_norm", "cuda", torch.bfloat16)
    assert choice.backend == "triton", choice


@needs_gpu
@pytest.mark.gpu
def test_a_kernel_that_loses_to_what_would_run_in_its_place_is_not_taken():
    def slow(x, w, eps=1e-5):
        torch.cuda._sleep(1_000_000)  # 0.5 ms
        return rms_norm_reference(x, w, eps)

    rms_norm = dispatch.op("rms_norm")
    instead = rms_norm.triton
    dispatch.register(replace(rms_norm, triton=rms_norm_reference, reference=slow, instead=instead))
    assert dispatch.choose("rms_norm", "cuda", torch.bfloat16).backend == "reference"


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
