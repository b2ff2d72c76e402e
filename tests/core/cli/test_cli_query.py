"""`albor db query`: what SQL may ask of a store, how it is answered, and what is refused."""

from __future__ import annotations

import csv
import io
import json
import sqlite3

import pytest
from cli_user import valid

from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.store.file import access
from albor_core.store.index.indexer import index_now

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


@pytest.fixture
def asked(desk):
    for number, loss in enumerate((3.0, 2.0, 1.0)):
        name = f'run, "{number}"'
        run = create_run(desk.folder / "out", f"r{number}", experiment="exp", name=name,
                         kind="track", argv=["x"], seed=number)  # fmt: skip
        journal = Journal(run.journal, attempt=1)
        for step in range(5):
            journal.metrics(step, {"train/loss": loss + step})
        journal.close()
        index_now(run)

    def ask(*words, **environ):
        return desk.quick("db", "query", *words, **environ)

    return ask


@pytest.mark.slow
def test_a_query_of_one_operation_that_nothing_interrupts_is_ended(asked, desk):
    sql = "SELECT instr(hex(zeroblob(4000000)), hex(zeroblob(2000000)) || '1')"
    told = desk.albor("db", "query", sql, "--json")
    assert told.code == 1
    assert "has not answered within 2 s" in told.out


def test_a_query_is_answered_as_one_document(asked):
    sql = "SELECT run, loss FROM runs WHERE loss < :most ORDER BY loss"
    told = valid(asked(sql, "-p", "most=6.5", "--json"))
    assert told["columns"] == ["run", "loss"]
    assert told["rows"] == [{"run": "r2", "loss": 5.0}, {"run": "r1", "loss": 6.0}]
    assert told["is_cut"] is False


def test_a_query_is_answered_as_table_csv_and_lines(asked):
    sql = "SELECT run, name, seed, NULL AS lacks FROM runs ORDER BY run LIMIT 2"
    head, first, *_ = asked(sql).out.splitlines()
    assert head.split() == ["run", "name", "seed", "lacks"]
    assert first.split() == ["r0", "run,", '"0"', "0", "-"]
    rows = list(csv.reader(io.StringIO(asked(sql, "--csv").out)))
    assert rows == [["run", "name", "seed", "lacks"], ["r0", 'run, "0"', "0", ""],
                    ["r1", 'run, "1"', "1", ""]]  # fmt: skip
    lines = [json.loads(line) for line in asked(sql, "--jsonl").out.splitlines()]
    assert lines[1] == {"run": "r1", "name": 'run, "1"', "seed": 1, "lacks": None}


def test_a_query_of_a_runs_own_store_has_every_point(asked):
    sql = "SELECT count(*) AS n, max(value) AS top FROM metrics JOIN keys USING (run_id, key_id) "
    told = valid(asked("--run", "r1", sql + "WHERE keys.name = 'train/loss'", "--json"))
    assert told["rows"] == [{"n": 5, "top": 6.0}]


def test_aggregates_joins_windows_json_and_pragma_functions_work(asked):
    for sql in (
        "SELECT experiments.name, avg(loss), round(sum(loss), 2) FROM runs JOIN experiments"
        " ON experiments.id = experiment_id GROUP BY 1",
        "SELECT run, rank() OVER (ORDER BY loss) AS place FROM runs",
        "WITH best AS (SELECT run FROM runs ORDER BY loss LIMIT 1) SELECT * FROM best",
        "SELECT run, value FROM runs, json_each(argv)",
        "SELECT name FROM pragma_table_info('runs')",
        "SELECT name FROM sqlite_master WHERE type = 'table'",
        "SELECT runs.id FROM run_search JOIN runs ON runs.id = run_search.rowid"
        " WHERE run_search MATCH 'run'",
        "PRAGMA table_info(runs)",
    ):
        assert valid(asked(sql, "--json"))["rows"], sql


def test_no_rows_still_have_names_and_equal_names_are_told_apart(asked):
    assert asked("SELECT run, loss FROM runs WHERE 0", "--csv").out == "run,loss\n"
    assert valid(asked("SELECT 1 AS a, 2 AS a", "--json"))["rows"] == [{"a": 1, "a_2": 2}]


def test_what_is_cut_is_said(asked):
    told = asked("SELECT run FROM runs", "--limit", "2", "--json")
    assert valid(told)["is_cut"] is True and len(told.document["rows"]) == 2
    assert "the first 2 rows; more with --limit" in told.err


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM runs",
        "INSERT INTO experiments (name) VALUES ('x') RETURNING id",
        "UPDATE runs SET name = 'x'",
        "DROP TABLE runs",
        "CREATE TEMP TABLE t (x)",
        "ATTACH 'other.db' AS other",
        "PRAGMA query_only = 0",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA writable_schema = 1",
        "VACUUM INTO 'copy.db'",
        "SELECT load_extension('x')",
        "BEGIN IMMEDIATE",
        "SELECT 1; DELETE FROM runs",
        "",
        "/* nothing */",
        "SELECT nothing FROM runs",
        "SELECT :most",
        "SELEC 1",
        "SELECT length(zeroblob(1000000000))",
    ],
)
def test_what_is_not_a_question_is_refused_and_changes_nothing(asked, desk, sql):
    store = desk.home / "experiments.db"
    with sqlite3.connect(store) as db:
        before = "\n".join(db.iterdump())
    refused = asked(sql, "--json")
    assert refused.code == 2 and refused.error["code"] == "usage", refused
    assert refused.error["message"].startswith("cannot answer the query: ")
    with sqlite3.connect(store) as db:
        assert "\n".join(db.iterdump()) == before
    assert not (desk.folder / "other.db").exists() and not (desk.folder / "copy.db").exists()


def test_a_query_without_end_is_ended_and_says_so(asked, monkeypatch):
    monkeypatch.setattr(access, "LIMIT_S", 0.05)
    refused = asked(ENDLESS, "--json")
    assert refused.code == 1 and "has not answered within 0.05 s" in refused.error["message"]
    assert "WHERE" in refused.error["hint"]


@pytest.mark.parametrize(
    "words",
    [
        ("SELECT 1", "--csv", "--json"),
        ("SELECT 1", "-p", "no-value"),
        ("SELECT 1", "--run", "r0", "--db", "x.db"),
        ("SELECT 1", "--limit", "0"),
    ],
)
def test_contradicting_options_are_refused(asked, words):
    assert asked(*words).code == 2


def test_a_parameter_is_a_number_where_it_looks_like_one_and_never_sql(asked):
    sql = "SELECT typeof(:a) AS a, typeof(:b) AS b, typeof(:c) AS c, :d AS d"
    told = valid(asked(sql, "-p", "a=1", "-p", ":b=1e-3", "-p", "c=NULL", "-p",
                       "d='; DROP TABLE runs", "--json"))  # fmt: skip
    assert told["rows"] == [{"a": "integer", "b": "real", "c": "null", "d": "'; DROP TABLE runs"}]


def test_without_a_store_there_is_nothing_to_ask(desk):
    assert desk.quick("db", "query", "SELECT 1").code == 3
