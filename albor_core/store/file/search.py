"""Full-text search over what people call and say about runs: names, notes, tags and params.

The global store keeps one row of words per run, written with the run's share. A store without such
rows (a run's own, or an older one) is searched all the same, through a copy in memory: the same
words always find the same runs.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable

from albor_core.store.file.schema import SCHEMA_SQL

_FIRST = "CREATE TABLE param_names"
_PLACE = "CREATE VIRTUAL TABLE run_search"
_MAX_KEYS = 16
_MAX_TEXT_CHARS = 64 << 10  # of each column of a run
_TEXTS = (
    "SELECT r.name || ' ' || r.run || ' ' || e.name,"
    " (SELECT group_concat(tag, ' ') FROM tags WHERE run_id = r.id),"
    " (SELECT group_concat(text, ' ')"
    "  FROM (SELECT text FROM notes WHERE run_id = r.id ORDER BY at))"
    " FROM runs r JOIN experiments e ON e.id = r.experiment_id WHERE r.id = ?"
)
_INSERT = "INSERT INTO run_search (rowid, name, tags, notes, params) VALUES (?,?,?,?,?)"


def add_search(db: sqlite3.Connection) -> None:
    """The upgrade of a store that has no aids to searching yet."""
    part = ""
    for line in SCHEMA_SQL[SCHEMA_SQL.index(_FIRST) :].splitlines(keepends=True):
        part += line
        if sqlite3.complete_statement(part):
            db.execute(part)
            part = ""
    db.execute("INSERT INTO param_names (name) SELECT DISTINCT key FROM params")
    for (number,) in db.execute("SELECT id FROM runs").fetchall():
        refresh(db, number)


def refresh(db: sqlite3.Connection, number: int) -> None:
    """Bring the words of the run with this small id up to date, within the caller's transaction."""
    texts = _texts_of(db, number)
    known = db.execute(
        "SELECT name, tags, notes, params FROM run_search WHERE rowid = ?", (number,)
    ).fetchone()
    if texts == known:
        return
    db.execute("DELETE FROM run_search WHERE rowid = ?", (number,))
    if texts is not None:
        db.execute(_INSERT, (number, *texts))


def remove_words(db: sqlite3.Connection, number: int) -> None:
    """Remove the words of a run. No trigger can: SQLite trusts none with a virtual table."""
    db.execute("DELETE FROM run_search WHERE rowid = ?", (number,))


def find(db: sqlite3.Connection, words: str) -> list[int]:
    """Small ids of the runs that hold `words` side by side, the last one perhaps unfinished."""
    phrase = '"' + words.replace('"', '""') + '"*'
    question = "SELECT rowid FROM run_search WHERE run_search MATCH ?"
    rows: list[tuple[int]] = []
    if has_place := _has(db, "run_search"):
        rows = db.execute(question, (phrase,)).fetchall()
    others = "SELECT id FROM runs"
    if has_place:
        others += " WHERE id NOT IN (SELECT id FROM run_search_docsize)"
    if missing := db.execute(others).fetchall():
        rows += _find_in_memory(db, [number for (number,) in missing], question, phrase)
    return [number for (number,) in rows]


def param_keys(db: sqlite3.Connection, name: str) -> list[str]:
    """The params that `name` may mean: the whole key, then those that end with it, short ones
    first, the first few.
    """
    ending = "." + name
    rows = db.execute(
        f"SELECT key FROM ({_names(db)}) WHERE key = ? OR substr(key, ?) = ?",
        (name, -len(ending), ending),
    )
    return _likeliest(name, (key for (key,) in rows))


def param_lists(db: sqlite3.Connection, name: str) -> list[str]:
    """The params that are lists and that `name` may mean, in the order of `param_keys`. A store has
    their items alone, as `betas.0`.
    """
    inside = f".{name}.0"
    rows = db.execute(
        f"SELECT key FROM ({_names(db)}) WHERE substr('.' || key, ?) = ? OR instr('.' || key, ?)",
        (-len(inside), inside, f"{inside}."),
    )
    ends = ((key, f".{key}.".index(f"{inside}.") + len(name)) for (key,) in rows)
    return _likeliest(name, {key[:end] for key, end in ends})


def _names(db: sqlite3.Connection) -> str:
    """The names of all params, as SQL."""
    if _has(db, "param_names"):
        return "SELECT name AS key FROM param_names"
    return "SELECT DISTINCT key FROM params"  # 0.1 s in ten thousand runs


def _likeliest(name: str, keys: Iterable[str]) -> list[str]:
    return sorted(keys, key=lambda key: (key != name, len(key), key))[:_MAX_KEYS]


def _find_in_memory(
    db: sqlite3.Connection, numbers: list[int], question: str, phrase: str
) -> list[tuple[int]]:
    copy = sqlite3.connect(":memory:", isolation_level=None)
    try:
        place = SCHEMA_SQL[SCHEMA_SQL.index(_PLACE) :]
        copy.execute(place[: place.index(";")])
        texts = ((number, _texts_of(db, number)) for number in numbers)
        copy.execute("BEGIN")
        copy.executemany(_INSERT, [(n, *found) for n, found in texts if found is not None])
        return copy.execute(question, (phrase,)).fetchall()
    finally:
        copy.close()


def _has(db: sqlite3.Connection, table: str) -> bool:
    found = db.execute("SELECT 1 FROM sqlite_master WHERE name = ? AND type = 'table'", (table,))
    return found.fetchone() is not None


def _texts_of(db: sqlite3.Connection, number: int) -> tuple[str, str, str, str] | None:
    row = db.execute(_TEXTS, (number,)).fetchone()
    if row is None:
        return None
    params = db.execute("SELECT key, value FROM params WHERE run_id = ? ORDER BY key", (number,))
    words = " ".join(f"{key} {_plain(value)}" for key, value in params)
    name, tags, notes, said = (text or "" for text in (*row, words))
    return name, tags, notes[-_MAX_TEXT_CHARS:], said[:_MAX_TEXT_CHARS]


def _plain(value: str) -> str:
    """A param as words: the text itself where it is one, as SQLite can hold it."""
    if not value.startswith('"'):
        return value
    try:
        text = str(json.loads(value))
    except ValueError:  # a damaged store that is being saved may hold anything
        return value
    return text.encode("utf-8", "backslashreplace").decode()
