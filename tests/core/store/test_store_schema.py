"""The schema file is what a store is: word by word, and what SQLite's own shell prints of one."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import subprocess
import threading
from pathlib import Path

import pytest

from albor_core.run.errors import StoreError
from albor_core.store.file.connect import open_reader, open_writer
from albor_core.store.file.schema import SCHEMA_SQL, TABLES, expected_columns, missing

ROOT = Path(__file__).resolve().parents[3]


def spaced(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def store(tmp_path):
    path = tmp_path / "experiments.db"
    open_writer(path).close()
    return path


def test_the_schema_at_the_root_is_what_sqlite_prints_of_a_store(store):
    shell = shutil.which("sqlite3")
    if shell is None:
        pytest.skip("no sqlite3 program here; the next test compares without it")
    printed = subprocess.run([shell, store, ".schema"], capture_output=True, text=True, check=True)
    assert spaced(printed.stdout) == spaced((ROOT / "experiments.db.schema").read_text())


def test_every_statement_of_a_store_stands_in_the_schema(store):
    with sqlite3.connect(store) as db:
        made = db.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    ours = spaced(SCHEMA_SQL).replace("IF NOT EXISTS ", "")
    for (statement,) in made:
        assert spaced(statement) in ours, statement
        ours = ours.replace(spaced(statement), "", 1)
    assert ours.replace("/* run_search(name,tags,notes,params) */", "").strip(" ;") == ""


def test_a_store_is_known_by_its_words_and_by_its_columns(store):
    assert set(expected_columns()) == TABLES
    with sqlite3.connect(store) as db:
        assert missing(db) == []
        db.execute("ALTER TABLE notes ADD COLUMN mood TEXT")  # a newer one: more is fine
        assert missing(db) == []
        db.execute("ALTER TABLE notes RENAME COLUMN text TO words")
        assert missing(db) == ["notes.text"]
        db.execute("DROP TABLE run_search")
        db.execute("DROP TRIGGER param_names_grow")
        db.execute("DROP TABLE param_names")
        db.execute("DROP TABLE notes")
        assert missing(db) == ["notes"]


def test_a_store_of_the_first_version_gets_its_aids_to_searching(tmp_path):
    path = tmp_path / "experiments.db"
    first = SCHEMA_SQL[: SCHEMA_SQL.index("CREATE TABLE param_names")]
    with sqlite3.connect(path) as db:
        db.executescript(first)
        db.execute("DROP TABLE goals")
        db.execute("INSERT INTO experiments VALUES (1, 'e')")
        db.execute("INSERT INTO runs (id, run, experiment_id, name, kind, path)"
                   " VALUES (5, 'r5', 1, 'wide net', 'train', '')")  # fmt: skip
        db.execute("INSERT INTO params VALUES (5, 'optimizer.lr', '0.1')")
        db.execute("PRAGMA user_version = 1")
    path.chmod(0o600)
    db = open_writer(path)
    assert db.execute("SELECT rowid FROM run_search WHERE run_search MATCH 'net'").fetchall() == [
        (5,)
    ]
    db.execute("INSERT INTO params VALUES (5, 'seed', '1')")
    assert db.execute("SELECT name FROM param_names").fetchall() == [("optimizer.lr",), ("seed",)]
    db.close()


def test_a_reader_waits_for_the_tables_of_a_store_that_is_being_made(tmp_path):
    path = tmp_path / "experiments.db"
    path.touch()
    maker = threading.Timer(0.2, lambda: open_writer(path).close())
    maker.start()
    db, _ = open_reader(path)
    maker.join()
    assert missing(db) == []
    db.close()


@pytest.mark.parametrize("pages", ["none", "a header"])
def test_a_store_without_its_tables_is_said_to_be_only_partly_written(tmp_path, monkeypatch, pages):
    monkeypatch.setattr("albor_core.store.file.connect.MAKING_S", 0.1)
    path = tmp_path / "experiments.db"
    path.touch()
    if pages == "a header":  # what the maker leaves where the disk has no room for more
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.execute("PRAGMA journal_mode = WAL")
        assert path.stat().st_size == 4096
    with pytest.raises(
        StoreError, match=r"experiments\.db: only partly written, .* full disk"
    ) as told:
        open_reader(path)
    assert told.value.hint == "albor db rebuild"
    assert "not an Albor store" not in told.value.message
