"""Runs that leave their path on purpose: scaled down, gone back, stopped, and resumed anywhere."""

from __future__ import annotations

import importlib.util
import math
import sqlite3
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tiny_run import events, history, last_words, make_run, train, train_here

from albor_core.checkpoint.folder import MODEL, list_checkpoints, verify
from albor_core.config.load import parse_config
from albor_core.run.errors import AlborError, ConfigError
from albor_core.run.journal import read_journal
from albor_core.run.state import read_state
from albor_core.store.index.indexer import index_now
from albor_core.train import loop
from albor_core.train.build import build
from albor_core.train.optim.clipping import NOISE_DECAY
from albor_core.train.process.faults import InjectedError
from albor_core.train.resume.digest import digest

pytestmark = pytest.mark.slow  # dozens of little runs

SAID = ("train/loss", "train/loss_ema", "optim/lr", "optim/grad_norm", "train/tokens", "val/loss")
WATCHFUL = {"zclip_warmup": 4}
CALM = {"grad_clip": 1.0, "stability": WATCHFUL, "nan_limit": 3}
EASY = {"optimizer__lr": 1e-3, "training__warmup_steps": 4, "training__max_steps": 24}
LONGER = {"training__max_steps": 36}
SPIKE = "loss:x10@22-26"


def made(folder, run_id="tiny", **changes):
    settings = {f"training__{key}": value for key, value in CALM.items()}
    return make_run(folder, run_id, **{**EASY, **settings, **changes})


def series(run, key):
    return {step: value for step, _, value in history(run, (key,))}


def rewinds(run):
    records = [line.record for line in read_journal(run.journal)]
    return [record["to"] for record in records if record["t"] == "r"]


def end_of(run):
    said = [(step, key, repr(value)) for step, key, value in history(run, SAID)]
    return digest(run), (list_checkpoints(run.checkpoints)[0] / MODEL).read_bytes(), said


def test_a_gradient_spike_is_scaled_down_and_said(tmp_path):
    calm, wild = made(tmp_path / "a", "calm"), made(tmp_path / "b", "wild")
    free = made(tmp_path / "c", "free", training__stability={"zclip": False}, training__grad_clip=9)
    train_here(calm)
    train_here(wild, faults="grad:x100@12")
    train_here(free, faults="grad:x100@12")
    loss = {run.id: series(run, "train/loss") for run in (calm, wild, free)}
    norm = series(wild, "optim/grad_norm")
    assert norm[12] == pytest.approx(100 * series(calm, "optim/grad_norm")[12], rel=1e-5)
    assert loss["wild"][12] == loss["calm"][12]  # the loss itself is honest
    (spike,) = [e for e in events(wild, "gradient.spike") if e["step"] == 12]
    assert spike["severity"] == "warning"
    assert read_state(wild.state)["guards"]["zclip"] >= 1
    assert read_state(free.state)["guards"]["zclip"] is None
    assert not rewinds(wild)


def test_a_loss_spike_goes_back_once_past_the_batches_that_made_it(tmp_path):
    run = made(tmp_path, **LONGER)
    outcome = train_here(run, faults=SPIKE)
    assert (outcome.reason, outcome.step) == ("completed", 36)
    (back,) = events(run, "training.rollback")
    assert (back["step"], back["severity"], back["data"]["reason"]) == (20, "warning", "loss_spike")
    assert (back["data"]["at_step"], back["data"]["batches_left_behind"]) == (26, 6)
    assert rewinds(run) == [20]
    assert list(series(run, "train/loss")) == list(range(1, 37))
    assert max(series(run, "train/loss").values()) < 5  # the spike is no part of the history
    state = read_state(run.state)
    assert state["guards"]["rollbacks"] == 1
    assert state["epoch"] == pytest.approx(42 * 4 / 40, abs=1e-3)  # six batches more were read
    trainer = verify(list_checkpoints(run.checkpoints)[0]).trainer()
    assert (trainer["progress"]["sequences"], trainer["order"]["cursor"]) == (36 * 4, 42 * 4)
    index_now(run)
    with sqlite3.connect(run.store) as db:
        query = (
            "SELECT step, value FROM metrics_discarded d JOIN keys k USING (run_id, key_id) "
            "WHERE k.name = 'train/loss' ORDER BY step"
        )
        kept = db.execute(query).fetchall()
    assert [step for step, _ in kept] == [21, 22, 23, 24, 25, 26]
    assert kept[1][1] > 30  # what was discarded can be looked at


def test_after_a_rollback_the_run_trains_on_the_batches_behind_the_spike(tmp_path, monkeypatch):
    run = made(tmp_path, **LONGER)
    asked = []
    real = loop.build

    def spied(config, **options):
        parts = real(config, **options)
        batch = type(parts).batch
        monkeypatch.setattr(
            type(parts), "batch", lambda p, at, *rest: asked.append(at) or batch(p, at, *rest)
        )
        return parts

    monkeypatch.setattr(loop, "build", spied)
    train_here(run, faults=SPIKE)
    assert asked == [4 * n for n in range(42)]


def test_nan_in_a_row_goes_back_three_times_and_then_stops_red(tmp_path):
    run = made(tmp_path)
    outcome = train_here(run, faults="loss:nan@12-99")
    assert (outcome.reason, outcome.code, outcome.step) == ("nan_limit", 4, 13)
    back = events(run, "training.rollback")
    assert [event["data"]["in_a_row"] for event in back] == [1, 2, 3]
    assert rewinds(run) == [10, 10, 10]
    (end,) = events(run, "run.end")
    assert (end["severity"], end["data"]["reason"]) == ("error", "nan_limit")
    assert end["data"]["status"] == read_state(run.state)["phase"] == "stopped"  # as ls says
    assert digest(run)[0] == 10  # the last good one, nothing of the row
    assert all(
        torch.isfinite(t).all()
        for t in verify(list_checkpoints(run.checkpoints)[0]).model().values()
    )


def test_a_spike_in_the_last_steps_does_not_end_the_run(tmp_path):
    run = made(tmp_path, **LONGER)
    assert train_here(run, faults="loss:x10@32-36").step == 36
    assert rewinds(run) == [30]
    assert series(run, "train/loss")[36] < 5


def test_one_hard_batch_is_no_spike(tmp_path):
    run = made(tmp_path, **LONGER)
    outcome = train_here(run, faults="loss:x10@22,loss:x100@25-26,loss:x10@30-33")
    assert (outcome.reason, outcome.step, rewinds(run)) == ("completed", 36, [])


def test_a_run_that_overfits_its_only_batch_until_the_loss_is_0_is_completed(tmp_path):
    rows = pa.array([list(range(8))] * 4, pa.list_(pa.uint32()))
    (tmp_path / "one").mkdir()
    pq.write_table(pa.table({"input_ids": rows}), tmp_path / "one" / "shard-00000.parquet")
    changes = {"data__train": str(tmp_path / "one"), "data__val": str(tmp_path / "one")}
    changes |= {"data__seq_len": 8, "training__epochs": 420, "training__max_steps": 420}
    changes |= {"optimizer__lr": 0.02, "optimizer__weight_decay": 0.0}
    changes |= {"training__lr_scheduler": "constant", "training__eval_interval": 1000}
    run = made(tmp_path, **changes, training__checkpoint={"save_every": 1000})
    outcome = train_here(run)
    assert (outcome.reason, outcome.code, outcome.step) == ("completed", 0, 420)
    assert 0.0 in series(run, "train/loss").values()
    assert not events(run, "step.skipped") + events(run, "training.rollback")


def test_a_life_whose_first_steps_have_nothing_left_to_learn_goes_on(tmp_path):
    run = made(tmp_path)
    assert train_here(run, faults="loss:x0@1-5").reason == "completed"
    assert not events(run, "gradient.missing")


@pytest.mark.parametrize("stop_after", [None, 47])
def test_a_run_goes_back_beyond_a_spike_that_its_newest_checkpoints_have_seen(tmp_path, stop_after):
    often = {"save_every": 1, "keep": 1}
    longer = {"training__max_steps": 60, "training__log_interval": 4}
    run = made(tmp_path, training__checkpoint=often, **longer)
    if stop_after:  # between the spike and the figures that show it
        train_here(run, faults="loss:x10@46-50", stop_after=stop_after)
        assert {47, 44} <= {int(path.name[5:]) for path in list_checkpoints(run.checkpoints)}
    outcome = train_here(run, attempt=2 if stop_after else 1, faults="loss:x10@46-50")
    assert (outcome.reason, outcome.step) == ("completed", 60)
    assert rewinds(run)[-1] == 44
    assert max(series(run, "train/loss").values()) < 5


def test_a_few_nan_are_left_behind_by_one_rollback(tmp_path):
    run = made(tmp_path)
    assert train_here(run, faults="loss:nan@12-14").reason == "completed"
    assert rewinds(run) == [10]
    assert all(math.isfinite(value) for value in series(run, "train/loss").values())
    assert read_state(run.state)["guards"]["nan_skipped"] == 3


def test_spikes_that_are_far_apart_do_not_add_up(tmp_path):
    run = made(tmp_path, training__stability={**WATCHFUL, "max_rollbacks": 1}, **LONGER)
    faults = "loss:x10@22-26,loss:x10@37-41"
    assert train_here(run, faults=faults).reason == "completed"
    assert [event["data"]["in_a_row"] for event in events(run, "training.rollback")] == [1, 1]


def test_a_run_that_may_not_go_back_stops_and_keeps_the_good_checkpoint(tmp_path):
    run = made(tmp_path, training__stability={**WATCHFUL, "max_rollbacks": 0}, **LONGER)
    outcome = train_here(run, faults=SPIKE)
    assert (outcome.reason, outcome.code, outcome.step) == ("loss_spike", 4, 26)
    assert digest(run)[0] == 20  # that of step 25 lies inside the spike
    assert read_state(run.state)["checkpoint"]["last"]["step"] == 20


def test_a_rule_of_the_user_comes_before_a_rollback(tmp_path):
    rules = [{"condition": "loss > 10", "action": "stop", "message": "exploded"}]
    run = made(tmp_path, monitoring__alerts=rules)
    outcome = train_here(run, faults="loss:x10@12")
    assert (outcome.reason, outcome.step) == ("andon", 12)
    assert not rewinds(run)


def test_without_a_checkpoint_the_run_begins_again_on_other_data(tmp_path):
    run = made(tmp_path, training__checkpoint={"save_every": 1000})
    outcome = train_here(run, faults="loss:nan@3-5")
    assert (outcome.reason, outcome.step) == ("completed", 24)
    assert rewinds(run) == [-1]
    trainer = verify(list_checkpoints(run.checkpoints)[0]).trainer()
    assert trainer["progress"]["cursor"] - trainer["progress"]["sequences"] == 5 * 4
    assert list(series(run, "val/loss")) == [0, 8, 16, 24]
    fresh = made(tmp_path / "b", "fresh")
    train_here(fresh, stop_after=0)
    assert series(run, "val/loss")[0] == series(fresh, "val/loss")[0]  # the same first weights


def test_a_row_of_nan_longer_than_all_checkpoints_goes_back_to_the_oldest(tmp_path):
    """Every checkpoint that is kept lies inside the row, where nothing moved the weights."""
    run = made(tmp_path, training__nan_limit=8, training__checkpoint={"save_every": 2, "keep": 1})
    outcome = train_here(run, faults="loss:nan@9-16")
    assert outcome.reason == "completed"
    (back,) = events(run, "training.rollback")
    # A step that comes due while the writer is busy is saved one later: which steps is not fixed.
    saved = [event["step"] for event in events(run, "checkpoint.saved")]
    assert back["step"] in saved and 8 <= back["step"] < 16
    assert all(math.isfinite(v) for s, v in series(run, "train/loss").items() if s > back["step"])


WILD = f"grad:x50@7,{SPIKE},loss:nan@33-35"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The end of a run with a gradient spike, a loss spike and a row of NaN."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALBOR_HOME", str(tmp_path_factory.mktemp("wild-home")))
        run = made(tmp_path_factory.mktemp("wild"), "wild", **LONGER)
        train_here(run, faults=WILD)
    assert len(events(run, "training.rollback")) == 2
    return end_of(run)


@pytest.mark.parametrize("stop", [6, 7, 20, 23, 25, 27, 28, 33])
def test_a_resume_at_any_of_these_ends_in_the_same_bits(tmp_path, undisturbed, stop):
    """Statistics of ZClip, the row of NaN, the batches left behind: all of it is resumed.

    At steps where a stop leaves no checkpoint that the undisturbed run would have gone back to.
    """
    run = made(tmp_path, "stopped", **LONGER)
    train_here(run, faults=WILD, stop_after=stop)
    assert train_here(run, attempt=2, faults=WILD).reason == "completed"
    assert end_of(run)[1:] == undisturbed[1:]
    assert digest(run)[1:] == undisturbed[0][1:]


def test_a_slow_disk_does_not_move_what_is_gone_back_to(tmp_path, undisturbed):
    run = made(tmp_path, "slow", **LONGER)
    train_here(run, faults=f"{WILD},ckpt:sleep=0.3@5")
    assert end_of(run)[1:] == undisturbed[1:]


@pytest.mark.parametrize("step", [3, 8, 12, 20, 21, 22, 24, 25, 26, 27, 28, 30, 34])
def test_a_crash_at_any_of_these_ends_in_the_same_bits(tmp_path, undisturbed, step):
    run = made(tmp_path, "crashed", **LONGER)
    with pytest.raises(InjectedError):
        train_here(run, faults=f"{WILD},step:raise@{step}#1")
    for thread in threading.enumerate():
        if thread.name == "checkpoint":
            thread.join(30)
    assert train_here(run, attempt=2, faults=WILD).reason == "completed"
    assert end_of(run)[1:] == undisturbed[1:]


def test_a_death_in_the_middle_of_a_rollback_repeats_it_to_the_same_bits(
    tmp_path, undisturbed, monkeypatch
):
    run = made(tmp_path, "died", **LONGER)

    def die(*anything):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("albor_core.train.resume.saving.CheckpointSaving.went_back", die)
        train_here(run, faults=WILD)
    assert rewinds(run) == [20]
    assert train_here(run, attempt=2, faults=WILD).reason == "completed"
    assert end_of(run)[1:] == undisturbed[1:]


def test_kill_9_right_after_the_checkpoint_of_a_rollback_ends_in_the_same_bits(
    tmp_path, undisturbed
):
    run = made(tmp_path, "killed", **LONGER)
    plan = f"{WILD},ckpt:kill@20#1,ckpt:kill@20#2"  # step 20 is saved again by the rollback
    codes = [train(run, ALBOR_FAULTS=plan)[0] for _ in range(3)]
    assert codes == [-9, -9, 0]
    assert events(run, "run.start")[-1]["data"]["resumed_from"] == 20
    assert last_words(run)["reason"] == "completed"
    assert end_of(run)[1:] == undisturbed[1:]


def test_a_loss_of_zero_is_reported_and_no_step_is_skipped(tmp_path):
    run = made(tmp_path)
    train_here(run, faults="loss:x0@9")
    assert series(run, "train/loss")[9] == 0.0
    assert not events(run, "step.skipped")


def test_the_norms_of_groups_add_up_to_the_norm(tmp_path):
    run = made(tmp_path, training__max_steps=4)
    train_here(run)
    groups = [
        series(run, f"optim/grad_norm_{g}") for g in ("embedding", "attention", "mlp", "norm")
    ]
    for step, norm in series(run, "optim/grad_norm").items():
        assert math.sqrt(sum(group[step] ** 2 for group in groups)) == pytest.approx(norm, rel=1e-5)


def test_a_step_that_is_skipped_names_the_parameters_without_a_number(tmp_path):
    run = made(tmp_path)
    train_here(run, faults="grad:nan@9")
    (skip,) = events(run, "step.skipped")
    assert skip["data"]["parameters"] == 20
    assert "model.embed_tokens.weight" in skip["data"]["names"]
    assert math.isfinite(series(run, "train/loss")[9])  # only the gradient is broken


def test_the_noise_scale_comes_free_with_accumulation_and_is_that_of_autograd(tmp_path):
    changes = {"data__batch_size": 2, "training__gradient_accumulation": 2}
    run = made(tmp_path, **changes)
    train_here(run, stop_after=1)
    parts = build(parse_config(run.config_resolved.read_bytes(), file="c"))
    squares = []
    first, second = parts.batch(0, 0).ids, parts.batch(0, 1).ids
    for batch in (first, torch.cat((first, second))):
        parts.model(batch, batch)[1].backward()
        squares.append(sum(float(p.grad.square().sum()) for p in parts.model.parameters()))
        parts.model.zero_grad(set_to_none=True)
    n1, n2, b1, b2 = *squares, 2 * 32, 4 * 32
    trace, signal = (n1 - n2) / (1 / b1 - 1 / b2), (b2 * n2 - b1 * n1) / (b2 - b1)
    saved = verify(list_checkpoints(run.checkpoints)[0]).trainer()["noise"]
    said = [float.fromhex(text) for text in saved]
    weight = 1 - NOISE_DECAY
    assert said == pytest.approx([weight * trace, weight * signal, weight], rel=1e-3)


def test_a_measured_noise_scale_changes_no_weight(tmp_path):
    plain = made(tmp_path / "a", "plain")
    measured = made(
        tmp_path / "b", "measured", training__stability={**WATCHFUL, "noise_scale_interval": 3}
    )
    for run in (plain, measured):
        train_here(run)
    assert series(plain, "train/loss") == series(measured, "train/loss")
    assert not series(plain, "optim/noise_scale_tokens")
    said = series(measured, "optim/noise_scale_tokens")
    assert said
    assert all(value > 0 for value in said.values())


def test_a_batch_that_cannot_be_halved_is_refused(tmp_path):
    stability = {"noise_scale_interval": 3}
    with pytest.raises(ConfigError, match="halved"):
        made(tmp_path, data__batch_size=3, training__stability=stability)


def sabotaged(monkeypatch, sabotage):
    real = loop.build

    def build_and_break(config, **options):
        parts = real(config, **options)
        sabotage(parts)
        return parts

    monkeypatch.setattr(loop, "build", build_and_break)


def test_a_parameter_without_gradient_is_named_and_the_run_refused(tmp_path, monkeypatch):
    run = made(tmp_path)
    name = "model.layers.1.mlp.up_proj.weight"

    def cut(parts):
        parts.model.get_parameter(name).register_hook(torch.zeros_like)

    sabotaged(monkeypatch, cut)
    outcome = train_here(run)
    assert (outcome.reason, outcome.code, outcome.step) == ("gradient_missing", 4, 2)
    assert name in outcome.message
    assert [event["data"]["names"] for event in events(run, "gradient.missing")] == [[name], [name]]


def test_a_gradient_that_comes_in_the_second_step_is_enough(tmp_path, monkeypatch):
    run = made(tmp_path, training__max_steps=4)
    calls = []

    def cut_once(parts):
        def hook(gradient):
            calls.append(1)
            return gradient * (len(calls) > 1)

        parts.model.model.norm.weight.register_hook(hook)

    sabotaged(monkeypatch, cut_once)
    assert train_here(run).reason == "completed"
    assert len(events(run, "gradient.missing")) == 1


def test_a_hyper_parameter_that_did_not_arrive_is_refused_before_step_1(tmp_path, monkeypatch):
    run = made(tmp_path)

    def forget(parts):
        for group in parts.optimizer.inner.param_groups:
            group["betas"] = (0.9, 0.999)

    sabotaged(monkeypatch, forget)
    with pytest.raises(AlborError, match=r"beta2 of matrices is 0\.999, not 0\.95"):
        train_here(run)
    assert not series(run, "train/loss")


def test_optimizer_state_that_is_not_zero_is_refused_before_step_1(tmp_path, monkeypatch):
    run = made(tmp_path)

    def dirty(parts):
        norm = parts.model.model.norm.weight
        garbage = torch.full_like(norm, 1e-3)
        parts.optimizer.load({"exp_avg.model.norm.weight": garbage})

    sabotaged(monkeypatch, dirty)
    with pytest.raises(AlborError, match=r"exp_avg\.model\.norm\.weight does not begin at zero"):
        train_here(run)


def test_what_the_optimizer_was_told_is_in_the_journal(tmp_path):
    run = made(tmp_path, optimizer__weight_decay=0.3)
    train_here(run, stop_after=1)
    (ready,) = events(run, "optimizer.ready")
    groups = {group["kind"]: group for group in ready["data"]["groups"]}
    assert (groups["matrices"]["lr"], groups["matrices"]["weight_decay"]) == (0.001, 0.3)
    assert groups["vectors"]["weight_decay"] == 0.0


def test_a_checkpoint_from_before_these_settings_is_resumed(tmp_path):
    """Fields that a checkpoint's config does not have yet had their defaults."""
    from albor_core.config.resume_changes import changed_fields

    run = make_run(tmp_path)
    train_here(run, stop_after=6)
    trainer = verify(list_checkpoints(run.checkpoints)[0]).trainer()
    older = trainer["config"]
    now = {**older, "training": dict(older["training"])}
    older["training"].pop("stability")
    assert changed_fields(older, now) == ()
    now["training"]["stability"] = {**now["training"]["stability"], "zclip": False}
    assert [d[0] for d in changed_fields(older, now)] == ["training.stability.zclip"]


def spikes_benchmark():
    path = Path(__file__).parents[3] / "benchmarks" / "watching" / "spikes.py"
    spec = importlib.util.spec_from_file_location("spikes_benchmark", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("batch", [1, 4])
def test_rows_of_which_a_few_are_hard_make_no_run_go_back(tmp_path, batch):
    bench = spikes_benchmark()
    data = bench.write_uneven(tmp_path / "rows", 0.10, seed=1)
    shape = {"vocab": bench.VOCAB, "seq_len": bench.SEQ_LEN}
    outcome, back = bench.train(tmp_path / "run", data, batch=batch, steps=400, seed=1, **shape)
    assert (outcome.reason, outcome.step, back) == ("completed", 400, [])


def test_a_spike_planted_in_real_sources_is_found(tmp_path):
    assert spikes_benchmark().planted_runs(tmp_path, seeds=1) == (1, 1)
