"""Files that are damaged, gone or of another time: named, and no other run suffers."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import time

import pytest
from test_feed_watch import (  # noqa: F401  `hold` and `home` are fixtures
    hold,
    home,
    index,
    make_run,
    poll_until,
    words,
    write_state,
)

from albor_core.feed.run.files import RunFiles
from albor_core.feed.run.store_follower import StoreWatch
from albor_core.feed.runs import watch
from albor_core.feed.runs.discover import FolderRuns
from albor_core.feed.runs.watch import RunFeed, RunsFeed
from albor_core.run.files.whole_file import write_json
from albor_core.store.file.paths import global_store
from albor_core.store.query.resolve import find_run

HUGE = 10**400  # JSON, and no float
STATE = b'{"schema":"albor.state/1","attempt":1,"global_step":3}'


def put(path, damage):
    """Leave `damage` (bytes, "folder" or "fifo") where a file was."""
    path.unlink(missing_ok=True)
    if damage == "folder":
        path.mkdir()
    elif damage == "fifo":
        os.mkfifo(path)
    else:
        path.write_bytes(damage)


DAMAGE = pytest.mark.parametrize(
    ("damage", "why"),
    [
        (b"", "is empty"),
        (bytes(300), "is all NUL"),
        (STATE[:30], "is not complete JSON"),
        (b"[1, 2]", "is not a JSON object"),
        ("folder", "is a folder"),
        ("fifo", "is a FIFO"),
    ],
    ids=["empty", "nul", "half", "list", "folder", "fifo"],
)


def details(view):
    return {row.id: row.detail for row in view.rows}


@pytest.mark.parametrize("damage", [None, b"{", "folder"], ids=["gone", "half", "folder"])
def test_news_of_a_live_run_without_a_state_file_grows_old(tmp_path, hold, monkeypatch, damage):  # noqa: F811
    run = make_run(tmp_path, "mute", losses=[3.0, 2.0])
    index(run)
    hold(run)
    run.state.unlink()
    if damage is not None:
        put(run.state, damage)
    now = time.time()
    feeds = RunsFeed(), RunFeed(run)
    for later in (100.0, 3000.0):
        monkeypatch.setattr(time, "time", lambda later=later: now + later)
        for row in (feeds[0].poll().rows[0], feeds[1].poll()):
            assert (row.status, row.step, row.is_live) == ("running", 2, False)
            assert row.age_s == pytest.approx(later, abs=60)
            named = "state file is missing" if damage is None else "training_state.json is "
            assert named in row.detail and "no news yet" not in row.detail


def test_a_program_that_has_written_nothing_yet_is_not_called_damaged(tmp_path, hold):  # noqa: F811
    run = make_run(tmp_path, "young", state=False)
    index(run)
    hold(run)
    (row,) = RunsFeed().poll().rows
    assert (row.detail, row.age_s is None or row.age_s < 60) == ("the program: no news yet", True)


def test_a_number_beyond_a_float_is_unknown_wherever_it_stands(tmp_path, hold):  # noqa: F811
    run = make_run(tmp_path, "huge", losses=[1.0, 2.0])
    make_run(tmp_path, "other", losses=[1.0])
    hold(run)
    write_state(run, [1.0, 2.0], loss_history=[1.0, HUGE, 2.0])
    sound = json.loads(run.state.read_bytes())
    view = RunsFeed().poll()
    assert set(words(view)) == {"huge", "other"}
    row = next(row for row in view.rows if row.id == "huge")
    assert (row.loss_history[0], row.loss_history[2], row.step) == (1.0, 2.0, 2)
    assert row.loss_history[1] != row.loss_history[1]
    for key in sound:
        run.state.write_text(json.dumps({**sound, key: HUGE}))
        assert RunFiles(run).view() is not None, key


def test_a_start_that_no_clock_shows_hides_no_run(tmp_path):
    for name, created in (("odd", HUGE), ("even", 5)):
        run = make_run(tmp_path, name, ended="completed")
        write_json(run.run_json, {**run.metadata(), "created": created})
    view = RunsFeed(tmp_path / "out").poll()
    assert {row.id: row.created for row in view.rows} == {"odd": None, "even": 5.0}
    assert find_run(str(tmp_path / "out")).id == "even"


@pytest.mark.parametrize("error", [OverflowError("too large"), RecursionError(), OSError(5, "I/O")])
def test_a_run_that_cannot_be_read_says_so_and_all_others_are_shown(
    tmp_path,
    hold,  # noqa: F811
    monkeypatch,
    error,
):
    runs = [make_run(tmp_path, name, losses=[3.0]) for name in ("bad", "good")]
    for run in runs:
        hold(run)
    real = RunFiles.view

    def view(files, *known):
        if files.run.id == "bad":
            raise error
        return real(files, *known)

    monkeypatch.setattr(RunFiles, "view", view)
    feed = RunsFeed()
    found = feed.poll()
    assert words(found) == {"bad": "running", "good": "running"}
    assert type(error).__name__ in details(found)["bad"]
    assert "cannot be read" in details(found)["bad"] and details(found)["good"] == ""
    monkeypatch.setattr(RunFiles, "view", real)
    assert details(feed.poll())["bad"] == ""
    monkeypatch.setattr(RunFiles, "view", view)
    hold.release(runs[0])
    assert words(feed.poll())["bad"] == "lost", "a dead run never looks alive"


def test_an_ended_run_that_loses_its_run_json_keeps_its_numbers(tmp_path):
    run = make_run(tmp_path, "a", losses=[3.0], ended="completed")
    feed = RunsFeed()
    feed.poll()
    run.run_json.unlink()
    (row,) = poll_until(feed, lambda view: "run.json is missing" in view.rows[0].detail).rows
    assert (row.status, row.name, row.loss) == ("completed", "name of a", 3.0)


@DAMAGE
def test_a_damaged_state_file_of_an_ended_run_is_named(tmp_path, damage, why):
    run = make_run(tmp_path, "a", losses=[3.0], ended="completed")
    put(run.state, damage)
    (row,) = RunsFeed().poll().rows
    assert (row.status, row.detail) == ("completed", f"training_state.json {why}")


def test_a_state_file_of_another_program_is_named(tmp_path):
    run = make_run(tmp_path, "a", losses=[3.0], ended="completed")
    write_json(run.state, {"epoch": 3})
    assert details(RunsFeed().poll())["a"] == "training_state.json is of another program"


@DAMAGE
def test_a_damaged_run_json_is_named_and_the_run_stays(tmp_path, hold, damage, why):  # noqa: F811
    runs = [make_run(tmp_path, name, losses=[3.0]) for name in ("alive", "over")]
    hold(runs[0])
    feed = RunsFeed(tmp_path / "out")
    assert words(feed.poll()) == {"alive": "running", "over": "lost"}
    for run in runs:
        put(run.run_json, damage)
    view = poll_until(feed, lambda view: all(why in d for d in details(view).values()))
    assert {row.id: row.name for row in view.rows}["alive"] == "name of alive"
    again = {row.id: (row.status, row.step) for row in RunsFeed().complete().rows}
    assert again == {"alive": ("running", 1), "over": ("lost", 1)}


def test_numbers_of_a_newer_version_are_not_shown_as_live(tmp_path, hold):  # noqa: F811
    run = make_run(tmp_path, "a", losses=[3.0])
    write_json(run.state, {**json.loads(run.state.read_bytes()), "schema": "albor.state/9"})
    hold(run)
    (row,) = RunsFeed().poll().rows
    assert (row.status, row.step, row.is_live) == ("running", 1, False)
    assert "albor.state/9" in row.detail and "upgrade albor" in row.detail


def test_folders_that_lost_their_run_json_are_counted_and_one_is_named(tmp_path):
    out = tmp_path / "out"
    runs = [make_run(tmp_path, name, losses=[3.0]) for name in ("r-1", "r-2", "r-3")]
    (out / "notes").mkdir()
    feed = RunsFeed(out)
    assert feed.poll().problem == ""
    runs[0].run_json.unlink()
    put(runs[1].run_json, "fifo")
    view = RunsFeed(out).poll()
    assert set(words(view)) == {"r-3"}
    assert view.problem.startswith("2 folders here look like runs") and "r-1" in view.problem
    shutil.rmtree(runs[0].path)
    shutil.rmtree(runs[1].path)
    assert RunsFeed(out).poll().problem == ""


def test_folders_that_are_no_runs_are_not_searched_at_every_poll(tmp_path, monkeypatch):
    from albor_core.feed.runs import discover

    for number in range(5):
        (tmp_path / f"data-{number}").mkdir()
    found = FolderRuns(tmp_path)
    time.sleep(0.2)  # a listing right at a change is made once more
    found.runs()
    searched = []
    monkeypatch.setattr(discover, "has_records", lambda path: searched.append(path))
    for _ in range(3):
        found.runs()
    assert searched == []


def overwrite(path):
    with path.open("r+b") as file:
        file.write(b"\xff" * path.stat().st_size)


def replace_by_garbage(path):
    spare = path.with_name("spare")
    spare.write_bytes(b"this is no database" * 1000)
    spare.replace(path)


def replace_by_folder(path):
    path.unlink()
    path.mkdir()


LOSSES = pytest.mark.parametrize(
    ("harm", "what"),
    [
        (overwrite, "damaged"),
        (replace_by_garbage, "damaged"),
        (replace_by_folder, "a folder"),
        (os.unlink, "gone"),
    ],
    ids=["overwritten", "garbage", "folder", "removed"],
)


@LOSSES
def test_a_store_lost_under_an_open_cockpit_is_told_until_it_is_back(tmp_path, harm, what):
    index(make_run(tmp_path, "one", losses=[1.0], ended="completed"))
    feed = RunsFeed()
    assert feed.poll().problem == ""
    sound = tmp_path / "sound.db"
    with sqlite3.connect(global_store()) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    shutil.copyfile(global_store(), sound)
    harm(global_store())
    view = poll_until(feed, lambda view: view.problem != "")
    for part in (what, "since ", "albor db rebuild", "rows as of "):
        assert part in view.problem
    time.sleep(0.3)
    assert feed.poll().problem == view.problem, "told once is not told"
    assert words(feed.poll()) == {"one": "completed"}
    if global_store().is_dir():
        global_store().rmdir()
    sound.replace(global_store())
    poll_until(feed, lambda view: view.problem == "")


def test_a_store_of_a_newer_albor_is_read_and_told(tmp_path):
    index(make_run(tmp_path, "one", losses=[1.0], ended="completed"))
    feed = RunsFeed()
    assert feed.poll().problem == ""
    with sqlite3.connect(global_store()) as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    view = poll_until(feed, lambda view: "upgrade albor" in view.problem)
    assert "version 99" in view.problem and words(view) == {"one": "completed"}


def test_a_home_without_a_store_has_no_problem_and_the_time_of_a_trouble_stands_still(
    tmp_path, monkeypatch
):
    path = tmp_path / "experiments.db"
    now = [100.0]
    watch = StoreWatch(path, clock=lambda: now[0])
    assert (watch.rows(), watch.problem) == ({}, "")
    path.write_bytes(b"this is no database" * 1000)
    monkeypatch.setattr(time, "strftime", lambda form: "14:05")
    watch.rows()
    assert "since 14:05" in watch.problem
    monkeypatch.setattr(time, "strftime", lambda form: "15:00")
    now[0] += 10.0
    watch.rows()
    assert "since 14:05" in watch.problem
    path.unlink()
    watch.rows()
    assert watch.problem == ""


def grow_old(*runs):
    """As if made yesterday: the index has had its time."""
    for run in runs:
        write_json(run.run_json, {**run.metadata(), "created": time.time() - 86400})


def lose_the_store():
    for path in global_store().parent.glob("experiments.db*"):
        path.unlink()


def test_rows_stay_when_the_store_is_lost_and_indexers_begin_another(tmp_path, hold):  # noqa: F811
    names = ("one", "two", "bare", "gone")
    runs = [make_run(tmp_path, n, losses=[2.0], ended="completed", state=False) for n in names]
    live = make_run(tmp_path, "live", losses=[3.0])
    grow_old(*runs, live)
    for run in (*runs, live):
        index(run)
    shutil.rmtree(runs[2].path / ".albor")
    shutil.rmtree(runs[3].path)
    hold(live)
    feed = RunsFeed()
    before = feed.complete()
    assert (before.problem, set(words(before))) == ("", {*names, "live"})
    lose_the_store()
    index(live)
    view = poll_until(feed, lambda view: "not in experiments.db" in view.problem)
    assert "3 registered runs are" in view.problem, "nothing brings back what has no folder"
    assert "since " not in view.problem, "since when is not known"
    assert "albor db rebuild" in view.problem
    assert words(view) == words(before)
    assert {row.id: row.loss for row in view.rows} == {row.id: row.loss for row in before.rows}
    for run in runs[:3]:
        index(run)
    poll_until(feed, lambda view: view.problem == "")


def test_runs_that_the_store_lost_are_read_once_and_counted_at_once(tmp_path, monkeypatch):
    names = [f"r{number}" for number in range(8)]
    runs = [make_run(tmp_path, n, losses=[2.0], ended="completed") for n in (*names, "other")]
    grow_old(*runs)
    for run in runs:
        index(run)
    now, reads = [100.0], []
    look = watch._look

    def slow_look(files, row, told):
        now[0] += 0.06  # three of them are a poll's share
        reads.append(files.run.id)
        return look(files, row, told)

    feed = RunsFeed(clock=lambda: now[0])
    feed.complete()
    monkeypatch.setattr(watch, "_look", slow_look)
    lose_the_store()
    for turn in range(6):
        write_state(runs[-1], [2.0], phase="completed", loss=float(turn))
        index(runs[-1])  # another list each time
        now[0] += 10.0
        assert "8 registered runs are" in feed.poll().problem
    assert sorted(run_id for run_id in reads if run_id != "other") == names


def test_a_cockpit_started_on_such_a_store_takes_numbers_from_each_runs_own(tmp_path):
    runs = [make_run(tmp_path, n, losses=[2.0], ended="stopped", state=False) for n in "ab"]
    grow_old(*runs)
    for run in runs:
        index(run)
        run.exit.unlink()
    lose_the_store()
    index(runs[0])
    view = RunsFeed().complete()
    assert "1 registered run is" in view.problem
    rows = {row.id: (row.status, row.loss, row.step) for row in view.rows}
    assert rows == {"a": ("stopped", 2.0, 1), "b": ("stopped", 2.0, 1)}


def test_a_run_that_was_removed_is_not_kept(tmp_path):
    from albor_core.store.upkeep.remove import remove_run

    runs = [make_run(tmp_path, name, losses=[2.0], ended="completed") for name in ("one", "two")]
    grow_old(*runs)
    for run in runs:
        index(run)
    feed = RunsFeed()
    assert len(feed.complete().rows) == 2
    remove_run(runs[0], global_store())
    view = poll_until(feed, lambda view: set(words(view)) == {"two"})
    assert view.problem == ""


@pytest.mark.parametrize("damage", [None, b"", b"[1, 2]", "folder", "fifo"])
def test_a_damaged_run_json_of_a_run_at_work_is_told_where_all_look(tmp_path, hold, damage):  # noqa: F811
    run = make_run(tmp_path, "live", losses=[3.0])
    index(run)
    hold(run)
    all_runs, one = RunsFeed(), RunFeed(run)
    assert (all_runs.poll().problem, one.poll().detail, one.problem) == ("", "", "")
    sound = run.run_json.read_bytes()
    run.run_json.unlink()
    if damage is not None:
        put(run.run_json, damage)
    view = poll_until(all_runs, lambda view: view.problem != "")
    assert view.problem.startswith("name of live: run.json is ")
    one.poll()
    late, later = RunsFeed().poll(), RunFeed(run)
    for row in (view.rows[0], late.rows[0], one.poll(), later.poll()):
        assert (row.status, row.name, row.is_live) == ("running", "name of live", True)
    for told in (view.problem, one.problem, one.poll().detail, late.problem, later.problem):
        assert "since " in told and "put it back from a copy" in told
    put(tmp_path / "sound", sound)
    if run.run_json.is_dir():
        run.run_json.rmdir()
    (tmp_path / "sound").replace(run.run_json)
    poll_until(all_runs, lambda view: view.problem == "")
    assert (one.poll().detail, one.problem) == ("", "")


def test_a_run_json_of_another_version_is_named(tmp_path, hold):  # noqa: F811
    run = make_run(tmp_path, "live", losses=[3.0])
    write_json(run.run_json, {**run.metadata(), "schema": "albor.run/9"})
    hold(run)
    view = RunsFeed().poll()
    for told in (details(view)["live"], view.problem):
        assert "run.json is albor.run/9" in told and "upgrade albor" in told


def test_a_run_whose_own_store_is_damaged_says_so_and_asks_the_one_of_all(tmp_path):
    run = make_run(tmp_path, "a", losses=[3.0, 2.0], ended="completed", alert=True, state=False)
    index(run)
    run.store.write_bytes(b"\xff" * 9000)
    feed = RunFeed(run)
    view = feed.poll()
    assert (view.step, view.loss, len(view.alerts)) == (2, 2.0, 1)
    for part in ("experiments.db: damaged", "since ", "albor db rebuild"):
        assert part in feed.problem


def test_a_run_without_its_own_store_and_journal_has_the_numbers_of_the_one_of_all(tmp_path):
    run = make_run(tmp_path, "a", losses=[3.0, 2.0], ended="completed", state=False)
    index(run)
    shutil.rmtree(run.path / ".albor")
    run.journal.unlink()
    view = RunFeed(run).poll()
    assert (view.status, view.step, view.loss) == ("completed", 2, 2.0)
    assert [event.name for event in view.events] == ["run.start", "run.end"]
    lose_the_store()
    view = RunFeed(run).poll()
    assert (view.step, view.status) == (None, "completed")
    assert view.age_s == pytest.approx(0, abs=60), "its last words have a time"
