"""What a store survives: kills within transactions and upgrades, damage, odd media, strangers."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from read_only import where_read_only

from albor_core.guard import __main__ as guard
from albor_core.guard.preflight import check
from albor_core.run.errors import StoreError, UsageError
from albor_core.run.files.ownership import distrust
from albor_core.store.file import connect, migrations
from albor_core.store.file.connect import (
    checkpoint_if_large,
    exclusive,
    open_writer,
    problems,
    transaction,
)
from albor_core.store.file.paths import global_store, local_store
from albor_core.store.file.schema import SCHEMA_VERSION
from albor_core.store.index.annotations import annotate, read_annotations
from albor_core.store.index.backup import back_up_daily
from albor_core.store.index.catch_up import drain_index
from albor_core.store.index.indexer import Indexer
from albor_core.store.query.reader import Reader
from albor_core.store.upkeep.rebuild import rebuild

ROOT = Path(__file__).resolve().parents[3]


def program(code, *arguments, **more):
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=ROOT, capture_output=True, text=True, timeout=120, **more,
    )  # fmt: skip


def written(bench, run_id="r1", steps=40):
    run = bench.run(run_id)
    journal = bench.journal(run)
    for step in range(1, steps + 1):
        journal.metrics(step, {"train/loss": 1.0 / step, "val/loss": math.nan})
    journal.rewind(steps - 5)
    journal.event("andon.alert", severity="error", id="a", rule="r", action="stop")
    annotate(run, "tag", "kept")
    return run


DYING = """
import os, sys
from pathlib import Path
from albor_core.store.file import connect
count = [0]
def note(statement):
    count[0] += 1
    if count[0] == int(sys.argv[2]):
        os.kill(os.getpid(), 9)
real = connect._configure
def traced(db, busy_ms):
    real(db, busy_ms)
    db.set_trace_callback(note)
connect._configure = traced
"""  # kill -9 before the statement numbered by the second argument

DIE_AT = (
    DYING
    + """
from albor_core.run.rundir import RunDir
from albor_core.store.index.indexer import Indexer
from albor_core.store.file.paths import global_store
with Indexer(RunDir(Path(sys.argv[1])), global_store()) as indexer:
    indexer.drain()
print(count[0])
"""
)


@pytest.mark.slow
def test_an_indexer_killed_at_any_statement_leaves_each_line_in_the_stores_once(bench, snapshot_of):
    """S1, S8: the statements are those of both stores, spread over all that an indexing takes."""
    run = written(bench)
    whole = int(program(DIE_AT, run.path, 0).stdout)
    wanted = [snapshot_of(path) for path in (run.store, global_store())]
    chance = random.Random(5)
    for nth in sorted({1, whole, *(chance.randrange(1, whole) for _ in range(20))}):
        shutil.rmtree(run.store.parent)
        for path in global_store().parent.glob("experiments.db*"):
            path.unlink()
        assert program(DIE_AT, run.path, nth).returncode == -signal.SIGKILL
        bench.index(run)
        assert [snapshot_of(path) for path in (run.store, global_store())] == wanted, nth
        with sqlite3.connect(run.store) as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",), nth


COMMIT = """
import sys, time
from pathlib import Path
from albor_core.store.file.connect import checkpoint_if_large, exclusive, open_writer, transaction
from albor_core.store.file import connect
connect.CHECKPOINT_BYTES = 1
path, who, until = Path(sys.argv[1]), int(sys.argv[2]), time.monotonic() + float(sys.argv[3])
done = 0
while time.monotonic() < until:
    with exclusive(path, wait_s=30):
        db = open_writer(path)
        with transaction(db):
            for n in range(20):
                db.execute("INSERT INTO metrics VALUES (?,0,?,?)", (who, done, 0.5))
                done += 1
        if done % 3 == 0:
            checkpoint_if_large(db, path)
        db.close()
print(done)
"""


@pytest.mark.slow
def test_writers_and_checkpoints_at_once_keep_the_store_whole(tmp_path):
    """S4: every commit and checkpoint under the one lock, whatever this SQLite's bugs."""
    path = tmp_path / "experiments.db"
    open_writer(path).close()
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", COMMIT, str(path), str(who), "3"],
            cwd=ROOT, stdout=subprocess.PIPE, text=True,
        )
        for who in (1, 2, 3)
    ]  # fmt: skip
    counts = [int(writer.communicate(timeout=60)[0]) for writer in writers]
    with sqlite3.connect(path) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        found = db.execute("SELECT run_id, count(*) FROM metrics GROUP BY run_id").fetchall()
    assert found == list(enumerate(counts, 1)) and min(counts) > 0


def test_checkpoints_wait_for_the_lock_that_commits_hold(tmp_path):
    """S4's rule itself: nobody checkpoints the global store on their own."""
    path = tmp_path / "experiments.db"
    db = open_writer(path)
    try:
        assert db.execute("PRAGMA wal_autocheckpoint").fetchone() == (0,)
        wal = path.with_name("experiments.db-wal")
        for n in range(3000):
            db.execute("INSERT INTO metrics VALUES (1, 0, ?, 0.5)", (n,))
        assert wal.stat().st_size > 4000 * 1024  # SQLite by itself would have emptied it at 1,000
        with exclusive(path):
            checkpoint_if_large(db, path)
        assert wal.stat().st_size == 0
    finally:
        db.close()


def test_a_viewer_that_never_lets_go_is_told_to(bench, monkeypatch):
    """S3."""
    monkeypatch.setattr("albor_core.store.index.indexer.WAL_ALARM_BYTES", 1 << 16)
    monkeypatch.setattr("albor_core.store.file.connect.CHECKPOINT_BYTES", 1 << 14)
    run = written(bench)
    bench.index(run)
    journal = bench.journal(run)
    viewer = sqlite3.connect(f"file:{run.store}?mode=ro", uri=True, isolation_level=None)
    with Indexer(run, None) as indexer:
        viewer.execute("BEGIN")
        viewer.execute("SELECT count(*) FROM metrics").fetchone()
        for step in range(100, 140):
            journal.metrics(step, {f"k{n}": 1.0 for n in range(20)})
            indexer.step()
        indexer.step()
        viewer.close()
        (event,) = [a for a in read_annotations(run) if a.kind == "event"]
        assert event.value["name"] == "store.wal_large"
        assert event.value["data"]["bytes"] > 1 << 16
        journal.metrics(140, {"k0": 1.0})
        indexer.step()  # the reader has let go
        assert run.store.with_name("experiments.db-wal").stat().st_size == 0
    with Reader(run.store) as reader:
        assert reader.events(run.id, names=("store.wal_large",))


def test_a_damaged_store_goes_aside_with_its_wal(bench):
    """S5: the WAL of a damaged file must never meet the new one. A viewer keeps it from being
    emptied when the damaged store is closed.
    """
    run = written(bench)
    bench.index(run)
    viewer = sqlite3.connect(f"file:{run.store}?mode=ro", uri=True)
    assert viewer.execute("SELECT count(*) FROM runs").fetchone() == (1,)
    with Indexer(run, None) as indexer:
        bench.journal(run).metrics(90, {"train/loss": 9.0})
        indexer.step()
        with run.store.open("r+b") as file:
            file.write(b"\0" * 100)
        indexer.disconnect()
        bench.journal(run).metrics(91, {"train/loss": 8.0})
        while indexer.step():
            pass
    viewer.close()
    (aside,) = run.store.parent.glob("corrupt-*")
    assert {path.name for path in aside.iterdir()} == {
        *("experiments.db", "experiments.db-wal", "experiments.db-shm"),
    }
    with Reader(run.store) as reader:
        assert [p[:2] for p in reader.points(run.id, "train/loss")][-2:] == [(90, 9.0), (91, 8.0)]


# -- S9: file systems without shared memory ----------------------------------------------------


@pytest.fixture
def on_nfs(bench, monkeypatch):
    """Whatever lies below this bench's `out` and `home` is on a network mount, `state` is not."""
    from albor_core.store.file import paths

    def kind(path):
        remote = any(path.is_relative_to(bench.root / name) for name in ("out", "home"))
        return "nfs4" if remote else "ext4"

    monkeypatch.setattr(paths, "file_system", kind)
    monkeypatch.setattr(connect, "file_system", kind)
    monkeypatch.setenv("XDG_STATE_HOME", str(bench.root / "state"))


def test_on_a_network_mount_the_index_is_local_and_every_command_finds_it(bench, on_nfs):
    from click.testing import CliRunner

    from albor_core.cli.main import cli

    run = written(bench)
    bench.index(run)
    assert local_store(run).is_relative_to(bench.root / "state") and not run.store.exists()
    shown = CliRunner().invoke(cli, ["runs", "show", run.id, "--json"])
    assert shown.exit_code == 0, shown.output
    assert len(json.loads(shown.output)["points"]["train/loss"]) == 35
    where = CliRunner().invoke(cli, ["db", "path", run.id])
    assert where.output.strip() == str(local_store(run))
    with sqlite3.connect(local_store(run)) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_store_forced_onto_a_network_mount_has_no_wal(bench, on_nfs):
    run = written(bench)
    bench.index(run)
    with Reader(global_store()) as reader:
        assert reader.run(run.id).last_step == 35
    assert [path.name for path in global_store().parent.glob("experiments.db-*")] == []
    with sqlite3.connect(global_store()) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)


# -- S10: upgrades -----------------------------------------------------------------------------


def aged(path):
    """Make a store what version 1 left: colours for severities, no goals, media, axes, search."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("UPDATE events SET severity = 'red' WHERE severity = 'error'")
        db.execute(
            "UPDATE events SET data = json_set(data, '$.severity', 'red')"
            " WHERE json_extract(data, '$.severity') = 'error'"
        )
        db.execute("DROP TABLE goals")
        db.execute("DROP TABLE media")
        db.execute("ALTER TABLE keys DROP COLUMN axis")
        db.execute("DROP TABLE run_search")
        db.execute("DROP TRIGGER param_names_grow")
        db.execute("DROP TABLE param_names")
        db.execute("PRAGMA user_version = 1")


def schema_of(path):
    with closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall()


def test_an_upgraded_store_is_a_fresh_one_with_rows_in_it(bench, snapshot_of):
    run = written(bench)
    bench.index(run)
    wanted = snapshot_of(global_store())
    aged(global_store())
    assert len(migrations.UPGRADES) == SCHEMA_VERSION - 1 == 5  # age it further back with each
    open_writer(global_store()).close()
    open_writer(bench.root / "fresh.db").close()
    assert sorted(schema_of(global_store()), key=str) == sorted(
        schema_of(bench.root / "fresh.db"), key=str
    )
    assert snapshot_of(global_store()) == wanted


UPGRADE = (
    DYING
    + """
connect.open_writer(Path(sys.argv[1])).close()
print(count[0])
"""
)


@pytest.mark.slow
def test_an_upgrade_killed_at_any_statement_leaves_the_old_store_or_the_new(bench, snapshot_of):
    run = written(bench)
    bench.index(run)
    wanted = snapshot_of(global_store())
    aged(global_store())
    before = global_store().read_bytes()
    whole = int(program(UPGRADE, global_store(), 0).stdout)
    versions = set()
    for nth in range(1, whole + 1):
        for path in global_store().parent.glob("*experiments.db*"):
            path.unlink()
        global_store().write_bytes(before)
        assert program(UPGRADE, global_store(), nth).returncode == -signal.SIGKILL
        with sqlite3.connect(global_store()) as db:
            (version,) = db.execute("PRAGMA user_version").fetchone()
            has_words = db.execute(
                "SELECT count(*) FROM sqlite_master WHERE name = 'run_search'"
            ).fetchone()[0]
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert has_words == (version == SCHEMA_VERSION), (nth, version)
        versions.add(version)
        open_writer(global_store()).close()
        assert snapshot_of(global_store()) == wanted, nth
    assert versions == {1, SCHEMA_VERSION}


def test_an_upgrade_keeps_three_copies_of_what_was(tmp_path):
    path = tmp_path / "experiments.db"
    for number in (7, 8, 9):
        (tmp_path / f"backup-v{number}-experiments.db").write_bytes(b"older")
        os.utime(tmp_path / f"backup-v{number}-experiments.db", (number, number))
    open_writer(path).close()
    aged(path)
    open_writer(path).close()
    kept = {found.name for found in tmp_path.glob("backup-v*")}
    assert kept == {f"backup-v{number}-experiments.db" for number in (1, 8, 9)}
    copy = tmp_path / "backup-v1-experiments.db"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    with sqlite3.connect(copy) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (1,)


def test_an_upgrade_that_fails_costs_no_history(bench, monkeypatch):
    run = written(bench)
    bench.index(run)
    aged(run.store)

    def broken(db):
        db.execute("ALTER TABLE absent ADD COLUMN x")

    monkeypatch.setattr(migrations, "UPGRADES", (broken,))
    bench.journal(run).metrics(90, {"train/loss": 9.0})
    bench.index(run, globally=False)
    with Reader(run.store) as reader:
        assert reader.run(run.id).last_step == 90
        assert reader.events(run.id, names=("store.quarantined",))


def test_a_store_of_a_newer_albor_is_read_and_what_cannot_be_written_is_said(bench):
    run = written(bench)
    bench.index(run)
    for path in (run.store, global_store()):
        with sqlite3.connect(path) as db:
            db.execute("PRAGMA user_version = 999")
    with Reader(global_store()) as reader:
        assert reader.run(run.id).last_step == 35
    bench.journal(run).metrics(90, {"train/loss": 9.0})  # the journal goes on
    done = subprocess.run(
        [sys.executable, "-m", "albor_core.store.index", str(run.path), "--once"],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert "version 999 is newer" in done.stderr and "Traceback" not in done.stderr


# -- S11: media that cannot be written ---------------------------------------------------------


@pytest.mark.slow
def test_a_read_only_mount_with_a_live_wal_shows_every_committed_row(bench):
    run = written(bench)
    with Indexer(run, None) as indexer:
        while indexer.step():
            pass
        media = bench.root / "media"
        media.mkdir()
        for suffix in ("", "-wal"):
            shutil.copy(run.store.with_name(run.store.name + suffix), media)
    assert (media / "experiments.db-wal").stat().st_size
    code = (
        "import sys; from pathlib import Path; from albor_core.store.query.reader import Reader\n"
        "with Reader(Path(sys.argv[1])) as r: print(r.run('r1').last_step, *r.runs()[0].tags)"
    )
    argv = [sys.executable, "-c", code, media / "experiments.db"]
    done = where_read_only(media, argv, cwd=ROOT)
    assert (done.returncode, done.stdout.split()) == (0, ["35", "kept"]), done.stderr


# -- S15: clocks -------------------------------------------------------------------------------


def test_a_clock_that_runs_backwards_orders_nothing_and_shortens_nothing_below_zero(
    bench, monkeypatch
):
    clock = [2_000_000_000.0]
    monkeypatch.setattr(time, "time", lambda: clock[0])
    run = bench.run()
    journal = bench.journal(run)
    for step in range(1, 6):
        journal.metrics(step, {"train/loss": float(step)})
        clock[0] -= 3600
    journal.event("run.end", status="completed", reason="completed", code=0)
    bench.index(run)
    with Reader(run.store) as reader:
        assert [p[:2] for p in reader.points(run.id, "train/loss")] == [
            (step, float(step)) for step in range(1, 6)
        ]
        row = reader.run(run.id)
    assert (row.loss, row.ended_status) == (5.0, "completed")
    assert row.last_wall == row.first_wall == 2_000_000_000.0


# -- whose it is --------------------------------------------------------------------------------


def test_a_store_of_somebody_else_is_never_written(bench, monkeypatch):
    run = written(bench)
    bench.index(run)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(StoreError, match="belongs to user id"):
        open_writer(run.store)


def test_a_store_open_to_all_is_closed_to_others_again(bench):
    run = written(bench)
    bench.index(run)
    for path in (run.store, global_store()):
        path.chmod(0o666)
    bench.journal(run).metrics(90, {"train/loss": 9.0})
    bench.index(run)
    for path in (run.store, global_store()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_everything_made_under_an_open_umask_is_the_owners_alone(bench):
    old = os.umask(0)
    try:
        run = written(bench)
        bench.index(run)
        back_up_daily(global_store(), "20260101")
        rebuild(None, [run])
        aged(global_store())
        open_writer(global_store()).close()
    finally:
        os.umask(old)
    found = [*(bench.root / "home").rglob("*"), bench.root / "home", *run.path.rglob("*"), run.path]
    assert len(found) > 15
    for path in found:
        wanted = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.lstat().st_mode) == wanted, path


STRANGERS = [
    ("", 0o770, "others may write"),
    ("", 0o702, "others may write"),
    ("guard", 0o777, "others may write"),
    ("guard/launch.json", 0o666, "others may write"),
    ("config.yaml", 0o620, "others may write"),
    ("run.lock", 0o606, "others may write"),
]


@pytest.mark.parametrize("name, mode, why", STRANGERS, ids=[f"{n}-{m:o}" for n, m, _ in STRANGERS])
def test_a_guard_starts_nothing_where_others_may_write(bench, name, mode, why):
    run = bench.run()
    for file in (run.launch, run.config_yaml, run.run_lock):
        file.write_text("{}")
    assert distrust(run) == ""
    before = sorted(run.path.rglob("*"))
    (run.path / name).chmod(mode)
    assert why in distrust(run)
    with pytest.raises(UsageError, match=why):
        guard.refuse_strangers(run)
    assert guard.main([str(run.path)]) == 2
    assert why in check(run, None, frozenset()).problem
    assert sorted(run.path.rglob("*")) == before


def test_a_run_of_somebody_else_is_shown_and_left_as_it_is(bench, monkeypatch):
    run = written(bench)
    bench.index(run)
    bench.journal(run).metrics(90, {"train/loss": 9.0})
    before = sorted(path for path in run.path.rglob("*") if "experiments.db-" not in path.name)
    me = os.getuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: me)
    assert "belongs to user id" in distrust(run)
    assert guard.main([str(run.path)]) == 2
    assert drain_index(run) is False
    with Reader(run.store) as reader:
        assert reader.run(run.id).last_step == 35
    assert (
        sorted(path for path in run.path.rglob("*") if "experiments.db-" not in path.name) == before
    )


def test_a_link_in_place_of_a_guards_file_is_not_trusted(bench):
    run = bench.run()
    run.launch.symlink_to(bench.root / "elsewhere.json")
    assert "is a link" in distrust(run)


# -- S2: the loop's side -----------------------------------------------------------------------


@pytest.mark.slow
def test_a_locked_store_slows_no_logged_step(bench, monkeypatch):
    """S2: both stores locked for two seconds; logging never opens either."""
    from albor_core import track

    for word in ("RUN_DIR", "ATTEMPT", "NONCE", "RUN_LOCK_FD"):
        monkeypatch.delenv(f"ALBOR_{word}", raising=False)
    with track.start("locked") as run:
        run.log({"x": 0.0})
        own, deadline = local_store(run.dir), time.monotonic() + 30
        while not (own.is_file() and global_store().is_file()) and time.monotonic() < deadline:
            time.sleep(0.02)
        lockers = [sqlite3.connect(path, isolation_level=None) for path in (own, global_store())]
        for db in lockers:
            db.execute("PRAGMA busy_timeout = 5000")
            db.execute("BEGIN IMMEDIATE")
        took, until = [], time.monotonic() + 2.0
        while time.monotonic() < until:
            began = time.perf_counter()
            run.log({"x": 1.0})
            took.append(time.perf_counter() - began)
            time.sleep(0.0005)
        for db in lockers:
            db.execute("ROLLBACK")
            db.close()
        last = run.step
    took.sort()
    assert took[int(len(took) * 0.99)] < 0.05
    assert drain_index(run.dir, timeout_s=60)
    with Reader(run.dir.store) as reader:
        assert len(reader.points(run.id, "x")) == last


def test_a_transaction_that_raises_leaves_nothing_and_the_lock_free(tmp_path):
    db = open_writer(tmp_path / "experiments.db")
    try:
        with pytest.raises(ZeroDivisionError), transaction(db):
            db.execute("INSERT INTO experiments (name) VALUES ('half')")
            1 / 0  # noqa: B018
        assert db.execute("SELECT count(*) FROM experiments").fetchone() == (0,)
        with transaction(db):
            db.execute("INSERT INTO experiments (name) VALUES ('whole')")
    finally:
        db.close()


@pytest.mark.parametrize("what", ["TRIGGER x AFTER INSERT ON metrics BEGIN DELETE FROM runs; END",
                                  "VIEW x AS SELECT * FROM runs"])  # fmt: skip
def test_x12_what_somebody_planted_in_a_store_never_runs(bench, what):
    run = bench.run()
    journal = bench.journal(run)
    journal.metrics(1, {"train/loss": 1.0})
    bench.index(run)
    with sqlite3.connect(run.store) as db:
        db.execute(f"CREATE {what}")
    assert problems(run.store) == ("it has 'x', which Albor did not make",)
    journal.metrics(2, {"train/loss": 2.0})
    bench.index(run)
    with Reader(run.store) as reader:
        assert [point[:2] for point in reader.points(run.id, "train/loss")] == [(1, 1.0), (2, 2.0)]
    assert list(run.store.parent.glob("corrupt-*")), "set aside to be looked at"
    with sqlite3.connect(run.store) as db:
        assert "x" not in {name for (name,) in db.execute("SELECT name FROM sqlite_master")}


def test_a_store_that_another_user_may_not_read_is_called_that(bench):
    """As root a child that is no longer root asks, as anyone else whoever took the right away."""
    path = global_store()
    bench.index(bench.run())
    path.chmod(0)
    path.parent.chmod(0o711)
    folder = os.open(path.parent, os.O_RDONLY)
    out, into = os.pipe()
    child = os.fork()
    if not child:
        os.fchdir(folder)  # nobody may come here by its path
        if os.geteuid() == 0:
            os.setuid(65534)
        try:
            connect.open_reader(Path(path.name))
            said = "opened"
        except StoreError as error:
            said = f"{error.message}; {error.hint}"
        os.write(into, said.encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(into)
    said = os.read(out, 10_000).decode()
    os.close(out)
    os.close(folder)
    assert said.startswith("experiments.db: Permission denied; make that place writable")
