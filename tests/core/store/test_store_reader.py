"""Reading: zoom, filters, read-only media, stores that are none."""

from __future__ import annotations

import json
import math
import os
import random
import sqlite3
import stat
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from albor_core.run.errors import NotFoundError, StoreError, UsageError
from albor_core.store.file.connect import open_reader, open_writer, problems
from albor_core.store.file.paths import global_store, is_remote, local_store
from albor_core.store.file.schema import SCHEMA_SQL, SCHEMA_VERSION
from albor_core.store.index.indexer import Indexer
from albor_core.store.index.series.levels import (
    Bucket,
    base_level,
    group_points,
    merge,
    pack,
    pack_preview,
    point,
    unpack,
    unpack_preview,
)
from albor_core.store.query.attempts import NO_END
from albor_core.store.query.reader import Reader


@pytest.fixture(scope="module")
def long_series(tmp_path_factory):
    """200,000 points with one spike of one step, one NaN and one Inf, in a store of its own."""
    from albor_core.run.rundir import RunDir
    from albor_core.store.file.connect import transaction
    from albor_core.store.index.global_share import share
    from albor_core.store.index.write import RunWriter

    folder = tmp_path_factory.mktemp("long")
    db = open_writer(folder / "experiments.db")
    rnd = random.Random(3)
    special = {123_457: 99.0, 150_001: math.nan, 61_003: -math.inf}
    with transaction(db):
        writer = RunWriter(db, "long")
        for step in range(1, 200_001):
            value = special.get(step, 2.0 + rnd.random())
            writer.take_journal({"t": "m", "step": step, "v": {"loss": value}}, step)
        writer.finish()
    with transaction(target := open_writer(folder / "global.db")):
        share(db, RunDir(folder / "long"), target)
    db.close()
    target.close()
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("points", [1, 2, 10, 80, 600, 4000])
def test_a_spike_of_one_step_shows_at_every_zoom(long_series, points):
    with Reader(long_series / "experiments.db") as reader:
        for half in (100_000, 30_000, 5_000, 700, 40, 3, 0):
            low, high = 123_457 - half, 123_457 + half // 2
            series = reader.series("long", "loss", lo=low, hi=high, max_points=points)
            assert len(series.steps) <= points
            assert max(v for v in series.maximum if v == v) == 99.0, (half, points)
            inside = range(max(low, 1), min(high, 200_000) + 1)
            assert sum(series.counts) == len(inside)
            assert sum(series.nonfinite) == (150_001 in inside) + (61_003 in inside)
            assert all(low <= step <= high for step in series.steps)


@pytest.mark.slow
def test_any_window_of_a_long_series_is_read_in_milliseconds(long_series):
    with Reader(long_series / "experiments.db") as reader:
        times = []
        for span in (600, 2_400, 5_000, 20_000, 60_000, 200_000):
            for low in (1, 70_001, 199_000 - span):
                started = time.perf_counter()
                reader.series("long", "loss", lo=low, hi=low + span)
                times.append(time.perf_counter() - started)
    assert sorted(times)[len(times) // 2] < 0.02  # measured 3 ms; shared machines are slower


@pytest.mark.slow
def test_the_global_store_keeps_a_preview_that_shows_the_spike(long_series):
    with Reader(long_series / "global.db") as reader:
        series = reader.series("long", "loss")
        assert 200 <= len(series.steps) <= 256 and not series.is_raw
        assert -math.inf in series.minimum and 99.0 in series.maximum
        assert len(reader.series("long", "loss", max_points=20).steps) <= 20
        assert reader.points("long", "loss") == ()
    with sqlite3.connect(long_series / "global.db") as db:
        assert db.execute("SELECT max(length(data)) FROM metric_levels").fetchone()[0] <= 4096


def test_few_points_come_as_they_are(bench):
    run = bench.run()
    journal = bench.journal(run)
    for step in (0, 10, 20, 30):
        journal.metrics(step, {"val/loss": step / 10})
    bench.index(run)
    with Reader(run.store) as reader:
        series = reader.series(run.id, "val/loss")
        assert series.is_raw and [*series.steps] == [0, 10, 20, 30]
        assert [*series.last] == [0.0, 1.0, 2.0, 3.0]
        assert reader.series(run.id, "nothing").steps == ()
        assert reader.series(run.id, "val/loss", lo=11, hi=9).steps == ()
        assert [p[:2] for p in reader.points(run.id, "val/loss", 10, 20)] == [(10, 1.0), (20, 2.0)]
        assert all(wall for _, _, wall in reader.points(run.id, "val/loss"))


values = st.one_of(st.floats(-1e6, 1e6), st.sampled_from([math.inf, -math.inf, None]))


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.integers(0, 3000), values, max_size=200), st.sampled_from([8, 64, 512]))
def test_buckets_of_points_are_merged_single_points(points, width):
    ordered = sorted(points.items())
    fast = group_points(ordered, width)
    plain = merge([point(step, value) for step, value in ordered], width)
    assert len(fast) == len(plain)
    for a, b in zip(fast, plain, strict=True):
        assert (a.points, a.nonfinite) == (b.points, b.nonfinite)
        for x, y in zip(a[3:], b[3:], strict=True):
            assert x == y or (x != x and y != y) or math.isclose(x, y, rel_tol=1e-12, abs_tol=1e-9)
    packed = (
        [b for chunk, data in pack(fast, 1) for b in unpack(chunk, 1, data)] if width == 8 else []
    )
    assert repr(packed) == repr(fast if width == 8 else [])


def test_a_preview_survives_its_packing_with_numbers_too_large_for_32_bits():
    buckets = [
        Bucket(7, 3, 0, -1e300, 1e300, 0.5, 0.25),
        Bucket(9, 70_000, 1, math.nan, math.nan, math.nan, math.inf),
    ]
    first, second = unpack_preview(pack_preview(buckets, 7, 2))
    assert (first.start, first.minimum, first.maximum, first.mean) == (7, -math.inf, math.inf, 0.5)
    assert (second.start, second.points, second.last) == (9, 65_535, math.inf)


def test_the_finest_level_is_worth_its_bytes():
    assert [base_level(gap) for gap in (1, 2, 3, 10, 16, 17, 1000)] == [1, 1, 2, 2, 2, 3, 3]


def test_runs_are_filtered_sorted_and_limited(bench):
    for i, loss in enumerate((3.0, 1.0, 2.0)):
        run = bench.run(f"r{i}", name=f"Name {i}", experiment="a" if i else "b")
        bench.journal(run).metrics(1, {"train/loss": loss})
        bench.index(run)
    bench.index(bench.run("empty"))
    with Reader(global_store()) as reader:
        assert [r.id for r in reader.runs(sort="loss", descending=False)] == [
            "r1", "r2", "r0", "empty",
        ]  # fmt: skip
        assert [r.id for r in reader.runs(sort="loss")][-1] == "empty"
        assert [r.id for r in reader.runs(experiment="b")] == ["r0"]
        assert [r.id for r in reader.runs(name="name 2")] == ["r2"]
        assert len(reader.runs(limit=2)) == 2
        for sort in ("loss; DROP TABLE runs", "", "r.loss"):
            with pytest.raises(UsageError, match="cannot sort"):
                reader.runs(sort=sort)
        with pytest.raises(UsageError):
            reader.runs(name="%a" * 200)
        with pytest.raises(NotFoundError, match="nobody"):
            reader.run("nobody")


def test_an_event_that_is_called_sample_is_no_sample(bench):
    run = bench.run()
    journal = bench.journal(run)
    journal.append("s", step=1, prompt="def", text="f")
    for data in ({"data": {"size": 3}}, {"data": [1]}, {}):
        journal.append("e", name="sample", severity="info", **data)
    bench.index(run)
    with Reader(run.store) as reader:
        assert [(row.prompt, row.text) for row in reader.samples(run.id)] == [("def", "f")]


def test_a_reader_cannot_write_and_sees_commits_of_others(bench):
    run = bench.run()
    journal = bench.journal(run)
    journal.metrics(1, {"train/loss": 1.0})
    bench.index(run)
    with Reader(run.store) as reader:
        with pytest.raises(sqlite3.DatabaseError, match="not authorized"):
            reader._db.execute("DELETE FROM runs")
        before = reader.version()
        assert reader.version() == before
        journal.metrics(2, {"train/loss": 1.0})
        bench.index(run)
        assert reader.version() != before
        assert reader.run(run.id).last_step == 2


def test_a_replaced_store_is_opened_again(bench):
    from albor_core.store.upkeep.rebuild import rebuild

    run = bench.run()
    journal = bench.journal(run)
    journal.metrics(1, {"train/loss": 1.0})
    bench.index(run)
    with Reader(run.store) as reader:
        before = reader.version()
        journal.metrics(2, {"train/loss": 1.0})
        rebuild(None, [run])
        assert reader.version() != before
        assert reader.run(run.id).last_step == 2


def test_a_connection_is_refused_after_a_fork(bench):
    run = bench.run()
    bench.index(run)
    with Reader(run.store) as reader:
        child = os.fork()
        if child == 0:
            try:
                reader.run(run.id)
            except StoreError:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert reader.run(run.id).id == run.id


def test_what_is_no_store_is_refused_with_the_next_command(tmp_path):
    with pytest.raises(NotFoundError):
        Reader(tmp_path / "absent.db")
    for name, content in (("text.db", b"hello" * 1000), ("empty.db", b"")):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(StoreError, match=name) as refused:
            Reader(path)
        assert refused.value.hint == "albor db rebuild"
    with sqlite3.connect(tmp_path / "other.db") as db:
        db.execute("CREATE TABLE t (a)")
        db.execute("CREATE VIEW runs AS SELECT a AS id FROM t")
    with pytest.raises(StoreError, match="not an Albor store"):
        Reader(tmp_path / "other.db")
    assert problems(tmp_path / "text.db") and problems(tmp_path / "other.db")


def test_a_newer_store_is_read_and_never_written(bench):
    run = bench.run()
    bench.journal(run).metrics(1, {"train/loss": 1.0})
    bench.index(run)
    with sqlite3.connect(run.store) as db:
        db.execute("PRAGMA user_version = 999")
    with Reader(run.store) as reader:
        assert reader.run(run.id).last_step == 1
    before = run.store.read_bytes()
    with Indexer(run, None) as indexer, pytest.raises(StoreError, match="newer"):
        indexer.step()
    assert run.store.read_bytes() == before


def test_rows_still_in_the_wal_are_read_where_nothing_can_be_written(bench, monkeypatch):
    run = bench.run()
    journal = bench.journal(run)
    journal.metrics(1, {"train/loss": 1.0})
    bench.index(run)
    with Indexer(run, None) as indexer:
        journal.metrics(2, {"train/loss": 2.0})
        indexer.step()
        media = bench.root / "media"
        media.mkdir()
        for suffix in ("", "-wal"):  # as on a read-only medium: no -shm, and none can be made
            source = run.store.with_name(run.store.name + suffix)
            (media / source.name).write_bytes(source.read_bytes())
    import albor_core.store.file.connect as connect

    real = connect.connect_read_only

    def unwritable(path: Path, mode: str) -> sqlite3.Connection:
        if path.parent == media and "immutable" not in mode:
            error = sqlite3.OperationalError("unable to open database file")
            error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
            raise error
        return real(path, mode)

    monkeypatch.setattr(connect, "connect_read_only", unwritable)
    with Reader(media / run.store.name) as reader:
        assert reader.run(run.id).last_step == 2
        folder = reader._folder
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not folder.exists()
    (media / "experiments.db-wal").unlink()
    with Reader(media / run.store.name) as reader:
        assert reader.run(run.id).last_step == 1


def test_the_schema_file_is_the_schema_of_a_store(tmp_path):
    path = tmp_path / "experiments.db"
    open_writer(path).close()
    with sqlite3.connect(":memory:") as fresh:
        fresh.executescript(SCHEMA_SQL)
        wanted = fresh.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall()
    db, _ = open_reader(path)
    assert (
        db.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall() == wanted
    )
    assert db.execute("PRAGMA user_version").fetchone()[0] == SCHEMA_VERSION
    assert db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    db.close()
    root = Path(__file__).parents[3] / "experiments.db.schema"
    assert root.is_symlink() and root.read_text() == SCHEMA_SQL
    assert problems(path, thorough=True) == ()


def test_stores_of_runs_on_network_mounts_lie_on_this_host(bench, monkeypatch):
    run = bench.run()
    assert local_store(run) == run.store
    monkeypatch.setattr("albor_core.store.file.paths.file_system", lambda path: "nfs4")
    monkeypatch.setenv("XDG_STATE_HOME", str(bench.root / "state"))
    bench.journal(run).metrics(1, {"train/loss": 1.0})
    bench.index(run, globally=False)
    assert local_store(run).parent == bench.root / "state" / "albor"
    assert local_store(run).is_file() and not run.store.exists()
    kinds = {kind: is_remote(kind) for kind in ("ext4", "tmpfs", "nfs4", "fuse.sshfs", "lustre")}
    assert [kind for kind, remote in kinds.items() if remote] == ["nfs4", "fuse.sshfs", "lustre"]


def test_lives_without_a_guard_have_the_step_that_they_came_to(bench):
    run = bench.run()
    first = bench.journal(run, attempt=1)
    first.event("run.start")
    for step in range(1, 8):
        first.metrics(step, {"train/loss": 1.0})
    second = bench.journal(run, attempt=2)  # the first was killed, and said nothing
    second.event("run.start")
    second.append("r", to=4)
    for step in range(5, 7):
        second.metrics(step, {"train/loss": 1.0})
    second.event("run.end", step=9, status="stopped", reason="stopped", code=143)
    third = bench.journal(run, attempt=3)
    third.event("run.start")  # and it logs nothing
    fourth = bench.journal(run, attempt=4)
    fourth.event("run.start")
    for step in range(10, 13):
        fourth.metrics(step, {"train/loss": 1.0})
    bench.index(run)
    with Reader(run.store) as reader:
        lives = reader.attempts(run.id)
        assert [life.step for life in lives] == [7, 9, None, 12]
        walls = {step: wall for step, _, wall in reader.points(run.id, "train/loss")}
    assert lives[0].ended is None and lives[0].started < lives[0].last_wall < lives[1].started
    assert [life.reason for life in lives] == [NO_END, None, NO_END, None]
    assert lives[1].last_wall is None and walls[5] > lives[0].last_wall > walls[4]
    assert lives[2].last_wall is None, "it began, and that is all"
    assert (lives[3].last_wall, lives[3].ended) == (None, None), "it may be at work"
    with Reader(global_store()) as reader:  # that one has no points
        assert [life.step for life in reader.attempts(run.id)] == [None, 9, None, None]


def test_a_step_that_the_guard_wrote_down_is_kept(bench):
    run = bench.run()
    journal = bench.journal(run)
    journal.event("run.start")
    journal.metrics(5, {"train/loss": 1.0})
    journal.event("run.end", step=5, status="stopped", reason="stopped", code=143)
    end = {"t": "attempt.end", "wall": 2.0, "attempt": 1, "code": 143, "step": 6}
    run.attempts.write_text(json.dumps(end) + "\n")
    bench.index(run)
    with Reader(run.store) as reader:
        assert [life.step for life in reader.attempts(run.id)] == [6]
