"""What a series runs over: optimizer steps, or seconds since its run was made."""

from __future__ import annotations

import sqlite3

from albor_core.store.file.schema import SCHEMA_SQL

STEP, SECONDS = "step", "seconds"
WALL_KEY = "_wall"  # the wall time of each step, kept as a series like any other
_START = "CREATE TABLE keys ("


def add_axis(db: sqlite3.Connection) -> None:
    """The upgrade of a store from before system.jsonl: every series of it is over steps. The table
    is made anew, so that it is word by word what the schema says.
    """
    names = [row[1] for row in db.execute("PRAGMA table_info(keys)") if row[1] != "axis"]
    columns = ", ".join(names)
    db.execute(f"CREATE TEMP TABLE old_keys AS SELECT {columns} FROM keys")
    db.execute("DROP TABLE keys")
    db.execute(SCHEMA_SQL[SCHEMA_SQL.index(_START) :].partition("\nCREATE ")[0])
    db.execute(f"INSERT INTO keys ({columns}) SELECT {columns} FROM temp.old_keys")
    db.execute("DROP TABLE temp.old_keys")


def axis_column(db: sqlite3.Connection) -> str:
    """The SQL for the axis of a series: a store of an older version has no such column."""
    names = {row[1] for row in db.execute("PRAGMA table_info(keys)")}
    return "axis" if "axis" in names else f"'{STEP}'"
