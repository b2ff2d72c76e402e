"""Schedule, meters, tally, faults, optimizer: the arithmetic of a step."""

import io
import math
import sys

import pytest
import torch

from albor_core.config.sections.optimizer import OptimizerConfig
from albor_core.run.errors import UsageError
from albor_core.run.state import HISTORY
from albor_core.telemetry.peaks import peak_flops
from albor_core.train.observe.console import EchoingJournal, StepConsole
from albor_core.train.observe.figures import Ema, Histories, flops_utilisation
from albor_core.train.optim.adamw import Optimizer
from albor_core.train.optim.clipping import Clip
from albor_core.train.optim.gradients import LossScale, gradient_norms, scale_gradients
from albor_core.train.optim.registry import wrong_groups
from albor_core.train.optim.schedules import Schedule
from albor_core.train.process.faults import InjectedError, faults_from
from albor_core.train.step.brick_timer import BrickTimes, StepClock
from albor_core.train.step.interval_totals import ROOM, IntervalTotals
from albor_core.train.step.pending_figures import PendingFigures
from albor_core.train.step.spikes import SpikeWatch

HYPER = {"lr": 0.01, "betas": (0.8, 0.7), "eps": 1e-5, "weight_decay": 0.3}


@pytest.mark.parametrize(
    ("name", "step", "lr"),
    [
        ("cosine", 1, 0.1),  # warm-up begins above zero
        ("cosine", 10, 1.0),  # and ends at the peak
        ("cosine", 60, 0.55),  # halfway: the mean of peak and floor
        ("cosine", 110, 0.1),
        ("cosine", 500, 0.1),  # past the end the floor holds
        ("linear", 60, 0.55),
        ("linear", 35, 0.775),
        ("linear", 110, 0.1),
        ("sqrt", 35, 0.55),  # a quarter of the way by steps is half of it
        ("sqrt", 110, 0.1),
        ("constant", 5, 0.5),
        ("constant", 110, 1.0),
    ],
)
def test_schedule(name, step, lr):
    schedule = Schedule(1.0, 0.1, warmup_steps=10, num_steps=110, name=name)
    assert schedule.lr_at(step) == pytest.approx(lr, rel=1e-12)


@pytest.mark.parametrize("name", ["cosine", "linear", "sqrt"])
def test_a_rate_stays_at_its_peak_until_the_decay_begins(name):
    schedule = Schedule(1.0, 0.0, warmup_steps=10, num_steps=110, name=name, decay_steps=20)
    assert [schedule.lr_at(step) for step in (10, 50, 90)] == [1.0, 1.0, 1.0]
    assert 0.0 < schedule.lr_at(91) < 1.0 and schedule.lr_at(110) == 0.0
    longer = Schedule(1.0, 0.0, warmup_steps=10, num_steps=500, name=name, decay_steps=20)
    assert [longer.lr_at(step) for step in range(1, 91)] == [
        schedule.lr_at(step) for step in range(1, 91)
    ]  # so the end of a run need not be known when it begins


def test_a_decay_that_is_longer_than_the_run_begins_with_the_end_of_the_warm_up():
    whole = Schedule(1.0, 0.1, warmup_steps=10, num_steps=110, name="linear")
    cut = Schedule(1.0, 0.1, warmup_steps=10, num_steps=110, name="linear", decay_steps=900)
    assert [cut.lr_at(step) for step in range(1, 111)] == [whole.lr_at(s) for s in range(1, 111)]


def test_a_schedule_without_warm_up_starts_just_below_the_peak():
    assert 0.99 < Schedule(1.0, 0.0, warmup_steps=0, num_steps=100).lr_at(1) < 1.0


def test_every_hyper_parameter_reaches_torch():
    optimizer = Optimizer(torch.nn.Linear(2, 2), **HYPER, fused=False)
    for group in optimizer.inner.param_groups:
        assert (group["lr"], group["betas"], group["eps"]) == (0.01, (0.8, 0.7), 1e-5)
    decays = [group["weight_decay"] for group in optimizer.inner.param_groups]
    assert decays == [0.3, 0.0]  # the bias is no matrix
    wanted = OptimizerConfig(lr=0.01, beta1=0.8, beta2=0.7, eps=1e-5, weight_decay=0.3)
    assert wrong_groups(optimizer.groups(), wanted) == []
    other = OptimizerConfig(lr=0.01, beta1=0.8, beta2=0.999, eps=1e-5, weight_decay=0.3)
    assert wrong_groups(optimizer.groups(), other) == [
        "beta2 of matrices is 0.7, not 0.999",
        "beta2 of vectors is 0.7, not 0.999",
    ]


def stepped(model, optimizer, skip=0.0):
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step(torch.tensor(skip))


def test_a_skipped_step_changes_neither_weights_nor_moments():
    model = torch.nn.Linear(3, 2)
    optimizer = Optimizer(model, **HYPER, fused=False)
    stepped(model, optimizer)
    weights = {k: v.clone() for k, v in model.state_dict().items()}
    moments = {k: v.clone() for k, v in optimizer.tensors().items()}
    stepped(model, optimizer, skip=1.0)
    assert all(torch.equal(v, weights[k]) for k, v in model.state_dict().items())
    assert all(torch.equal(v, moments[k]) for k, v in optimizer.tensors().items())
    assert model.weight.grad is None  # and its gradient is not kept for the next


def test_optimizer_state_goes_out_and_comes_back():
    model, twin = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    optimizer = Optimizer(model, **HYPER, fused=False)
    stepped(model, optimizer)
    twin.load_state_dict(model.state_dict())
    other = Optimizer(twin, **HYPER, fused=False)
    other.load(optimizer.tensors())
    assert set(optimizer.tensors()) >= {"exp_avg.weight", "exp_avg_sq.bias", "step.bias"}
    stepped(model, optimizer)
    stepped(twin, other)
    assert torch.equal(model.weight, twin.weight)


def test_clipping_reports_the_norm_before_and_leaves_the_limit_after():
    weight = torch.nn.Parameter(torch.zeros(4))
    weight.grad = torch.full((4,), 3.0)
    norm = gradient_norms([weight.grad])[0]
    assert norm.item() == pytest.approx(6.0)
    factor, _ = Clip(1.5).factor(norm, torch.zeros(()))
    scale_gradients([weight.grad], factor)
    assert weight.grad.norm().item() == pytest.approx(1.5, rel=1e-5)
    scale_gradients([weight.grad], Clip().factor(norm, torch.zeros(()))[0])
    assert weight.grad.norm().item() == pytest.approx(1.5, rel=1e-5)


def test_clipping_is_torchs_to_the_bit():
    model = torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.Linear(5, 3))
    source = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=source)
    ours = [p.grad.clone() for p in model.parameters()]
    wanted = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.7)
    norm = torch.linalg.vector_norm(gradient_norms(ours))
    scale_gradients(ours, Clip(0.7).factor(norm, torch.zeros(()))[0])
    assert torch.equal(norm, wanted)
    assert all(torch.equal(g, p.grad) for g, p in zip(ours, model.parameters(), strict=True))


def test_the_loss_scale_halves_on_overflow_and_doubles_after_a_good_while():
    scale = LossScale(torch.device("cpu"))
    scale.update(torch.tensor(1.0))
    assert scale.scale.item() == LossScale.START / 2
    for _ in range(LossScale.GROW_AFTER):
        scale.update(torch.tensor(0.0))
    assert scale.scale.item() == LossScale.START
    twin = LossScale(torch.device("cpu"))
    twin.load(scale.to_json())
    assert twin.to_json() == scale.to_json()


def made_tally():
    return IntervalTotals(torch.device("cpu"), SpikeWatch(3.0))


def add(tally, *losses, norm=1.0, skip=0.0):
    for loss in losses:
        bad = float(not math.isfinite(loss)) or skip
        flags = torch.tensor(bad), torch.tensor(bad), torch.zeros(())
        tally.add(torch.tensor(loss), torch.tensor(norm), *flags)


def test_an_interval_means_its_finite_losses_and_keeps_the_largest_norm():
    tally = made_tally()
    add(tally, 2.0, norm=5.0)
    add(tally, math.nan, 4.0)
    readings = tally.readings_of(tally.drain().tolist())
    assert (readings.loss, readings.grad_norm) == (3.0, 5.0)
    assert (readings.skipped, readings.worst_row) == (1, 1)


def test_an_interval_of_nothing_finite_says_so():
    tally = made_tally()
    add(tally, math.nan)
    assert math.isnan(tally.readings_of(tally.drain().tolist()).loss)
    add(tally, math.inf, norm=math.nan)
    readings = tally.readings_of(tally.drain().tolist())
    assert readings.loss == math.inf
    assert math.isnan(readings.grad_norm)
    assert readings.worst_row == 2  # the row goes on across intervals
    add(tally, 1.0)
    assert tally.readings_of(tally.drain().tolist()).skipped == 0
    add(tally, math.nan)
    assert tally.readings_of(tally.drain().tolist()).worst_row == 1


def test_a_tally_in_the_middle_of_an_interval_survives_a_checkpoint():
    tally, twin = made_tally(), made_tally()
    add(tally, 2.0, math.nan, norm=math.inf)
    twin.load(tally.to_json())
    add(tally, 3.0)
    add(twin, 3.0)
    assert twin.readings_of(twin.drain().tolist()) == tally.readings_of(tally.drain().tolist())


def test_an_interval_may_be_longer_than_the_room_for_its_rows():
    tally = made_tally()
    add(tally, 3.0, *[1.0] * ROOM, math.nan)
    readings = tally.readings_of(tally.drain().tolist())
    assert readings.loss == (3.0 + ROOM) / (1 + ROOM)
    assert readings.skipped == 1


def test_steps_that_follow_an_interval_do_not_reach_what_was_taken_of_it():
    tally = made_tally()
    add(tally, 2.0, math.nan)
    end = StepClock(torch.device("cpu")).mark()
    readout = PendingFigures(tally, torch.zeros(3), {}, BrickTimes({}, ()), end)
    add(tally, math.nan, 7.0)
    first = readout.read().readings
    second = tally.readings_of(tally.drain().tolist())
    assert (first.loss, first.skipped, first.worst_row) == (2.0, 1, 1)
    assert (second.loss, second.skipped, second.worst_row) == (7.0, 1, 2)


def test_a_mean_has_no_bias_at_the_start_and_ignores_nan():
    mean = Ema(0.9)
    assert mean.value is None
    mean.add(4.0)
    mean.add(math.nan)
    assert mean.value == pytest.approx(4.0)


def test_histories_stay_short_even_and_end_with_the_newest():
    histories = Histories(("step", "loss"))
    for step in range(10_000):
        histories.add(step, math.nan if step == 0 else 1.0)
        columns = histories.columns()
        assert len(columns["step"]) <= HISTORY
        assert columns["step"][-1] == step
    gaps = {b - a for a, b in zip(columns["step"][:-2], columns["step"][1:-1], strict=True)}
    assert len(gaps) == 1
    assert columns["loss"][0] is None  # NaN is no JSON


def test_mfu_needs_a_known_peak():
    assert peak_flops("NVIDIA H100 80GB HBM3") == 989e12
    assert peak_flops("NVIDIA H100 PCIe") == 756e12
    assert peak_flops("some accelerator") is None
    assert peak_flops(None) is None
    assert flops_utilisation(6e9, 1000.0, 12e12) == pytest.approx(0.5)
    assert flops_utilisation(6e9, 1000.0, None) is None


def test_faults_act_at_their_steps_and_attempt_only():
    plan = {"ALBOR_FAULTS": "step:raise@3, loss:nan@12,loss:x10@30-31, step:raise@5#2"}
    faults = faults_from(plan, attempt=1)
    faults.at("step", 2)
    faults.at("step", 5)
    with pytest.raises(InjectedError):
        faults.at("step", 3)
    assert math.isnan(faults.factor("loss", 12))
    assert [faults.factor("loss", step) for step in (29, 30, 31, 32)] == [1.0, 10.0, 10.0, 1.0]
    assert faults.factor("grad", 30) == 1.0
    with pytest.raises(InjectedError):
        faults_from(plan, attempt=2).at("step", 5)


@pytest.mark.parametrize(
    "text",
    ["step", "step:dance@3", "data:nan@3", "loss:nan", "loss:nan@x", "data:sleep=1.2.3@3",
     "loss:nan@5-3", "grad:x@1", "data:sleep@3", "step:raise=2@3", "step:exit=3.7@3",
     "step:raise@3#0", f"loss:nan@{5000 * '9'}"],
    ids=lambda text: text[:20],
)  # fmt: skip
def test_a_bad_fault_plan_is_refused_by_name(text):
    with pytest.raises(UsageError, match="ALBOR_FAULTS"):
        faults_from({"ALBOR_FAULTS": text}, attempt=1)


def test_production_refuses_faults():
    environ = {"ALBOR_FAULTS": "loss:nan@1", "ALBOR_ENV": "production"}
    with pytest.raises(UsageError, match="production"):
        faults_from(environ, attempt=1)


def test_the_log_has_a_line_per_event_and_at_most_one_step_a_second(tmp_path, capsys):
    console = StepConsole(num_steps=500)
    values = {"train/loss": 2.5, "optim/lr": 1e-3, "optim/grad_norm": 0.5}
    for step in range(1, 101):
        console.interval(step, values)
    journal = EchoingJournal(tmp_path / "journal.jsonl", attempt=1, console=console)
    saved = str(tmp_path / "checkpoints" / "step-00000100")
    journal.event("checkpoint.saved", step=100, path=saved, versions={"torch": "2"}, message="")
    journal.close()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert "step   1  loss 2.5000  lr 1.00e-03  grad 0.50" in lines[0]
    assert lines[1].endswith("step 100  checkpoint.saved  path=checkpoints/step-00000100")


def test_no_text_forges_a_line_of_the_log_and_no_locale_ends_the_run(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    StepConsole(num_steps=500).print_line(7, "caf\u00e9\n06:00:00  step 99  run.end\x1b[2J")
    (line,) = raw.getvalue().decode("ascii").splitlines()
    assert "caf" in line and line.endswith("[2J") and "\x1b" not in line


def test_a_recipes_own_figures_are_means_over_an_interval_and_survive_a_checkpoint():
    def begun(names=("accuracy", "margin")):
        return IntervalTotals(torch.device("cpu"), SpikeWatch(3.0), names)

    one, nothing = begun(), torch.zeros(())
    for accuracy, margin in ((0.25, 1.0), (0.75, math.nan)):
        figures = torch.tensor(accuracy), torch.tensor(margin)
        one.add(torch.tensor(2.0), torch.tensor(1.0), nothing, nothing, nothing, *figures)
    two = begun()
    two.load(one.to_json())
    for tally in (one, two):
        assert tally.readings_of(tally.drain().tolist()).named == {"accuracy": 0.5, "margin": 1.0}
    assert one.readings_of(one.drain().tolist()).named == {}  # the next interval begins anew
    other = begun(("accuracy",))
    other.load(begun().to_json())  # of a recipe that had other figures
    assert other.readings_of(other.drain().tolist()).named == {}
