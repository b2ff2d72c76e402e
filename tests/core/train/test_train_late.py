"""A step's figures are read once the next step is under way: what a GPU does, forced on a CPU."""

from __future__ import annotations

import signal

import pytest
from tiny_run import events, history, make_run, train_here

from albor_core.checkpoint.folder import MODEL, list_checkpoints
from albor_core.run.journal import read_journal
from albor_core.run.state import read_state
from albor_core.train import loop
from albor_core.train.interval_log import IntervalLog
from albor_core.train.resume.digest import digest
from albor_core.train.step import optimizer_step

pytestmark = pytest.mark.slow  # two dozen little runs

SAID = ("train/loss", "train/loss_ema", "optim/lr", "optim/grad_norm", "train/tokens", "val/loss")
CALM = {
    "optimizer__lr": 1e-3,
    "training__stability": {"zclip_warmup": 4},
    "training__nan_limit": 3,
}


@pytest.fixture
def late(monkeypatch):
    monkeypatch.setattr(loop.Training, "reads_late", True)


def end_of(run):
    said = [(step, key, repr(value)) for step, key, value in history(run, SAID)]
    return digest(run), (list_checkpoints(run.checkpoints)[0] / MODEL).read_bytes(), said


def series(run, key):
    return {step: value for step, _, value in history(run, (key,))}


def test_the_next_step_is_launched_before_a_step_is_judged(tmp_path, late, monkeypatch):
    """But where something is due that the figures belong to: nothing may be built on the unread."""
    done = []
    take_step, judge = optimizer_step.take_step, IntervalLog._log

    def launched(*args, step, **options):
        done.append(("step", step))
        return take_step(*args, step=step, **options)

    def judged(log, pending, held):
        done.append(("log", log.step))
        judge(log, pending, held)

    monkeypatch.setattr(loop, "take_step", launched)
    monkeypatch.setattr(IntervalLog, "_log", judged)
    train_here(make_run(tmp_path, training__max_steps=12))  # saves each 5, evaluates each 8
    at = {what: i for i, what in enumerate(done)}
    assert [step for what, step in done if what == "log"] == list(range(1, 13))
    late_ones = [n for n in range(1, 12) if at["log", n] > at["step", n + 1]]
    assert late_ones == [2, 3, 4, 6, 7, 9, 11]  # the first is watched for missing gradients


@pytest.mark.parametrize("interval", [1, 3])
def test_a_late_reader_says_and_saves_the_same_to_the_bit(tmp_path, monkeypatch, interval):
    runs = [
        make_run(tmp_path / name, name, **CALM, training__log_interval=interval)
        for name in ("prompt", "late")
    ]
    train_here(runs[0])
    monkeypatch.setattr(loop.Training, "reads_late", True)
    train_here(runs[1])
    prompt, tardy = (end_of(run) for run in runs)
    assert tardy == prompt
    norms = [series(run, "optim/grad_norm_mlp") for run in runs]
    assert norms[0] == norms[1] and len(norms[0]) == 24 // interval


@pytest.mark.parametrize("stop", [13, 15, 16])  # unread, saved, evaluated
def test_stopped_and_resumed_anywhere_it_ends_the_same(tmp_path, late, stop):
    straight, broken = (make_run(tmp_path / name, name, **CALM) for name in ("a", "b"))
    train_here(straight)
    assert train_here(broken, stop_after=stop).step == stop
    assert list(series(broken, "train/loss")) == list(range(1, stop + 1))
    train_here(broken, attempt=2)
    assert end_of(broken) == end_of(straight)


def test_a_signal_leaves_no_step_unsaid(tmp_path, late):
    run = make_run(tmp_path, **CALM, training__max_steps=100, training__eval_interval=100)

    def stop(signals, run):
        while (read_state(run.state) or {}).get("global_step", 0) < 20:
            pass
        signals.stop = signal.SIGTERM

    outcome = train_here(run, during=stop)
    assert (outcome.reason, outcome.code) == ("stopped", 143)
    assert list(series(run, "train/loss")) == list(range(1, outcome.step + 1))
    assert digest(run)[0] == outcome.step


def test_a_spike_found_late_is_gone_back_from_before_anything_is_saved(tmp_path, late):
    run = make_run(tmp_path, **CALM, training__max_steps=36)
    outcome = train_here(run, faults="loss:x10@22-26")
    assert (outcome.reason, outcome.step) == ("completed", 36)
    (back,) = events(run, "training.rollback")
    assert (back["step"], back["data"]["reason"]) == (20, "loss_spike")
    assert back["data"]["at_step"] == 27  # which was under way when 26 was judged
    assert list(series(run, "train/loss")) == list(range(1, 37))
    assert max(series(run, "train/loss").values()) < 5
    lines = [line.record for line in read_journal(run.journal)]
    before = lines[: next(i for i, record in enumerate(lines) if record["t"] == "r")]
    assert [r["step"] for r in before if r["t"] == "m" and "train/loss" in r["v"]][-2:] == [26, 27]


def test_a_spike_in_the_step_before_a_stop_is_not_saved(tmp_path, late):
    run = make_run(tmp_path, **CALM, training__max_steps=36)
    train_here(run, faults="loss:x10@22-26", stop_after=26)
    assert digest(run)[0] == 20
    train_here(run, attempt=2)
    assert max(series(run, "train/loss").values()) < 5


def test_nan_in_a_row_ends_red_with_nothing_of_it_saved(tmp_path, late):
    run = make_run(tmp_path, **CALM)
    outcome = train_here(run, faults="loss:nan@12-99")
    assert (outcome.reason, outcome.code) == ("nan_limit", 4)
    assert [event["data"]["in_a_row"] for event in events(run, "training.rollback")] == [1, 2, 3]
    assert digest(run)[0] == 10
    (skipped, *_) = events(run, "step.skipped")
    assert (skipped["step"], skipped["data"]["count"]) == (12, 1)


def test_an_alert_stops_one_step_later_and_all_of_it_is_said(tmp_path, late):
    rules = [{"condition": "loss > 5", "action": "stop", "message": "exploded"}]
    run = make_run(tmp_path, monitoring__alerts=rules)
    outcome = train_here(run, faults="loss:x10@11-24")
    assert (outcome.reason, outcome.code, outcome.step) == ("andon", 4, 12)
    assert list(series(run, "train/loss")) == list(range(1, 13))
    assert [event["step"] for event in events(run, "andon.alert")] == [11]
    assert digest(run)[0] == 12
