"""The curves of many runs at once: whole, kept while nothing moves, and kept of what is gone."""

from __future__ import annotations

import math
import os
import shutil
from pathlib import Path

import pytest

from albor_core.feed.run import store_follower
from albor_core.feed.view.run_view import RunView
from albor_core.feed.workspace.overlay import MOST_OPEN, MOST_RUNS, OverlayFeed
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.store.file.axis import WALL_KEY
from albor_core.store.file.paths import global_store
from albor_core.store.index.indexer import Indexer
from albor_core.store.query.reader import Reader


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))


def made_run(folder, name, curves, status="ended"):
    run = create_run(folder, name, experiment="e", name=name, kind="custom", argv=["x"])
    log(run, curves)
    return RunView(id=run.id, name=name, path=str(run.path), status=status), run


def log(run, curves):
    """Journal and index values by key and step, and have the files be older than a moment."""
    journal = Journal(run.journal, attempt=1)
    for key, points in curves.items():
        for step, value in points.items():
            journal.metrics(step, {key: value})
    journal.close()
    with Indexer(run, global_store()) as indexer:
        indexer.drain()
    for path in run.store.parent.iterdir():
        os.utime(path, ns=(stamp := path.stat().st_mtime_ns - 10**9, stamp))


@pytest.fixture
def opened(monkeypatch):
    """The stores that were opened, in turn, and the questions about series asked of them."""
    asked = []

    class CountedReader(Reader):
        def __init__(self, path):
            super().__init__(path)
            asked.append(path)

        def series(self, run_id, key, **window):
            asked.append(key)
            return super().series(run_id, key, **window)

    monkeypatch.setattr(store_follower, "Reader", CountedReader)
    return asked


def test_runs_of_other_lengths_and_keys_are_each_drawn_whole(tmp_path):
    long, _ = made_run(
        tmp_path,
        "long",
        {"val/mse": {step: 1 / (step + 1) for step in range(0, 30_000)}, "host/cpu": {1: 2.0}},
    )
    short, _ = made_run(
        tmp_path, "short", {"val/mse": {0: 5.0, 7: math.nan, 19: 4.0}, "odd": {1: 1}}
    )
    gone = RunView(id="never-was", path=str(tmp_path / "never-was"))
    nowhere = RunView(id="nowhere")
    runs = [long, short, gone, nowhere]
    feed = OverlayFeed()
    assert feed.keys(runs) == ("odd", "val/mse", "host/cpu")
    assert feed.keys([*runs, made_run(tmp_path, "third", {"val/mse": {1: 1.0}})[0]]) == (
        *("val/mse", "odd", "host/cpu"),
    )
    found = feed.curves(runs, ["val/mse", "odd", "nothing"], points=200)
    assert [(key, list(curves)) for key, curves in found.items()] == [
        ("val/mse", [long.id, short.id]),
        ("odd", [short.id]),
        ("nothing", []),
    ]
    whole = found["val/mse"][long.id]
    assert len(whole.steps) <= 200
    assert (whole.steps[0], whole.last[-1], sum(whole.counts)) == (0, 1 / 30_000, 30_000)
    assert tuple(found["val/mse"][short.id].steps) == (0, 7, 19)
    near = feed.curves(runs, ["val/mse"], lo=100, hi=110)["val/mse"]
    assert list(near) == [long.id]
    assert tuple(near[long.id].steps) == tuple(range(100, 111))
    feed.close()


def test_only_a_run_that_moved_is_read_again_and_not_all_the_time(tmp_path, opened):
    keys = [f"m{index}" for index in range(3)]
    runs, folders = zip(
        *(made_run(tmp_path, f"run{n}", {key: {1: 1.0} for key in keys}) for n in range(4)),
        strict=True,
    )
    now = 0.0

    def clock():
        nonlocal now
        now += 0.001  # each look at it takes a millisecond
        return now

    feed = OverlayFeed(clock=clock)

    def newest():
        return tuple(feed.curves(runs, keys)["m0"][runs[1].id].last)

    feed.curves(runs, keys)
    assert sum(key in keys for key in opened) == 12
    opened.clear()
    now = 10.0
    feed.curves(runs, keys)
    feed.curves(runs[:2], keys)  # two are hidden, and come back
    feed.curves(runs, keys)
    assert opened == []
    log(folders[1], {"m0": {2: 0.5}})
    now = 20.0
    assert newest() == (1.0, 0.5)
    assert [key for key in opened if key in keys] == keys
    log(folders[1], {"m0": {3: 0.25}})
    assert newest() == (1.0, 0.5)  # just read: it rests
    now = 40.0
    assert newest() == (1.0, 0.5, 0.25)
    feed.close()


def test_a_run_removed_while_shown_keeps_its_curves_in_every_window(tmp_path):
    view, run = made_run(tmp_path, "one", {"val/mse": {step: float(step) for step in range(50)}})
    feed = OverlayFeed()
    whole = feed.curves([view], ["val/mse", WALL_KEY])  # charts by the clock ask for its times
    before = whole["val/mse"][view.id]
    assert view.id in whole[WALL_KEY]
    shutil.rmtree(run.path)
    global_store().unlink()
    assert feed.curves([view], ["val/mse"])["val/mse"][view.id] == before
    zoomed = feed.curves([view], ["val/mse"], lo=10, hi=12)["val/mse"][view.id]
    assert (tuple(zoomed.steps), tuple(zoomed.last)) == ((10, 11, 12), (10.0, 11.0, 12.0))
    assert feed.keys([view]) == ("val/mse",)
    for other in range(10):  # windows that were left: what is gone cannot be read again
        feed.curves([view], ["val/mse"], lo=other)
    assert feed.curves([view], ["val/mse"])["val/mse"][view.id] == before
    feed.close()


def open_files():
    return len([*Path("/proc/self/fd").iterdir()])


def test_at_most_a_hundred_runs_are_read_and_not_all_their_stores_stay_open(tmp_path):
    runs = [made_run(tmp_path, f"run{n}", {"m": {1: 1.0}})[0] for n in range(MOST_RUNS + 3)]
    feed = OverlayFeed()
    before = open_files()
    assert list(feed.curves(runs, ["m"])["m"]) == [run.id for run in runs[:MOST_RUNS]]
    assert open_files() - before <= 3 * (MOST_OPEN + 1)
    feed.close()
    assert open_files() <= before
