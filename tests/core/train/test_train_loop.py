"""The loop in this process: what it says, what stops it, what it refuses."""

import gc
import json
import math
import os
import shutil
import threading
import time
from functools import partial

import pytest
import torch
from tiny_run import (
    events,
    history,
    make_run,
    rewrite_config,
    train_here,
    wait_until,
)

from albor_core.andon.bricks.names import OF_STEP
from albor_core.checkpoint.folder import Checkpoint, list_checkpoints, verify
from albor_core.run import state as state_file
from albor_core.run.errors import AlborError, ConfigError, DataError, NoCheckpointError
from albor_core.run.files.whole_file import write_json
from albor_core.run.journal import read_journal
from albor_core.run.rundir import read_json
from albor_core.run.state import StateWriter, read_state
from albor_core.train import loop
from albor_core.train.observe import reporter
from albor_core.train.process.faults import InjectedError
from albor_core.train.resume.digest import digest
from albor_core.train.resume.saving import CheckpointSaving


def series(run, key):
    return {step: value for step, _, value in history(run, (key,))}


def weights(run):
    return verify(list_checkpoints(run.checkpoints)[0]).model()


def test_a_whole_run_says_everything_once_in_order(tmp_path):
    run = make_run(tmp_path, training__log_interval=2, training__max_steps=24)
    outcome = train_here(run)
    assert (outcome.reason, outcome.code, outcome.step) == ("completed", 0, 24)
    loss, val = series(run, "train/loss"), series(run, "val/loss")
    assert list(loss) == list(range(2, 25, 2))
    assert list(val) == [0, 8, 16, 24]
    assert val[0] == pytest.approx(math.log(64), abs=0.05)  # the head starts uniform
    assert val[24] < val[0] - 0.2
    assert series(run, "val/ppl")[8] == pytest.approx(math.exp(val[8]))
    assert series(run, "train/tokens")[24] == 24 * 4 * 32
    assert series(run, "optim/lr")[4] == 0.003
    assert not series(run, "perf/mfu")  # no peak is known for this CPU
    records = [line.record for line in read_journal(run.journal)]
    params = {r["key"]: r["value"] for r in records if r["t"] == "p"}
    assert params["optimizer.lr"] == 0.003
    assert len([r for r in records if r["t"] == "a"]) == len(events(run, "checkpoint.saved"))
    (end,) = events(run, "run.end")
    assert end["data"]["reason"] == "completed"
    chosen = [event["data"] for event in events(run, "kernels.chosen")]
    assert ("rms_norm", "reference") in {(k["op"], k["backend"]) for k in chosen}
    assert len({(k["op"], k["dtype"]) for k in chosen}) == len(chosen)
    (parity,) = events(run, "kernels.parity")
    assert "same" in parity["data"]["skipped"] and parity["data"]["cosine"] is None
    assert set(series(run, "brick/other_ms")) == set(loss)


def test_the_state_file_carries_a_whole_dashboard(tmp_path):
    run = make_run(tmp_path, monitoring__bricks={"data_ms": 50.0})
    train_here(run)
    state = read_state(run.state)
    assert (state["phase"], state["global_step"], state["max_steps"]) == ("completed", 24, 24)
    assert state["progress_percent"] == 100.0
    assert state["tokens"] == 24 * 4 * 32
    assert len(state["loss_history"]) == len(state["history_steps"]) == 24
    assert state["loss"] == series(run, "train/loss")[24]
    assert state["checkpoint"]["last"]["step"] == 24
    assert state["checkpoint"]["best"]["step"] == 24
    assert set(state["bricks_ms"]) == {*OF_STEP, "log"}  # no evaluation in the last interval
    assert state["brick_budgets_ms"]["data"] == 50.0
    assert state["system"]["rss_bytes"] > 0
    assert state["host"] == os.uname().nodename
    assert state["mfu"] is None
    assert run.state.stat().st_size < 16 << 10


@pytest.mark.parametrize("late", [False, True])
def test_a_step_is_never_shown_with_the_loss_of_the_one_before(tmp_path, monkeypatch, late):
    """However often the state file is written, and where a step is judged during the next."""
    monkeypatch.setattr(loop.Training, "reads_late", late)
    monkeypatch.setattr(reporter, "HEARTBEAT_S", 0.0)
    monkeypatch.setattr(reporter, "MIN_GAP_S", 0.0)
    shown = {}
    publish = StateWriter.publish

    def watched(writer, **how):
        step, loss = writer.fields.get("global_step"), writer.fields.get("loss")
        shown.setdefault(step, set()).add(loss)
        publish(writer, **how)

    monkeypatch.setattr(StateWriter, "publish", watched)
    run = make_run(tmp_path)
    train_here(run)
    losses = series(run, "train/loss")
    assert {step: found for step, found in shown.items() if step} == {
        step: {loss} for step, loss in losses.items()
    }


def test_a_step_waits_for_no_collection_of_what_is_there_to_stay(tmp_path, monkeypatch):
    tracked = {}
    at_step = reporter.Reporter.at_step

    def counted(teller, step, **known):
        tracked[step] = len(gc.get_objects())  # of all generations: what a full collection visits
        at_step(teller, step, **known)

    monkeypatch.setattr(reporter.Reporter, "at_step", counted)
    run = make_run(tmp_path)
    train_here(run, stop_after=6)
    assert tracked[0] > 100_000
    assert all(tracked[step] < 20_000 for step in (2, 3, 4, 5, 6))
    assert gc.get_freeze_count() == 0
    tracked.clear()
    train_here(run, attempt=2, stop_after=9)
    assert tracked[7] > 100_000 > 20_000 > tracked[8]


def test_collecting_what_stays_is_no_time_of_a_step(tmp_path, monkeypatch):
    def slow(collect=gc.collect):
        time.sleep(3)
        return collect()

    monkeypatch.setattr(gc, "collect", slow)
    run = make_run(tmp_path, training__max_steps=4, training__log_interval=1)
    train_here(run)
    took = {step: ms for step, _, ms in history(run, ("perf/step_ms",))}
    assert set(took) == {1, 2, 3, 4}
    assert took[2] < 2000


def test_a_step_does_not_wait_for_the_disk_of_the_state_file(tmp_path, monkeypatch):
    """As it is while a checkpoint is pushed to the disk."""
    monkeypatch.setattr(reporter, "HEARTBEAT_S", 0.0)
    monkeypatch.setattr(reporter, "MIN_GAP_S", 0.0)
    run = make_run(
        tmp_path,
        training__max_steps=12,
        training__eval_interval=100,
        training__checkpoint={"save_every": 5},
    )
    is_free, write = threading.Event(), state_file.write_bytes
    seen = []

    def slow(path, content, **how):
        if json.loads(content)["phase"] in ("training", "checkpointing"):
            seen.append(json.loads(content)["global_step"])
            assert is_free.wait(30)
        write(path, content, **how)

    at_step = reporter.Reporter.at_step

    def free_at_the_end(teller, step, **known):
        at_step(teller, step, **known)
        if step == 12:
            is_free.set()

    monkeypatch.setattr(state_file, "write_bytes", slow)
    monkeypatch.setattr(reporter.Reporter, "at_step", free_at_the_end)
    assert train_here(run).reason == "completed"
    assert seen[0] < 12  # it hung there until step 12
    shown = read_state(run.state)
    assert (shown["global_step"], shown["phase"]) == (12, "completed")


def test_the_checkpoint_is_a_model_that_transformers_reads(tmp_path):
    from transformers import LlamaForCausalLM

    run = make_run(tmp_path, training__max_steps=4)
    train_here(run)
    path = list_checkpoints(run.checkpoints)[0]
    model = LlamaForCausalLM.from_pretrained(path, dtype=torch.float32)
    named = dict(model.named_parameters())
    assert all(torch.equal(named[name], value) for name, value in weights(run).items())


def test_gradient_accumulation_is_the_same_step_as_one_big_batch(tmp_path):
    whole = make_run(tmp_path / "a", "whole", data__batch_size=4, training__max_steps=6)
    parts = make_run(
        tmp_path / "b",
        "parts",
        data__batch_size=2,
        training__gradient_accumulation=2,
        training__max_steps=6,
    )
    for run in (whole, parts):
        train_here(run)
    one, two = series(whole, "train/loss"), series(parts, "train/loss")
    assert one == pytest.approx(two, rel=1e-5)  # fp32 sums in another order


def test_a_step_without_a_finite_loss_is_skipped_and_counted(tmp_path):
    run = make_run(
        tmp_path, training__max_steps=12, training__checkpoint={"save_every": 1, "keep": 20}
    )
    train_here(run, faults="loss:nan@7")
    saved = {int(path.name[5:]): path for path in list_checkpoints(run.checkpoints)}
    if {6, 7} <= set(saved):  # a save may be coalesced into the next
        before, after = verify(saved[6]), verify(saved[7])
        assert all(torch.equal(v, after.model()[k]) for k, v in before.model().items())
        assert all(torch.equal(v, after.optimizer()[k]) for k, v in before.optimizer().items())
    loss = series(run, "train/loss")
    assert math.isnan(loss[7])
    assert math.isfinite(loss[8])
    (skip,) = events(run, "step.skipped")
    assert (skip["step"], skip["data"]["count"]) == (7, 1)
    assert read_state(run.state)["guards"]["nan_skipped"] == 1


def test_a_validation_loss_of_0_is_a_number_and_the_best(tmp_path, monkeypatch):
    measured = iter([4.0, 3.0, 0.0])
    monkeypatch.setattr(loop, "validation", lambda *_, **__: {"val/loss": next(measured)})
    often = {"training__eval_interval": 4, "training__checkpoint": {"save_every": 4}}
    run = make_run(tmp_path, training__max_steps=8, **often)
    train_here(run)
    assert series(run, "val/loss") == {0: 4.0, 4: 3.0, 8: 0.0}
    assert read_state(run.state)["checkpoint"]["best"]["step"] == 8


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_validation_that_never_was_a_number_leaves_no_best_and_harms_nothing(
    tmp_path, monkeypatch, value
):
    monkeypatch.setattr(loop, "validation", lambda *_, **__: {"val/loss": value})
    run = make_run(tmp_path, training__max_steps=8)
    assert train_here(run).reason == "completed"
    assert events(run, "checkpoint.saved")[-1]["step"] == 8
    assert read_state(run.state)["checkpoint"]["best"] is None


def test_nan_after_nan_stops_the_run_for_good(tmp_path):
    run = make_run(tmp_path, training__nan_limit=3)
    outcome = train_here(run, faults="loss:nan@6-20")
    assert (outcome.reason, outcome.code, outcome.step) == ("nan_limit", 4, 8)
    assert read_state(run.state)["loss_text"] == "nan"
    assert all(torch.isfinite(value).all() for value in weights(run).values())


STOP_AT_FIVE = [{"condition": "loss > 5", "action": "stop", "message": "exploded"}]


def test_an_alert_that_says_stop_saves_and_leaves_with_4(tmp_path):
    run = make_run(tmp_path, monitoring__alerts=STOP_AT_FIVE)
    outcome = train_here(run, faults="loss:x10@9-24")
    assert (outcome.reason, outcome.code, outcome.step) == ("andon", 4, 9)
    (alert,) = events(run, "andon.alert")
    assert (alert["severity"], alert["data"]["message"]) == ("error", "exploded")
    assert digest(run)[0] == 9
    again = train_here(run, attempt=2)  # the alarm is in the checkpoint: it does not fire again
    assert again.reason == "completed"


def test_a_run_that_starts_above_the_threshold_is_not_stopped(tmp_path):
    rules = [{"condition": "loss > 4.1", "action": "stop"}]
    run = make_run(tmp_path, monitoring__alerts=rules, training__warmup_steps=0)
    outcome = train_here(run)
    assert series(run, "train/loss")[1] > 4.1
    assert outcome.reason == "completed"


def test_a_spent_token_budget_stops_also_after_a_restart(tmp_path):
    run = make_run(tmp_path, monitoring__budgets={"tokens": 10 * 4 * 32})
    assert train_here(run).step == 10
    outcome = train_here(run, attempt=2)
    assert (outcome.reason, outcome.step) == ("andon", 11)


def test_the_state_tells_what_was_used_of_each_budget(tmp_path):
    budgets = {"tokens": 10**9, "wall_hours": 5.0, "money": 3.0, "rate_per_gpu_hour": 2.0}
    run = make_run(tmp_path, monitoring__budgets=budgets)
    train_here(run)
    state = read_state(run.state)
    told = {one["amount"]: one for one in state["budgets"]}
    assert told["tokens"]["limit"] == 10**9 and 0 < told["tokens"]["used"] <= state["tokens"]
    assert 0 < told["wall_hours"]["used"] < 1
    assert told["money"]["used"] is None  # nothing runs on a GPU here


def command(run, signals, word, number, argument=""):
    body = {"id": f"c{number}", "cmd": word, "argument": argument}
    write_json(run.guard / "cmd.json", body)
    signals.command = True


def answered(run, number):
    return (read_json(run.guard / "cmd_done.json") or {}).get("id") == f"c{number}"


def test_pause_stands_still_alive_saves_on_request_and_resumes(tmp_path):
    run = make_run(tmp_path, training__max_steps=24, training__checkpoint={"save_every": 1000})
    seen = {}

    def person(signals, run):
        wait_until(lambda: (read_state(run.state) or {}).get("phase") == "paused")
        seen["at"] = read_state(run.state)
        wait_until(lambda: read_state(run.state)["alive_seq"] > seen["at"]["alive_seq"])
        seen["later"] = read_state(run.state)
        command(run, signals, "checkpoint", 2)
        wait_until(lambda: answered(run, 2))
        seen["saved"] = list_checkpoints(run.checkpoints)
        command(run, signals, "resume", 3)
        wait_until(lambda: answered(run, 3))

    def pause_first(signals, run):
        command(run, signals, "pause", 1)
        person(signals, run)

    outcome = train_here(run, during=pause_first, faults="step:sleep=0.1@0-6")
    assert outcome.reason == "completed"
    assert seen["later"]["global_step"] == seen["at"]["global_step"]
    assert len(seen["saved"]) == 1
    assert len(events(run, "control.paused")) == len(events(run, "control.resumed")) == 1


def test_a_rollback_on_request_goes_back_before_the_step_that_is_bad(tmp_path):
    run = make_run(tmp_path, training__max_steps=24, training__checkpoint={"save_every": 4})

    def watcher(signals, run):
        wait_until(lambda: (read_state(run.state) or {}).get("global_step", 0) >= 11)
        command(run, signals, "rollback", 1, "10")
        wait_until(lambda: answered(run, 1))

    outcome = train_here(run, during=watcher, faults="step:sleep=0.1@10-14")
    assert (outcome.reason, outcome.step) == ("completed", 24)
    (back,) = events(run, "training.rollback")
    assert (back["step"], back["data"]["reason"]) == (8, "andon")


def test_a_paused_run_goes_back_only_once_it_goes_on(tmp_path):
    run = make_run(tmp_path, training__max_steps=24)
    seen = {}

    def person(signals, run):
        command(run, signals, "pause", 1)
        wait_until(lambda: (read_state(run.state) or {}).get("phase") == "paused")
        command(run, signals, "rollback", 2)
        wait_until(lambda: answered(run, 2))
        seen["said"] = read_json(run.guard / "cmd_done.json")
        command(run, signals, "resume", 3)

    outcome = train_here(run, during=person, faults="step:sleep=0.1@0-6")
    assert outcome.reason == "completed"
    assert seen["said"]["status"] == "refused"
    assert events(run, "training.rollback") == []


def test_a_slow_brick_pauses_the_run_and_a_person_lets_it_go_on(tmp_path):
    run = make_run(
        tmp_path,
        monitoring__bricks={"data_ms": 100.0},
        training__max_steps=40,
        training__eval_interval=1000,
        training__checkpoint={"save_every": 1000},
    )

    def person(signals, run):
        wait_until(lambda: (read_state(run.state) or {}).get("phase") == "paused")
        command(run, signals, "resume", 1)

    outcome = train_here(run, faults="data:sleep=0.4@20", during=person)
    assert outcome.reason == "completed"
    (jidoka,) = events(run, "jidoka.pause")
    assert (jidoka["step"], jidoka["data"]["brick"], jidoka["data"]["budget_ms"]) == (
        20,
        "data",
        100.0,
    )
    assert jidoka["data"]["value_ms"] >= 400


def slow_run(tmp_path, **changes):
    return make_run(
        tmp_path,
        monitoring__bricks={"data_ms": 20.0},
        training__max_steps=24,
        training__eval_interval=1000,
        training__checkpoint={"save_every": 1000},
        **changes,
    )


def is_paused(run):
    return (read_state(run.state) or {}).get("phase") == "paused"


def is_paused_for(run, times):
    return is_paused(run) and len(events(run, "jidoka.pause")) == times


@pytest.mark.parametrize(
    ("argument", "budget"), [("data=learn", 100.0), ("data=mute", None), ("data=180", 180.0)]
)
def test_an_overruled_brick_does_not_pause_the_run_again_for_the_same_excess(
    tmp_path, argument, budget
):
    run, said = slow_run(tmp_path), {}

    def person(signals, run):
        wait_until(lambda: is_paused(run))
        command(run, signals, "resume", 1, argument)
        wait_until(lambda: answered(run, 1))
        said.update(read_json(run.guard / "cmd_done.json"))

    outcome = train_here(run, faults="data:sleep=0.1@10-24", during=person)
    assert outcome.reason == "completed"
    assert len(events(run, "jidoka.pause")) == 1
    assert said["status"] == "done" and "from now on data" in said["detail"]
    (event,) = events(run, "jidoka.overruled")
    told = event["data"]["budgets_ms"]["data"]
    assert told is None if budget is None else told >= budget
    assert read_state(run.state)["brick_budgets_ms"]["data"] == told


def test_a_plain_resume_says_that_the_same_excess_will_pause_it_again_and_how_to_overrule(tmp_path):
    run, said = slow_run(tmp_path), []

    def person(signals, run):
        for number, argument in ((1, ""), (2, "data=mute")):
            wait_until(partial(is_paused_for, run, number))
            command(run, signals, "resume", number, argument)
            wait_until(partial(answered, run, number))
            said.append(read_json(run.guard / "cmd_done.json")["detail"])

    outcome = train_here(run, faults="data:sleep=0.1@10-24", during=person)
    assert outcome.reason == "completed"
    how = f"albor guard resume {run.id} --brick data --budget learn"
    assert how in said[0] and "may pause it again" in said[0]
    assert "again" not in said[1]
    assert events(run, "jidoka.pause")[0]["data"]["overrule"] == how


def test_an_overruled_budget_is_kept_over_a_death_that_no_checkpoint_followed(tmp_path):
    run = slow_run(tmp_path)

    def person(signals, run):
        wait_until(lambda: is_paused(run))
        command(run, signals, "resume", 1, "data=mute")

    with pytest.raises(InjectedError):
        train_here(run, faults="data:sleep=0.1@10-24,step:raise@14", during=person)
    outcome = train_here(run, faults="data:sleep=0.1@10-24")
    assert outcome.reason == "completed"
    assert len(events(run, "jidoka.pause")) == 1


def test_a_budget_that_cannot_be_learned_is_refused_and_the_run_stays_paused(tmp_path):
    run, said = slow_run(tmp_path), {}

    def person(signals, run):
        command(run, signals, "pause", 1)
        wait_until(lambda: is_paused(run))
        command(run, signals, "resume", 2, "forward=learn")
        wait_until(lambda: answered(run, 2))
        said.update(read_json(run.guard / "cmd_done.json"), paused=is_paused(run))
        command(run, signals, "resume", 3)

    outcome = train_here(run, faults="step:sleep=0.1@0-2", during=person)
    assert outcome.reason == "completed"
    assert (said["status"], said["paused"]) == ("refused", True)
    assert "not been measured" in said["detail"]


def test_a_stop_while_paused_saves_and_leaves(tmp_path):
    import signal

    run = make_run(tmp_path)

    def person(signals, run):
        command(run, signals, "pause", 1)
        wait_until(lambda: (read_state(run.state) or {}).get("phase") == "paused")
        signals.stop = signal.SIGTERM

    outcome = train_here(run, during=person, faults="step:sleep=0.1@0-6")
    assert (outcome.reason, outcome.code) == ("stopped", 143)
    assert digest(run)[0] == outcome.step


def test_early_stopping_counts_evaluations_without_gain(tmp_path):
    run = make_run(
        tmp_path,
        training__early_stopping_patience=2,
        training__eval_interval=2,
        optimizer__lr=1e-9,  # nothing is learnt
        optimizer__min_lr=0,
    )
    outcome = train_here(run, faults="loss:nan@1-24")
    assert (outcome.reason, outcome.code, outcome.step) == ("early_stopped", 0, 4)


def test_samples_are_part_of_the_journal(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {"<|endoftext|>": 0, **{f"w{i}": i for i in range(1, 64)}}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w1"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    run = make_run(
        tmp_path,
        data__tokenizer=str(tmp_path / "tokenizer.json"),
        training__sample_prompts=["w3 w5"],
        training__max_steps=2,
        training__warmup_steps=0,
    )
    train_here(run)
    samples = [line.record for line in read_journal(run.journal) if line.record["t"] == "s"]
    assert [sample["step"] for sample in samples] == [0, 2]
    assert samples[0]["prompt"] == "w3 w5"
    assert (list_checkpoints(run.checkpoints)[0] / "tokenizer.json").is_file()


def test_a_changed_config_is_refused_field_by_field_unless_allowed(tmp_path):
    run = make_run(tmp_path)
    train_here(run, stop_after=6)
    rewrite_config(run, "optimizer.lr", 0.5)
    rewrite_config(run, "training.log_interval", 3)  # free: it moves no weight
    with pytest.raises(ConfigError, match=r"optimizer\.lr: 0\.003 -> 0\.5") as refusal:
        train_here(run, attempt=2)
    assert [problem.field for problem in refusal.value.problems] == ["optimizer.lr"]
    assert train_here(run, attempt=3, allow_config_change=True).reason == "completed"
    told = [change["data"] for change in events(run, "config.changed")]
    assert told == [
        {"field": "optimizer.lr", "was": 0.003, "now": 0.5},
        {"field": "training.log_interval", "was": 1, "now": 3},
    ]


def said_of(run, field):
    lines = [line.record for line in read_journal(run.journal)]
    return [line["value"] for line in lines if line["t"] == "p" and line["key"] == field]


def test_what_may_change_freely_is_told_and_recorded_where_it_did(tmp_path):
    run = make_run(tmp_path)
    train_here(run, stop_after=6)
    rewrite_config(run, "training.nan_limit", 7)
    train_here(run, attempt=2, stop_after=7)
    (change,) = events(run, "config.changed")
    assert change["data"] == {"field": "training.nan_limit", "was": 10, "now": 7}
    assert said_of(run, "training.nan_limit") == [10, 7]
    train_here(run, attempt=3, stop_after=8)
    assert len(events(run, "config.changed")) == 1


def test_what_a_life_changed_that_never_saved_is_recorded_as_what_it_is_again(tmp_path):
    run = make_run(tmp_path)
    train_here(run, stop_after=6)
    rewrite_config(run, "training.nan_limit", 7)
    with pytest.raises(InjectedError):
        train_here(run, attempt=2, faults="step:raise@7")
    rewrite_config(run, "training.nan_limit", 10)
    train_here(run, attempt=3, stop_after=8)
    assert said_of(run, "training.nan_limit") == [10, 7, 10]


def test_with_a_larger_batch_tokens_and_data_go_on_from_where_they_were(tmp_path):
    run = make_run(tmp_path)
    train_here(run, stop_after=6)  # of 4 x 32 tokens: 24 sequences
    rewrite_config(run, "data.batch_size", 8)
    train_here(run, attempt=2, stop_after=7, allow_config_change=True)
    tokens = [value for _, _, value in history(run, ("train/tokens",))]
    assert tokens[-2:] == [6 * 4 * 32, 6 * 4 * 32 + 8 * 32]
    assert verify(list_checkpoints(run.checkpoints)[0]).trainer()["order"]["cursor"] == 32
    assert train_here(run, attempt=3).reason == "completed"  # the batch is what it was before
    tokens = [value for _, _, value in history(run, ("train/tokens",))]
    assert tokens[-1] == 24 * 4 * 32  # max_steps are those of the first batch


def test_another_optimizer_is_refused_even_where_changes_are_allowed(tmp_path):
    run = make_run(tmp_path)
    train_here(run, stop_after=6)
    rewrite_config(run, "optimizer.name", "muon")
    with pytest.raises(ConfigError, match=r"optimizer\.name: adamw -> muon"):
        train_here(run, attempt=2, allow_config_change=True)


def test_other_data_is_refused(tmp_path):
    from tiny_run import write_shards

    run = make_run(tmp_path)
    train_here(run, stop_after=6)
    write_shards(tmp_path / "train", 44, seed=9)
    with pytest.raises(DataError, match="not the shards"):
        train_here(run, attempt=2)


def test_other_validation_data_are_refused_like_other_training_data(tmp_path):
    from tiny_run import write_shards

    run = make_run(tmp_path)
    train_here(run, stop_after=9)
    write_shards(tmp_path / "val", 8, seed=99)
    with pytest.raises(
        DataError, match=r"val: not the shards this run was evaluated on"
    ) as refused:
        train_here(run, attempt=2)
    assert refused.value.exit_code == 7


@pytest.mark.parametrize("how", ["shards", "data.batch_size", "training.eval_batches"])
def test_losses_on_other_validation_sequences_are_not_compared(tmp_path, monkeypatch, how):
    from tiny_run import write_shards

    measured = iter([4.0, 1.0, 3.0, 3.0, 2.5])  # only the new ones may be the best
    monkeypatch.setattr(loop, "validation", lambda *_, **__: {"val/loss": next(measured)})
    saves = {"training__checkpoint": {"save_every": 8}, "training__early_stopping_patience": 2}
    run = make_run(tmp_path, **saves)
    train_here(run, stop_after=8)
    assert read_state(run.state)["checkpoint"]["best"]["value"] == 1.0
    if how == "shards":
        write_shards(tmp_path / "val", 8, seed=99)
    else:
        rewrite_config(run, how, 1)
    outcome = train_here(run, attempt=2, allow_config_change=True)
    assert outcome.reason == "completed"  # two evaluations worse than 1.0 are no reason to stop
    assert read_state(run.state)["checkpoint"]["best"]["value"] == 2.5
    assert [e["data"]["split"] for e in events(run, "data.changed")] == ["val"] * (how == "shards")
    assert len(events(run, "validation.restarted")) == 1


def test_steps_that_cannot_be_reached_are_refused_with_the_epochs_needed(tmp_path):
    run = make_run(tmp_path, training__epochs=2, training__max_steps=24)
    with pytest.raises(ConfigError) as refusal:
        train_here(run)
    assert "20" in refusal.value.message
    assert "training.epochs to 3" in refusal.value.hint


def test_damaged_checkpoints_fall_back_and_then_refuse(tmp_path):
    run = make_run(tmp_path)
    train_here(run, stop_after=12)
    newest, older = list_checkpoints(run.checkpoints)[:2]
    (newest / "model.safetensors").write_bytes(b"")
    train_here(run, attempt=2, stop_after=13)
    (bad,) = events(run, "checkpoint.bad")
    assert "bad-step-00000012" in bad["data"]["path"]
    assert events(run, "run.start")[-1]["data"]["resumed_from"] == int(older.name[5:])
    for path in list_checkpoints(run.checkpoints):
        (path / "manifest.json").unlink()
    with pytest.raises(NoCheckpointError):
        train_here(run, attempt=3)


def test_a_run_whose_checkpoints_are_gone_is_refused_and_never_begun_again(tmp_path):
    run = make_run(tmp_path)
    train_here(run, stop_after=3)  # a stop saves
    shutil.rmtree(run.checkpoints)
    run.checkpoints.mkdir()
    with pytest.raises(NoCheckpointError) as refusal:
        train_here(run, attempt=2)
    assert str(run.checkpoints) in refusal.value.message
    assert "step 3" in refusal.value.message and "albor train apply" in refusal.value.hint
    assert events(run, "checkpoint.bad")[-1]["data"]["reason"] == refusal.value.message
    assert len(events(run, "run.start")) == 1


def test_a_run_that_never_saved_begins_again_at_its_beginning(tmp_path, monkeypatch):
    run = make_run(tmp_path, training__checkpoint={"save_every": 1000})
    with monkeypatch.context() as patch:
        patch.setattr(CheckpointSaving, "save", lambda *args, **options: None)
        with pytest.raises(AlborError, match="final checkpoint"):
            train_here(run, stop_after=3)
    assert not events(run, "checkpoint.saved")
    train_here(run, attempt=2, stop_after=2)
    assert [told["data"]["resumed_from"] for told in events(run, "run.start")] == [None, None]


def test_a_full_disk_costs_checkpoints_and_not_the_run(tmp_path, monkeypatch):
    from albor_core.checkpoint import folder as ck

    run = make_run(tmp_path)
    monkeypatch.setattr(ck, "SLACK_BYTES", 1 << 60)

    def free_the_disk(signals, run):
        wait_until(lambda: len(events(run, "checkpoint.failed")) >= 3)
        monkeypatch.setattr(ck, "SLACK_BYTES", 0)

    outcome = train_here(run, during=free_the_disk, faults="step:sleep=0.2@16-22")
    assert outcome.reason == "completed"
    assert [e["severity"] for e in events(run, "checkpoint.failed")[:3]] == [
        "warning",
        "warning",
        "error",
    ]
    assert digest(run)[0] == 24


def test_gpu_samples_reach_journal_and_state(tmp_path, monkeypatch):
    fake = tmp_path / "nvml.json"
    fake.write_text(
        json.dumps({"gpus": [{"name": "Fake", "util_percent": 93.0, "power_w": 310.0}]})
    )
    monkeypatch.setenv("ALBOR_FAKE_NVML", str(fake))
    run = make_run(tmp_path)
    train_here(run, faults="step:sleep=0.3@3")
    assert 93.0 in series(run, "gpu0/util_percent").values()
    assert read_state(run.state)["gpu"][0]["name"] == "Fake"


def test_a_backend_that_failed_parity_is_an_event_with_its_number_once(tmp_path):
    """As a GPU decides it: one op before the first step, another when the plain step first runs."""
    from albor_core.kernels import dispatch

    def choice(op):
        why = f"triton: (8, 32): output: rms error 1.0e-02 (torch 3.0e-08) of {op}"
        return dispatch.Choice(op, "reference", "the only one left", "cuda", "bfloat16", (why,))

    early, late = (("a",), choice("swiglu")), (("b",), choice("rope"))
    choices = dict([early])
    run = make_run(tmp_path, training__max_steps=6, training__log_interval=3)

    def decide_late(signals, run):
        wait_until(lambda: events(run, "kernels.rejected"))
        choices.update([late])

    with dispatch.deciding_anew(choices=choices):
        train_here(run, during=decide_late, faults="step:sleep=0.5@0")
    said = [event["data"] for event in events(run, "kernels.rejected")]
    assert [(event["op"], event["backend"]) for event in said] == [
        ("swiglu", "triton"),
        ("rope", "triton"),
    ]
    assert "rms error 1.0e-02" in said[0]["reason"]


def test_kernels_that_are_asked_for_and_cannot_run_are_told_at_the_start(tmp_path, monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setenv("ALBOR_KERNELS", "triton")
    run = make_run(tmp_path)
    train_here(run, stop_after=1)
    (event,) = events(run, "kernels.unmet")
    assert event["severity"] == "warning" and "ALBOR_KERNELS=triton" in event["data"]["reason"]
    monkeypatch.setenv("ALBOR_KERNELS", "reference")
    train_here(run, attempt=2, stop_after=2)
    assert len(events(run, "kernels.unmet")) == 1


def test_a_resumed_run_remembers_kernels_that_its_life_has_not_used_yet(tmp_path):
    from albor_core.kernels import dispatch

    raced = dispatch.Choice("swiglu", "reference", "raced", "cpu", "bfloat16")
    run = make_run(tmp_path)
    with dispatch.deciding_anew(choices={("swiglu",): raced}):
        train_here(run, stop_after=3)
        train_here(run, attempt=2, stop_after=6)  # pinning has forgotten the choices
    kernels = verify(list_checkpoints(run.checkpoints)[0]).trainer()["progress"]["kernels"]
    assert kernels == {"swiglu bfloat16": "reference", "rms_norm float32": "reference"}


def test_a_resumed_fused_step_keeps_to_the_kernels_that_it_had_a_choice_of(tmp_path, monkeypatch):
    """Those that it cannot do without are checked anew: a pin of the reference would skip that."""
    from albor_core.kernels import dispatch
    from albor_core.train.resume import train_state

    raced = {
        (op,): dispatch.Choice(op, "reference", "raced", "cpu", "bfloat16")
        for op in ("swiglu", "swiglu_up", "attention")
    }
    run, pinned = make_run(tmp_path), {}
    with dispatch.deciding_anew(choices=raced, pinned=pinned):
        train_here(run, stop_after=3)
        # as if this step were not the plain one
        monkeypatch.setattr(train_state, "Optimizer", type(None))
        train_here(run, attempt=2, stop_after=6)
    assert pinned == {"swiglu_up bfloat16": "reference", "attention bfloat16": "reference"}


@pytest.mark.parametrize(
    "changes",
    [
        {"andon": {"rules": {"armed": 5}}},
        {"andon": {"rules": {"steady": {"loss-gt-10": None}}}},
        {"andon": {"rules": {"steady": ["loss-gt-10"]}}},
        {"andon": None},
        {"progress": {"step": 3, "invented": 1}},
        {"progress": {"step": 3, "kernels": ["rope"]}},
        {"tally": 7},
    ],
    ids=str,
)
def test_a_checkpoint_of_another_version_is_named_with_what_is_odd(tmp_path, monkeypatch, changes):
    run = make_run(tmp_path)
    train_here(run, stop_after=3)
    read = Checkpoint.trainer
    monkeypatch.setattr(Checkpoint, "trainer", lambda self: {**read(self), **changes})
    with pytest.raises(NoCheckpointError, match=r"step-00000003/trainer\.json: this version") as no:
        train_here(run, attempt=2)
    assert "model.path=" in no.value.hint


def test_z_loss_is_in_the_training_loss_and_not_in_validation(tmp_path):
    plain = make_run(tmp_path / "a", "plain", training__max_steps=5)
    stability = {"z_loss": 0.01}
    run = make_run(tmp_path / "b", "z", training__max_steps=5, training__stability=stability)
    train_here(plain), train_here(run)
    without, loss = (history(r, ("train/loss",))[0][2] for r in (plain, run))
    assert loss - without == pytest.approx(0.01 * without**2, rel=0.05)  # at first both are ln V
    firsts = [history(r, ("val/loss",))[0][2] for r in (plain, run)]
    assert firsts[0] == firsts[1]
