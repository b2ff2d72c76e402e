"""The attempts of a run, and where the guard recorded neither, the step and time each came to."""

from __future__ import annotations

import math
import sqlite3
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

from albor_core.store.file.axis import WALL_KEY
from albor_core.store.rows.rows import AttemptRow

NO_END = "killed, or lost with its machine: no end was recorded"


def attempts_of(db: sqlite3.Connection, number: int) -> tuple[AttemptRow, ...]:
    """First to last. A step that the guard did not tell is the one that the attempt ended with by
    its own words, or else the last that it logged; the global store, which has no points, knows
    less. One that ended unseen, since another followed, says so.
    """
    rows = db.execute(
        "SELECT attempt, started, ended, pid, code, signal, exit_class, action, reason,"
        " delay_s, report, step, diagnostic, adopted FROM attempts WHERE run_id = ?"
        " ORDER BY attempt",
        (number,),
    )
    found = [_attempt_row(row) for row in rows]
    for place, (life, after) in enumerate(pairwise(found)):
        if life.ended is None:
            found[place] = with_unseen_end(life, _last_wall(db, number, life, after.started))
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


def with_unseen_end(life: AttemptRow, last_wall: float | None) -> AttemptRow:
    """An attempt that is over without a recorded end, which says so; `last_wall`: when it last
    recorded anything.
    """
    if last_wall is not None and last_wall <= (life.started or 0.0):
        last_wall = None  # nothing but its start is known
    return replace(life, reason=life.reason or NO_END, last_wall=last_wall)


def _last_wall(
    db: sqlite3.Connection, number: int, life: AttemptRow, until: float | None
) -> float | None:
    """When an attempt last recorded a point or an event before `until`, when the next began."""
    end = math.inf if until is None else until
    (said,) = db.execute(
        "SELECT max(wall) FROM events WHERE run_id = ? AND attempt = ? AND wall < ?",
        (number, life.attempt, end),
    ).fetchone()
    logged = [wall for _, wall in _logged_until(db, number, life, end)]
    return max((wall for wall in (said, *logged) if wall is not None), default=None)


class TakenBack(NamedTuple):
    """What one rewind took back. `at` is the byte of the journal where it is, `wall` when the last
    of these points was logged.
    """

    at: int
    metrics: int
    points: int
    first_step: int
    last_step: int
    wall: float | None


def taken_back(db: sqlite3.Connection, run: str) -> tuple[TakenBack, ...]:
    """The rewinds of a run that took anything back, the oldest first; none of an unknown run."""
    rows = db.execute(
        "SELECT d.at, count(DISTINCT CASE WHEN k.name <> ?2 THEN k.key_id END),"
        " count(CASE WHEN k.name <> ?2 THEN 1 END), min(d.step), max(d.step),"
        " max(CASE WHEN k.name = ?2 THEN d.value END)"
        " FROM runs r JOIN metrics_discarded d ON d.run_id = r.id"
        " JOIN keys k ON k.run_id = d.run_id AND k.key_id = d.key_id"
        " WHERE r.run = ?1 GROUP BY d.at ORDER BY d.at",
        (run, WALL_KEY),
    )
    return tuple(TakenBack(*row) for row in rows)


def _last_logged(
    db: sqlite3.Connection, number: int, life: AttemptRow, until: float | None
) -> int | None:
    """The last step logged from the start of an attempt to `until`, when the next began."""
    end = math.inf if until is None else until
    return max((step for step, _ in _logged_until(db, number, life, end)), default=None)


def _logged_until(
    db: sqlite3.Connection, number: int, life: AttemptRow, end: float
) -> list[tuple[int, float]]:
    """The last step that an attempt logged before `end` with its time: of the points that count,
    and of those that were taken back.
    """
    key = db.execute(
        "SELECT key_id FROM keys WHERE run_id = ? AND name = ?", (number, WALL_KEY)
    ).fetchone()
    if key is None or life.started is None:
        return []
    # what counts lies in order of time: looked at from its end, few points are read
    kept = db.execute(
        "SELECT step, value FROM metrics WHERE run_id = ? AND key_id = ? AND value < ?"
        " ORDER BY step DESC LIMIT 1",
        (number, key[0], end),
    ).fetchall()
    taken_back = db.execute(
        "SELECT max(step), max(value) FROM metrics_discarded WHERE run_id = ? AND key_id = ?"
        " AND value >= ? AND value < ?",
        (number, key[0], life.started, end),
    ).fetchall()
    return [
        (step, wall)
        for step, wall in (*kept, *taken_back)
        if step is not None and wall >= life.started
    ]


def _attempt_row(row: Any) -> AttemptRow:
    columns: list[Any] = [*row[:12], bool(row[12]), bool(row[13])]
    return AttemptRow(*columns)
