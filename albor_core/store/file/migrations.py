"""Upgrades of a store, counted by PRAGMA user_version.

`UPGRADES[n]` turns version n+1 into n+2; a store of version 0 is an empty file and gets the schema.
Append only. Each upgrade is one exclusive transaction: old or new, never half.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from albor_core.andon.severity import COLOURS
from albor_core.run.errors import StoreError
from albor_core.store.file.axis import add_axis
from albor_core.store.file.goals import add_goals
from albor_core.store.file.schema import SCHEMA_SQL, SCHEMA_VERSION
from albor_core.store.file.search import add_search

_WORDS = " ".join(f"WHEN '{colour}' THEN '{word}'" for colour, word in COLOURS.items())
_COLOURS = ", ".join(f"'{colour}'" for colour in COLOURS)
_BACKUPS = 3


def name_severities(db: sqlite3.Connection) -> None:
    """The upgrade of a store whose events have colours for severities: words for them, in the
    column of every event and in the data of alerts.
    """
    db.execute(
        "UPDATE events SET data = json_set(data, '$.severity',"
        f" CASE json_extract(data, '$.severity') {_WORDS} END)"
        " WHERE name = 'andon.alert' AND json_valid(data)"
        f" AND json_extract(data, '$.severity') IN ({_COLOURS})"
    )
    db.execute(
        f"UPDATE events SET severity = CASE severity {_WORDS} END WHERE severity IN ({_COLOURS})"
    )


def add_media(db: sqlite3.Connection) -> None:
    """The upgrade of a store from before media: their table, empty.

    A line of the journal that told of one was ignored then; `albor db rebuild` reads it again.
    """
    statement = SCHEMA_SQL[SCHEMA_SQL.index("CREATE TABLE media (") :].partition("\nCREATE ")[0]
    db.execute(statement.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1))


UPGRADES: tuple[Callable[[sqlite3.Connection], None], ...] = (
    add_search,
    add_goals,
    add_axis,
    name_severities,
    add_media,
)


def user_version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def upgrade(db: sqlite3.Connection, path: Path) -> None:
    """Bring the store to SCHEMA_VERSION, with a copy of the old one beside it.

    Raises StoreError for one that a newer Albor wrote, sqlite3.DatabaseError where it is not what
    its version says: for a run's own store the indexer then makes it again.
    """
    version = user_version(db)
    if version > SCHEMA_VERSION:
        raise StoreError(
            f"{path}: store version {version} is newer than this Albor writes ({SCHEMA_VERSION})",
            hint="upgrade albor; the journal keeps everything meanwhile",
        )
    if version == SCHEMA_VERSION:
        return
    if version:
        _back_up(db, path, version)
    try:
        _exclusive(db, _create if version == 0 else _climb)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_ERROR:  # not what it says it is: made again
            raise sqlite3.DatabaseError(f"upgrade from version {version}: {error}") from error
        raise


def _create(db: sqlite3.Connection) -> None:
    if user_version(db):  # another process made it while we waited for the lock
        return
    for statement in _statements(SCHEMA_SQL):
        db.execute(statement)


def _statements(script: str) -> list[str]:
    statements, part = [], ""
    for line in script.splitlines(keepends=True):
        part += line
        if sqlite3.complete_statement(part):
            statements.append(part)
            part = ""
    return statements


def _climb(db: sqlite3.Connection) -> None:
    for step in UPGRADES[user_version(db) - 1 :]:  # as it is now: another may have been faster
        step(db)


def _exclusive(db: sqlite3.Connection, work: Callable[[sqlite3.Connection], None]) -> None:
    db.execute("BEGIN EXCLUSIVE")
    try:
        work(db)
        db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def _back_up(db: sqlite3.Connection, path: Path, version: int) -> None:
    target = path.with_name(f"backup-v{version}-{path.name}")
    target.unlink(missing_ok=True)
    db.execute("VACUUM INTO ?", (str(target),))
    target.chmod(0o600)
    old = sorted(path.parent.glob(f"backup-v*-{path.name}"), key=lambda p: p.stat().st_mtime_ns)
    for backup in old[:-_BACKUPS]:
        backup.unlink(missing_ok=True)
