"""Until a run was looked at its word is `loading`, and nothing is concluded from it."""

from __future__ import annotations

import json
import time

import pytest

from albor_core.andon.health.plateau import Trend
from albor_core.feed.run.detail import RunFeed
from albor_core.feed.run.offers import ACTIONS, offer, subject_of_view
from albor_core.feed.run.status import run_status
from albor_core.feed.runs import watch
from albor_core.feed.runs.listed_metric import beside, with_trend
from albor_core.feed.runs.watch import RunsFeed
from albor_core.feed.view.run_status import shown_word
from albor_core.feed.view.run_view import RunView
from albor_core.run.files.pulled_file import Pulled, write_pulled
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.run.rundir import read_json
from albor_core.run.values.directions import direction
from albor_core.run.values.main_metrics import MainMetric
from albor_core.store.index.indexer import index_now
from albor_core.store.query.filter import FilterError, meant_status, parse_filter


def test_a_run_whose_files_are_unread_has_no_status() -> None:
    assert RunView(id="r").status == "loading"
    assert RunView(id="r").is_loading
    assert not RunView(id="r").is_active


@pytest.mark.parametrize("action", ACTIONS)
def test_nothing_is_offered_for_a_run_that_is_still_being_read(action: str) -> None:
    offered = offer(action, subject_of_view(RunView(id="r")))
    assert not offered.is_possible
    assert offered.why_not == "it is still being read"


@pytest.mark.parametrize("kind", ["train", "guard", "track", "imported"])
def test_a_slow_disk_leaves_a_run_without_an_end_loading_and_not_lost(
    tmp_path, monkeypatch, kind
) -> None:
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    run = create_run(tmp_path / "out", "a", experiment="e", name="a", kind=kind, argv=["x"])
    journal = Journal(run.journal, attempt=1)
    journal.metrics(1, {"val/mse": 1.0})
    journal.close()
    index_now(run)
    monkeypatch.setattr(watch, "READ_S", -1.0)  # no time is left in this poll for any folder
    feed = RunsFeed()
    slow = feed.poll()
    assert [row.status for row in slow.rows] == ["loading"]
    assert not slow.is_complete
    monkeypatch.undo()
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    read = feed.complete()
    feed.close()
    assert read.is_complete
    assert [(one.name, one.last) for one in read.rows[0].metrics] == [("val/mse", 1.0)]
    assert "loading" not in [row.status for row in read.rows]


@pytest.mark.parametrize(
    ("loss", "names", "drawn"),
    [
        (2.0, ("train/loss", "val/acc"), "val/acc"),
        (2.0, ("train/loss", "val/loss"), None),
        (2.0, ("train/loss", "score"), "score"),
        (2.0, ("train/loss", "layer0/stat0", "layer0/stat1"), None),  # which one says anything?
        (None, ("layer0/stat0", "layer0/stat1"), "layer0/stat0"),
        (None, ("val/acc", "val/f1"), "val/acc"),
        (None, (), None),
    ],
)
def test_a_list_draws_the_trend_of_the_metric_that_it_names(loss, names, drawn) -> None:
    metrics = tuple(MainMetric(name, 1.0, direction(name)) for name in names)
    view = RunView(id="r", loss=loss, metrics=metrics)
    named = beside(view)
    assert with_trend(view) == drawn
    assert drawn is None or (named is not None and named.name == drawn)


def test_a_filter_takes_the_word_of_attention_and_a_bare_state_is_asked_for_by_its_field() -> None:
    (died,) = parse_filter("status:died").terms
    assert died.values == ("failed",)
    assert [meant_status(word) for word in ("failed", "Died", "hung", "silent", "wide", "")] == [
        *("status:failed", "status:died", "status:hung", "status:silent", "", "")
    ]
    assert meant_status("running then") == 'status:"running then"'


def test_a_plateau_is_told_without_exponents() -> None:
    words = Trend(0.68, 0.45, 1.02, 1, 100).words
    assert words == "fell by 68 % (95 % interval 45 to 102 %) over steps 1 to 100"


def test_the_interval_of_a_plateau_cannot_be_read_as_losses() -> None:
    assert "95 % interval 0.85 to 0.99 %" in Trend(0.0092, 0.0085, 0.0099, 1, 9).words
    rose = Trend(-0.02, -0.03, 0.01, 1, 9).words
    assert rose.startswith("rose by 2 % (95 % interval -1 to 3 %)")


def test_a_refused_status_is_answered_in_the_words_of_the_lists() -> None:
    with pytest.raises(FilterError, match="hung") as refused:
        parse_filter("status:nonsense")
    assert "stalled" not in str(refused.value)


def test_the_machine_s_figures_come_after_the_program_s_own(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    run = create_run(tmp_path / "out", "a", experiment="e", name="a", kind="track", argv=["x"])
    journal = Journal(run.journal, attempt=1)
    names = ("host/cpu_percent", "gpu0/util_percent", "program/rss_bytes", "val/wer", "rollout/rew")
    journal.metrics(1, dict.fromkeys(names, 1.0))
    journal.close()
    index_now(run)
    feed = RunFeed(run)
    keys = feed.keys()
    feed.close()
    assert set(keys) == set(names)
    assert set(keys[:2]) == {"val/wer", "rollout/rew"}


def copied(tmp_path, age_s: float):
    """A run that was at work on another host when it was copied from there."""
    run = create_run(tmp_path / "out", "far", experiment="e", name="far", kind="track", argv=["x"])
    about = read_json(run.run_json) | {"host": "gpu7"}
    run.run_json.chmod(0o600)
    run.run_json.write_text(json.dumps(about))
    state = {"schema": "albor.state/1", "attempt": 1, "host": "gpu7", "boot_id": "there"}
    state |= {"phase": "training", "global_step": 7, "wall": time.time() - age_s}
    run.state.write_text(json.dumps(state | {"elapsed_seconds": 139.0, "eta_seconds": 60.0}))
    write_pulled(run, Pulled("gpu7", "/runs/far", time.time() - age_s))
    return run


@pytest.mark.parametrize("age_s", [1.0, 180.0, 4_000.0])
def test_a_copy_of_a_run_at_work_elsewhere_ran_then(tmp_path, monkeypatch, age_s) -> None:
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    status = run_status(copied(tmp_path, age_s))
    assert status.word == "unknown"
    assert shown_word(status.word) == "running then"
    assert "albor runs pull gpu7" in status.detail


def test_the_time_of_a_run_elsewhere_stands_still(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    feed = RunFeed(copied(tmp_path, 180.0))
    view = feed.poll()
    feed.close()
    assert view is not None and not view.is_active
    assert (view.elapsed_s, view.eta_s) == (139.0, None)
    assert view.age_s == pytest.approx(180.0, abs=30.0)


def test_a_run_past_its_last_step_has_neither_share_nor_end(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    run = create_run(tmp_path / "out", "p", experiment="e", name="p", kind="track", argv=["x"])
    state = {"schema": "albor.state/1", "attempt": 1, "phase": "training", "wall": time.time()}
    state |= {"global_step": 3_500, "max_steps": 2_000, "progress_percent": 100.0}
    run.state.write_text(json.dumps(state | {"eta_seconds": 0.0}))
    feed = RunFeed(run)
    view = feed.poll()
    feed.close()
    assert view is not None and view.is_past_end
    assert (view.progress, view.eta_s, view.finish_wall) == (None, None, None)
