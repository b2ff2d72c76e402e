"""The lives of a run, and the step that each came to where no guard wrote it down."""

from __future__ import annotations

import math
import sqlite3
from dataclasses import replace
from typing import Any

from albor_core.store.index.write import WALL_KEY
from albor_core.store.rows.rows import AttemptRow


def attempts_of(db: sqlite3.Connection, number: int) -> tuple[AttemptRow, ...]:
    """First to last. A step that the guard did not tell is the one that the life ended with by its
    own words, or else the last that it logged; the global store, which has no points, knows less.
    """
    rows = db.execute(
        "SELECT attempt, started, ended, pid, code, signal, exit_class, action, reason,"
        " delay_s, report, step, diagnostic, adopted FROM attempts WHERE run_id = ?"
        " ORDER BY attempt",
        (number,),
    )
    found = [_attempt_row(row) for row in rows]
    if all(life.step is not None for life in found):
        return tuple(found)
    told = dict(
        db.execute(
            "SELECT attempt, step FROM events WHERE run_id = ? AND name = 'run.end'"
            " AND attempt IS NOT NULL AND step IS NOT NULL ORDER BY at",
            (number,),
        ).fetchall()
    )
    ends = [*(life.started for life in found[1:]), None]
    for place, (life, until) in enumerate(zip(found, ends, strict=True)):
        if life.step is None:
            step = told.get(life.attempt)
            step = _last_logged(db, number, life, until) if step is None else step
            found[place] = replace(life, step=step)
    return tuple(found)


def _last_logged(
    db: sqlite3.Connection, number: int, life: AttemptRow, until: float | None
) -> int | None:
    """The last step that was logged from the start of a life to `until`, when the next began."""
    if life.started is None:
        return None
    end = math.inf if until is None else until
    key = db.execute(
        "SELECT key_id FROM keys WHERE run_id = ? AND name = ?", (number, WALL_KEY)
    ).fetchone()
    if key is None:
        return None
    # what counts lies in order of time: looked at from its end, few points are read
    newest = db.execute(
        "SELECT step, value FROM metrics WHERE run_id = ? AND key_id = ? AND value < ?"
        " ORDER BY step DESC LIMIT 1",
        (number, key[0], end),
    ).fetchone()
    kept = newest[0] if newest is not None and newest[1] >= life.started else None
    (taken_back,) = db.execute(
        "SELECT max(step) FROM metrics_discarded WHERE run_id = ? AND key_id = ?"
        " AND value >= ? AND value < ?",
        (number, key[0], life.started, end),
    ).fetchone()
    return max((step for step in (kept, taken_back) if step is not None), default=None)


def _attempt_row(row: Any) -> AttemptRow:
    columns: list[Any] = [*row[:12], bool(row[12]), bool(row[13])]
    return AttemptRow(*columns)
