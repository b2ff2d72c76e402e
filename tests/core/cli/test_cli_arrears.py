"""Figures of ended runs are their last ones, or it is said that they are not."""

from __future__ import annotations

import json
import os
import shutil
import time

import pytest
from cli_user import valid

from albor_core import track
from albor_core.feed.runs.watch import RunsFeed
from albor_core.guard.process.index_process import IndexProcess
from albor_core.run.rundir import RunDir
from albor_core.store.file.paths import global_store
from albor_core.store.index import catch_up
from albor_core.store.index.indexer import index_now
from albor_core.store.query.reader import Reader


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Not a guarded run, and no index process: `index_now` stands for one that died early."""
    for word in ("RUN_DIR", "ATTEMPT", "NONCE", "RUN_LOCK_FD"):
        monkeypatch.delenv(f"ALBOR_{word}", raising=False)
    monkeypatch.setattr(IndexProcess, "tend", lambda self: None)


def half_indexed(name="x", steps=600):
    """A completed run of which the stores have ten steps."""
    with track.start(name=name) as run:
        for step in range(1, steps + 1):
            run.log({"loss": 1.0 / step}, step=step)
            if step == 10:
                index_now(run.dir)
    return run.dir


def stored(run):
    with Reader(global_store()) as reader:
        return reader.run(run.id)


def make_old(*runs):
    """As if the last line came a minute ago."""
    for run in runs:
        os.utime(run.journal, (time.time() - 60,) * 2)


def cannot_index(monkeypatch):
    monkeypatch.setattr(catch_up, "is_known", lambda run: False)


def test_a_list_indexes_what_an_index_process_that_died_left_of_an_ended_run(desk):
    run = half_indexed()
    assert stored(run).last_step == 10
    (row,) = valid(desk.quick("runs", "ls", "--json"))["runs"]
    assert (row["status"], row["last_step"], row["loss"]) == ("completed", 600, 1 / 600)
    assert (row["unindexed_bytes"], row["lines_lost"]) == (0, 0)
    assert desk.quick("db", "check").code == 0


@pytest.mark.parametrize("words", [(), ("loss<0.5",)])
def test_a_run_that_ended_before_anybody_indexed_it_is_in_the_list(desk, words):
    half_indexed()
    with track.start(name="unseen") as run:
        run.log({"loss": 0.25}, step=1)
    (row, *_) = valid(desk.quick("runs", "ls", *words, "--json"))["runs"]
    assert (row["id"], row["status"], row["loss"]) == (run.id, "completed", 0.25)
    assert desk.quick("db", "check").code == 0


def test_a_run_that_has_just_begun_is_told_of_until_it_is_in_the_list(desk):
    half_indexed()
    with track.start(name="young") as run:
        listed = desk.quick("runs", "ls")
        assert f"just begun, and not in the list yet: {run.id}" in listed.err
    assert run.id in desk.quick("runs", "ls").out


def test_a_filter_finds_a_run_by_the_figures_that_nobody_had_indexed(desk):
    run = half_indexed()
    assert run.id in desk.quick("runs", "ls", "loss<0.01").out


def test_a_list_that_cannot_index_says_how_much_is_missing(desk, monkeypatch):
    run = half_indexed()
    cannot_index(monkeypatch)
    listed = desk.quick("runs", "ls")
    missing = run.journal.stat().st_size
    with Reader(global_store()) as reader:
        missing -= reader.positions(run.id)[0].offset
    assert listed.code == 0
    assert f"what is shown of {run.id} may be a part: {missing:,} bytes of journal" in listed.err
    assert "next: albor db rebuild" in listed.err
    (row,) = valid(desk.quick("runs", "ls", "--json"))["runs"]
    assert row["unindexed_bytes"] == missing
    assert desk.quick("db", "rebuild").code == 0
    assert desk.quick("runs", "ls").err == ""


def test_a_recorded_end_does_not_hide_what_is_missing(desk):
    """A second attempt, none of whose lines were indexed."""
    run = half_indexed()
    index_now(run)
    assert stored(run).ended_status == "completed"
    with run.journal.open("ab") as journal:
        lines = run.journal.read_bytes().splitlines(keepends=True)
        journal.write(lines[-2])
    (row,) = valid(desk.quick("runs", "ls", "--json"))["runs"]
    assert row["unindexed_bytes"] == 0
    with Reader(global_store()) as reader:
        assert reader.positions(run.id)[0].offset == run.journal.stat().st_size


def test_a_torn_last_line_is_nothing_to_wait_for(desk):
    run = half_indexed()
    index_now(run)
    with run.journal.open("ab") as journal:
        journal.write(b'{"t":"m"')
    assert desk.quick("runs", "ls").err == ""


def test_an_end_is_not_recorded_before_all_that_came_before_it(monkeypatch):
    """Killed between two batches, an index process leaves no end beside figures from the middle."""
    from albor_core.store.index import sources
    from albor_core.store.index.indexer import Indexer

    monkeypatch.setattr(sources, "BATCH_BYTES", 8 << 10)
    with track.start() as run:
        for step in range(1, 601):
            run.log({"loss": 1.0 / step}, step=step)
    with Indexer(run.dir, global_store()) as indexer:
        indexer.step()
        indexer.publish(whole=True)
        assert stored(run.dir).ended_status is None and stored(run.dir).last_step < 600
        indexer.drain()
    assert (stored(run.dir).ended_status, stored(run.dir).last_step) == ("completed", 600)


def test_doctor_tells_of_an_ended_run_that_is_not_whole_in_the_store(desk):
    run = half_indexed()
    make_old(run)
    checks = {c["name"]: c for c in desk.quick("doctor", "--json").document["checks"]}
    assert checks["index"]["ok"] is False and run.id in checks["index"]["detail"]
    assert checks["index"]["hint"] == "albor db rebuild"
    assert desk.quick("db", "rebuild").code == 0
    assert '"index"' not in desk.quick("doctor", "--json").out


def test_the_cockpit_tells_of_an_ended_run_that_is_not_whole_in_the_store(desk):
    make_old(half_indexed("one"), half_indexed("two"))
    feed = RunsFeed()
    try:
        assert "2 ended runs are not in experiments.db to the end" in feed.complete().problem
    finally:
        feed.close()


@pytest.mark.parametrize("later", ["ls", "doctor", "cockpit"])
def test_runs_of_a_moment_ago_are_missed_when_another_run_makes_a_new_store(desk, later):
    old = [half_indexed("one"), half_indexed("two")]
    for run in old:
        index_now(run)
    for path in global_store().parent.glob("experiments.db*"):
        path.unlink()
    index_now(half_indexed("three"))
    words = "2 registered runs are not in"
    if later == "ls":
        assert words in desk.quick("runs", "ls").err
    elif later == "doctor":
        assert f"BAD  store        {global_store()}" in (told := desk.quick("doctor").out)
        assert words in told
    else:
        feed = RunsFeed()
        assert words in feed.complete().problem
        feed.close()
    assert desk.quick("db", "rebuild").code == 0
    assert len(desk.quick("runs", "ls", "--json").document["runs"]) == 3
    assert desk.quick("runs", "ls").err == ""


def test_a_run_at_work_is_not_behind(desk, hold):
    """Its own index process brings its lines into the store."""
    run = half_indexed()
    hold(RunDir(run.path).run_lock)
    assert desk.quick("runs", "ls").err == ""
    assert valid(desk.quick("runs", "ls", "--json"))["runs"][0]["unindexed_bytes"] == 0
    assert stored(run).last_step == 10


@pytest.mark.parametrize("known_by", ["files", "files and store", "store"])
def test_a_completed_run_that_lost_lines_needs_attention_until_it_was_seen(desk, known_by):
    with track.start(name="x") as run:
        run.log({"loss": 1.0}, step=1)
    words = json.loads(run.dir.exit.read_text())
    run.dir.exit.write_text(json.dumps({**words, "lines_lost": 1200}))
    if "store" in known_by:
        index_now(run.dir)
    if "files" not in known_by:
        shutil.rmtree(run.dir.path)
    found = desk.quick("attention", "--json")
    assert found.code == 4
    (entry,) = json.loads(found.out)["items"]
    assert (entry["kind"], entry["run_name"]) == ("lines_lost", "x")
    assert "1,200 lines that it logged could not be written" in entry["summary"]
    if "files" in known_by:
        assert desk.quick("attention", "ack", entry["id"]).code == 0
        assert desk.quick("attention", "--json").code == 0
