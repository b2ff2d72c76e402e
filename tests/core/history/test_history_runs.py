"""albor_core.history: which runs there are, and what each was told and said."""

from __future__ import annotations

import json
import math
import os
import pickle
import shutil
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from albor_core import history
from albor_core.run.errors import NotFoundError, StoreError, UsageError
from albor_core.run.home.registry import register
from albor_core.run.rundir import RunDir
from albor_core.store.file.paths import global_store, local_store
from albor_core.store.index.indexer import index_now
from albor_core.store.query.filter import FilterError
from albor_core.store.query.reader import Reader

HOSTILE = "=cmd()|'x'!A1,\"q\"\n\u202e\x1b[31m $\\frac{ \U0001f600"


@pytest.fixture
def three(maker):
    """Runs `a`, `b` and `c`: ever better, ever larger rates."""
    for place, name in enumerate("abc"):
        maker.make(
            name, [(step, {"val/loss": 3.0 - place + 1 / step}) for step in (1, 2, 4)],
            experiment="sweep" if name != "c" else "other", seed=place,
            params={"optimizer.lr": 10.0**-place, "optimizer.name": "adamw"},
        )  # fmt: skip
    return maker


def test_nothing_is_read_before_the_runs_are_asked_for(albor_home):
    albor_home.joinpath("experiments.db").write_bytes(b"not a store, but longer than a header" * 9)
    runs = history.runs("experiment:sweep")
    repr(runs)
    with pytest.raises(StoreError):
        len(runs)


def test_a_home_without_runs_has_none(albor_home):
    runs = history.runs()
    assert list(runs) == [] and runs.to_list() == []
    assert not list(albor_home.iterdir())  # and reading made nothing


def test_a_home_whose_store_is_gone_is_not_taken_for_an_empty_one(three):
    global_store().unlink()
    with pytest.raises(StoreError, match="no store, though 3 runs"):
        list(history.runs())


def test_runs_are_those_of_the_filter_in_the_order_that_was_asked_for(three):
    assert [run.id for run in history.runs()] == ["c", "b", "a"]
    assert [run.id for run in history.runs("experiment:sweep")] == ["b", "a"]
    assert [run.id for run in history.runs("lr<=0.1 val/loss<2.5")] == ["c", "b"]
    assert [run.id for run in history.runs(sort="val/loss")] == ["c", "b", "a"]  # the best first
    assert [run.id for run in history.runs(sort="lr", reverse=True)] == ["c", "b", "a"]
    assert [run.id for run in history.runs(sort="name", limit=2)] == ["a", "b"]
    assert len(history.runs(limit=0)) == 0


def test_a_list_of_runs_is_a_sequence(three):
    runs = history.runs(sort="name")
    assert runs[0].id == "a" and runs[-1].id == "c"
    assert [run.id for run in runs[1:]] == ["b", "c"]
    assert [row["id"] for row in runs[1:].to_list()] == ["b", "c"]
    assert runs[0] in runs and runs[0] == history.run("a")
    with pytest.raises(IndexError):
        runs[3]


@pytest.mark.parametrize(
    ("said", "why"),
    [("lr<", "value is missing"), ("a b:", "value is missing"), ("x" * 300, "at most 256")],
)
def test_a_filter_that_cannot_be_understood_is_refused_at_once(three, said, why):
    with pytest.raises(FilterError, match=why):
        history.runs(said)


def test_a_misspelt_metric_is_no_empty_answer(three):
    with pytest.raises(FilterError, match="the nearest is 'val/loss'"):
        list(history.runs("val/los<3"))
    with pytest.raises(UsageError, match="cannot sort by 'val/los'"):
        list(history.runs(sort="val/los"))


def test_a_run_says_what_it_was_told_and_what_it_measured(three):
    run = history.run("b")
    assert (run.name, run.experiment, run.kind, run.seed) == ("b", "sweep", "track", 1)
    assert (run.status, run.step) == ("completed", 4)
    assert run.params == {"optimizer.lr": 0.1, "optimizer.name": "adamw"}
    assert run.config == {"optimizer": {"lr": 0.1, "name": "adamw"}}
    best = run.summary["val/loss"]
    assert (best.last, best.best, best.best_step, best.count) == (2.25, 2.25, 4, 3)
    assert run.keys == ("val/loss",)
    assert [event.name for event in run.events] == ["run.end"]
    assert run.events.to_list()[0]["data"]["status"] == "completed"


def test_the_config_is_that_of_the_file_and_survives_the_folder(three):
    run = history.run("a")
    said = {"optimizer": {"lr": 1.0}, "tags": ["x", "y"]}
    run.folder.config_resolved.write_text(json.dumps(said))
    assert run.config == said
    shutil.rmtree(run.path)
    assert run.config == {"optimizer": {"lr": 1.0, "name": "adamw"}}


def test_dotted_keys_that_begin_with_a_value_stay_whole(maker):
    maker.make("odd", params={"a": 1, "a.b": 2, "a.b.c": 3, "d.e": 4, "d.f": 5})
    config = history.run("odd").config
    assert config == {"a": 1, "a.b": 2, "a.b.c": 3, "d": {"e": 4, "f": 5}}


def test_a_run_is_found_by_folder_id_name_and_beginning(three):
    by_folder = history.run(three.folder / "b")
    assert by_folder == history.run("b") == history.run(str(three.folder / "b"))
    with pytest.raises(NotFoundError, match="no run 'nobody'"):
        history.run("nobody")


def test_a_run_that_this_home_does_not_know_is_read_where_it_lies(three, tmp_path, monkeypatch):
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "another"))
    run = history.run(three.folder / "b")
    assert run.params["optimizer.name"] == "adamw"
    assert len(run.metrics("val/loss")) == 3
    assert run.summary["val/loss"].last == 2.25
    assert [event.name for event in run.events] == ["run.end"]


def test_a_store_by_its_path_is_read_in_place_of_the_home(three, tmp_path, monkeypatch):
    copy = tmp_path / "copy.db"
    copy.write_bytes(global_store().read_bytes())
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "another"))
    assert [run.id for run in history.runs("experiment:sweep", db=copy)] == ["b", "a"]
    assert history.run("a", db=copy).params["optimizer.lr"] == 1.0
    with pytest.raises(NotFoundError):
        list(history.runs(db=tmp_path / "nowhere.db"))


def test_what_is_left_of_a_run_whose_folder_is_gone_is_read(three):
    shutil.rmtree(three.folder / "b")
    run = history.run("b")
    assert (run.params["optimizer.lr"], run.summary["val/loss"].last) == (0.1, 2.25)
    assert [event.name for event in run.events] == ["run.end"]
    with pytest.raises(NotFoundError, match="the run directory is gone, and the points with it"):
        run.metrics("val/loss").to_list()
    assert {row["id"] for row in history.runs().to_list()} == {"a", "b", "c"}


def test_a_live_run_is_read_as_far_as_it_is_indexed_and_says_that_it_runs(maker):
    run, journal = maker.start("live")
    for step in range(1, 6):
        journal.metrics(step, {"val/loss": 1.0 / step, "train/loss": 2.0})
    index_now(run)
    holder = hold(run.run_lock)
    try:
        found = history.run("live")
        assert found.status in ("running", "unguarded")
        assert len(found.metrics()) == 5
        assert [run.id for run in history.runs("status:active")] == ["live"]
        assert history.runs().to_list()[0]["status"] == found.status
        journal.metrics(6, {"val/loss": 0.1, "train/loss": 2.0})
        index_now(run)
        assert len(found.metrics()) == 6  # asked again
    finally:
        holder.kill()
        holder.communicate()
        journal.close()


def hold(path):
    """A process that holds a lock, as a program that tracks a run does."""
    script = (
        "import sys; from pathlib import Path; from albor_core.run.liveness import take_lock\n"
        "take_lock(Path(sys.argv[1])); print(1, flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == b"1\n"
    return process


def test_what_a_killed_run_wrote_last_is_indexed_before_it_is_read(maker):
    run, journal = maker.start("killed")
    journal.metrics(1, {"val/loss": 1.0})
    index_now(run)
    journal.metrics(2, {"val/loss": 0.5})
    journal.close()
    assert history.run("killed").metrics("val/loss").to_list() == [
        {"step": 1, "val/loss": 1.0}, {"step": 2, "val/loss": 0.5}
    ]  # fmt: skip
    assert history.run("killed").summary["val/loss"].last == 0.5


def test_the_list_knows_what_killed_runs_wrote_last(maker):
    run, journal = maker.start("killed")
    journal.metrics(1, {"val/loss": 1.0})
    index_now(run)
    journal.metrics(2, {"val/loss": 0.5})
    journal.close()
    old = run.journal.stat().st_mtime - 60
    os.utime(run.journal, (old, old))
    assert history.runs().to_list()[0]["metrics.val/loss"] == 0.5


@pytest.mark.parametrize("name", [HOSTILE, "x" * 900, "\u0661\u0662", "a/b", "<script>", "None"])
def test_names_and_values_come_back_as_they_were_recorded(maker, name, same):
    maker.make(
        "odd", [(1, {"a/b": math.nan}), (2, {"a/b": math.inf}), (3, {"a/b": -math.inf})],
        name=name, experiment=name, params={"text": name, f"key {name}"[:200]: 1, "n": None},
    )  # fmt: skip
    run = history.runs()[0]
    with Reader(local_store(run.folder)) as reader:
        row, params = reader.run("odd"), reader.params("odd")
    assert (run.name, run.experiment) == (row.name, row.experiment) == (name, name)
    assert run.params == params and run.params["text"] == name
    row = history.runs().to_list()[0]
    assert row["params.text"] == name and same(row["metrics.a/b"], -math.inf)
    assert [row["a/b"] for row in run.metrics()][1:] == [math.inf, -math.inf]


def test_a_table_has_a_row_for_each_run_and_a_column_for_all_that_any_has(maker, same):
    maker.make("a", [(1, {"loss": 1.0})], params={"lr": 0.1, "mode": "x", "same": 1})
    maker.make("b", [(1, {"acc": math.nan})], params={"lr": "auto", "flag": True, "same": 2})
    maker.make("c", params={"lr": None, "big": 2**70, "same": 3.5})
    table = history.runs(sort="name").to_list()
    assert [row["id"] for row in table] == ["a", "b", "c"]
    assert [row["params.lr"] for row in table] == [0.1, "auto", None]
    assert [row["params.same"] for row in table] == [1, 2, 3.5]
    assert [row["params.flag"] for row in table] == [None, True, None]
    assert [row["metrics.loss"] for row in table] == [1.0, None, None]
    assert same([row["metrics.acc"] for row in table], [None, math.nan, None])
    assert all(list(row) == list(table[0]) for row in table)


def test_a_table_that_no_memory_holds_is_refused_before_it_is_made(three, monkeypatch):
    from albor_core.history import selection

    monkeypatch.setattr(selection, "_MOST_CELLS", 8)
    with pytest.raises(UsageError, match=r"a table of 3 runs: .* more than 2 different"):
        history.runs().to_list()
    assert len(history.runs("name:a").to_list()) == 1
    assert [run.params["optimizer.name"] for run in history.runs()] == ["adamw"] * 3


def test_a_run_that_was_moved_is_read_where_it_is_now(three):
    moved = three.folder.parent / "elsewhere" / "b"
    moved.parent.mkdir()
    (three.folder / "b").rename(moved)
    register(RunDir(moved))
    run = history.run("b")
    assert run.path == moved and len(run.metrics("val/loss")) == 3


def as_of_version(path, version):
    """The store as an Albor of that version left it."""
    with sqlite3.connect(path) as db:
        if version < 4:
            names = [r[1] for r in db.execute("PRAGMA table_info(keys)") if r[1] != "axis"]
            db.execute(f"CREATE TABLE old_keys AS SELECT {', '.join(names)} FROM keys")
            db.execute("DROP TABLE keys")
            db.execute("ALTER TABLE old_keys RENAME TO keys")
        if version < 3:
            db.execute("DROP TABLE goals")
        if version < 2:
            db.execute("DROP TRIGGER param_names_grow")
            db.execute("DROP TABLE param_names")
            db.execute("DROP TABLE run_search")
        db.execute(f"PRAGMA user_version = {version}")


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_a_store_of_an_older_version_is_read_as_it_is(three, version, tmp_path):
    copy = tmp_path / "old.db"
    copy.write_bytes(global_store().read_bytes())
    as_of_version(copy, version)
    before = copy.read_bytes()
    runs = history.runs("experiment:sweep", sort="name", db=copy)
    assert [run.params["optimizer.lr"] for run in runs] == [1.0, 0.1]
    assert [run.summary["val/loss"].last for run in runs] == [3.25, 2.25]
    assert [row["metrics.val/loss"] for row in runs.to_list()] == [3.25, 2.25]
    assert copy.read_bytes() == before


@pytest.mark.parametrize("version", [1, 3])
def test_points_of_a_store_of_an_older_version_are_read(three, version):
    run = history.run("a")
    local = local_store(run.folder)
    as_of_version(local, version)
    with Reader(local) as reader:
        together = reader.together("a", ["val/loss"])
    assert together == {"val/loss": ((1, 4.0), (2, 3.5), (4, 3.25))}


def test_values_of_another_type_than_the_column_are_no_error(three, same):
    """SQLite stores anything anywhere, and a store may come from a stranger."""
    with sqlite3.connect(global_store()) as db:
        db.execute("UPDATE runs SET seed = 'seven', host = 5, created = 'now' WHERE run = 'a'")
        db.execute("UPDATE runs SET name = CAST(X'ff41' AS TEXT) WHERE run = 'b'")
    table = history.runs(sort="id").to_list()
    assert [row["seed"] for row in table] == ["seven", 1, 2]
    assert table[1]["name"].endswith("A")
    history.runs().to_arrow()


def test_runs_may_be_read_from_any_thread_and_sent_to_another_process(three):
    runs = history.runs(sort="name")
    assert runs[0].params["optimizer.lr"] == 1.0
    found = []
    threads = [
        threading.Thread(
            target=lambda: found.append([run.summary["val/loss"].last for run in runs])
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[3.25, 2.25, 1.25]] * 4
    assert pickle.loads(pickle.dumps(runs[1])).metrics().to_list() == runs[1].metrics().to_list()


def test_a_forked_child_reads_what_its_parent_found(three):
    runs = history.runs(sort="name")
    assert len(runs) == 3
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writing, json.dumps([run.params["optimizer.lr"] for run in runs]).encode())
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert json.loads(os.read(reading, 1000)) == [1.0, 0.1, 0.01]
    os.close(reading), os.close(writing)


def test_a_run_that_is_removed_meanwhile_costs_no_other_run(three):
    runs = history.runs(sort="name")
    assert len(runs) == 3
    with sqlite3.connect(global_store()) as db:
        db.execute("DELETE FROM params WHERE run_id = (SELECT id FROM runs WHERE run = 'b')")
        db.execute("DELETE FROM runs WHERE run = 'b'")
    assert runs[0].params["optimizer.lr"] == 1.0
    assert runs[1].params == {} and runs[1].summary == {}
    assert [row["params.optimizer.lr"] for row in runs.to_list()] == [1.0, None, 0.01]


def test_importing_history_loads_no_library_of_tables():
    code = (
        "import sys; from albor_core import history; history.runs().to_list()\n"
        "heavy = {'numpy', 'pandas', 'polars', 'pyarrow', 'torch', 'matplotlib', 'textual'}\n"
        "assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3])


def test_a_program_reads_its_own_run_while_it_tracks_it(albor_home):
    """Whoever opened and closed the lock's file in this process would end the run for all."""
    code = (
        "from albor_core import history, track\n"
        "run = track.start('mine')\n"
        "for step in range(1, 4): run.log({'loss': 1.0 / step}, step=step)\n"
        "found = history.run(run.id)\n"
        "print(found.status, [one.status for one in history.runs('status:active')], flush=True)\n"
        "found.metrics().to_list()\n"
        "print(run.id, flush=True)\n"
        "input()"
    )
    program = subprocess.Popen(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[3], text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert program.stdout is not None
        word = program.stdout.readline().split()[0]
        assert word in ("running", "unguarded")
        run = RunDir(albor_home / "runs" / program.stdout.readline().strip())
        assert run.liveness().trainer == program.pid
    finally:
        program.communicate("\n", timeout=60)
    assert history.run(run.id).status == "completed"


def test_the_lock_of_a_run_stays_where_it_is_while_the_run_is_read(maker):
    """A viewer that opened and closed a lock of its own process would drop it."""
    run, journal = maker.start("mine")
    journal.metrics(1, {"loss": 1.0})
    index_now(run)
    holder = hold(run.run_lock)
    try:
        before = run.liveness()
        history.run("mine").metrics().to_list()
        assert history.run("mine").status in ("running", "unguarded")
        assert run.liveness() == before and before.is_alive
    finally:
        holder.kill()
        holder.communicate()
        journal.close()
