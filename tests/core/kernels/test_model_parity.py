"""The whole model against the plain one on the CPU in fp32."""

import json

import pytest
import torch
from click.testing import CliRunner
from tiny_run import events, make_run, train_here

from albor_core.checkpoint.folder import list_checkpoints, verify
from albor_core.cli.main import cli
from albor_core.train import loop
from albor_core.train.step.model_parity import MIN_COSINE, ModelParity, compare, model_parity


def weights(run):
    state = verify(list_checkpoints(run.checkpoints)[0]).model()
    return {name: t.tolist() for name, t in state.items()}


def injected(fault):
    """`model_parity` by a backend that is the model itself, its logits changed by `fault`."""

    def check(parts, step):
        def look(ids):
            with torch.no_grad():
                return fault(parts.model(ids)[0]), parts.model(ids, ids)[1]

        return model_parity(parts, step, look)

    return check


@pytest.mark.slow
def test_a_right_backend_is_compared_at_load_and_after_ten_steps(tmp_path, monkeypatch):
    plain, compared = (make_run(tmp_path / name, name) for name in ("plain", "compared"))
    train_here(plain, stop_after=12)
    monkeypatch.setattr(loop, "model_parity", injected(lambda logits: logits))
    train_here(compared, stop_after=12)
    found = events(compared, "kernels.parity")
    assert [(one["step"], one["data"]["at"]) for one in found] == [(0, "load"), (10, "10 steps")]
    assert all(one["data"]["cosine"] > 0.999999 for one in found)
    assert not events(compared, "andon.alert")
    assert weights(plain) == weights(compared)


@pytest.mark.parametrize(
    ("fault", "cosine"),
    [(torch.neg, pytest.approx(-1)), (lambda logits: logits * torch.nan, None)],
    ids=["negated", "nan"],
)
def test_a_wrong_backend_is_a_warning_with_the_next_command(tmp_path, monkeypatch, fault, cosine):
    monkeypatch.setattr(loop, "model_parity", injected(fault))
    run = make_run(tmp_path)
    train_here(run, stop_after=1)
    (found,) = events(run, "kernels.parity")
    assert (found["data"]["cosine"], found["severity"]) == (cosine, "warning")
    (alert,) = events(run, "andon.alert")
    assert alert["severity"] == "warning"
    assert "next: ALBOR_KERNELS=reference" in alert["data"]["message"]
    assert found["data"]["rounded_cosine"] == pytest.approx(1)


@pytest.mark.slow
def test_a_model_too_large_for_the_host_is_left_out_and_why_is_said(tmp_path, monkeypatch):
    from albor_core.train.step import model_parity as room

    monkeypatch.setattr(room, "HOST_SHARE", 0.0)
    monkeypatch.setattr(loop, "model_parity", injected(lambda logits: logits))
    run = make_run(tmp_path)
    train_here(run, stop_after=12)
    (found,) = events(run, "kernels.parity")
    assert "host memory" in found["data"]["skipped"] and found["data"]["cosine"] is None


def test_errors_are_fractions_of_the_reference():
    exact = torch.tensor([[[1.0, -4.0]]])
    found = compare(
        "plain", (exact + torch.tensor([1.0, 0.0]), torch.tensor(2.5)), (exact, torch.tensor(2.0))
    )
    assert (found.max_error, found.loss, found.reference_loss) == (0.25, 2.5, 2.0)
    assert found.cosine < MIN_COSINE and found.is_bad


@pytest.mark.parametrize(
    ("cosine", "rounded", "is_bad"),
    [(0.7, 0.69, False), (0.7, 0.99, True), (0.7, None, True), (None, 0.7, True), (0.99, 1, False)],
)
def test_what_rounding_alone_takes_is_no_fault(cosine, rounded, is_bad):
    assert ModelParity("fused", cosine, rounded_cosine=rounded).is_bad == is_bad


def test_what_a_run_recorded_is_shown(tmp_path):
    run = make_run(tmp_path)
    train_here(run, stop_after=1)
    said = CliRunner().invoke(cli, ["kernels", "show", str(run.path)])
    assert said.exit_code == 0, said.output
    assert "not compared: trained on the CPU" in said.output and "rms_norm" in said.output
    found = json.loads(CliRunner().invoke(cli, ["kernels", "show", str(run.path), "--json"]).stdout)
    assert (found["schema"], found["attempt"]) == ("albor.kernels.show/1", 1)
    assert {op["backend"] for op in found["ops"]} == {"reference"}


def test_a_run_of_another_program_says_that_it_recorded_none(tmp_path):
    run = make_run(tmp_path)
    said = CliRunner().invoke(cli, ["kernels", "show", str(run.path)])
    assert said.exit_code == 0 and "recorded no kernels" in said.output


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")
def test_a_run_on_a_gpu_is_as_the_cpu_has_it(tmp_path):
    run = make_run(
        tmp_path, training__device="cuda", training__compile=False, training__mixed_precision="bf16"
    )
    train_here(run, stop_after=12)
    found = events(run, "kernels.parity")
    assert [one["data"]["at"] for one in found] == ["load", "10 steps"]
    for one in found:
        assert one["data"]["cosine"] >= MIN_COSINE
        assert one["data"]["loss"] == pytest.approx(one["data"]["reference_loss"], abs=0.05)
