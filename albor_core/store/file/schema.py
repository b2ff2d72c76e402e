"""The one schema of both stores, as text and as the columns a store must have."""

from __future__ import annotations

import re
import sqlite3
from functools import lru_cache
from pathlib import Path

SCHEMA_VERSION = 6
AIDS = ("run_search", "param_names", "goals", "media")  # of newer versions; can be missing
NEW_COLUMNS = ("keys.axis",)  # can be missing too
SCHEMA_SQL = Path(__file__).with_name("schema.sql").read_text(encoding="ascii")


_TABLE = re.compile(r"^CREATE (?:VIRTUAL )?TABLE (?:IF NOT EXISTS )?'?(\w+)", re.MULTILINE)
TABLES = frozenset(_TABLE.findall(SCHEMA_SQL))


@lru_cache(maxsize=1)
def expected_columns() -> dict[str, tuple[str, ...]]:
    """Table name to column names, as `schema.sql` makes them."""
    with sqlite3.connect(":memory:") as db:
        db.executescript(SCHEMA_SQL)
        found = columns(db)
    db.close()
    return found


def columns(db: sqlite3.Connection) -> dict[str, tuple[str, ...]]:
    """Table name to column names of a store. A view is not a table, whatever its name."""
    rows = db.execute(
        "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c"
        " WHERE m.type = 'table' ORDER BY m.name, c.cid"
    )
    found: dict[str, tuple[str, ...]] = {}
    for table, column in rows:
        found[table] = (*found.get(table, ()), column)
    return found


def missing(db: sqlite3.Connection) -> list[str]:
    """What a store lacks to be ours: "table" or "table.column". More is fine; without
    the tables that an older version lacks it can be read all the same.
    """
    needed = {table for table in TABLES if not table.startswith(AIDS)}
    made = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
    if needed <= {name for name, sql in made if sql in SCHEMA_SQL}:
        return []  # word by word: no need to compare columns, which costs 10 ms
    have = columns(db)
    lacks = []
    for table, names in expected_columns().items():
        if table not in needed:
            continue
        if table not in have:
            lacks.append(table)
        else:
            lacks += [f"{table}.{name}" for name in names if name not in have[table]]
    return [name for name in lacks if name not in NEW_COLUMNS]


def strangers(db: sqlite3.Connection) -> list[str]:
    """Triggers and views that are none of ours: they would run with what we write."""
    made = db.execute("SELECT name, sql FROM sqlite_master WHERE type IN ('trigger', 'view')")
    return [name for name, sql in made if sql not in SCHEMA_SQL]
