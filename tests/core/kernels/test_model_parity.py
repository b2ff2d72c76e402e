"""The whole model against the plain one on the CPU in fp32."""

import json
import os
import signal

import pytest
import torch
from click.testing import CliRunner
from tiny_run import events, history, make_run, train_here

from albor_core.checkpoint.folder import MODEL, list_checkpoints
from albor_core.cli.main import cli
from albor_core.kernels import dispatch
from albor_core.run.errors import ConfigError
from albor_core.train import loop, parity_watch
from albor_core.train.board import Board
from albor_core.train.parity_watch import UNFINISHED
from albor_core.train.resume.digest import digest
from albor_core.train.step import model_parity, reference_process
from albor_core.train.step.cpu_reference import MIN_COSINE, ModelParity, answer, compare
from albor_core.train.step.fused import GraphedStep
from albor_core.train.step.model_parity import pose
from albor_core.train.step.reference_process import ReferenceProcess


def weights(run):
    """The hash that the newest checkpoint has of its weights."""
    manifest = json.loads((list_checkpoints(run.checkpoints)[0] / "manifest.json").read_bytes())
    return manifest["files"][MODEL]["hash"]


def injected(fault):
    """`pose` of a backend that is the model itself, its logits changed by `fault`."""

    def case_of(parts, step):
        def look(ids):
            with torch.no_grad():
                return fault(parts.model(ids)[0]), parts.model(ids, ids)[1]

        return pose(parts, step, look)

    return case_of


@pytest.fixture
def asked(monkeypatch):
    """The comparisons of a run that goes on meanwhile, as on a GPU. None ends by itself: whoever
    gives one `found` ends it.
    """
    made = []

    class Asked:
        found = None
        is_closed = False

        def __init__(self, case):
            self.case = case
            assert all(one.found or one.is_closed for one in made), "one at a time"
            made.append(self)

        def poll(self, patience_s=0.0):
            return self.found

        def close(self):
            self.is_closed = True

    monkeypatch.setattr(loop.Training, "reads_late", True)
    monkeypatch.setattr(parity_watch, "pose", injected(lambda logits: logits))
    monkeypatch.setattr(parity_watch, "ReferenceProcess", Asked)
    return made


def after_step(monkeypatch, act):
    """Call `act(board)` after each step of the run."""
    report = Board.report_step

    def reported(board):
        report(board)
        act(board)

    monkeypatch.setattr(Board, "report_step", reported)


@pytest.mark.slow
def test_a_right_backend_is_compared_at_load_and_after_ten_steps(tmp_path, monkeypatch):
    plain, compared = (make_run(tmp_path / name, name) for name in ("plain", "compared"))
    train_here(plain, stop_after=12)
    monkeypatch.setattr(parity_watch, "pose", injected(lambda logits: logits))
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
    monkeypatch.setattr(parity_watch, "pose", injected(fault))
    run = make_run(tmp_path)
    train_here(run, stop_after=1)
    (found,) = events(run, "kernels.parity")
    assert (found["data"]["cosine"], found["severity"]) == (cosine, "warning")
    (alert,) = events(run, "andon.alert")
    assert alert["severity"] == "warning"
    assert "; next: albor gpu" in alert["data"]["message"]
    assert found["data"]["rounded_cosine"] == pytest.approx(1)


@pytest.fixture
def negated_kernels(monkeypatch):
    """A CPU run whose kernels, which it has not, turn every logit round, until it is without."""

    def case_of(parts, step):
        wrong = dispatch._pinned_because == "as in the attempt before"
        return injected(torch.neg if wrong else lambda logits: logits)(parts, step)

    monkeypatch.setattr(parity_watch, "pose", case_of)
    monkeypatch.setattr(parity_watch, "has_own_arithmetic", lambda parts, step: True)
    with dispatch.deciding_anew():
        yield


def step_chosen(run):
    return [(one["step"], one["data"]["reason"]) for one in events(run, "step.chosen")]


def test_wrong_kernels_are_left_for_the_plain_model_and_in_later_attempts_from_the_first_step(
    tmp_path, negated_kernels
):
    run = make_run(tmp_path)
    assert train_here(run, stop_after=12).reason == "stopped"
    found = [(one["step"], one["data"]["at"], one["severity"]) for one in parity_events(run)]
    assert found == [(0, "load", "warning"), (0, "plain", "info"), (10, "10 steps", "info")]
    (alert,) = events(run, "andon.alert")
    assert "; the run goes on by the plain model on the same device" in alert["data"]["message"]
    assert step_chosen(run) == [(0, "parity failed at step 0; 0 steps were by kernels")]
    with dispatch.deciding_anew():  # as another process has it
        train_here(run, attempt=2, stop_after=14)
    assert step_chosen(run)[1:] == [(12, "an attempt before fell back to it on such a device")]
    assert [one["severity"] for one in parity_events(run)][3:] == ["info"]
    plain = make_run(tmp_path / "plain", "plain")
    train_here(plain, stop_after=14)
    assert weights(run) == weights(plain)


def parity_events(run):
    return events(run, "kernels.parity")


def test_a_verdict_that_comes_later_says_how_many_steps_were_by_kernels(
    tmp_path, monkeypatch, asked, negated_kernels
):
    run = make_run(tmp_path)

    def act(board):
        if board.train_state.step == 4:
            asked[0].found = ModelParity("fused", cosine=-1.0, rounded_cosine=1.0)

    after_step(monkeypatch, act)
    monkeypatch.setattr(parity_watch, "PARITY_LIMIT_S", 0.1)  # the plain model's is never found
    train_here(run, stop_after=6)
    assert step_chosen(run) == [(4, "parity failed at step 0; 4 steps were by kernels")]
    assert [one["data"]["at"] for one in parity_events(run)] == ["load", "plain"]
    assert [step for step, _, _ in history(run, ("train/loss",))] == [*range(1, 7)]


@pytest.mark.parametrize("answer", ["plain", "stop"])
def test_a_verdict_behind_the_last_step_promises_nothing(
    tmp_path, monkeypatch, asked, negated_kernels, answer
):
    run = make_run(tmp_path, training__parity=answer)
    beat = loop.Reporter.beat

    def beaten(reporter, **options):
        beat(reporter, **options)
        if reporter.state.current_phase == "checkpointing" and asked:
            asked[-1].found = ModelParity("fused", cosine=-1.0, rounded_cosine=1.0)

    monkeypatch.setattr(loop.Reporter, "beat", beaten)
    assert train_here(run, stop_after=3).reason == "stopped"
    (alert,) = events(run, "andon.alert")
    assert "; all its steps were by what was compared; next: ALBOR" in alert["data"]["message"]
    assert not step_chosen(run)


def test_wrong_kernels_end_a_run_that_asks_for_it(tmp_path, negated_kernels):
    run = make_run(tmp_path, training__parity="stop")
    outcome = train_here(run)
    assert (outcome.reason, outcome.code, outcome.step) == ("andon", 4, 0)
    (alert,) = events(run, "andon.alert")
    assert alert["data"]["action"] == "stop" and not step_chosen(run)


def test_wrong_kernels_are_told_alone_where_that_is_asked_for(tmp_path, negated_kernels):
    run = make_run(tmp_path, training__parity="tell")
    assert train_here(run, stop_after=2).reason == "stopped"
    (alert,) = events(run, "andon.alert")
    assert "next: ALBOR_KERNELS=reference" in alert["data"]["message"] and not step_chosen(run)


def test_a_device_that_is_wrong_without_kernels_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(parity_watch, "pose", injected(torch.neg))
    run = make_run(tmp_path)
    train_here(run, stop_after=1)
    (alert,) = events(run, "andon.alert")
    assert "; next: albor gpu: the plain model is as far off" in alert["data"]["message"]
    assert not step_chosen(run)


def test_any_other_answer_to_parity_is_refused_by_its_field(tmp_path):
    with pytest.raises(ConfigError, match=r"training\.parity"):
        make_run(tmp_path, training__parity="cpu")


@pytest.mark.slow
def test_a_model_too_large_for_the_host_is_left_out_and_why_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(model_parity, "HOST_SHARE", 0.0)
    monkeypatch.setattr(parity_watch, "pose", injected(lambda logits: logits))
    run = make_run(tmp_path)
    train_here(run, stop_after=12)
    (found,) = events(run, "kernels.parity")
    assert "host memory" in found["data"]["skipped"] and found["data"]["cosine"] is None


def test_errors_are_fractions_of_the_reference():
    exact = torch.tensor([[[1.0, -4.0]]])
    found = compare("plain", (exact + torch.tensor([1.0, 0.0]), 2.5), (exact, 2.0))
    assert (found.max_error, found.loss, found.reference_loss) == (0.25, 2.5, 2.0)
    assert found.cosine < MIN_COSINE and found.is_bad


@pytest.mark.parametrize(
    ("cosine", "rounded", "is_bad"),
    [(0.7, 0.69, False), (0.7, 0.99, True), (0.7, None, True), (None, 0.7, True), (0.99, 1, False)],
)
def test_what_rounding_alone_takes_is_no_fault(cosine, rounded, is_bad):
    assert ModelParity("fused", cosine, rounded_cosine=rounded).is_bad == is_bad


def test_steps_go_on_while_the_reference_computes_and_its_verdict_is_of_its_own_step(
    tmp_path, monkeypatch, asked
):
    run = make_run(tmp_path)

    def act(board):
        if board.train_state.step == 14:
            asked[0].found = ModelParity("plain", cosine=1.0)
        if board.train_state.step == 20:
            asked[1].found = ModelParity("plain", cosine=0.5)

    after_step(monkeypatch, act)
    train_here(run)
    found = [
        (one["step"], one["data"]["at"], one["severity"]) for one in events(run, "kernels.parity")
    ]
    assert found == [(0, "load", "info"), (14, "14 steps", "warning")]
    (alert,) = events(run, "andon.alert")
    assert (alert["step"], alert["data"]["rule"]) == (14, "kernels.parity")
    assert events(run, "run.end")[0]["data"]["reason"] == "completed"  # a warning stops nothing


def test_an_end_waits_for_the_verdict_and_makes_the_comparison_that_is_due(
    tmp_path, monkeypatch, asked
):
    run = make_run(tmp_path)
    beat = loop.Reporter.beat

    def beaten(reporter, **options):
        beat(reporter, **options)
        if reporter.state.current_phase == "checkpointing" and asked:
            asked[-1].found = ModelParity("plain", cosine=1.0)

    monkeypatch.setattr(loop.Reporter, "beat", beaten)
    train_here(run, stop_after=12)
    found = [(one["step"], one["data"]["at"]) for one in events(run, "kernels.parity")]
    assert found == [(0, "load"), (12, "12 steps")]


@pytest.mark.parametrize("is_told", [False, True], ids=["by itself", "told to stop"])
def test_an_end_does_not_wait_for_ever_and_says_that_it_was_not_finished(
    tmp_path, monkeypatch, asked, is_told
):
    run = make_run(tmp_path)
    monkeypatch.setattr(parity_watch, "PARITY_LIMIT_S", 600.0 if is_told else 0.0)

    def act(board):
        if board.train_state.step == 3 and is_told:
            board.signals.stop = signal.SIGTERM

    after_step(monkeypatch, act)
    train_here(run, stop_after=5)
    (found,) = events(run, "kernels.parity")
    assert (found["step"], found["data"]["skipped"]) == (0, UNFINISHED)
    assert asked[0].is_closed


def test_going_back_leaves_the_verdict_of_what_is_undone_and_compares_again(
    tmp_path, monkeypatch, asked
):
    calm = {"optimizer__lr": 1e-3, "training__stability": {"zclip_warmup": 4}}
    run = make_run(tmp_path, **calm, training__max_steps=44)

    def act(board):
        if not asked[0].found:
            asked[0].found = ModelParity("plain", cosine=1.0)
        if len(asked) == 3:
            asked[2].found = ModelParity("plain", cosine=1.0)

    after_step(monkeypatch, act)
    monkeypatch.setattr(parity_watch, "PARITY_AFTER", 21)  # just before it goes back to 20
    train_here(run, faults="loss:x10@22-26")
    (back,) = events(run, "training.rollback")
    assert back["step"] == 20
    assert asked[1].is_closed
    found = [(one["step"], one["data"]["at"]) for one in events(run, "kernels.parity")]
    assert found == [(0, "load"), (41, "21 steps")]


@pytest.mark.slow
def test_another_process_finds_what_this_one_would(tmp_path, monkeypatch):
    """And neither the threads nor the random numbers of this one change."""
    kept = []
    case_of = injected(lambda logits: logits * 1.5 + 0.1)
    monkeypatch.setattr(parity_watch, "pose", lambda *of: kept.append(case_of(*of)) or kept[-1])
    train_here(make_run(tmp_path), stop_after=1)
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    asked = ReferenceProcess(kept[0])
    expected = answer(kept[0])
    for tensor in kept[0].weights.values():
        tensor.detach().zero_()  # by the next step, as it were
    found = asked.poll(120.0)
    asked.close()
    assert found.skipped is None and found.cosine < 1
    for name, value in expected.to_json().items():
        assert getattr(found, name) == (pytest.approx(value, rel=1e-5) if value else value), name
    assert torch.get_num_threads() == threads and torch.equal(torch.get_rng_state(), state)


@pytest.mark.slow
def test_a_run_with_a_process_beside_it_ends_with_the_same_bytes(tmp_path, monkeypatch):
    plain, compared = (make_run(tmp_path / name, name) for name in ("plain", "compared"))
    monkeypatch.setattr(loop.Training, "reads_late", True)
    train_here(plain, stop_after=12)
    monkeypatch.setattr(parity_watch, "pose", injected(lambda logits: logits))
    train_here(compared, stop_after=12)
    found = events(compared, "kernels.parity")
    assert found[0]["data"]["at"] == "load" and len(found) == 2
    assert all(one["data"]["cosine"] > 0.999999 for one in found)
    assert weights(plain) == weights(compared) and digest(plain) == digest(compared)


@pytest.mark.slow
def test_a_process_that_is_killed_costs_its_verdict_alone(tmp_path, monkeypatch):
    started = []

    class Killed(ReferenceProcess):
        def __init__(self, case):
            super().__init__(case)
            started.append(self._process.pid)
            os.kill(self._process.pid, signal.SIGKILL)

    monkeypatch.setattr(loop.Training, "reads_late", True)
    monkeypatch.setattr(parity_watch, "pose", injected(lambda logits: logits))
    monkeypatch.setattr(parity_watch, "ReferenceProcess", Killed)
    run = make_run(tmp_path)
    assert train_here(run, stop_after=3).reason == "stopped"
    (found,) = events(run, "kernels.parity")
    assert found["data"]["skipped"] == "the process of the reference ended with -9"
    assert len(started) == 1


def test_the_reference_leaves_most_cores_to_the_loop(monkeypatch):
    for cores, threads in ((1, 1), (2, 1), (16, 4), (128, 4)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid, n=cores: set(range(n)))
        assert reference_process.num_threads() == threads


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
    assert [one["step"] for one in found][:1] == [0] and len(found) == 2
    assert 10 <= found[1]["step"] <= 12
    for one in found:
        assert one["data"]["cosine"] >= MIN_COSINE
        assert one["data"]["loss"] == pytest.approx(one["data"]["reference_loss"], abs=0.05)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")
def test_a_fused_step_that_turns_wrong_on_a_gpu_is_left_for_the_plain_one(tmp_path, monkeypatch):
    """It passes its gate and turns every logit round behind it; the run learns on without it."""
    run = make_run(
        tmp_path, training__device="cuda", training__compile=True, training__mixed_precision="bf16"
    )
    choose = loop.choose_step

    def sabotaged(parts, event):
        parts, step = choose(parts, event)
        assert isinstance(step, GraphedStep)
        right = step.model.logits
        monkeypatch.setattr(step.model, "logits", lambda *of: -right(*of))
        return parts, step

    monkeypatch.setattr(loop, "choose_step", sabotaged)
    monkeypatch.setattr(loop.Training, "reads_late", False)  # or it ends before the verdict
    assert train_here(run).reason == "completed"
    first, *later = parity_events(run)
    assert first["data"]["how"] == "fused" and first["severity"] == "warning"
    assert later and all(one["data"]["how"] == "plain" for one in later)
    assert all(one["severity"] == "info" for one in later)
    assert [one["data"]["backend"] for one in events(run, "step.chosen")] == ["fused", "plain"]
    scores = [loss for _, _, loss in history(run, ("val/loss",))]
    assert scores[-1] < scores[0] - 0.2
