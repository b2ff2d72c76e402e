"""The same loop on a GPU: half precision, compilation, skips without a sync, bit-exact resume."""

import math

import pytest
import tiny_run
import torch
from tiny_run import events, history, make_run, train_here

from albor_core.andon.bricks.names import stands_in
from albor_core.checkpoint.folder import MODEL, list_checkpoints, verify
from albor_core.config.load import parse_config
from albor_core.kernels.ops.cross_entropy import IGNORED
from albor_core.run.errors import ConfigError
from albor_core.run.state import read_state
from albor_core.train.build import build
from albor_core.train.evaluate import scoring
from albor_core.train.resume.digest import digest
from albor_core.train.step.choose import choose_step
from albor_core.train.step.fused import GraphedStep

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device"),
]


def gpu_run(folder, run_id="gpu", **changes):
    changes = {"training__device": "cuda", "training__compile": False, **changes}
    return make_run(folder, run_id, **changes)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_every_precision_learns(tmp_path, precision):
    run = gpu_run(tmp_path, training__mixed_precision=precision, training__log_interval=3)
    assert train_here(run).reason == "completed"
    val = {step: value for step, _, value in history(run, ("val/loss",))}
    assert val[24] < val[0] - 0.2
    state = read_state(run.state)
    bricks = state["bricks_ms"]
    assert bricks[stands_in("forward", bricks)] > 0
    assert bricks[stands_in("optimizer", bricks)] > 0
    tensors = verify(list_checkpoints(run.checkpoints)[0]).model().values()
    assert {tensor.dtype for tensor in tensors} == {torch.float32}  # master weights


def test_a_skip_on_the_device_leaves_weights_and_moments_alone(tmp_path):
    whole = gpu_run(tmp_path / "a", "whole", training__deterministic=True)
    train_here(whole, stop_after=7, faults="loss:nan@7")
    before = gpu_run(tmp_path / "b", "before", training__deterministic=True)
    train_here(before, stop_after=6)
    one, two = (verify(list_checkpoints(run.checkpoints)[0]) for run in (whole, before))
    assert (one.step, two.step) == (7, 6)
    assert all(torch.equal(value, two.model()[k]) for k, value in one.model().items())
    assert all(torch.equal(value, two.optimizer()[k]) for k, value in one.optimizer().items())
    losses = [value for _, _, value in history(whole, ("train/loss",))]
    assert math.isnan(losses[6])


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_deterministic_run_resumes_in_the_same_bits(tmp_path, precision):
    changes = {"training__deterministic": True, "training__mixed_precision": precision}
    whole = gpu_run(tmp_path / "a", "whole", **changes)
    broken = gpu_run(tmp_path / "b", "broken", **changes)
    train_here(whole)
    for attempt, step in enumerate((3, 11, None), 1):
        train_here(broken, attempt=attempt, stop_after=step)
    final = [(list_checkpoints(r.checkpoints)[0] / MODEL).read_bytes() for r in (whole, broken)]
    assert final[0] == final[1]
    assert digest(whole) == digest(broken)
    keys = ("train/loss", "optim/grad_norm", "val/loss")
    assert history(whole, keys) == history(broken, keys)


@pytest.mark.parametrize("residual_in_fp32", [True, False])
def test_a_compiled_run_learns_and_its_checkpoint_has_plain_names(tmp_path, residual_in_fp32):
    run = gpu_run(
        tmp_path,
        training__compile=True,
        training__mixed_precision="bf16",
        training__residual_in_fp32=residual_in_fp32,
    )
    assert train_here(run).reason == "completed"
    assert [e["data"]["backend"] for e in events(run, "step.chosen")] == ["fused"]
    names = verify(list_checkpoints(run.checkpoints)[0]).model()
    assert "model.embed_tokens.weight" in names
    val = {step: value for step, _, value in history(run, ("val/loss",))}
    assert val[24] < val[0] - 0.2


@pytest.mark.parametrize(
    "changes",
    [
        {"training__mixed_precision": "fp32"},
        {"training__mixed_precision": "fp16"},
        {"training__mixed_precision": "bf16", "training__activation_checkpointing": True},
        {"training__mixed_precision": "bf16", "training__deterministic": True},
    ],
    ids=lambda changes: "-".join(str(value) for value in changes.values()),
)
def test_what_the_fused_step_does_not_take_is_compiled_and_passes_its_gate(tmp_path, changes):
    run = gpu_run(tmp_path, training__compile=True, **changes)
    assert train_here(run).reason == "completed"
    assert [e["data"]["backend"] for e in events(run, "step.chosen")] == ["compiled"]
    assert events(run, "kernels.rejected") == []
    val = {step: value for step, _, value in history(run, ("val/loss",))}
    assert val[24] < val[0] - 0.2


def test_segments_that_are_computed_again_change_no_bit(tmp_path, monkeypatch):
    monkeypatch.setattr(tiny_run, "SEQ_LEN", 64)  # else SDPA's backward runs, which adds atomically
    wide = {"model__architecture__hidden_size": 64}
    losses = []
    for name, segments in (("kept", False), ("again", 2)):
        run = gpu_run(
            tmp_path / name,
            name,
            training__compile=True,
            training__mixed_precision="bf16",
            training__activation_checkpointing=segments,
            **wide,
        )
        assert train_here(run).reason == "completed"
        assert [e["data"]["backend"] for e in events(run, "step.chosen")] == ["fused"]
        losses.append([value for _, _, value in history(run, ("train/loss",))])
    assert losses[0] == losses[1]


NEEDS_HOPPER = pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability()[0] < 9,
    reason="fp8 needs Hopper",
)


@NEEDS_HOPPER
def test_fp8_learns_by_the_fused_step(tmp_path, monkeypatch):
    monkeypatch.setattr(tiny_run, "SEQ_LEN", 64)  # whole tiles
    wide = {"model__architecture__hidden_size": 64}
    run = gpu_run(tmp_path, training__compile=True, training__mixed_precision="fp8", **wide)
    assert train_here(run).reason == "completed"
    assert [e["data"]["backend"] for e in events(run, "step.chosen")] == ["fused"]
    val = {step: value for step, _, value in history(run, ("val/loss",))}
    assert val[24] < val[0] - 0.2


@pytest.mark.parametrize(
    ("precision", "ramp"),
    [("bf16", []), ("bf16", [{"until": 5, "seq_len": 16}, {"until": 12, "seq_len": 32}]),
     pytest.param("fp8", [], marks=NEEDS_HOPPER)],
)  # fmt: skip
def test_the_fused_step_resumes_in_the_same_bits(tmp_path, monkeypatch, precision, ramp):
    monkeypatch.setattr(tiny_run, "SEQ_LEN", 64)
    changes = {"training__compile": True, "training__mixed_precision": precision}
    changes["training__seq_len_ramp"] = ramp
    changes["model__architecture__hidden_size"] = 64
    whole = gpu_run(tmp_path / "a", "whole", **changes)
    broken = gpu_run(tmp_path / "b", "broken", **changes)
    train_here(whole)
    for attempt, step in enumerate((3, 11, None), 1):
        train_here(broken, attempt=attempt, stop_after=step)
    assert {e["data"]["backend"] for e in events(broken, "step.chosen")} == {"fused"}
    final = [(list_checkpoints(r.checkpoints)[0] / MODEL).read_bytes() for r in (whole, broken)]
    assert final[0] == final[1]
    keys = ("train/loss", "optim/grad_norm", "val/loss")
    assert history(whole, keys) == history(broken, keys)


def test_the_kernels_that_train_score_as_the_plain_model_does(tmp_path):
    run = gpu_run(tmp_path, training__compile=True, training__mixed_precision="bf16")
    config = parse_config(run.config_resolved.read_bytes(), file="c")
    parts, step = choose_step(build(config), lambda *_, **__: None)
    assert isinstance(step, GraphedStep)
    ids = parts.batch(1, 0).ids
    labels = ids.clone()
    labels[0, 5:] = IGNORED
    with torch.no_grad(), parts.placement.autocast():
        wanted = float(parts.model.eval()(ids, labels)[1])
    assert float(scoring(parts, step)(ids, labels)[1]) == pytest.approx(wanted, rel=2e-3)


def test_fp8_that_cannot_be_had_is_refused_before_the_first_step(tmp_path):
    run = gpu_run(tmp_path, training__mixed_precision="fp8")
    with pytest.raises(ConfigError, match=r"fp8 cannot be used here: training\.compile is false"):
        train_here(run)
