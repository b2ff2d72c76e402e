"""Runs that go on with another batch: schedule, end, evaluations and saves stay where they were."""

from __future__ import annotations

import pytest
from tiny_run import events, history, make_run, rewrite_config, train, train_here

from albor_core.checkpoint.folder import list_checkpoints, verify
from albor_core.config.load import parse_config
from albor_core.run.state import read_state
from albor_core.train import loop
from albor_core.train.build import build
from albor_core.train.resume.digest import digest

SEQ_LEN, SEQUENCES = 32, 40
EPOCH = {
    "training__epochs": 1,
    "training__max_steps": None,
    "training__warmup_steps": 3,
    "training__eval_interval": 2,
    "training__checkpoint": {"save_every": 4, "keep": 9},
}


def series(run, key):
    return {step: value for step, _, value in history(run, (key,))}


def by_sequences(run, key):
    """Values by the sequences that the run had seen."""
    seen = {step: int(tokens) // SEQ_LEN for step, tokens in series(run, "train/tokens").items()}
    return {seen.get(step, 0): value for step, value in series(run, key).items()}


def schedule_of(run):
    """The rate by sequences of a run that nothing disturbs."""
    parts = build(parse_config(run.config_resolved.read_bytes(), file="c"))
    return lambda sequences: parts.schedule.lr_at(sequences / 4)


def changed(tmp_path, stop, changes, **settings):
    run = make_run(tmp_path, **{**EPOCH, **settings})
    undisturbed = schedule_of(run)
    train_here(run, stop_after=stop)
    for field, value in changes.items():
        rewrite_config(run, field, value)
    outcome = train_here(run, attempt=2, allow_config_change=True)
    return run, outcome, undisturbed


@pytest.mark.parametrize("stop", [1, 4, 5, 6, 9])
@pytest.mark.parametrize(
    ("changes", "batch"),
    [
        ({"data.batch_size": 2}, 2),
        ({"data.batch_size": 8}, 8),
        ({"data.batch_size": 3}, 3),
        ({"training.gradient_accumulation": 2}, 8),
        ({"data.batch_size": 1, "training.gradient_accumulation": 2}, 2),
    ],
)
def test_a_changed_batch_moves_neither_schedule_nor_end(tmp_path, stop, changes, batch):
    run, outcome, undisturbed = changed(tmp_path, stop, changes, data__val=None)
    seen = by_sequences(run, "optim/lr")
    assert outcome.reason == "completed"
    assert SEQUENCES - batch < max(seen) <= SEQUENCES
    for sequences, rate in seen.items():
        assert rate == pytest.approx(undisturbed(sequences), rel=1e-6)
    state = read_state(run.state)
    assert (state["global_step"], state["progress_percent"]) == (state["max_steps"], 100.0)
    assert state["tokens"] == max(seen) * SEQ_LEN
    assert events(run, "run.start")[-1]["data"]["num_steps"] == outcome.step


@pytest.mark.parametrize("batch", [2, 8])
def test_no_sequence_of_the_epoch_is_lost_or_read_twice_when_the_batch_changes(
    tmp_path, monkeypatch, batch
):
    read = []
    real = loop.build

    def spied(config, **options):
        parts = real(config, **options)
        fetch = parts.source.batch
        monkeypatch.setattr(parts.source, "batch", lambda rows: read.extend(rows) or fetch(rows))
        return parts

    monkeypatch.setattr(loop, "build", spied)
    changed(tmp_path, 4, {"data.batch_size": batch}, data__val=None)
    assert sorted(read) == list(range(SEQUENCES))


@pytest.mark.parametrize(("batch", "saved"), [(2, [4, 12, 16]), (4, [4, 8, 10]), (8, [4, 6, 7])])
def test_evaluations_and_saves_come_at_the_same_sequences(tmp_path, batch, saved):
    run, _, _ = changed(tmp_path, 4, {"data.batch_size": batch})
    assert list(by_sequences(run, "val/loss")) == [0, 8, 16, 24, 32, 40]
    steps = {event["step"] for event in events(run, "checkpoint.saved")}
    assert steps == {*saved, 4}
    seen = {step: int(tokens) // SEQ_LEN for step, tokens in series(run, "train/tokens").items()}
    assert [seen[step] for step in saved] == [16, 32, 40]


def test_max_steps_mean_the_sequences_that_they_meant(tmp_path):
    limits = {"training__max_steps": 30, "training__epochs": 10}
    run, outcome, undisturbed = changed(tmp_path, 10, {"data.batch_size": 8}, **limits)
    assert (outcome.reason, outcome.step) == ("completed", 20)
    assert max(by_sequences(run, "optim/lr")) == 120
    rates = by_sequences(run, "optim/lr")
    assert all(rate == pytest.approx(undisturbed(at), rel=1e-6) for at, rate in rates.items())
    assert "lr-schedule" not in {event["data"]["rule"] for event in events(run, "andon.alert")}
    assert read_state(run.state)["health"]["learning rate"].startswith("as the config says")


def test_a_batch_that_changes_back_ends_where_the_undisturbed_run_does(tmp_path):
    run = make_run(tmp_path, **EPOCH)
    train_here(run, stop_after=4)
    for attempt, (batch, stop) in enumerate(((8, 5), (2, 7), (4, None)), 2):
        rewrite_config(run, "data.batch_size", batch)
        outcome = train_here(run, attempt=attempt, stop_after=stop, allow_config_change=True)
    assert outcome.reason == "completed"
    assert max(by_sequences(run, "optim/lr")) == SEQUENCES
    trainer = verify(list_checkpoints(run.checkpoints)[0]).trainer()
    assert (trainer["progress"]["sequences"], trainer["progress"]["unit"]) == (SEQUENCES, 4)
    assert trainer["epoch"] == 1.0


def test_a_rollback_takes_no_run_beyond_its_epochs(tmp_path):
    run = make_run(tmp_path, **EPOCH, training__nan_limit=2)
    outcome = train_here(run, faults="loss:nan@6-7")
    (back,) = events(run, "training.rollback")
    left = back["data"]["batches_left_behind"]
    assert left >= 3
    assert (outcome.reason, outcome.step) == ("completed", 10 - left)  # with what was left
    assert back["data"]["last_step"] == outcome.step
    state = read_state(run.state)
    assert (state["max_steps"], state["progress_percent"]) == (outcome.step, 100.0)
    assert state["epoch"] == 1.0
    assert outcome.step in series(run, "val/loss")


def test_a_checkpoint_without_sequences_goes_on_to_the_same_bits(tmp_path, monkeypatch):
    straight, older = (make_run(tmp_path / name, name, **EPOCH) for name in ("a", "b"))
    train_here(straight)
    real = loop.take_snapshot

    def as_before(*arguments):
        snapshot = real(*arguments)
        progress = snapshot.trainer["progress"]
        for name in ("sequences", "before", "cursor", "unit"):
            del progress[name]
        progress["data_offset"] = 0
        snapshot.trainer["order"] = {"seed": 0, "next_step": snapshot.step + 1}
        del snapshot.trainer["spikes"]
        return snapshot

    with monkeypatch.context() as patch:
        patch.setattr(loop, "take_snapshot", as_before)
        train_here(older, stop_after=5)
    assert train_here(older, attempt=2).reason == "completed"
    for key in ("train/loss", "optim/lr", "val/loss"):
        assert series(older, key) == series(straight, key)


@pytest.mark.slow
def test_ranks_agree_on_the_clock_after_a_change_of_the_batch(tmp_path):
    runs = []
    for name, ranks in (("one", 1), ("two", 2)):
        run = make_run(tmp_path / name, name, **EPOCH, training__distributed={"world_size": ranks})
        assert train(run, "--stop-after", "4")[0] == 0
        rewrite_config(run, "data.batch_size", 8)
        code, said = train(run, "--allow-config-change")
        assert code == 0, said
        runs.append(run)
    losses = [list(series(run, "train/loss").items()) for run in runs]
    assert [step for step, _ in losses[0]] == [step for step, _ in losses[1]]
    assert [x for _, x in losses[0]] == pytest.approx([x for _, x in losses[1]], rel=1e-5)
    assert [digest(run)[0] for run in runs] == [7, 7]
