"""The metric that the runs of an experiment are compared by, and what follows it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from albor_core.feed.run.detail import RunFeed
from albor_core.feed.runs.watch import RunsFeed
from albor_core.feed.view.run_view import RunView
from albor_core.feed.workspace.my_metric import known_metrics, leading_metric
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.run.values.main_metrics import MainMetric
from albor_core.store.index.indexer import index_now


def run(name, *metrics, experiment="sweep", **changes):
    mains = tuple(MainMetric(one, 1.0, "min") for one in metrics)
    return RunView(id=name, experiment=experiment, metrics=mains, **changes)


def test_what_stands_first_for_most_runs_of_the_experiment_counts():
    rows = (
        run("a", "train/mse"),
        run("b", "val/mse", "train/mse"),
        run("c", "val/mse"),
        *(run(f"o{i}", "reward", experiment="other") for i in range(5)),
    )
    assert leading_metric("sweep", rows, {}) == "val/mse"
    assert leading_metric("other", rows, {"sweep": "x"}) == "reward"
    assert leading_metric("sweep", rows, {"sweep": "val/r2"}) == "val/r2", (
        "a person's word, or none has it"
    )
    assert known_metrics("sweep", rows, {"sweep": "gone"}) == ["train/mse", "val/mse", "gone"]
    tie = (run("a", "x"), run("b", "y"))
    assert leading_metric("sweep", tie, {}) == "x"


def test_what_nothing_says_the_better_side_of_does_not_lead():
    odd = RunView(
        id="a",
        experiment="sweep",
        metrics=(MainMetric("wobble", 1.0), MainMetric("f1", 1.0, "max")),
    )
    assert leading_metric("sweep", (odd,), {}) == "f1"


def test_of_runs_that_were_not_read_yet_the_list_knows_the_losses():
    rows = (RunView(id="a", experiment="sweep", loss=2.0, val_loss=2.1),)
    assert leading_metric("sweep", rows, {}) == "val/loss"
    assert leading_metric("sweep", (RunView(id="a", experiment="sweep"),), {}) == ""
    assert leading_metric("", rows, {}) == ""
    read = (*(replace(rows[0], id=f"u{i}") for i in range(9)), run("b", "val/mse", loss=2.0))
    assert leading_metric("sweep", read, {}) == "val/mse", "those that were read know better"


@pytest.fixture
def mine(monkeypatch, tmp_path):
    """A run in a home of its own that logs three figures."""
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    run = create_run(tmp_path / "out", "a", experiment="sweep", name="a", kind="track", argv=["x"])
    journal = Journal(run.journal, attempt=1)
    for step in range(20):
        journal.metrics(step, {"val/mse": 1.0 / (step + 1), "wer": 0.5, "train/mse": 2.0})
    journal.event("run.end", status="completed", reason="completed", code=0)
    journal.close()
    index_now(run)
    return run


def test_lists_and_a_runs_own_screen_lead_with_the_choice(mine):
    choice = {}
    feed = RunsFeed(chosen=lambda: choice)
    (before,) = feed.complete(visible={mine.id}).rows
    assert before.metrics[0].name == "val/mse"
    choice["sweep"] = "wer"
    (after,) = feed.poll(visible={mine.id}).rows
    assert (after.metrics[0].name, after.metrics[0].is_pinned) == ("wer", False)
    assert after.trend == pytest.approx([0.5] * 20), "and draw its curve"
    choice["sweep"] = "nothing that it logs"
    (other,) = feed.poll(visible={mine.id}).rows
    assert other.metrics[0].name == "val/mse"
    feed.close()
    own = RunFeed(mine, chosen=lambda: {"sweep": "wer"})
    assert own.poll().metrics[0].name == "wer"
    own.close()
