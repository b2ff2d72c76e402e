"""What a viewer's connection may do: read our tables, and not for long.

`mode=ro` and `query_only` keep the file as it is; this keeps the questions as they are. A hostile
store may hold views, virtual tables and expressions of its own, so that nothing but the tables of
`schema.sql` can be read through it, and a question that takes too long is ended.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from albor_core.run.errors import StoreError
from albor_core.store.file.schema import TABLES

T = TypeVar("T")
LIMIT_S = 2.0
GRACE_S = 0.5
_LOOK_S = 0.1
_OPERATIONS = 10_000  # of SQLite's virtual machine between two looks at the clock: about 1 ms
_FUNCTIONS = frozenset(
    (
        *("coalesce", "count", "group_concat", "instr", "json_extract", "json_type", "length"),
        *("lower", "match", "max", "min", "substr", "typeof"),
    )
)
READABLE = TABLES | {"sqlite_master", "json_each", "pragma_table_info"} | {""}  # "": count(*)
_PRAGMAS = frozenset(
    (
        *(("data_version", False), ("database_list", False)),
        *(("table_info", True), ("user_version", False)),
    )
)
"""Which may be asked, and whether with an argument: nothing can be set."""


def restrict(db: sqlite3.Connection) -> None:
    """Restrict `db` to questions about our own tables from now on."""
    db.set_authorizer(_may)


def _may(
    action: int, first: str | None, second: str | None, _db: str | None, _by: str | None
) -> int:
    match action:
        case sqlite3.SQLITE_SELECT:
            return sqlite3.SQLITE_OK
        case sqlite3.SQLITE_READ if (first or "") in READABLE:
            return sqlite3.SQLITE_OK
        case sqlite3.SQLITE_FUNCTION if (second or "").lower() in _FUNCTIONS:
            return sqlite3.SQLITE_OK
        case sqlite3.SQLITE_PRAGMA if ((first or "").lower(), second is not None) in _PRAGMAS:
            return sqlite3.SQLITE_OK
        case sqlite3.SQLITE_UPDATE if first == "sqlite_master":
            return sqlite3.SQLITE_OK  # asked when a virtual table declares its columns; none can
    return sqlite3.SQLITE_DENY


def with_any_text(db: sqlite3.Connection, ask: Callable[[], T]) -> T:
    """What `ask` answers, also where a text of the store is not UTF-8: that text gets marks.

    Python refuses the whole answer for one such text, and decoding leniently from the start would
    cost each text of a long list a call.
    """
    try:
        return ask()
    except sqlite3.OperationalError as error:
        if "decode to UTF-8" not in str(error):
            raise
    db.text_factory = lambda raw: raw.decode("utf-8", "replace")
    return ask()


@contextmanager
def no_longer(end: Callable[[StoreError], None], *, hint: str) -> Iterator[None]:
    """Call `end` once this thread has computed GRACE_S beyond the time limit in this block: one
    function of SQLite over a long text is a single operation, which nothing interrupts. `end` is
    called in another thread, and has to end the program.
    """
    clock, is_over = time.pthread_getcpuclockid(threading.get_ident()), threading.Event()
    deadline = time.clock_gettime(clock) + LIMIT_S + GRACE_S

    def watch() -> None:
        while not is_over.wait(_LOOK_S):
            if time.clock_gettime(clock) > deadline:
                end(_too_long(hint))
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()


def _too_long(hint: str) -> StoreError:
    return StoreError(f"the store has not answered within {LIMIT_S:g} s", hint=hint)


@contextmanager
def time_limit(db: sqlite3.Connection, *, hint: str = "narrow it: since:7d") -> Iterator[None]:
    """End whatever `db` is asked in this block once it took LIMIT_S of this thread's time: that of
    a busy machine's other programs does not count. Raises StoreError then.
    """
    deadline = time.thread_time() + LIMIT_S
    db.set_progress_handler(lambda: time.thread_time() > deadline, _OPERATIONS)
    try:
        yield
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_INTERRUPT:
            raise
        raise _too_long(hint) from error
    finally:
        db.set_progress_handler(None, 0)
