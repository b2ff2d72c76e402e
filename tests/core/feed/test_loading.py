"""Until a run was looked at its word is `loading`, and nothing is concluded from it."""

from __future__ import annotations

import pytest

from albor_core.andon.health.plateau import Trend
from albor_core.feed.offers import ACTIONS, offer, subject_of_view
from albor_core.feed.runs import watch
from albor_core.feed.runs.watch import RunsFeed
from albor_core.feed.view import RunView
from albor_core.run.journal import Journal
from albor_core.run.rundir import create_run
from albor_core.store.index.indexer import index_now
from albor_core.store.query.filter import FilterError, parse_filter


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
    assert "loading" not in [row.status for row in read.rows]


def test_a_plateau_is_told_without_exponents() -> None:
    words = Trend(0.68, 0.45, 1.02, 1, 100).words
    assert words == "fell by 68 % (45 to 102) over steps 1 to 100"


def test_a_refused_status_is_answered_in_the_words_of_the_lists() -> None:
    with pytest.raises(FilterError, match="hung") as refused:
        parse_filter("status:nonsense")
    assert "stalled" not in str(refused.value)
