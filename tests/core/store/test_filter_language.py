"""The language of filters: what it means, what it refuses and how it says so, what cannot pass."""

from __future__ import annotations

import math
import random
import sqlite3
import string
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from albor_core.run.errors import AlborError, StoreError, UsageError
from albor_core.store.file.connect import open_writer, transaction
from albor_core.store.file.paths import global_store
from albor_core.store.file.search import refresh
from albor_core.store.index.annotations import annotate
from albor_core.store.query.filter import FilterError, parse_filter
from albor_core.store.query.listing import parse_column
from albor_core.store.query.reader import Reader
from albor_core.store.query.table import RunList

NOW = 1_800_000_000.0


def kept(text: str, *, path: Path | None = None, statuses: dict[str, str] | None = None) -> str:
    with RunList(path or global_store()) as table:
        return " ".join(sorted(table.matching(parse_filter(text), statuses or {})))


def tell(bench):
    """a: adamw, low loss. b: lion, high loss. c: ends in NaN. d: says nothing at all."""
    for run_id, name, lr, kind, losses in (
        ("a", "Base line", 1e-3, "adamw", (4.0, 1.5)),
        ("b", "wide-net", 3e-4, "lion", (2.0, 6.0)),
        ("c", "deep", 3e-4, "adamw", (9.0, math.nan)),
    ):
        run = bench.run(run_id, name=name, seed=ord(run_id), experiment=f"exp {run_id}")
        journal = bench.journal(run)
        for key, value in {
            "optimizer.lr": lr,
            "optimizer.name": kind,
            "tied": run_id == "a",
        }.items():
            journal.append("p", key=key, value=value)
        for step, loss in enumerate(losses):
            journal.metrics(step, {"train/loss": loss, "odd key": 5.0})
        if run_id == "b":
            journal.event("run.end", status="completed", reason="completed", code=0)
            annotate(run, "tag", "ablation")
            annotate(run, "note", "gradient spikes, see M\u00f6bius")
            annotate(run, "pin")
        bench.index(run)
    bench.index(bench.run("d", parent="a"))


@pytest.fixture
def runs(bench):
    """Those of `tell`."""
    tell(bench)
    return bench


@pytest.fixture(scope="module")
def store(tmp_path_factory, new_bench):
    """The store of `tell`, made once for the many that only read it."""
    folder = tmp_path_factory.mktemp("filters")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALBOR_HOME", str(folder / "home"))
        tell(new_bench(folder))
        yield global_store()


@pytest.mark.parametrize(
    ("text", "expected"),
    {
        "": "a b c d",
        "train/loss<3": "a",
        "train/loss>=1.5 train/loss<=6": "a b",
        "loss<3": "a",
        "-loss<3": "b c d",  # not below, and not known
        "train/loss:min<3": "a b",
        "train/loss:max>8": "c",
        "train/loss=nan": "c",
        '"odd key"=5': "a b c",
        "lr>=1e-3": "a",
        "lr=3e-4": "b c",
        "optimizer.lr:0.0003": "b c",
        "lr!=0.0003": "a d",
        "optimizer.name:adamw": "a c",
        "name:adamw": "",
        "optimizer.name:ADAM*,lion": "a b c",
        "tied:true": "a",
        "step>0": "a b c",
        "seed=97,98": "a b",
        "tag:ablation": "b",
        "tag:abl*": "b",
        "!tag:ablation": "a c d",
        "has:tag,nan": "b c",
        "has:note": "b",
        "has:end": "b",
        "has:parent": "d",
        "parent:a": "d",
        "pinned": "b",
        "-pinned": "a c d",
        "experiment:'exp a','exp b'": "a b",
        "name:LINE": "a",
        "id:a": "a",
        "host:nowhere": "",
        "kind:train": "a b c d",
        "spike": "b",
        '"gradient spi"': "b",
        "spikes gradient": "b",
        '"spikes gradient"': "",
        "mobius": "b",
        "wide-net": "b",
        "base ablation": "",
        "adamw deep": "c",
        "0.0003": "b c",
        "since:1d": "a b c d",
        "before:2026-01-31": "",
        "status:completed": "b",
        "status!=completed": "a c d",
    }.items(),
)
def test_a_filter_keeps_what_it_says(store, text, expected):
    assert kept(text, path=store) == expected


def test_what_a_run_does_now_is_taken_from_who_knows(runs):
    statuses = {"a": "running", "c": "lost", "d": "stalled"}
    assert kept("status:running", statuses=statuses) == "a"
    assert kept("status:active", statuses=statuses) == "a d"
    assert kept("status:ended", statuses=statuses) == "b c"
    assert kept("status:running,completed", statuses=statuses) == "a b"
    assert parse_filter("status:running").needs_status
    assert not parse_filter("status").needs_status


@pytest.mark.parametrize("ask", ["count", "matching", "runs"])
def test_a_filter_by_status_is_never_asked_without_the_words_of_now(runs, ask):
    """It would say that nothing runs while something does."""
    where = parse_filter("lr>=1e-4 -status:running")
    with RunList(global_store()) as table:
        with pytest.raises(TypeError, match="needs statuses"):
            getattr(table, ask)(where=where)
        assert getattr(table, ask)(where=where, statuses={"a": "running", "d": "lost"}) is not None
        assert getattr(table, ask)(where=parse_filter("lr>=1e-4")) is not None


def test_the_same_words_find_the_same_runs_in_a_store_without_an_index(runs):
    words = ("spike", '"gradient spi"', "wide", "adamw deep", "exp", "lr>=1e-3")
    before = [kept(text) for text in words]
    with sqlite3.connect(global_store()) as db:
        db.execute("DELETE FROM run_search")
    assert [kept(text) for text in words] == before
    with sqlite3.connect(global_store()) as db:
        db.execute("DROP TABLE run_search")
        db.execute("DROP TABLE param_names")
    assert [kept(text) for text in words] == before
    # a run's own store never has the index
    assert kept("adamw", path=runs.root / "out" / "a" / ".albor" / "experiments.db") == "a"


def test_a_run_that_is_forgotten_is_found_by_no_word(runs):
    from albor_core.store.upkeep.remove import forget_rows

    forget_rows("b", global_store())
    with sqlite3.connect(global_store()) as db:
        assert db.execute("SELECT count(*) FROM run_search").fetchone() == (3,)
    assert kept("spike") == ""


@pytest.mark.parametrize(
    ("text", "column", "says"),
    [
        ("tag:a status:runing", 14, "running, paused"),
        ("tag:", 5, "a value is missing after tag:"),
        ("tag:a,", 7, "a value is missing"),
        ("loss<three", 6, "'three' is not a number"),
        ("loss>1,2", 8, "> takes one number"),
        ("lr>adam", 4, "'adam' is not a number"),
        ('name:"half', 6, "not closed"),
        ('"a"b', 4, "a blank is missing before 'b'"),
        ("since:soon", 7, "30m, 12h, 2d, 1w"),
        ("since:1d,2d", 10, "one time"),
        ("has:luck", 5, "nan, alert, note"),
        ("x -", 3, "neither letters nor digits"),
        ("- x", 1, "right after it"),
        ("<3", 1, "cannot begin a term"),
        ("status>3", 7, "compared by ':' only"),
        ("***", 1, "neither letters nor digits"),
        ("a" * 257, 257, "at most 256"),
    ],
)
def test_a_mistake_is_named_by_its_column_and_by_what_may_stand_there(text, column, says):
    with pytest.raises(FilterError) as refused:
        parse_filter(text)
    assert refused.value.column == column
    assert f"column {column}: " in refused.value.message
    assert says in refused.value.message
    assert refused.value.exit_code == 2 and refused.value.hint


def test_times_are_counted_from_now_and_dates_are_utc():
    assert parse_filter("since:2d", now=NOW).terms[0].values == (NOW - 2 * 86400,)
    assert parse_filter("before:2027-01-15T08:00", now=0).terms[0].values == (NOW,)
    assert parse_filter("before:2027-01-15T09:00+01:00", now=0).terms[0].values == (NOW,)


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from(string.printable + "\u00e9\x00\u202e"), max_size=60))
def test_any_text_is_understood_or_refused_with_a_column(text):
    try:
        made = parse_filter(text)
    except FilterError as error:
        assert 1 <= error.column <= len(text) + 1
    else:
        assert all(1 <= term.at <= len(text) for term in made.terms)


HOSTILE = (
    "1); DROP TABLE runs;--",
    'name" UNION SELECT sql FROM sqlite_master--',
    "' OR 1=1 --",
    "%a%a%a%a%a%a%",
    "(a+)+$",
    "a*b*c*d*e*",
    "NEAR(a b)",
    "a OR b",
    "name : x AND",
    "\x00",
    "\ud800",
    "9" * 100,
    "{}",
    "$.x",
)


@pytest.mark.parametrize("payload", HOSTILE, ids=ascii)
def test_no_word_of_a_user_becomes_sql(store, payload):
    quoted = "'" + payload.replace("'", "''") + "'"
    with RunList(store) as table:
        for text in (quoted, f"tag:{quoted}", f"name:{quoted}", f"{quoted}:{quoted}", f"{quoted}<3",
                     f"parent:{quoted}", payload):  # fmt: skip
            try:
                found = table.runs(where=parse_filter(text[:256]))
            except AlborError:
                continue
            assert {row.id for row in found} <= set("abcd")
        with pytest.raises(AlborError):
            table.runs(sort=payload)
        try:
            cells = table.cells(["a"], [parse_column(payload)])
        except AlborError:
            cells = {}
        assert cells in ({}, {"a": (None,)})
    assert kept("", path=store) == "a b c d"


def test_what_takes_too_long_is_ended(tmp_path, monkeypatch):
    path = tmp_path / "experiments.db"
    db = open_writer(path)
    with transaction(db):
        db.execute("INSERT INTO experiments VALUES (1, 'e')")
        rng = random.Random(1)
        for number in range(400):
            row = (number, f"r{number}", number)
            db.execute("INSERT INTO runs (id, run, experiment_id, name, kind, path, seed)"
                       " VALUES (?, ?, 1, 'n', 'k', '', ?)", row)  # fmt: skip
            db.executemany("INSERT INTO params VALUES (?,?,?)",
                           [(number, f"p{i}.{rng.random()}", "1") for i in range(60)])  # fmt: skip
    db.close()
    terms = " ".join(f"x{i}<3" for i in range(30))
    monkeypatch.setattr("albor_core.store.file.access.LIMIT_S", 0.02)
    with RunList(path) as table:
        began = time.monotonic()
        with pytest.raises(StoreError, match="not answered"):
            table.runs(where=parse_filter("-" + terms.replace(" ", " -")))
        assert time.monotonic() - began < 2.0
        assert len(table.unended()) == 400


def test_a_viewer_reads_our_tables_and_nothing_else(runs):
    with Reader(global_store()) as reader:
        for sql in (
            "DELETE FROM runs",
            "ATTACH '/etc/passwd' AS x",
            "PRAGMA query_only = 0",
            "PRAGMA writable_schema = 1",
            "PRAGMA user_version = 99",
            "SELECT load_extension('x')",
            "SELECT writefile('x', 'y')",
            "SELECT randomblob(1000000000)",
            "CREATE TEMP TABLE t (a)",
            "SELECT * FROM sqlite_dbpage",
            "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT count(*) FROM c",
        ):
            with pytest.raises(sqlite3.DatabaseError):
                reader._db.execute(sql).fetchall()
        assert len(reader.runs()) == 4


def test_a_hostile_store_shows_its_rows_and_runs_nothing(runs, tmp_path):
    """Triggers, views and a table of its own are no way in; a view in place of a table is none."""
    with sqlite3.connect(global_store()) as db:
        db.execute("CREATE TABLE secrets (a)")
        db.execute("CREATE VIEW evil AS SELECT load_extension('x') AS a")
        db.execute("CREATE TRIGGER boom AFTER UPDATE ON runs BEGIN SELECT load_extension('x'); END")
    with Reader(global_store()) as reader:
        assert len(reader.runs(where=parse_filter("train/loss<3"))) == 1
        for table in ("secrets", "evil"):
            with pytest.raises(sqlite3.DatabaseError):
                reader._db.execute(f"SELECT * FROM {table}").fetchall()
    with sqlite3.connect(global_store()) as db:
        db.execute("ALTER TABLE tags RENAME TO real_tags")
        db.execute("CREATE VIEW tags AS SELECT * FROM real_tags")
    with pytest.raises(StoreError, match="no tags"):
        Reader(global_store())


def test_the_index_of_words_follows_a_rename_and_a_tag_taken_away(runs):
    from albor_core.run.rundir import RunDir
    from albor_core.store.index.indexer import index_now

    run = RunDir(runs.root / "out" / "b")
    annotate(run, "untag", "ablation")
    annotate(run, "name", "narrow")
    index_now(run)
    assert (kept("ablation"), kept("wide"), kept("narrow")) == ("", "", "b")
    with sqlite3.connect(global_store()) as db:
        before = db.total_changes
        (number,) = db.execute("SELECT id FROM runs WHERE run = 'b'").fetchone()
        refresh(db, number)
        assert db.total_changes == before  # nothing new: nothing written


def test_runs_are_sorted_by_any_metric_or_param_nan_and_unknown_last(runs):
    with RunList(global_store()) as table:

        def order(sort: str, *, descending: bool = False) -> str:
            return "".join(row.id for row in table.runs(sort=sort, descending=descending))

        assert order("train/loss") == "abcd"
        assert order("train/loss", descending=True) == "bacd"
        assert order("loss") == "abcd"
        assert order("train/loss:min") == "abcd"
        assert order("lr", descending=True) == "acbd"
        assert order("optimizer.name") == "acbd"
        rows = table.runs(sort="loss", descending=False, pinned_first=True, limit=2)
        assert [row.id for row in rows] == ["b", "a"]
        with pytest.raises(UsageError, match="no run has such"):
            table.runs(sort="nothing")


def test_columns_are_metrics_and_params_of_each_run(runs):
    with RunList(global_store()) as table:
        columns = [
            parse_column(text) for text in ("lr", "train/loss", "train/loss:min", "tied", "x")
        ]
        cells = table.cells(["a", "c", "d"], columns)
    assert cells["a"] == (1e-3, 1.5, 1.5, 1, None)
    assert cells["c"][0] == 3e-4 and math.isnan(cells["c"][1]) and cells["c"][2] == 9.0
    assert cells["d"] == (None,) * 5
