"""A run that goes on from a checkpoint of another: a cooldown of a constant run, for one."""

from __future__ import annotations

import errno
import json
import os

import pytest
from tiny_run import SEQ_LEN, events, history, make_run, train_here, write_shards

from albor_core.checkpoint.folder import MODEL, OPTIMIZER, adopt, list_checkpoints, verify
from albor_core.config.load import LoadedConfig, parse_config
from albor_core.launch.planned import plan_run
from albor_core.launch.run_folder import new_run
from albor_core.run.checkpoints import name_of
from albor_core.run.errors import ConfigError
from albor_core.run.rundir import read_json
from albor_core.run.state import read_state
from albor_core.train.optim.schedules import Schedule
from albor_core.train.resume.digest import digest

BASE = {
    "training__warmup_steps": 2,
    "training__checkpoint": {"save_every": 4, "keep": 8},
    "training__eval_interval": 4,
    "optimizer__min_lr": 0.0,
}
STABLE = {**BASE, "training__lr_scheduler": "constant", "training__max_steps": 12}
DECAY = {
    **BASE,
    "training__lr_scheduler": "linear",
    "training__max_steps": 14,
    "training__decay_steps": 6,
}


def bytes_of(run):
    (newest, *_) = list_checkpoints(run.checkpoints)
    return (newest / MODEL).read_bytes(), (newest / OPTIMIZER).read_bytes()


@pytest.fixture
def stable(tmp_path):
    run = make_run(tmp_path, "stable", **STABLE)
    train_here(run)
    return run


def cooldown(tmp_path, parent, name="cool", step=8, **changes):
    start = str(parent.checkpoints / name_of(step))
    return make_run(tmp_path, name, **{**DECAY, "training__continue_from": start, **changes})


def test_a_start_that_is_asked_for_in_vain_is_noted(tmp_path, stable):
    def notes(run):
        raw = run.config_yaml.read_bytes()
        loaded = LoadedConfig(raw, parse_config(raw, file="c"), run.config_yaml, ())
        return [one for one in plan_run(loaded).notes if "initialization" in one]

    assert notes(cooldown(tmp_path, stable)) == []
    (note,) = notes(cooldown(tmp_path, stable, "loud", model__initialization__matrix=2))
    start = stable.checkpoints / name_of(8)
    assert note == f"model.initialization is not used: weights come from {start}"


def column(run, key):
    return [(step, value) for step, name, value in history(run, (key,)) if name == key]


def test_a_cooldown_is_to_the_byte_the_run_that_was_to_decay_from_the_beginning(tmp_path, stable):
    cool, whole = cooldown(tmp_path, stable), make_run(tmp_path, "whole", **DECAY)
    assert train_here(cool).step == 14
    train_here(whole)
    assert bytes_of(cool) == bytes_of(whole)
    rates = column(cool, "optim/lr")
    assert [step for step, _ in rates] == list(range(9, 15))
    wanted = [0.003 * (14 - step) / 6 for step, _ in rates]
    assert [rate for _, rate in rates] == pytest.approx(wanted, rel=1e-12, abs=0.0)
    assert column(cool, "train/loss") == column(whole, "train/loss")[8:]
    state = read_state(cool.state)
    assert (state["global_step"], state["max_steps"]) == (14, 14)
    assert state["tokens"] == 14 * 4 * SEQ_LEN
    (told,) = events(cool, "run.continued")
    assert (told["step"], told["data"]["run"]) == (8, "stable")


def test_a_cooldown_resumes_where_it_was_and_needs_its_parent_no_more(tmp_path, stable):
    whole, parts = (cooldown(tmp_path, stable, name) for name in ("whole", "parts"))
    train_here(whole)
    assert train_here(parts, stop_after=11).step == 11
    for checkpoint in list_checkpoints(stable.checkpoints):
        for file in checkpoint.iterdir():
            file.unlink()
    train_here(parts, attempt=2)
    assert digest(parts) == digest(whole)
    assert len(events(parts, "run.continued")) == 1
    verify(parts.checkpoints / name_of(8))


def test_a_rollback_to_before_the_first_step_goes_back_to_where_it_began(tmp_path, stable):
    cool = cooldown(tmp_path, stable, training__nan_limit=2, training__epochs=20)
    train_here(cool, faults="loss:nan@10-11")  # of the batches
    (rollback,) = events(cool, "training.rollback")
    assert (rollback["step"], rollback["data"]["at_step"]) == (8, 11)
    assert read_state(cool.state)["phase"] == "completed"


def test_other_data_are_read_from_their_beginning(tmp_path, stable):
    fresh = write_shards(tmp_path / "fresh", 40, seed=9)
    cool = cooldown(tmp_path, stable, data__train=str(fresh))
    train_here(cool)
    trainer = verify(list_checkpoints(cool.checkpoints)[0]).trainer()
    assert trainer["progress"]["cursor"] == 6 * 4
    assert events(cool, "run.continued")[0]["data"]["data"].startswith("others")


def loaded(tmp_path, run):
    raw = run.config_yaml.read_bytes()
    return LoadedConfig(raw, parse_config(raw, file="cool.yaml"), tmp_path / "cool.yaml")


def test_the_plan_tells_where_it_begins_and_counts_what_is_left(tmp_path, stable):
    from albor_core.plan.text import render

    config = loaded(tmp_path, cooldown(tmp_path, stable))
    made = plan_run(config)
    assert made.problems == ()
    assert (made.schedule.updates, made.schedule.done_tokens) == (14, 8 * 4 * SEQ_LEN)
    alone = plan_run(loaded(tmp_path, make_run(tmp_path, "alone", **DECAY)))
    assert made.duration.seconds == pytest.approx(alone.duration.seconds * 6 / 14)
    assert "step 8 of" in render(made)
    run = new_run(config, made, name="child")
    assert read_json(run.run_json)["parent"] == "stable"


@pytest.mark.parametrize(
    ("changes", "field", "said"),
    [
        ({"training__continue_from": "nowhere"}, "continue_from", "nowhere is not a checkpoint"),
        ({"training__max_steps": 8}, "max_steps", "nothing is left from there"),
        (
            {"optimizer__name": "muon"},
            "continue_from",
            "optimizer.name was adamw, is muon",
        ),
    ],
)
def test_what_cannot_be_gone_on_from_is_refused_by_name(tmp_path, stable, changes, field, said):
    run = cooldown(tmp_path, stable, **changes)
    made = plan_run(loaded(tmp_path, run))
    assert any(field in p.field and said in p.message for p in made.problems), made.problems


def test_a_run_directory_is_not_a_checkpoint_and_the_hint_names_one(tmp_path, stable):
    run = cooldown(tmp_path, stable, training__continue_from=str(stable.path))
    (problem,) = plan_run(loaded(tmp_path, run)).problems
    assert str(stable.checkpoints / name_of(12)) in problem.hint


def test_a_damaged_checkpoint_is_refused_before_anything_is_trained(tmp_path, stable):
    damaged = stable.checkpoints / name_of(8) / MODEL
    raw = bytearray(damaged.read_bytes())
    raw[-1] ^= 1
    damaged.write_bytes(raw)
    cool = cooldown(tmp_path, stable)
    with pytest.raises(ConfigError, match=r"model\.safetensors is damaged"):
        train_here(cool)
    assert list_checkpoints(cool.checkpoints) == []
    assert damaged.parent.is_dir()  # it is not ours to set aside


@pytest.mark.parametrize("name", ["cosine", "linear", "sqrt"])
def test_a_decay_to_zero_ends_at_zero_whatever_its_shape(name):
    made = Schedule(0.01, 0.0, 10, 100, name, decay_steps=40)
    assert [made.lr_at(step) for step in (10, 35, 60)] == [0.01] * 3
    assert made.lr_at(100) == 0.0
    done = [made.lr_at(step) for step in range(60, 101)]
    assert done == sorted(done, reverse=True)


def test_the_config_of_a_run_names_what_it_goes_on_from(tmp_path, stable):
    resolved = json.loads(cooldown(tmp_path, stable).config_resolved.read_bytes())
    assert resolved["training"]["continue_from"].endswith("step-00000008")


def test_a_disk_that_cannot_link_gets_a_copy_that_is_the_same(tmp_path, stable, monkeypatch):
    linked, copied = (cooldown(tmp_path, stable, name) for name in ("linked", "copied"))
    train_here(linked)

    def refuse(*_):
        raise OSError(errno.EXDEV, "another disk")

    monkeypatch.setattr(os, "link", refuse)
    train_here(copied)
    assert digest(copied) == digest(linked)
    kept, source = (run.checkpoints / name_of(8) / MODEL for run in (copied, stable))
    assert not kept.samefile(source)
    verify(kept.parent)


def test_what_was_validated_before_is_not_told_of_the_run_that_goes_on(tmp_path, stable):
    folder = stable.checkpoints / name_of(8)
    trainer = verify(folder).trainer()
    trainer["reporter"]["val_bpb"] = 1.5  # as of a run that knows its tokenizer
    told = adopt(tmp_path, verify(folder), trainer, {}, run_id="told", hashes={})
    cool = cooldown(tmp_path, stable, data__val=None, training__continue_from=str(told))
    train_here(cool)
    state = read_state(cool.state)
    assert [state[key] for key in ("val_loss", "val_ppl", "val_bpb", "val_step")] == [None] * 4
