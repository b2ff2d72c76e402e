"""Opens a foreign database read-only, without trusting its contents."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from albor_core.run.errors import DataError, TryAgainError

HEAD = b"SQLite format 3\0"
_MAX_CELL_BYTES = 16 << 20
_SUFFIXES = (".db", ".sqlite", ".sqlite3")
_TABLE = (
    "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    " AND sql NOT LIKE 'CREATE VIRTUAL%'"
)
_WAIT_S = 5.0


def may_be_database(name: str) -> bool:
    """Whether a file is called as databases are."""
    return name.lower().endswith(_SUFFIXES)


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A read-only connection. Raises DataError for a file that is damaged or cannot be read,
    TryAgainError while its program keeps it locked.
    """
    try:
        with closing(_connect(path)) as db:
            yield db
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise TryAgainError(f"{path}: {error}", hint="stop its writer, import again") from error
        raise DataError(f"{path}: cannot be read as a database: {error}") from error
    except sqlite3.DatabaseError as error:
        raise DataError(f"{path}: cannot be read as a database: {error}") from error


def _connect(path: Path) -> sqlite3.Connection:
    address = f"file:{quote(str(path))}?mode=ro"
    db = sqlite3.connect(address, uri=True, timeout=_WAIT_S)
    db.text_factory = lambda raw: raw.decode("utf-8", "replace")
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_CELL_BYTES)
    try:
        db.execute("PRAGMA trusted_schema = OFF")
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        db.close()
        if "unable to open" not in str(error) or Path(f"{path}-wal").exists():
            raise
        # a file in WAL mode where its side files cannot be made: no process writes there
        db = sqlite3.connect(f"{address}&immutable=1", uri=True)
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_CELL_BYTES)
    return db


def columns(db: sqlite3.Connection, table: str) -> frozenset[str]:
    """Names of a table's columns; none where there is no such table, but a view by its name, say:
    that runs whatever its author liked.
    """
    if db.execute(_TABLE, (table,)).fetchone() is None:
        return frozenset()
    return frozenset(row[1] for row in db.execute(f"PRAGMA table_info({table})"))


def count(db: sqlite3.Connection, table: str, run: str) -> int:
    """Rows of a run in a table that may not be there."""
    if "run_id" not in columns(db, table):
        return 0
    sql = f"SELECT count(*) FROM {table} WHERE run_id = ?"
    return int(db.execute(sql, (run,)).fetchone()[0])
