"""The upgrade of a store from before media: their table, empty.

A line of the journal that told of one was ignored then; `albor db rebuild` reads it again.
"""

from __future__ import annotations

import sqlite3

from albor_core.store.file.schema import SCHEMA_SQL

_START = "CREATE TABLE media ("


def add_media(db: sqlite3.Connection) -> None:
    statement = SCHEMA_SQL[SCHEMA_SQL.index(_START) :].partition("\nCREATE ")[0]
    db.execute(statement.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1))
