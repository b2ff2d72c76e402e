"""A disk that takes nothing more: a stop works all the same, and every refusal names the place and
what helps.

Three kinds: a file size limit of 0, under which any write fails, a read-only mount of the home, and
a small disk without a free byte.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from cli_user import ALBOR, User, strict, wait_until
from read_only import on_a_small_disk, where_read_only

from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.run.rundir import RunDir, read_json
from albor_core.store.file import connect, home_store
from albor_core.store.file.paths import global_store
from albor_core.store.index import catch_up
from albor_core.store.index.annotations import read_annotations
from albor_core.store.index.indexer import index_now
from albor_core.store.upkeep import remove

ROOT = str(Path(__file__).resolve().parents[3])
NAP = "import time; time.sleep(600)"  # outlives the test, which stops it


@pytest.fixture
def desk(tmp_path):
    (tmp_path / "work").mkdir()
    made = User(tmp_path / "work", tmp_path / "home")
    yield made
    if RunDir(made.home / "runs" / "nap").liveness().is_alive:
        assert made.albor("guard", "stop", "nap").code == 0


@pytest.fixture
def nap(desk):
    """A guarded program that sleeps."""
    words = ("guard", "run", "--name", "nap", "--detach", "--", sys.executable, "-c", NAP)
    assert desk.albor(*words).code == 0
    run = RunDir(desk.home / "runs" / "nap")
    wait_until(lambda: run.liveness().trainer)
    return run


def limited(desk, *words):
    """`albor` where no file may grow."""
    argv = ["bash", "-c", 'ulimit -f 0; exec "$@"', "bash", *ALBOR, *words]
    return whole(
        subprocess.run(
            argv, cwd=desk.folder, env=desk.environment(), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=120,
        )
    )  # fmt: skip


def read_only(desk, *words):
    """`albor` where its home is on a read-only mount."""
    argv = [*ALBOR, *words]
    return whole(where_read_only(desk.home, argv, cwd=desk.folder, env=desk.environment()))


def whole(done):
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.mark.parametrize("disk", [limited, read_only])
def test_a_run_can_be_stopped_when_no_file_can_be_written(desk, nap, disk):
    stopped = disk(desk, "guard", "stop", "nap", "--json")
    assert stopped.returncode == 0, stopped
    document = strict(stopped.stdout)
    assert (document["command"], document["status"]) == ("stop", "done")
    assert "signal" in document["detail"]
    assert not nap.liveness().is_alive
    assert (read_json(nap.guard / "guard.json") or {})["state"] == "stopped"


@pytest.mark.parametrize(
    ("disk", "helps"), [(limited, "ulimit -f unlimited"), (read_only, "remount,rw")]
)
def test_what_cannot_be_said_names_the_place_and_what_helps(desk, nap, disk, helps):
    for words in ("guard pause nap", "runs tag nap x", "runs note nap x", "runs pin nap"):
        refused = disk(desk, *words.split())
        assert (refused.returncode != 0, refused.stdout) == (True, ""), words
        assert str(nap.path) in refused.stderr and helps in refused.stderr, words
        assert "--help" not in refused.stderr
    assert list(read_annotations(nap)) == [] and not list((nap.guard / "inbox").iterdir())


def test_on_a_read_only_home_history_is_read_and_the_living_are_alive(desk, nap):
    assert desk.albor("runs", "show", "nap", "--json").code == 0  # its stores are made
    shown = strict(read_only(desk, "runs", "show", "nap", "--json").stdout)
    assert shown["status"] == "running"
    (listed,) = strict(read_only(desk, "runs", "ls", "--json").stdout)["runs"]
    assert listed["status"] == "running"
    for words in ("db rebuild", "runs gc", "runs rm nap --yes", "runs export nap -o {}/x.csv"):
        done = read_only(desk, *words.format(desk.home).split())
        if done.returncode:
            assert str(desk.home) in done.stderr or "nap" in done.stderr, words
            assert "next:" in done.stderr, words
    assert nap.liveness().is_alive and nap.run_json.exists()


def test_a_run_that_no_store_has_is_not_said_to_be_none(desk, monkeypatch):
    monkeypatch.setenv("ALBOR_HOME", str(desk.home))
    new, other = (
        create_run(desk.home / "runs", name, experiment="e", name=name, kind="track", argv=[])
        for name in ("new", "other")
    )
    for store_is_there in (False, True):
        if store_is_there:
            index_now(other)
        refused = read_only(desk, "runs", "show", "new")
        assert (refused.returncode, refused.stdout) == (3, "")
        assert "run 'new' is in no store yet" in refused.stderr
        assert f"albor db rebuild {new.path}" in refused.stderr


# -- commands on a disk without a free byte ------------------------------------------------------

FILLED = """
import json, os, shutil, subprocess, sys
from albor_core import track
from albor_core.guard.process.index_process import IndexProcess
from albor_core.store.index.catch_up import drain_index
IndexProcess.tend = lambda self: None
home, commands = os.environ["ALBOR_HOME"], json.loads(sys.argv[1])
names = {}
for name in ("one", "two"):
    with track.start(name=name) as run:
        for step in range(1, 301):
            run.log({"loss": 1.0 / step}, step=step)
    drain_index(run.dir)
    names[name] = run.id
with open(home + "/ballast", "wb", buffering=0) as file:
    try:
        while True:
            file.write(bytes(4096))
    except OSError:
        pass
results = []
for words in commands:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "albor_core.cli", *[names.get(w, w) for w in words]],
        capture_output=True, text=True,
    )
    free = shutil.disk_usage(home).free
    results.append([done.returncode, done.stdout, done.stderr, free])
print(json.dumps({"names": names, "results": results, "runs": os.listdir(home + "/runs")}))
"""


def on_a_full_disk(desk, *commands):
    """What the commands, in this order, leave on the terminal and how much room."""
    argv = [sys.executable, "-c", FILLED, json.dumps([words.split() for words in commands])]
    environ = {**desk.environment(), "PYTHONPATH": ROOT}
    done = whole(on_a_small_disk(desk.home, "4m", argv, cwd=desk.folder, env=environ))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for words, (_, _, err, _) in zip(commands, found["results"], strict=True):
        assert "Traceback" not in err, (words, err)
    return found


def test_on_a_full_disk_a_run_is_removed_its_room_is_free_and_nothing_is_left_of_it(desk):
    found = on_a_full_disk(desk, "runs ls", "runs rm one -y", "runs ls --json", "runs gc -y")
    names, (before, removed, listed, swept) = found["names"], found["results"]
    assert (removed[0], before[3]) == (0, 0) and removed[3] > 100_000
    assert [row["id"] for row in json.loads(listed[1])["runs"]] == [names["two"]]
    assert swept[1].startswith("0 leftovers")
    assert sorted(found["runs"]) == sorted((names["two"], f"{names['two']}.json"))


def test_on_a_full_disk_history_can_be_read(desk):
    words = ("runs ls", "runs show one", "runs tail one", "runs diff one two", "db check")
    found = on_a_full_disk(desk, *words)
    for word, (code, _, err, _) in zip(words, found["results"], strict=True):
        assert (code, err) == (0, ""), word
    assert "loss" in found["results"][1][1]


def test_what_a_full_disk_has_no_room_for_is_refused_in_words_and_changes_nothing(desk):
    found = on_a_full_disk(desk, "db rebuild", "runs tag one x", "doctor", "runs ls --json")
    rebuilt, tagged, looked, listed = found["results"]
    for code, out, err, _ in (rebuilt, tagged):
        assert (code, out) == (1, "")
        assert "next: free some space there, then run it again" in err
    assert f"{desk.home}/experiments.db.rebuild: database or disk is full" in rebuilt[2]
    assert "BAD  disk" in looked[1] and "ok   store" in looked[1]
    assert len(json.loads(listed[1])["runs"]) == 2


@pytest.fixture
def runs(desk, monkeypatch):
    """Two ended runs, indexed."""
    monkeypatch.setenv("ALBOR_HOME", str(desk.home))
    made = [
        create_run(desk.home / "runs", name, experiment="e", name=name, kind="track", argv=[])
        for name in ("one", "two")
    ]
    for run in made:
        journal = Journal(run.journal, attempt=1)
        journal.metrics(1, {"train/loss": 1.0})
        journal.close()
        index_now(run)
    return made


@pytest.mark.parametrize("words", [
    *("runs ls", "runs show one", "runs diff one two", "runs tail one", "db check", "db rebuild"),
    *("runs gc -y", "doctor", "runs rm one -y", "runs tag one x", "runs export one -o x.csv"),
])  # fmt: skip
def test_under_a_file_size_limit_a_command_works_or_says_what_helps(desk, runs, words):
    done = limited(desk, *words.split())
    if done.returncode and words != "doctor":
        assert "next: raise the file size limit (ulimit -f unlimited)" in done.stderr
    assert {row["id"] for row in strict(desk.albor("runs", "ls", "--json").out)["runs"]} >= {"two"}
    assert desk.albor("db", "rebuild").code == 0


class Full(sqlite3.OperationalError):
    sqlite_errorcode = sqlite3.SQLITE_FULL


def test_a_removal_that_the_store_had_no_room_for_is_finished_by_the_next(desk, runs, monkeypatch):
    def refuse(*_args, **_more):
        raise Full("database or disk is full")

    with monkeypatch.context() as here:
        here.setattr(remove, "open_writer", refuse)
        refused = desk.quick("runs", "rm", "one", "-y")
    assert refused.code == 1 and "Traceback" not in refused.err
    assert f"{global_store()}: database or disk is full" in refused.err
    assert "next: free some space there, then run it again" in refused.err
    assert not runs[0].path.exists()
    assert desk.quick("runs", "rm", "one", "-y").code == 0
    assert "one" not in desk.quick("runs", "ls").out
    assert not (desk.home / "runs" / "one.json").exists()


def test_a_removal_that_was_killed_is_finished_by_the_next(desk, runs):
    half = remove.doom(runs[0])
    done = desk.quick("runs", "rm", "one", "-y")
    assert done.code == 0 and not half.exists()
    assert "one" not in desk.quick("runs", "ls").out
    assert desk.quick("runs", "gc", "-y").out.startswith("0 leftovers")


MAKE_STORE = """
import sys
from pathlib import Path
from albor_core.store.file.connect import open_writer
open_writer(Path(sys.argv[1]))
"""


def test_a_store_that_a_full_disk_left_half_made_is_named_and_rebuilt(desk, runs, monkeypatch):
    for wait in (connect, home_store, catch_up):
        monkeypatch.setattr(wait, "MAKING_S", 0.1)  # nobody is making it
    store = runs[0].store
    for suffix in ("", "-wal", "-shm"):
        store.with_name(store.name + suffix).unlink(missing_ok=True)
    argv = ["bash", "-c", 'ulimit -f 60; exec "$@"', "bash", sys.executable, "-c", MAKE_STORE]
    made = subprocess.run(
        [*argv, store], env={**desk.environment(), "PYTHONPATH": ROOT}, check=False
    )
    assert made.returncode != 0 and store.stat().st_size == 4096
    for words in ("runs show one", "db check"):
        told = desk.quick(*words.split())
        assert told.code == 1, words
        assert f"{store}: only partly written, e.g. by a full disk" in told.err, words
        assert "next: albor db rebuild" in told.err, words
    assert desk.quick("db", "rebuild").code == 0
    assert desk.quick("db", "check").code == 0
    assert "step 1" in desk.quick("runs", "show", "one").out


@pytest.mark.parametrize("disk, first", [
    ({"f_bavail": 10}, "free some space in {home} (its disk is full)"),
    ({"f_files": 9, "f_favail": 0}, "remove some files in {home} (its disk has no inode left)"),
    ({"f_flag": os.ST_RDONLY}, "mount -o remount,rw (the file system of {home} is read-only)"),
    ({}, ""),
])  # fmt: skip
def test_where_no_store_could_be_made_what_helps_is_said_before_the_rebuild(
    desk, runs, monkeypatch, disk, first
):
    monkeypatch.setattr(home_store, "MAKING_S", 0.0)  # nobody is making it
    global_store().unlink()
    known = {"f_bavail": 1 << 20, "f_frsize": 4096, "f_files": 0, "f_favail": 0, "f_flag": 0}
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(**{**known, **disk}))
    hint = "albor db rebuild"
    hint = f"{first.format(home=desk.home)}, then: {hint}" if first else hint
    for words in ("runs ls", "alerts ls", "db query PRAGMA", "runs diff one two"):
        refused = desk.quick(*words.split(), "--json")
        assert (refused.code, refused.error["hint"]) == (3, hint), words
