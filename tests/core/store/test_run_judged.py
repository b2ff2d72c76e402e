"""Which of two runs is better, from what was recorded: outcomes, directions, what is not known."""

from __future__ import annotations

import json
import random
import sqlite3

import pytest

from albor_core.run.errors import NotFoundError
from albor_core.run.home.new_run import create_run
from albor_core.store.diff.compare import MOST_RUNS, diff_runs
from albor_core.store.file.connect import open_writer
from albor_core.store.file.paths import global_store, local_store
from albor_core.store.query.filter import parse_filter
from albor_core.store.query.listing import parse_column
from albor_core.store.query.reader import Reader
from albor_core.store.upkeep.rebuild import rebuild

SCRIPT = {"path": "/t.py", "sha256": "ab" * 32, "bytes": 9, "is_tracked": True, "is_kept": False}
CLEAN = {"commit": "c" * 40, "dirty": False, "patch": None}
KNOWN = {"git": CLEAN, "script": SCRIPT}
UNTRACKED = {"files": 1, "code": {"t.py": "ab" * 32}, "is_whole": True}


def write(bench, run_id, mean, *, metrics=("val/loss",), config=None, argv=("t.py",), kind="track",
          facts=None, experiment="exp", goals=None, points=40, seed=None):  # fmt: skip
    """A run whose metrics lie about `mean`, in 40 steps of white noise."""
    run = create_run(bench.root / "out", run_id, experiment=experiment, name=run_id, kind=kind,
                     argv=[*argv], seed=seed, facts=facts or {})  # fmt: skip
    journal = bench.journal(run)
    chance = random.Random(run_id)
    for metric, way in (goals or {}).items():
        journal.event("run.goals", **{metric: way})
    for key, value in (config or {}).items():
        journal.append("p", key=key, value=value)
    for step in range(1, points + 1):
        journal.metrics(step, {metric: mean + chance.gauss(0, 0.01) for metric in metrics})
    bench.index(run)
    return run


def compared(*runs, **how):
    with Reader(global_store()) as reader:
        return diff_runs(reader, runs, **how)


def test_runs_whose_config_and_code_nobody_recorded_have_a_winner(bench):
    for name, mean in (("bad", 0.5), ("good", 0.1)):
        write(bench, name, mean, argv=("t3.py", str(mean)))
    found = compared("bad", "good").verdict
    assert (found.outcome, found.unknown) == ("better", ("config", "code"))
    assert "not known whether config and code are the same" in found.detail
    assert "chance" not in found.detail


def test_another_command_line_is_shown_and_a_script_alone_is_recorded_code(bench):
    facts = {"git": {"commit": None}, "script": {**SCRIPT, "is_tracked": False}}
    for name, words in (("one", ("t.py", "a b")), ("two", ("t.py", "c")), ("same", ("t.py", "c"))):
        write(bench, name, 0.5, argv=words, facts=facts)
    found = compared("one", "two")
    assert [(c.key, c.values) for c in found.code] == [("command", ("t.py 'a b'", "t.py c"))]
    assert "code" not in found.unrecorded
    assert compared("two", "same").code == ()


def test_runs_without_a_loss_have_the_curves_of_what_both_measured(bench):
    for name, own in (("one", ("acc", "b", "x")), ("two", ("acc", "b"))):
        write(bench, name, 0.5, metrics=own)
    found = compared("one", "two")
    assert [*found.curves] == ["acc", "b"]
    assert found.metric == found.verdict.metric == "acc"


def test_imported_histories_have_a_winner(bench):
    for name, mean in (("bad", 0.5), ("good", 0.1)):
        write(bench, name, mean, argv=(), kind="imported", facts={"git": {"commit": None}})
    found = compared("bad", "good").verdict
    assert (found.outcome, found.unknown) == ("better", ("config", "code", "command"))


def test_a_command_line_that_differs_is_more_than_chance(bench):
    for name, mean in (("bad", 0.5), ("good", 0.1)):
        write(bench, name, mean, argv=("t.py", str(mean)), config={"depth": 2}, facts=KNOWN)
    found = compared("bad", "good").verdict
    assert (found.outcome, found.unknown) == ("better", ())


@pytest.mark.parametrize("facts", [
    {"git": {**CLEAN, "dirty": True}, "script": SCRIPT},  # of an older version
    {"git": {**CLEAN, "dirty": True, "untracked": {**UNTRACKED, "is_whole": False}},
     "script": SCRIPT},
    {"git": {**CLEAN, "dirty": None}, "script": SCRIPT},
    {"git": {"commit": None, "dirty": None, "patch": None}, "script": SCRIPT},
    {"git": CLEAN, "script": None},
    {"git": {**CLEAN, "dirty": True, "patch": "+x", "untracked": UNTRACKED}, "script": SCRIPT},
])  # fmt: skip
def test_code_that_is_recorded_in_part_is_not_known_to_be_the_same(bench, facts):
    for name, mean in (("bad", 0.5), ("good", 0.1)):
        write(bench, name, mean, config={"depth": 2}, facts=facts)
    found = compared("bad", "good").verdict
    assert (found.outcome, found.unknown) == ("better", ("code",))


def test_a_script_edited_between_two_runs_is_a_difference_of_code(bench):
    for name, mean, digest in (("bad", 0.5, "ab" * 32), ("good", 0.1, "cd" * 32)):
        git = {**CLEAN, "dirty": True, "untracked": {**UNTRACKED, "code": {"t.py": digest}}}
        script = {**SCRIPT, "is_tracked": False, "sha256": digest}
        write(bench, name, mean, config={"depth": 2}, facts={"git": git, "script": script})
    found = compared("bad", "good")
    assert {change.key for change in found.code} == {"script", "untracked/t.py"}
    assert (found.verdict.outcome, found.verdict.unknown) == ("better", ())


@pytest.mark.parametrize("git", [
    CLEAN,
    {**CLEAN, "dirty": True, "untracked": UNTRACKED},
    {**CLEAN, "dirty": True, "patch": "+x", "patch_sha256": "ee", "untracked": UNTRACKED},
])  # fmt: skip
def test_runs_that_are_known_to_differ_by_nothing_have_no_winner(bench, git):
    for name, mean in (("bad", 0.5), ("good", 0.1)):
        write(bench, name, mean, config={"depth": 2}, facts={**KNOWN, "git": git})
    found = compared("bad", "good").verdict
    assert found.outcome == "indistinguishable" and "nothing but chance differs" in found.detail


@pytest.mark.parametrize("spelled", ["--seed {}", "--seed={}", "seed={}", "--data-seed {}"])
def test_a_seed_on_the_command_line_is_chance(bench, spelled):
    for seed, (name, mean) in enumerate((("bad", 0.5), ("good", 0.1))):
        argv = ("t.py", *spelled.format(seed).split(" "))
        write(bench, name, mean, config={"depth": 2}, facts=KNOWN, argv=argv)
    found = compared("bad", "good").verdict
    assert found.outcome == "indistinguishable" and "only the seed differs" in found.detail


# -- directions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["val/mse", "wer", "cross_entropy", "eval_runtime"])
def test_small_errors_are_better(bench, metric):
    for name, mean in (("bad", 0.48), ("good", 0.08)):
        write(bench, name, mean, metrics=(metric,))
    found = compared("bad", "good", metric=metric)
    assert (found.verdict.outcome, found.direction) == ("better", "min")
    good = found.metrics[metric][1]
    assert good.best == good.minimum and good.best_step is not None


def test_a_metric_of_unknown_direction_has_no_best_and_no_winner_and_says_how_to_name_it(bench):
    for name, mean in (("low", 0.1), ("high", 0.5)):
        write(bench, name, mean, metrics=("zorp",))
    found = compared("low", "high", metric="zorp")
    assert (found.verdict.outcome, found.verdict.reason) == (None, "unknown_direction")
    assert found.verdict.interval[0] > 0.3  # what is known is said
    assert (
        "--goal zorp:min" in found.verdict.detail and "track.start(goals=" in found.verdict.detail
    )
    assert all(stat.best is None and stat.best_step is None for stat in found.metrics["zorp"])
    assert found.reach == ()
    json.dumps(found.to_json(), allow_nan=False)


def test_a_goal_that_is_asked_for_decides(bench):
    for name, mean in (("low", 0.1), ("high", 0.5)):
        write(bench, name, mean, metrics=("zorp",))
    for way, outcome in (("min", "worse"), ("max", "better")):
        found = compared("low", "high", metric="zorp", goals={"zorp": way})
        assert (found.verdict.outcome, found.direction) == (outcome, way)
        stat = found.metrics["zorp"][0]
        assert stat.best == (stat.minimum if way == "min" else stat.maximum)
        assert stat.best_step is not None


def test_a_goal_of_one_run_holds_for_its_experiment_and_survives_a_rebuild(bench, snapshot_of):
    runs = [
        write(bench, "first", 0.5, metrics=("zorp",)),
        write(bench, "second", 0.1, metrics=("zorp",), goals={"zorp": "max"}),
        write(bench, "other", 0.1, metrics=("zorp",), experiment="another"),
    ]

    def seen():
        with Reader(global_store()) as reader:
            best = {run.id: reader.summary(run.id)["zorp"].best for run in runs}
            cells = reader.cells(["first", "second", "other"], [parse_column("zorp:best")])
            over = reader.runs(where=parse_filter("zorp:best>0.3"))
            return best, cells, [row.id for row in over], reader.goal("zorp")

    best, cells, over, goal = seen()
    assert goal == "max" and over == ["first"]
    assert best["first"] > 0.5 and best["second"] > 0.1 and best["other"] is None
    assert {run: values[0] for run, values in cells.items()} == best
    assert compared("first", "second", metric="zorp").verdict.outcome == "worse"
    rebuild(None, runs)
    assert seen() == (best, cells, over, goal)


def test_a_goal_in_run_json_counts_and_the_programs_own_wins(bench):
    write(bench, "guarded", 0.5, metrics=("a", "b"), kind="guard", goals={"b": "max"},
          facts={"goals": {"a": "min", "b": "min", "c": "sideways"}})  # fmt: skip
    with Reader(global_store()) as reader:
        assert reader.goals("guarded") == {"a": "min", "b": "max"}


def test_an_older_store_gets_goals_and_its_best_values_by_their_directions(bench):
    run = write(bench, "r", 0.5, metrics=("val/mse", "val/acc", "zorp"))
    wanted = {}
    for path in (local_store(run), global_store()):
        with Reader(path) as reader:
            wanted[path] = {key: stat.best for key, stat in reader.summary("r").items()}
        with sqlite3.connect(path) as db:
            db.execute("DROP TABLE goals")
            db.execute("UPDATE keys SET best = maximum, best_step = last_step")
            db.execute("PRAGMA user_version = 2")
        with Reader(path) as reader:  # before anybody upgrades it
            assert {key: stat.best for key, stat in reader.summary("r").items()} == wanted[path]
        open_writer(path).close()
        with Reader(path) as reader:
            found = reader.summary("r")
            assert {key: stat.best for key, stat in found.items()} == wanted[path]
            assert reader.goals("r") == {}
        is_local = path == local_store(run)
        assert (found["val/mse"].best_step is not None) == is_local  # where the points are
    assert wanted[global_store()]["zorp"] is None


# -- four outcomes ---------------------------------------------------------------------------------


def both(bench, run_id, val, train, *, evals=40):
    run = create_run(bench.root / "out", run_id, experiment="e", name=run_id, kind="track",
                     argv=[run_id], facts=KNOWN)  # fmt: skip
    journal = bench.journal(run)
    chance = random.Random(run_id)
    for step in range(1, 101):
        values = {"train/loss": train + chance.gauss(0, 0.01)}
        if step % (100 // evals) == 0:
            values["val/loss"] = val + chance.gauss(0, 0.01)
        journal.metrics(step, values)
    bench.index(run)


def test_metrics_that_disagree_are_contradictory_unless_one_was_asked_for(bench):
    both(bench, "plain", 0.5, 0.1, evals=50)
    both(bench, "dropout", 0.3, 0.2, evals=50)
    found = compared("plain", "dropout").verdict
    assert (found.outcome, found.metric) == ("contradictory", "val/loss")
    assert "val/loss says better, train/loss says worse" in found.detail
    asked = compared("plain", "dropout", metric="val/loss").verdict
    assert asked.outcome == "better"


def test_another_metric_taken_instead_is_contradictory_and_named(bench):
    both(bench, "a", 1.4, 0.5, evals=4)
    both(bench, "b", 0.2, 0.9, evals=4)
    for how in ({}, {"metric": "val/loss"}):
        found = compared("a", "b", **how).verdict
        assert (found.outcome, found.metric) == ("contradictory", "train/loss")
        assert "val/loss cannot be judged" in found.detail and "say the opposite" in found.detail
        assert found.interval[0] > 0


def test_train_loss_decides_where_no_run_has_a_val_loss_and_nobody_asked_for_it(bench):
    for name, mean in (("bad", 0.5), ("good", 0.1)):
        write(bench, name, mean, metrics=("train/loss",))
    found = compared("bad", "good")
    assert (found.metric, found.verdict.outcome) == ("train/loss", "better")


def test_runs_that_share_no_metric_have_no_verdict_and_those_they_share_are_named(bench):
    write(bench, "a", 0.1, metrics=("val/acc", "val/loss"))
    write(bench, "b", 0.1, metrics=("val/acc",))
    found = compared("a", "b").verdict
    assert (found.outcome, found.reason, found.interval) == (None, "no_common_metric", None)
    assert "only a has val/loss" in found.detail and "val/acc" in found.detail


def test_a_metric_is_meant_by_its_last_part_and_one_that_no_run_has_is_refused(bench):
    for name in "ab":
        write(bench, name, 0.1, metrics=("train/loss", "val/acc"))
    assert compared("a", "b", metric="loss").metric == "train/loss"
    assert compared("a", "b", metric="acc").metric == "val/acc"
    with pytest.raises(NotFoundError, match=r"no metric 'train/los'.*'train/loss'"):
        compared("a", "b", metric="train/los")


def test_26_runs_are_compared_and_the_rest_is_named(bench):
    names = [f"r{i:02d}" for i in range(29)]
    for name in names:
        write(bench, name, 0.1, points=12)
    found = compared(*names)
    assert [run.id for run in found.runs] == names[:MOST_RUNS] and len(found.verdicts) == 25
    assert found.left_out == tuple(names[26:])
    assert found.to_json()["left_out"] == names[26:]
