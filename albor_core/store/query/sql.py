"""What people ask a store in SQL: read-only, bounded in time, rows and memory.

The file is open `mode=ro` with `query_only`; an authorizer refuses everything but reading our own
tables; a question that takes longer than LIMIT_S of computing is ended.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from albor_core.run.errors import UsageError
from albor_core.store.file.access import READABLE, time_limit, with_any_text
from albor_core.store.file.connect import (
    as_store_error,
    is_busy,
    is_damage,
    open_reader,
    remove_copy,
)

MAX_VALUE_BYTES = 16 << 20  # of one text or blob, also while it is computed
ASK_FOR_LESS = "ask for less: a WHERE, or a LIMIT in an inner SELECT"
_TABLES_HINT = "albor db query \"SELECT name, sql FROM sqlite_master WHERE type = 'table'\""
_REFUSED = frozenset({"load_extension", "fts3_tokenizer"})
_QUIET_ACTIONS = frozenset(
    {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE, sqlite3.SQLITE_SAVEPOINT}
)
_PRAGMAS = ("table_info", "table_list", "index_list", "index_info", "user_version")


class QueryResult(NamedTuple):
    """Rows by column name; a name that comes twice has a number. `is_cut`: there are more rows."""

    columns: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]
    is_cut: bool


def query(path: Path, sql: str, parameters: Mapping[str, Any], *, limit: int) -> QueryResult:
    """At most `limit` rows of the answer.

    Raises UsageError for what cannot be asked, NotFoundError, StoreError where it takes too long.
    """
    db, folder = open_reader(path)
    try:
        db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
        db.set_authorizer(_may)
        with time_limit(db, hint=ASK_FOR_LESS):
            return with_any_text(db, lambda: _ask(db, sql, parameters, limit))
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        raise _told(path, error) from error
    finally:
        db.close()
        remove_copy(folder)


def _ask(
    db: sqlite3.Connection, sql: str, parameters: Mapping[str, Any], limit: int
) -> QueryResult:
    from sqlite_utils import Database  # noqa: PLC0415  0.14 s
    from sqlite_utils.utils import dedupe_keys  # noqa: PLC0415

    tables = Database(db, recursive_triggers=False, execute_plugins=False)
    rows = tables.query(sql, dict(parameters))
    found = tuple(islice(rows, limit))
    if found:
        columns = tuple(found[0])
    else:
        described = db.execute(sql, dict(parameters)).description  # the names of no rows at all
        columns = tuple(dedupe_keys(name for name, *_ in described))
    return QueryResult(columns, found, next(rows, None) is not None)


def _may(
    action: int, first: str | None, second: str | None, _db: str | None, _by: str | None
) -> int:
    if action in _QUIET_ACTIONS:
        return sqlite3.SQLITE_OK
    match action:
        case sqlite3.SQLITE_READ if second == "":
            return sqlite3.SQLITE_OK  # of no column, as count(*) does, also of a WITH's rows
        case sqlite3.SQLITE_READ if (first or "") in READABLE or (first or "").startswith("pragma"):
            return sqlite3.SQLITE_OK
        case sqlite3.SQLITE_FUNCTION if (second or "").lower() not in _REFUSED:
            return sqlite3.SQLITE_OK
        case sqlite3.SQLITE_PRAGMA if (first or "").lower() in (*_PRAGMAS, "data_version"):
            return sqlite3.SQLITE_OK
        case sqlite3.SQLITE_UPDATE if first == "sqlite_master":
            return sqlite3.SQLITE_OK  # asked when a virtual table declares its columns; none can
    return sqlite3.SQLITE_DENY


def _told(path: Path, error: Exception) -> Exception:
    """A mistake in the question is the asker's; damage and a busy store are the store's."""
    if isinstance(error, sqlite3.Error) and (is_busy(error) or _is_of_file(error)):
        return as_store_error(path, error)
    why = str(error)
    if getattr(error, "sqlite_errorcode", 0) in (sqlite3.SQLITE_AUTH, sqlite3.SQLITE_READONLY) or (
        "query() can only be used" in why
    ):
        why = "only SELECT, and only from the tables of the store"
    elif getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_TOOBIG:
        why = f"a value of more than {MAX_VALUE_BYTES >> 20} MiB"
    return UsageError(f"cannot answer the query: {why}", hint=_TABLES_HINT)


def _is_of_file(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", None) is not None and is_damage(error)


def number_or_text(value: str) -> str | int | float | None:
    """A parameter as SQLite compares it: `NULL` is nothing, a number a number."""
    if value == "NULL":
        return None
    try:
        return int(value)
    except ValueError:
        pass
    try:
        number = float(value)
    except ValueError:
        return value
    return number if math.isfinite(number) else value
