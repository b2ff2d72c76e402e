"""What a run that is no language model logs, in lists and in monitor; metrics that are pinned."""

from __future__ import annotations

import math

import pytest
from cli_user import valid

from albor_core.run.headlines import recorded_names
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.run.state import StateWriter
from albor_core.run.tracked_state import LiveState
from albor_core.store.index.indexer import index_now

LOOPS = {
    "ppo": {
        "rollout/ep_rew_mean": (20.0, 455.5),
        "rollout/ep_len_mean": (21, 455),
        "time/fps": (900, 905),
        "train/loss": (9.0, 8.0),
    },
    "glue": {"eval_accuracy": (0.5, 0.9), "eval_runtime": (1.0, 2.0), "epoch": (1, 2)},
    "gpt": {"loss": (9.0, 2.5), "eval_loss": (9.5, 2.75), "lr": (3e-4, 3e-4)},
    "net": {"Loss/train": (2.0, 0.5), "Accuracy/test": (0.1, 0.75)},
}


def record(desk, name, *, end=True, **values):
    facts = {"git": {"commit": None, "dirty": False}, "versions": {}}
    run = create_run(desk.folder / "out", name, experiment=name, name=name, kind="track",
                     argv=[], facts=facts)  # fmt: skip
    journal = Journal(run.journal, attempt=1)
    journal.event("run.start")
    for step in range(2):
        said = {key: pair[step] for key, pair in values.items()}
        journal.metrics(step, dict(zip(recorded_names(tuple(said)), said.values(), strict=True)))
    if end:
        journal.event("run.end", status="completed", reason="completed", code=0)
    journal.close()
    index_now(run)
    return run


@pytest.fixture
def loops(desk):
    return {name: record(desk, name, **values) for name, values in LOOPS.items()}


def mains(desk, run, *words):
    (row,) = valid(desk.quick("runs", "ls", f"id:{run}", *words, "--json"))["runs"]
    return [one["name"] for one in row["metrics"]]


def lines(desk, *words, **environ):
    """By run its line of the table; under "run" the heads."""
    made = desk.quick("runs", "ls", *words, **environ).out.splitlines()
    return {line.split()[0]: line for line in made}


def test_each_run_is_listed_with_what_it_is_judged_by(desk, loops):
    found = lines(desk)
    assert "rollout/ep_rew_mean 455.5 \u2191" in found["ppo"]
    assert "eval_accuracy 0.9 \u2191" in found["glue"]
    assert "Accuracy/test 0.75 \u2191" in found["net"] and "0.5000" in found["net"]
    assert found["gpt"].split()[1:6] == ["completed", "1", "0s", "-", "2.5000"]


def test_columns_that_no_run_says_anything_in_take_no_room(desk, loops):
    assert lines(desk, "id:gpt")["run"].split() == [
        "run",
        "status",
        "step",
        "duration",
        "loss",
        "val",
        "loss",
        "alerts",
    ]
    assert lines(desk, "id:glue")["run"].split() == [
        "run",
        "status",
        "step",
        "duration",
        "metric",
        "alerts",
    ]


def test_a_mixed_list_fits_into_eighty_columns_with_every_value_whole(desk, loops):
    record(desk, "a-run-of-a-long-name", **LOOPS["gpt"])
    found = lines(desk, COLUMNS="80")
    assert max(map(len, found.values())) <= 80
    assert "rollout/ep_rew_mean 455.5 \u2191" in found["ppo"]
    assert "val/loss 2.7500 \u2193" in found["gpt"]
    assert found["run"].split() == ["run", "status", "step", "metric", "alerts"]


def test_the_document_has_up_to_four_with_their_direction(desk, loops):
    rows = {row["id"]: row["metrics"] for row in valid(desk.quick("runs", "ls", "--json"))["runs"]}
    assert rows["ppo"][0] == {
        "name": "rollout/ep_rew_mean",
        "last": 455.5,
        "better": "max",
        "is_pinned": False,
        "stat": "last",
    }
    assert [one["name"] for one in rows["gpt"]] == ["val/loss", "train/loss"]
    assert all(0 < len(some) <= 4 for some in rows.values())


def test_a_metric_that_is_not_finite_says_so_and_the_document_is_strict(desk):
    record(desk, "odd", score=(1.0, math.nan))
    assert "score NaN" in lines(desk)["odd"]
    (row,) = valid(desk.quick("runs", "ls", "--json"))["runs"]
    (first, *_) = row["metrics"]
    assert (first["name"], first["last"], first["better"]) == ("score", None, None)


def test_a_metric_is_a_column_that_can_be_asked_for(desk, loops):
    assert lines(desk, "--columns", "id,metric")["gpt"].split() == [
        *("gpt", "val/loss", "2.7500", "\u2193")
    ]


def test_monitor_says_what_the_run_logs(desk, loops):
    assert "rollout/ep_rew_mean 455.5" in desk.quick("monitor", "ppo", "--once").out
    assert "eval_accuracy 0.9" in desk.quick("monitor", "glue", "--once").out
    line = desk.quick("monitor", "net", "--once").out
    assert "Accuracy/test 0.75 \u2191  loss 0.5000" in line
    now = valid(desk.quick("monitor", "ppo", "--once", "--json"))["now"]
    assert now["metrics"][0]["name"] == "rollout/ep_rew_mean"


def test_a_run_that_nobody_indexed_yet_is_shown_by_its_state_file(desk, hold):
    run = record(desk, "young", end=False, score=(1.0, 2.0))
    state = StateWriter(run.state, run_id="young", attempt=1, nonce="n")
    live = LiveState(state, max_steps=None)
    live.take({"score": 7.0, "time/fps": 3.0, "train/loss": 2.0}, step=9)
    live.refresh(9)
    live.publish()
    hold(run.run_lock)
    assert "score 7" in lines(desk)["young"]
    assert "score 7" in desk.quick("monitor", "young", "--once").out


def test_a_pinned_metric_stands_first_everywhere_and_can_be_taken_back(desk, loops):
    made = valid(desk.quick("runs", "pin", "ppo", "ep_len_mean", "--json"))
    assert (made["pinned"], made["metrics"]) == (False, ["rollout/ep_len_mean"])
    assert mains(desk, "ppo")[0] == "rollout/ep_len_mean"
    assert "rollout/ep_len_mean 455" in lines(desk)["ppo"]
    assert "rollout/ep_len_mean 455" in desk.quick("monitor", "ppo", "--once").out
    made = valid(desk.quick("runs", "pin", "ppo", "ep_len_mean", "--off", "--json"))
    assert made["metrics"] == []
    assert mains(desk, "ppo")[0] == "rollout/ep_rew_mean"


def test_a_pin_of_a_metric_and_of_the_run_are_two_things(desk, loops):
    assert desk.quick("runs", "pin", "ppo", "fps").out == "ppo: pinned metrics time/fps\n"
    assert valid(desk.quick("runs", "pin", "ppo", "--json"))["metrics"] == ["time/fps"]
    (row,) = valid(desk.quick("runs", "ls", "id:ppo", "--json"))["runs"]
    assert row["pinned"] is True


def test_a_pin_of_what_the_run_does_not_log_is_refused_and_writes_nothing(desk, loops):
    refused = desk.quick("runs", "pin", "ppo", "rollout/ep_rew_maen", "--json")
    assert refused.code == 3
    assert "nearest is 'rollout/ep_rew_mean'" in refused.error["message"]
    assert refused.error["hint"] == "albor runs show ppo"
    assert not loops["ppo"].annotations.exists()


def test_pins_outlive_thousands_of_later_events(desk):
    run = record(desk, "chatty", end=False, score=(1.0, 2.0), other=(1.0, 9.0))
    assert desk.quick("runs", "pin", "chatty", "other").code == 0
    journal = Journal(run.journal, attempt=1)
    for step in range(1500):
        journal.event("eval.done", step=step)
    journal.close()
    index_now(run)
    assert mains(desk, "chatty")[0] == "other"
