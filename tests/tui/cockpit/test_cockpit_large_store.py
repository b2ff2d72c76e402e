"""A store of more runs than are kept at once: nothing is hidden without a word, and a filter or
another order looks through all of it.
"""

from __future__ import annotations

import pytest
from settled import until

from albor_core.feed.run import store_follower
from albor_core.feed.runs.watch import RunsFeed
from albor_core.run.home.folders import albor_home
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.store.file.paths import global_store
from albor_core.store.index.annotations import annotate
from albor_core.store.index.indexer import Indexer
from albor_tui.app import AlborApp
from albor_tui.model.source import LiveSource
from albor_tui.widgets.run_table import RunTable

RUNS, KEPT = 40, 8


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Forty runs, the older the lower their loss; two without an end, one of them pinned."""
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(store_follower, "MOST_ROWS", KEPT)
    monkeypatch.setattr(store_follower, "MOST_BESIDES", KEPT)
    monkeypatch.setattr(store_follower, "FIRST_ROWS", 3)
    for number in range(RUNS):
        name = f"run-{number:02d}"
        run = create_run(
            albor_home() / "runs", name, experiment="e", name=name, kind="track", argv=[]
        )
        journal = Journal(run.journal, attempt=1)
        journal.metrics(1, {"train/loss": 1.0 + number})
        if number != 3:
            journal.event("run.end", status="completed", reason="completed", code=0)
        journal.close()
        if number == 5:
            annotate(run, "pin")
        with Indexer(run, global_store()) as indexer:
            indexer.drain()
    return tmp_path / "home"


def shown(app) -> list[str]:
    return [view.id for view in app.screen.query_one(RunTable).runs]


def title(app) -> str:
    return str(app.screen.query_one("#list").border_title)


def test_the_feed_keeps_the_newest_the_pinned_the_unended_and_what_is_asked_for(home):
    feed = RunsFeed()
    newest = {f"run-{number}" for number in range(RUNS - KEPT, RUNS)}
    view = feed.complete()
    assert {row.id for row in view.rows} == newest | {"run-03", "run-05"}
    assert (view.total, view.problem) == (RUNS, "")
    asked = feed.poll(wanted=frozenset({"run-11", "run-35", "no-such-run"}))
    assert {row.id for row in asked.rows} == newest | {"run-03", "run-05", "run-11"}
    assert {row.id: row.loss for row in asked.rows}["run-11"] == 12.0
    assert {row.id for row in feed.poll().rows} == newest | {"run-03", "run-05"}
    feed.close()


async def test_a_list_that_is_cut_says_so_and_orders_and_filters_reach_all_runs(home):
    async with AlborApp(LiveSource(None)).run_test(size=(140, 40)) as pilot:
        await until(pilot, lambda: "10 of 40, the newest" in title(pilot.app))
        assert "run-39" in shown(pilot.app)
        await pilot.press("s")  # by loss
        await until(pilot, lambda: shown(pilot.app) == [f"run-{n:02d}" for n in range(KEPT)])
        assert "8 of 40 that match, of 40" in title(pilot.app)
        await pilot.press("S")
        await until(pilot, lambda: set(shown(pilot.app)) == {f"run-{n}" for n in range(32, 40)})
        await pilot.press("S", "slash", *"run-11")
        await until(pilot, lambda: shown(pilot.app) == ["run-11"])
        assert "1 of 40" in title(pilot.app)
        await pilot.press("escape")
        await pilot.press("escape")
        await until(pilot, lambda: len(shown(pilot.app)) == KEPT)
