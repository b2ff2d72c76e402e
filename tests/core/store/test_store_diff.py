"""Comparing runs: what changed, who got there first, and a verdict that knows noise."""

from __future__ import annotations

import json
import math
import random
import time

import pytest

from albor_core.run.errors import NotFoundError, UsageError
from albor_core.store.diff.compare import diff_runs
from albor_core.store.diff.verdict import OrderedSeries, verdict
from albor_core.store.file.paths import global_store
from albor_core.store.index.annotations import annotate
from albor_core.store.index.backup import back_up_daily
from albor_core.store.index.ending import Ending, LastWords, ending
from albor_core.store.query.reader import Reader
from albor_core.store.upkeep.rebuild import rebuild


def curve(seed, *, offset=0.0, n=400, noise=0.1, correlation=0.5):
    rnd = random.Random(seed)
    drift, values = 0.0, []
    for i in range(n):
        drift = correlation * drift + rnd.gauss(0, noise * math.sqrt(1 - correlation**2))
        values.append(2 + 3 * math.exp(-i / 80) + drift + offset)
    return OrderedSeries(range(n), values)


def test_a_real_gap_has_a_side():
    assert verdict(curve(1), curve(2, offset=-0.3)).outcome == "better"
    assert verdict(curve(1), curve(2, offset=0.3)).outcome == "worse"
    assert verdict(curve(1), curve(2, offset=0.3), goal="max").outcome == "better"


def test_a_last_noisy_point_decides_nothing():
    a, b = curve(1), curve(2)
    spiked = OrderedSeries(b.x, [*b.y[:-1], 0.0])
    assert verdict(a, spiked).outcome == "indistinguishable"


def test_pairing_finds_a_gap_that_shared_noise_would_hide():
    a = curve(5, noise=0.5)
    b = OrderedSeries(a.x, [y - 0.02 + random.Random(i).gauss(0, 0.01) for i, y in enumerate(a.y)])
    found = verdict(a, b)
    assert found.outcome == "better" and "paired" in found.detail
    assert found.interval[0] < -0.02 < found.interval[1] < 0


def test_curves_of_different_length_are_compared_where_both_exist():
    short, long = curve(1, n=200), curve(2, n=2000)
    found = verdict(short, long)
    assert "149 to 199" in found.detail and found.outcome == "indistinguishable"


@pytest.mark.parametrize(
    "a, b",
    [
        (OrderedSeries([], []), curve(1)),
        (OrderedSeries([1, 2], [1.0, 2.0]), curve(1)),
        (OrderedSeries(range(100), [math.nan] * 100), OrderedSeries(range(100), [math.inf] * 100)),
        (OrderedSeries(range(1000, 1100), [1.0] * 100), curve(1)),
    ],
    ids=["empty", "two points", "all nan", "no shared x"],
)
def test_too_little_to_compare_is_said(a, b):
    found = verdict(a, b)
    assert found.outcome is None and found.reason and found.detail and found.interval is None
    json.dumps(found.to_json(), allow_nan=False)


def test_a_verdict_is_repeatable_and_quick():
    a, b = curve(1, n=20_000), curve(2, n=20_000)
    started = time.process_time()
    first = verdict(a, b)
    assert time.process_time() - started < 0.5  # measured 0.04 s
    assert verdict(a, b) == first


def test_equal_curves_do_not_differ():
    found = verdict(curve(1), curve(1))
    assert found.outcome == "indistinguishable" and found.interval == (0.0, 0.0)


def make(
    bench, run_id, *, lr, seed, offset=0.0, commit="c0", steps=400, evals=8, scale=64, facts=None
):
    git = {"commit": commit, "dirty": False}
    run = bench.run(run_id, seed=seed, git=git, **(facts or {}))
    journal = bench.journal(run)
    journal.append("p", key="optimizer.lr", value=lr)
    journal.append("p", key="training.seed", value=seed)
    journal.append("p", key="data.batch_size", value=8)
    versions = {"torch": f"2.{seed}", "python": "3.11"}
    journal.event("run.start", attempt=1, device="cpu", versions=versions)
    points = curve(seed, offset=offset, n=steps)
    for step in range(1, steps + 1):
        journal.metrics(step, {"train/loss": points.y[step - 1], "train/tokens": step * scale})
        if step % (steps // evals) == 0:
            journal.metrics(step, {"val/loss": 2.1 + 3 * math.exp(-step / 80) + offset})
    bench.index(run)
    return run


def test_what_a_long_run_took_to_get_as_far_is_of_that_very_step(bench):
    make(bench, "a", lr=0.1, seed=1, steps=3000)
    make(bench, "b", lr=0.2, seed=2, offset=-0.4, steps=3001)
    with Reader(global_store()) as reader:
        reach = {r.run: r for r in diff_runs(reader, ["a", "b"]).reach}["b"]
    assert reach.tokens == reach.step * 64


def test_a_diff_says_what_changed_and_who_was_better(bench):
    make(bench, "a", lr=0.1, seed=1)
    make(bench, "b", lr=0.2, seed=2, offset=-0.4, commit="c1")
    with Reader(global_store()) as reader:
        found = diff_runs(reader, ["a", "b"])
        assert [c.key for c in found.config] == ["optimizer.lr", "training.seed"]
        assert found.config[0].values == (0.1, 0.2)
        assert [c.key for c in found.code] == ["commit"]
        assert [c.key for c in found.environment] == ["versions.torch"]
        # 8 evaluations, 3 in the window: train/loss was taken instead, which nobody asked for
        assert (found.verdict.outcome, found.verdict.metric) == ("contradictory", "train/loss")
        assert "train/loss says better" in found.verdict.detail
        assert set(found.metrics) == {"train/loss", "train/tokens", "val/loss"}
        reach = {(r.run, r.other): r for r in found.reach}
        assert reach["a", "b"].step is None
        assert reach["b", "a"].step < 400
        assert reach["b", "a"].tokens == reach["b", "a"].step * 64
        assert reach["b", "a"].seconds >= 0
        document = found.to_json()
    assert document["schema"] == "albor.runs.diff/1"
    json.dumps(document, allow_nan=False)
    assert all(len(c["steps"]) <= 80 for both in document["curves"].values() for c in both)


def test_runs_that_differ_in_nothing_but_the_seed_have_no_winner(bench):
    make(bench, "a", lr=0.1, seed=1)
    make(bench, "b", lr=0.1, seed=2, offset=-0.4)
    with Reader(global_store()) as reader:
        found = diff_runs(reader, ["a", "b"])
    assert found.verdict.outcome == "indistinguishable"
    assert "only the seed differs" in found.verdict.detail


def test_many_evaluations_decide_by_themselves(bench):
    make(bench, "a", lr=0.1, seed=1, evals=100)
    make(bench, "b", lr=0.2, seed=2, evals=100, offset=-0.4)
    with Reader(global_store()) as reader:
        found = diff_runs(reader, ["a", "b"])
    assert found.verdict.outcome == "better" and "train/loss" not in found.verdict.detail


def test_runs_of_other_batch_sizes_are_compared_at_equal_tokens(bench):
    make(bench, "a", lr=0.1, seed=1, scale=64)
    make(bench, "b", lr=0.2, seed=2, scale=128, steps=200)
    with Reader(global_store()) as reader:
        found = diff_runs(reader, ["a", "b"], metric="train/loss")
    assert "tokens" in found.verdict.detail


def test_without_a_metric_in_common_nothing_is_compared(bench):
    make(bench, "a", lr=0.1, seed=1)
    other = bench.run("b")
    bench.journal(other).metrics(1, {"reward": 1.0})
    bench.index(other)
    with Reader(global_store()) as reader:
        found = diff_runs(reader, ["a", "b"])
        assert found.verdict.outcome is None and found.metrics == {}
        assert found.verdict.reason == "no_common_metric"
        json.dumps(found.to_json(), allow_nan=False)
        with pytest.raises(NotFoundError):
            diff_runs(reader, ["a", "zzz"])
        for bad in (["a"], []):
            with pytest.raises(UsageError):
                diff_runs(reader, bad)


def test_a_run_beside_itself_differs_in_nothing(bench):
    make(bench, "a", lr=0.1, seed=1)
    make(bench, "b", lr=0.2, seed=2, offset=-0.4, commit="c1")
    with Reader(global_store()) as reader:
        alone = diff_runs(reader, ["a", "a"])
        among = diff_runs(reader, ["a", "b", "a"])
    assert (alone.config, alone.code, alone.data, alone.environment) == ((), (), (), ())
    assert (alone.verdict.outcome, alone.verdict.detail) == ("indistinguishable", "the same run")
    assert alone.reach == ()
    assert [v.outcome for v in among.verdicts] == ["contradictory", "indistinguishable"]
    assert {(r.run, r.other) for r in among.reach} == {("a", "b"), ("b", "a")}
    json.dumps(alone.to_json(), allow_nan=False)


SHARDS = {"path": "/data/a", "data_hash": "aa" * 32, "tokens": 1000, "shards": 1, "problems": []}
FACTS = {
    "data": {"train": SHARDS, "val": None, "tokenizer": {"path": "/t", "sha256": "cc" * 32}},
    "versions": {"python": "3.11", "torch": "2.11"},
    "git": {"commit": "c0", "dirty": True, "patch": "+ a line\n"},
}


def differing(bench, facts, start=None):
    for name, found in (("a", FACTS), ("b", {**FACTS, **facts})):
        run = bench.run(name, **found)
        bench.journal(run).event("run.start", attempt=1, pid=len(name), **(start or {}))
        bench.index(run)
    with Reader(global_store()) as reader:
        found = diff_runs(reader, ["a", "b"])
    return {
        part: {change.key: change.values for change in getattr(found, part)}
        for part in ("code", "data", "environment")
    }


def test_other_shards_are_a_difference_of_data_and_another_folder_is_none(bench):
    other = {**SHARDS, "path": "/data/b", "data_hash": "bb" * 32, "tokens": 2000}
    found = differing(bench, {"data": {**FACTS["data"], "train": other, "val": SHARDS}})
    assert found["data"] == {
        "train.data_hash": ("aa" * 32, "bb" * 32),
        "train.tokens": (1000, 2000),
        "val.data_hash": (None, "aa" * 32),
        "val.tokens": (None, 1000),
    }
    assert (found["code"], found["environment"]) == ({}, {})


def test_the_same_shards_elsewhere_are_the_same_data(bench):
    moved = {**FACTS["data"], "train": {**SHARDS, "path": "/data/b"}}
    assert differing(bench, {"data": moved}) == {"code": {}, "data": {}, "environment": {}}


def test_a_changed_line_that_nobody_committed_is_a_difference_of_code(bench):
    found = differing(bench, {"git": {**FACTS["git"], "patch": "+ another line\n"}})
    assert list(found["code"]) == ["patch"]
    one, other = found["code"]["patch"]
    assert one != other and len(one) == len(other) == 64


def test_versions_and_devices_are_environment_and_process_ids_are_not(bench):
    found = differing(bench, {"versions": {"python": "3.12", "torch": "2.11"}})
    assert found["environment"] == {"versions.python": ("3.11", "3.12")}


@pytest.mark.parametrize("odd", [None, [], "x", {"train": [1]}, {"train": {"data_hash": None}}])
def test_facts_of_any_shape_are_compared(bench, odd):
    found = differing(bench, {"data": odd, "git": odd, "versions": odd})
    assert set(found["data"]) == {"train.data_hash", "train.tokens", "tokenizer.sha256"}


def test_runs_of_other_data_are_not_called_seeds_of_one_recipe(bench):
    for name, seed, data_hash in (("a", 1, "aa"), ("b", 2, "bb")):
        facts = {"data": {"train": {**SHARDS, "data_hash": data_hash}}}
        make(bench, name, lr=0.1, seed=seed, offset=-0.4 * (seed - 1), facts=facts)
    with Reader(global_store()) as reader:
        assert diff_runs(reader, ["a", "b"], metric="train/loss").verdict.outcome == "better"


def test_a_clock_that_is_set_back_makes_no_negative_time_and_hides_none(bench, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(time, "time", lambda: clock[0])
    for name, offset in (("a", 0.0), ("b", -0.5)):
        run = bench.run(name)
        journal = bench.journal(run)
        journal.event("run.start", attempt=1)
        for step in range(1, 401):
            clock[0] += 1.0 if step != 100 else -86_400.0
            loss = 2 + 3 * math.exp(-step / 80) + offset
            journal.metrics(step, {"train/loss": loss, "train/tokens": step * 64})
        bench.index(run)
    with Reader(global_store()) as reader:
        reach = {(r.run, r.other): r for r in diff_runs(reader, ["a", "b"]).reach}
    found = reach["b", "a"]
    assert 100 < found.step < 400 and found.tokens == found.step * 64
    # a second a step, but the one in which the clock was set back
    assert found.seconds == pytest.approx(found.step - 1)


def test_a_deleted_folder_still_compares_by_its_preview(bench):
    import shutil

    for name, offset in (("a", 0.0), ("b", -0.4)):
        run = make(bench, name, lr=0.1 + offset / 10, seed=len(name), offset=offset, commit=name)
        shutil.rmtree(run.path)
    with Reader(global_store()) as reader:
        assert diff_runs(reader, ["a", "b"], metric="train/loss").verdict.outcome == "better"


def test_three_runs_are_each_judged_against_the_first(bench):
    for i, offset in enumerate((0.0, -0.4, 0.4)):
        make(bench, f"r{i}", lr=0.1 * (i + 1), seed=i, offset=offset)
    with Reader(global_store()) as reader:
        found = diff_runs(reader, ["r0", "r1", "r2"], metric="train/loss")
    assert [v.outcome for v in found.verdicts] == ["better", "worse"]
    assert len(found.reach) == 6


WORDS = LastWords(1, None, None, None, None, None, None, None, None)
EXIT = {"attempt": 1, "reason": "completed", "wall": 9.0}


def said(**changes):
    from dataclasses import replace

    return replace(WORDS, **changes)


@pytest.mark.parametrize(
    "words, exit_json, wanted",
    [
        (WORDS, None, Ending()),
        (WORDS, EXIT, Ending("completed", "completed", 9.0)),
        (WORDS, {**EXIT, "reason": "andon"}, Ending("stopped", "andon", 9.0)),
        (WORDS, {**EXIT, "reason": "exception"}, Ending("failed", "exception", 9.0)),
        (
            WORDS,
            {**EXIT, "reason": "exception", "error": {"type": "OSError", "message": "a\nb"}},
            Ending("failed", "OSError: a", 9.0),
        ),
        (
            said(guard_state="failed", guard_wall=5.0, guard_reason="OSError: a, after 2 restarts"),
            {**EXIT, "reason": "exception", "error": {"type": "OSError", "message": "a"}},
            Ending("failed", "OSError: a, after 2 restarts", 5.0),
        ),
        (said(attempts=2), EXIT, Ending()),
        (said(guard_state="running"), {**EXIT, "reason": "exception"}, Ending()),
        (said(guard_state="running"), EXIT, Ending("completed", "completed", 9.0)),
        (
            said(guard_state="failed", guard_wall=5.0, guard_reason="no progress"),
            None,
            Ending("failed", "no progress", 5.0),
        ),
        (
            said(guard_state="failed", guard_wall=5.0, guard_reason="andon: too hot"),
            {**EXIT, "reason": "andon", "code": 4},
            Ending("stopped", "andon", 5.0),
        ),
        (
            said(attempts=2, guard_state="failed", guard_wall=5.0, guard_reason="no progress"),
            {**EXIT, "reason": "andon", "code": 4},
            Ending("failed", "no progress", 5.0),
        ),
        (
            said(end_attempt=1, end_status="stopped", end_reason="user", end_wall=3.0),
            None,
            Ending("stopped", "user", 3.0),
        ),
        (said(attempts=2, end_attempt=1, end_status="stopped"), None, Ending()),
        (  # its guard was done when a program went on by itself
            said(guard_state="stopped", guard_wall=5.0, guard_attempt=1),
            EXIT,
            Ending("stopped", "stopped", 5.0),
        ),
        (
            said(attempts=2, guard_state="stopped", guard_attempt=1),
            {**EXIT, "attempt": 2},
            Ending("completed", "completed", 9.0),
        ),
        (
            said(attempts=2, guard_state="done", guard_attempt=1),
            {**EXIT, "attempt": 2, "reason": "exception"},
            Ending("failed", "exception", 9.0),
        ),
        (said(attempts=2, guard_state="stopped", guard_attempt=1), EXIT, Ending()),
        (said(end_attempt=1, end_status="paused"), None, Ending()),
    ],
)
def test_how_a_run_ended(words, exit_json, wanted):
    assert ending(words, exit_json) == wanted


def test_backups_are_daily_and_three(bench):
    run = bench.run()
    bench.index(run)
    days = ["20260101", "20260102", "20260103", "20260104"]
    assert all(back_up_daily(global_store(), day) for day in days)
    assert back_up_daily(global_store(), days[-1]) is None
    kept = sorted(p.name for p in (global_store().parent / "backups").iterdir())
    assert kept == [f"experiments-{day}.db" for day in days[1:]]


def test_a_ruined_global_store_is_rebuilt_from_runs_and_a_backup(bench):
    import shutil

    kept, gone = bench.run("kept"), bench.run("gone")
    for run in (kept, gone):
        bench.journal(run).metrics(1, {"train/loss": 1.0})
        bench.index(run)
    back_up_daily(global_store(), "20260101")
    shutil.rmtree(gone.path)
    global_store().write_bytes(b"ruined" * 1000)
    report = rebuild(None, [kept])
    assert (report.carried, report.problems) == (["gone"], [])
    (note,) = report.notes  # it cost nothing
    assert str(global_store()) in note and "made again" in note
    with Reader(global_store()) as reader:
        assert {row.id for row in reader.runs()} == {"kept", "gone"}
        assert reader.series("gone", "train/loss").last[-1] == 1.0


def test_annotations_are_checked_before_they_are_written(bench, tmp_path):
    run = bench.run()
    for kind, value in (("shout", "x"), ("tag", ""), ("tag", "x" * 65), ("note", None)):
        with pytest.raises(UsageError):
            annotate(run, kind, value)
    assert not run.annotations.exists()
    from albor_core.run.rundir import RunDir

    with pytest.raises(NotFoundError):
        annotate(RunDir(tmp_path), "tag", "x")
