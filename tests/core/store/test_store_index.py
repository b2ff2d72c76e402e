"""The indexer: exactly once, rewinds, damage, locks."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from albor_core.run.errors import InUseError, NotFoundError
from albor_core.run.journal import Journal
from albor_core.store.file.paths import global_store
from albor_core.store.index import indexer as index
from albor_core.store.index.annotations import annotate, read_annotations
from albor_core.store.index.indexer import Indexer, index_now
from albor_core.store.query.reader import Reader
from albor_core.store.upkeep.rebuild import rebuild


def start_indexer(run, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "albor_core.store.index", str(run.path), *arguments],
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_until(claim, timeout_s=20.0):
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if claim():
            return True
        time.sleep(0.02)
    return False


def values(run, key="train/loss"):
    with Reader(run.store) as reader:
        return {step: value for step, value, _ in reader.points(run.id, key)}


def write_everything(bench, run):
    """A run with two attempts and every kind of line."""
    journal = bench.journal(run)
    journal.append("p", key="optimizer.lr", value=0.001)
    journal.event("run.start", attempt=1, versions={"torch": "2"}, device="cpu")
    for step in range(1, 301):
        journal.metrics(
            step, {"train/loss": 5.0 / step, "optim/lr": 1e-3, "train/tokens": step * 8}
        )
        if step % 50 == 0:
            journal.metrics(step, {"val/loss": 6.0 / step})
    journal.event("andon.alert", step=300, severity="error", id="r@1.300", rule="r", action="stop")
    journal.append("a", name="ckpt", path="checkpoints/step-00000200", kind="checkpoint", bytes=9)
    journal = bench.journal(run, attempt=2)
    journal.rewind(200)
    journal.event("run.start", attempt=2)
    for step in range(201, 251):
        journal.metrics(
            step, {"train/loss": 50.0 + step, "odd": math.nan if step % 2 else math.inf}
        )
    journal.append("s", step=250, prompt="def f(", text="x):")
    journal.event("run.end", status="completed", reason="completed", code=0)
    run.attempts.write_text(
        "".join(
            json.dumps(line) + "\n"
            for line in (
                {"t": "attempt.start", "attempt": 1, "wall": 1.0, "pid": 7, "adopted": False},
                {"t": "attempt.end", "attempt": 1, "wall": 2.0, "code": 139, "class": "crash",
                 "action": "restart", "reason": "signal 11", "signal": "SIGSEGV", "step": 300},
                {"t": "attempt.start", "attempt": 2, "wall": 3.0, "pid": 8},
                {"t": "event", "name": "guard.backoff", "severity": "warning", "wall": 2.5},
                {"t": "attempt.end", "attempt": 2, "wall": 4.0, "code": 0, "class": "ok",
                 "action": "stop", "reason": "completed"},
                {"t": "state", "state": "done", "wall": 4.5},
            )
        )
    )  # fmt: skip
    annotate(run, "tag", "good")
    annotate(run, "note", "two lives")
    annotate(run, "ack", "r@1.300")
    annotate(run, "name", "Renamed")
    annotate(run, "pin")


def test_a_rewind_leaves_every_step_once_and_keeps_what_it_took_back(bench):
    run = bench.run()
    write_everything(bench, run)
    bench.index(run)
    found = values(run)
    assert sorted(found) == list(range(1, 251))
    assert found[200] == 5.0 / 200 and found[201] == 251.0
    assert sorted(values(run, "val/loss")) == [50, 100, 150, 200]
    with Reader(run.store) as reader:
        assert reader.summary(run.id)["train/loss"].maximum == 300.0
        assert reader.run(run.id).last_step == 250
    discarded = sqlite3.connect(run.store).execute("SELECT count(*) FROM metrics_discarded")
    assert discarded.fetchone()[0] == 100 * 4 + 2  # three metrics, the wall time, two evaluations


def test_a_run_row_tells_how_it_ended_and_what_people_said(bench):
    run = bench.run(git={"commit": "abc", "dirty": True})
    write_everything(bench, run)
    bench.index(run)
    for path in (run.store, global_store()):
        with Reader(path) as reader:
            row = reader.run(run.id)
            assert (row.name, row.tags, row.pinned) == ("Renamed", ("good",), True)
            assert (row.ended_status, row.attempts, row.alerts_open) == ("completed", 2, 0)
            assert (row.git_commit, row.git_dirty) == ("abc", True)
            first, second = reader.attempts(run.id)
            assert (first.signal, first.exit_class, first.code) == ("SIGSEGV", "crash", 139)
            assert (second.pid, second.action) == (8, "stop")
            (alert,) = reader.alerts()
            assert alert.acked_by and alert.rule == "r"
            assert not reader.alerts(open_only=True)
            assert [note.text for note in reader.notes(run.id)] == ["two lives"]
            assert reader.params(run.id) == {"optimizer.lr": 0.001}


def test_reading_the_same_bytes_again_changes_nothing(bench, snapshot_of):
    run = bench.run()
    write_everything(bench, run)
    bench.index(run)
    before = snapshot_of(run.store)
    assert bench.index(run) == 0
    assert snapshot_of(run.store) == before


def test_stores_made_again_from_the_journal_say_the_same(bench, snapshot_of):
    runs = [bench.run(name) for name in ("r1", "r2")]
    for run in runs:
        write_everything(bench, run)
        bench.index(run)
    before = [snapshot_of(path) for path in (runs[0].store, runs[1].store, global_store())]
    for run in runs:
        shutil.rmtree(run.store.parent)
    global_store().unlink()
    report = rebuild(None, runs)
    after = [snapshot_of(path) for path in (runs[0].store, runs[1].store, global_store())]
    assert after == before
    assert sorted(report.rebuilt) == ["r1", "r2"] and not report.problems


def test_small_batches_and_one_large_batch_make_the_same_store(bench, snapshot_of, monkeypatch):
    run = bench.run()
    write_everything(bench, run)
    bench.index(run, globally=False)
    large = snapshot_of(run.store)
    levels = level_rows(run)
    shutil.rmtree(run.store.parent)
    monkeypatch.setattr("albor_core.store.index.sources.BATCH_BYTES", 700)
    bench.index(run, globally=False)
    assert snapshot_of(run.store) == large
    assert level_rows(run) == levels and levels


def level_rows(run):
    with sqlite3.connect(run.store) as db:
        names = dict(db.execute("SELECT key_id, name FROM keys"))
        rows = db.execute("SELECT key_id, level, chunk, data FROM metric_levels").fetchall()
    return sorted((names[key], level, chunk, data) for key, level, chunk, data in rows)


def test_a_rebuild_carries_over_runs_whose_folder_is_gone(bench, snapshot_of):
    kept, gone = bench.run("kept"), bench.run("gone")
    for run in (kept, gone):
        write_everything(bench, run)
        bench.index(run)
    before = snapshot_of(global_store())
    shutil.rmtree(gone.path)
    report = rebuild(None, [kept, gone])
    assert report.carried == ["gone"] and report.rebuilt == ["kept"]
    assert snapshot_of(global_store()) == before


@pytest.mark.parametrize("odd", [5, True, "x", {}, None, [[], 3]])
def test_a_run_json_of_odd_kinds_is_indexed_as_far_as_it_goes(bench, odd):
    run = bench.run()
    write_everything(bench, run)
    document = json.loads(run.run_json.read_text())
    names = ("name", "experiment", "kind", "created", "argv", "host", "git", "seed", "versions")
    run.run_json.write_text(json.dumps({**document, **dict.fromkeys(names, odd)}))
    bench.index(run)
    with Reader(global_store()) as reader:
        assert reader.run(run.id).last_step is not None


@pytest.mark.parametrize("damage", ["is missing", "cannot be read"])
def test_a_rebuild_says_whose_folder_it_could_not_read_and_where_its_rows_come_from(
    bench, snapshot_of, damage
):
    kept, hurt = bench.run("kept"), bench.run("hurt")
    for run in (kept, hurt):
        write_everything(bench, run)
        bench.index(run)
    before = snapshot_of(global_store())
    if damage == "is missing":
        hurt.run_json.unlink()
    else:
        hurt.run_json.write_bytes(hurt.run_json.read_bytes()[:20])
    report = rebuild(None, [kept, hurt])
    assert report.rebuilt == ["kept"]
    assert report.carried_from == {"hurt": str(global_store())}
    (problem,) = report.problems
    assert str(hurt.path) in problem and f"run.json {damage} (journal.jsonl" in problem
    assert f"an old copy from {global_store()}" in problem
    assert snapshot_of(global_store()) == before
    global_store().unlink()
    (problem,) = rebuild(None, [kept, hurt]).problems
    assert "no older store has its rows" in problem


def unfit(monkeypatch, run, error):
    """From now on what `run` holds cannot be described."""

    def describe(db, writer, described, *facts):
        if described.id == run.id:
            raise error
        return real(db, writer, described, *facts)

    real = index.describe
    monkeypatch.setattr(index, "describe", describe)


@pytest.mark.parametrize(
    "error",
    [
        OverflowError("int too large to convert to float"),
        UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"),
        RecursionError("maximum recursion depth exceeded"),
        TypeError("unhashable"),
        KeyError("name"),
        sqlite3.InterfaceError("Error binding parameter 1"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_run_that_fits_into_no_store_is_named_and_costs_no_other_its_rows(
    bench, monkeypatch, error
):
    runs = [bench.run(name) for name in ("first", "hurt", "last")]
    for run in runs:
        write_everything(bench, run)
    hurt = runs[1]
    unfit(monkeypatch, hurt, error)
    report = rebuild(None, runs)
    assert report.rebuilt == ["first", "last"]
    (problem,) = report.problems
    assert str(hurt.path) in problem and str(error) in problem
    assert "no older store has its rows" in problem
    assert not list(hurt.path.rglob("*.rebuild*"))
    with Reader(global_store()) as reader:
        assert {row.id for row in reader.runs()} == {"first", "last"}


@pytest.mark.parametrize("store", ["its own", "damaged", "of another run"])
def test_a_run_that_fits_into_no_store_keeps_the_rows_that_it_had(bench, monkeypatch, store):
    runs = kept, hurt = [bench.run(name) for name in ("kept", "hurt")]
    for run in runs:
        write_everything(bench, run)
        bench.index(run)
    if store == "damaged":
        whole = hurt.store.read_bytes()
        hurt.store.write_bytes(whole[:4096] + bytes(len(whole) - 4096))
    elif store == "of another run":
        hurt.store.write_bytes(kept.store.read_bytes())
    unfit(monkeypatch, hurt, OverflowError("int too large to convert to float"))
    report = rebuild(None, runs)
    (problem,) = report.problems
    assert str(hurt.path) in problem and "int too large" in problem
    source = "those of its old store" if store == "its own" else f"from {global_store()}"
    assert source in problem
    with Reader(global_store()) as reader:
        assert {row.id for row in reader.runs()} == {"kept", "hurt"}


@pytest.mark.slow
def test_kill_9_at_any_moment_loses_and_doubles_nothing(bench):
    run = bench.run()
    journal = bench.journal(run)
    done = threading.Event()

    def write() -> None:
        for step in range(1, 4001):
            journal.metrics(step, {"train/loss": float(step), "optim/lr": 1.0})
            time.sleep(0.0005)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    chance = random.Random(7)
    for _ in range(10):
        indexer = start_indexer(run)
        time.sleep(0.15 + chance.random() * 0.4)
        indexer.kill()
        indexer.communicate()
    writer.join()
    assert done.is_set()
    bench.index(run)
    assert values(run) == {step: float(step) for step in range(1, 4001)}
    with Reader(run.store) as reader:
        stat = reader.summary(run.id)["train/loss"]
        assert (stat.count, stat.minimum, stat.maximum) == (4000, 1.0, 4000.0)
    assert sqlite3.connect(run.store).execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_torn_tail_waits_and_garbage_in_the_middle_is_counted(bench):
    run = bench.run()
    journal = bench.journal(run)
    journal.metrics(1, {"train/loss": 1.0})
    with run.journal.open("ab") as file:
        file.write(b"\x00\xff garbage \n")
        file.write(b'{"t":"m","step":2,"v":{"train/loss":9},"crc":1}\n')
    journal.metrics(3, {"train/loss": 3.0})
    with run.journal.open("ab") as file:
        file.write(b'{"t":"m","seq":9')
    bench.index(run)
    assert values(run) == {1: 1.0, 3: 3.0}
    with Reader(run.store) as reader:
        positions = {p.file: p for p in reader.positions(run.id)}
        assert positions["journal"].damaged == 2
    Journal(run.journal, attempt=2).metrics(4, {"train/loss": 4.0})  # cuts the torn tail
    bench.index(run)
    assert values(run) == {1: 1.0, 3: 3.0, 4: 4.0}


HOSTILE = [
    {"v": None, "step": 1},
    {"v": {"k": "text"}, "step": 1},
    {"v": {"k": 1.0}, "step": -1},
    {"v": {"k": 1.0}, "step": 2**70},
    {"v": {"k": 1.0}, "step": "1"},
    {"v": {"": 1.0, "_wall": 2.0, "x" * 300: 1.0, "\ud800": 1.0, "a\nb": 1.0}, "step": 1},
    {"v": {"k": [1.0]}, "step": 1},
    {"v": {"k": 1.0}},
]


@pytest.mark.parametrize("fields", HOSTILE, ids=range(len(HOSTILE)))
def test_a_line_of_a_strange_shape_is_skipped_and_the_next_one_counts(bench, fields):
    run = bench.run()
    journal = bench.journal(run)
    journal.append("m", **fields)
    journal.append("x", what="unknown kind")
    journal.append("r", to="back")
    journal.append("e", name=3)
    journal.metrics(5, {"train/loss": 1.0})
    bench.index(run)
    assert values(run) == {5: 1.0}
    with Reader(run.store) as reader:
        assert reader.keys(run.id) == ("train/loss",)
        skipped = next(p for p in reader.positions(run.id) if p.file == "journal")
        assert skipped.damaged + skipped.ignored == 4


def test_an_integer_beyond_floats_is_the_infinity_of_its_sign(bench):
    run = bench.run()
    journal = bench.journal(run)
    for step, value in enumerate((1.0, 10**400, -(10**400))):
        journal.append("m", step=step, v={"train/loss": value}, wall=10**400)
    journal.append("p", key="lr", value=10**400)
    journal.metrics(5, {"train/loss": 2.0})
    bench.index(run)
    assert values(run) == {0: 1.0, 1: math.inf, 2: -math.inf, 5: 2.0}
    assert rebuild(None, [run]).problems == []
    assert values(run)[1] == math.inf


def test_hostile_names_are_kept_as_data(bench):
    names = [
        "x'); DROP TABLE runs;--",
        "[@click=app.quit]x[/]",
        "\x1b]52;c;x\x07",
        "a\r\nb",
        "\xe9\ud800",
    ]
    for i, name in enumerate(names):
        run = bench.run(f"r{i}", name=name, experiment=name)
        journal = bench.journal(run)
        journal.event(name, note=name)
        journal.append("p", key=name, value=name)
        journal.metrics(1, {"train/loss": 1.0})
        annotate(run, "tag", name.encode("ascii", "replace").decode())
        bench.index(run)
    with Reader(global_store()) as reader:
        rows = reader.runs(sort="name")
        assert len(rows) == len(names)
        assert {row.name for row in rows} >= set(names[:4])
        assert [row.id for row in reader.runs(name="drop table")] == ["r0"]
        assert [row.id for row in reader.runs(experiment=names[1])] == ["r1"]


def test_nan_and_inf_survive_and_are_not_each_other(bench):
    run = bench.run()
    journal = bench.journal(run)
    given = {1: 1.0, 2: math.nan, 3: math.inf, 4: -math.inf, 5: math.nan}
    for step, value in given.items():
        journal.metrics(step, {"train/loss": value, "unknown": None})
    bench.index(run)
    assert repr(values(run)) == repr(given)
    for path in (run.store, global_store()):
        with Reader(path) as reader:
            stat = reader.summary(run.id)["train/loss"]
            assert (stat.count, stat.nonfinite, stat.best, stat.best_step) == (5, 4, 1.0, 1)
            assert (stat.minimum, stat.maximum) == (-math.inf, math.inf)
            assert math.isnan(stat.last) and math.isnan(reader.run(run.id).loss)
            assert reader.keys(run.id) == ("train/loss",)


def test_a_repeated_step_overwrites_and_old_extremes_are_forgotten(bench):
    run = bench.run()
    journal = bench.journal(run)
    for step in range(1, 101):
        journal.metrics(step, {"train/loss": -500.0 if step == 50 else 1.0})
    bench.index(run)
    journal.metrics(50, {"train/loss": 2.0})
    bench.index(run)
    with Reader(run.store) as reader:
        stat = reader.summary(run.id)["train/loss"]
        assert (stat.count, stat.minimum, stat.maximum, stat.last_step) == (100, 1.0, 2.0, 100)
        assert min(reader.series(run.id, "train/loss", max_points=5).minimum) == 1.0
        assert max(reader.series(run.id, "train/loss", max_points=5).maximum) == 2.0


def test_a_replaced_journal_is_indexed_from_the_start(bench):
    run = bench.run()
    journal = bench.journal(run)
    for step in range(1, 50):
        journal.metrics(step, {"old": 1.0, "train/loss": 1.0})
    bench.index(run)
    run.journal.unlink()
    journal = bench.journal(run)
    for step in range(1, 90):
        journal.metrics(step, {"train/loss": 2.0})
    bench.index(run)
    assert values(run) == dict.fromkeys(range(1, 90), 2.0)
    with Reader(global_store()) as reader:
        assert reader.keys(run.id) == ("train/loss",)


@pytest.mark.parametrize("damage", ["header", "page", "cut", "zeros", "not_ours"])
def test_a_damaged_store_is_set_aside_and_made_again(bench, snapshot_of, damage):
    run = bench.run()
    write_everything(bench, run)
    bench.index(run)
    before = values(run)
    raw = bytearray(run.store.read_bytes())
    if damage == "header":
        raw[:64] = b"x" * 64
    elif damage == "page":
        for page in range(1, len(raw) // 4096):
            raw[page * 4096 : page * 4096 + 200] = b"\xa5" * 200
    elif damage == "cut":
        del raw[5000:]
    elif damage == "zeros":
        raw[100:] = bytes(len(raw) - 100)
    run.store.unlink()
    if damage == "not_ours":
        with sqlite3.connect(run.store) as db:
            db.execute("CREATE TABLE runs (a)")
            db.execute("PRAGMA user_version = 1")
    else:
        run.store.write_bytes(raw)
    journal = Journal(run.journal, attempt=3)
    journal.metrics(251, {"train/loss": 1.0})
    bench.index(run)
    assert values(run) == {**before, 251: 1.0}
    assert len(list(run.store.parent.glob("corrupt-*/experiments.db"))) == 1
    with Reader(run.store) as reader:
        (event,) = reader.events(run.id, names=("store.quarantined",))
        assert event.severity == "warning"
    assert read_annotations(run)[-1].by == "index"


def test_stores_that_are_removed_while_a_run_works_are_made_again_whole(bench, snapshot_of):
    run = bench.run()
    write_everything(bench, run)
    with Indexer(run, global_store()) as indexer:
        indexer.drain()
        for folder in (run.store.parent, global_store().parent):
            for path in folder.glob("experiments.db*"):
                path.unlink()
        bench.journals[run.id].metrics(999, {"train/loss": 1.0})
        indexer.drain()
        found = [snapshot_of(path) for path in (run.store, global_store())]
    assert rebuild(None, [run]).problems == []
    assert [snapshot_of(path) for path in (run.store, global_store())] == found


def test_a_store_that_goes_with_its_whole_run_is_not_made_again(bench):
    run = bench.run()
    write_everything(bench, run)
    with Indexer(run, None) as indexer:
        indexer.drain()
        shutil.rmtree(run.path)
        with pytest.raises(NotFoundError):
            indexer.step()
    assert not run.path.exists()


def test_a_missing_wal_costs_nothing_but_indexing_again(bench):
    run = bench.run()
    journal = bench.journal(run)
    journal.metrics(1, {"train/loss": 1.0})
    bench.index(run)
    indexer = start_indexer(run)
    try:
        assert wait_until(lambda: indexer.poll() is not None)  # nobody holds the run: it ends
    finally:
        indexer.kill()
        indexer.communicate()
    script = (
        "import os,sys;from pathlib import Path;from albor_core.run.rundir import RunDir;"
        "from albor_core.store.index.indexer import Indexer;"
        "i=Indexer(RunDir(Path(sys.argv[1])),None);i.step();os.kill(os.getpid(),9)"
    )
    journal.metrics(2, {"train/loss": 2.0})
    subprocess.run([sys.executable, "-c", script, str(run.path)], timeout=30, check=False)
    for suffix in ("-wal", "-shm"):
        run.store.with_name(run.store.name + suffix).unlink()
    bench.index(run)
    assert values(run) == {1: 1.0, 2: 2.0}


def test_a_second_indexer_is_refused_while_the_first_works(bench):
    run = bench.run()
    bench.journal(run).metrics(1, {"train/loss": 1.0})
    first = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run.path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert first.stdout.readline() == "held\n"
        with pytest.raises(InUseError, match=str(first.pid)):
            Indexer(run, None)
        assert index_now(run) == 0
        second = start_indexer(run, "--once")
        assert "already held" in second.communicate(timeout=30)[1]
        assert second.returncode == 8
    finally:
        first.kill()
        first.communicate()


HOLD = """
import sys, time
from pathlib import Path
from albor_core.run.rundir import RunDir
from albor_core.store.index.indexer import Indexer
with Indexer(RunDir(Path(sys.argv[1])), None) as indexer:
    indexer.step()
    print("held", flush=True)
    time.sleep(60)
"""

ALIVE = """
import sys, time
from pathlib import Path
from albor_core.run.liveness import take_lock
lock = take_lock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""


def test_the_process_follows_a_live_run_and_ends_after_it(bench):
    run = bench.run()
    trainer = subprocess.Popen(
        [sys.executable, "-c", ALIVE, str(run.run_lock)], stdout=subprocess.PIPE, text=True
    )
    assert trainer.stdout.readline() == "held\n"
    journal = bench.journal(run)
    journal.metrics(1, {"train/loss": 1.0})
    indexer = start_indexer(run)
    try:
        assert wait_until(lambda: run.store.exists() and len(stored(run)) == 1)
        journal.metrics(2, {"train/loss": 2.0})
        assert wait_until(lambda: len(stored(run)) == 2)
        assert indexer.poll() is None
        journal.metrics(3, {"train/loss": 3.0})
        trainer.kill()
        assert indexer.wait(20) == 0
        assert values(run) == {1: 1.0, 2: 2.0, 3: 3.0}
        with Reader(global_store()) as reader:
            assert reader.run(run.id).last_step == 3
            assert reader.series(run.id, "train/loss").last[-1] == 3.0
    finally:
        for process in (trainer, indexer):
            process.kill()
            process.communicate()


def stored(run):
    try:
        return values(run)
    except Exception:  # the store is being made
        return {}


def test_sigterm_and_a_vanished_run_end_the_process_cleanly(bench):
    for act, code in (("term", 0), ("gone", 3)):
        run = bench.run(act)
        trainer = subprocess.Popen(
            [sys.executable, "-c", ALIVE, str(run.run_lock)], stdout=subprocess.PIPE, text=True
        )
        assert trainer.stdout.readline() == "held\n"
        bench.journal(run).metrics(1, {"train/loss": 1.0})
        indexer = start_indexer(run)
        try:
            assert wait_until(lambda: run.store.exists() and stored(run))  # noqa: B023
            if act == "term":
                indexer.send_signal(signal.SIGTERM)
            else:
                run.path.rename(run.path.with_name("away"))  # whole: an indexer may write meanwhile
                shutil.rmtree(run.path.with_name("away"))
            talk = indexer.communicate(timeout=20)[1]
            assert indexer.returncode == code
            assert "Traceback" not in talk
        finally:
            for process in (trainer, indexer):
                process.kill()
                process.wait()


def test_a_locked_store_delays_rows_and_loses_none(bench):
    run = bench.run()
    journal = bench.journal(run)
    journal.metrics(1, {"train/loss": 1.0})
    bench.index(run)
    lockers = [sqlite3.connect(path, isolation_level=None) for path in (run.store, global_store())]
    for db in lockers:
        db.execute("BEGIN IMMEDIATE")
    started = time.monotonic()
    journal.metrics(2, {"train/loss": 2.0})
    waited = time.monotonic() - started
    indexer = start_indexer(run)
    time.sleep(2.0)
    assert values(run) == {1: 1.0}
    for db in lockers:
        db.execute("ROLLBACK")
        db.close()
    talk = indexer.communicate(timeout=20)[1]
    assert indexer.returncode == 0, talk
    assert waited < 0.05
    assert values(run) == {1: 1.0, 2: 2.0}
    with Reader(global_store()) as reader:
        assert reader.run(run.id).last_step == 2


def test_a_ruined_global_store_stops_neither_indexing_nor_its_end(bench, monkeypatch, capfd):
    monkeypatch.setattr("albor_core.store.index.indexer.LAST_TRIES", 2)
    run = bench.run()
    bench.journal(run).metrics(1, {"train/loss": 1.0})
    global_store().write_bytes(b"ruined" * 1000)
    with Indexer(run, global_store()) as indexer:
        indexer.run_until_ended()
    assert values(run) == {1: 1.0}
    assert capfd.readouterr().err.count(str(global_store())) == 1
    assert global_store().read_bytes() == b"ruined" * 1000


def test_a_viewer_that_never_lets_go_delays_no_row(bench, monkeypatch):
    monkeypatch.setattr("albor_core.store.file.connect.CHECKPOINT_BYTES", 1)
    run = bench.run()
    journal = bench.journal(run)
    journal.metrics(1, {"train/loss": 1.0})
    bench.index(run)
    viewer = sqlite3.connect(f"file:{run.store}?mode=ro", uri=True, isolation_level=None)
    with Indexer(run, None) as indexer:
        viewer.execute("BEGIN")
        assert viewer.execute("SELECT count(*) FROM metrics").fetchone() == (2,)
        started = time.monotonic()
        for step in range(2, 12):
            journal.metrics(step, {"train/loss": 1.0})
            assert indexer.step() == 1
        assert time.monotonic() - started < 4.0  # waiting for the viewer would take 5 s a step
        assert viewer.execute("SELECT count(*) FROM metrics").fetchone() == (2,)
        viewer.close()
    assert len(values(run)) == 11


def test_a_directory_that_is_no_run_is_named(tmp_path):
    from albor_core.run.rundir import RunDir

    with pytest.raises(NotFoundError, match=r"run\.json"):
        Indexer(RunDir(tmp_path), None)


def test_stores_are_private_whatever_the_umask(bench):
    old = os.umask(0)
    try:
        run = bench.run()
        bench.journal(run).metrics(1, {"train/loss": 1.0})
        bench.index(run)
    finally:
        os.umask(old)
    for path in (run.store, global_store()):
        assert path.stat().st_mode & 0o777 == 0o600
    assert Path(run.store.parent).stat().st_mode & 0o777 == 0o700
