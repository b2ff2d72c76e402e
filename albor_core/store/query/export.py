"""What is read of many runs, or of long ones: in pages of short transactions, so that neither
memory nor a live run's store suffers. A page of PAGE rows of points is all there is at once.

Points are the effective history: every step once, rewinds applied. Figures of the machine lie at
the step where the run was, a few at one step or none; a run without steps has none for them.
Params and summaries of many runs come from one store, some thousand runs at a time: each question
has two seconds.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from albor_core.run.rundir import RunDir
from albor_core.run.values.directions import Direction
from albor_core.store.file.axis import SECONDS, WALL_KEY, axis_column
from albor_core.store.file.goals import goals_of_run
from albor_core.store.file.paths import local_store
from albor_core.store.index.series.step_clock import StepsByTime
from albor_core.store.query.names import metric_of
from albor_core.store.query.reader import Reader
from albor_core.store.query.series.series_reader import STAT_COLUMNS, at_steps, key_stat
from albor_core.store.query.table import RunList
from albor_core.store.rows.rows import KeyStat
from albor_core.store.rows.run_row import Param

COLUMNS = ("run", "experiment", "key", "step", "wall", "value")
PAGE = 20_000  # rows of a page: some 5 MB in memory
_RUNS = 2_000  # asked about at once
Row = tuple[str, str, str, int | None, float | None, float]
Page = list[Row]


def pages(run: RunDir, *, keys: Sequence[str] | None = None, page: int = PAGE) -> Iterator[Page]:
    """The points of a run, by key and step. `keys` None means all. Raises NotFoundError for a key
    that the run does not have and where the run's own store is gone, StoreError.

    Of a run that is alive it is what was indexed when each page was read, never a torn step.
    """
    with Reader(local_store(run)) as reader:
        row = reader.run(run.id)
        known = dict.fromkeys(reader.keys(run.id))  # looked in for each key that is asked for
        ids = reader.series_ids(run.id)
        for key in known if keys is None else [metric_of(run, key, known) for key in keys]:
            is_timed = key in ids.timed
            for points in reader.pages_of(ids, key, page):
                yield [
                    (run.id, row.experiment, key, None if is_timed else step, wall, value)
                    for step, value, wall in points
                ]


def params_of(table: RunList, runs: Sequence[str]) -> Iterator[tuple[str, str, Param]]:
    """Run, key and value of every param of these runs."""
    decoded: dict[str, Param] = {}  # a sweep says few values many times
    for ids, rows in _of_runs(table, runs, _params):
        for number, key, text in rows:
            if text not in decoded:
                decoded[text] = json.loads(text)
            yield ids[number], key, decoded[text]


def last_values_of(table: RunList, runs: Sequence[str]) -> Iterator[tuple[str, str, float]]:
    """Run, key and last value of every series of these runs."""
    for ids, rows in _of_runs(table, runs, _last_values):
        for number, name, last in rows:
            yield ids[number], name, math.nan if last is None else last


def summaries_of(table: RunList, runs: Sequence[str]) -> dict[str, dict[str, KeyStat]]:
    """By run, the result of `Reader.summary`."""
    found: dict[str, dict[str, KeyStat]] = {run: {} for run in runs}
    ways: dict[str, dict[str, Direction]] = {}
    clocks: dict[int, StepsByTime | None] = {}
    experiments = {row.id: row.experiment for row in table.by_id(runs)}
    for ids, rows in _of_runs(table, runs, _stats):
        for number, name, *columns in rows:
            experiment = experiments.get(ids[number], "")
            if experiment not in ways:
                ways[experiment] = table.query(partial(goals_of_run, run=ids[number]))
            stat = key_stat(name, columns, ways[experiment], lambda _: None)
            if stat.axis == SECONDS:
                if number not in clocks:
                    of_run = partial(StepsByTime.of, run_id=number, walls=WALL_KEY)
                    clocks[number] = table.query(of_run)
                stat = at_steps(stat, clocks[number])
            found[ids[number]][name] = stat
    return found


_Rows = Sequence[Any]
_Question = Callable[[sqlite3.Connection, str], _Rows]


def _of_runs(
    table: RunList, runs: Sequence[str], question: _Question
) -> Iterator[tuple[dict[int, str], _Rows]]:
    """Rows of runs, which begin with the store's small ids, and what run each of those is."""
    for start in range(0, len(runs), _RUNS):
        yield table.query(partial(_some, runs=runs[start : start + _RUNS], question=question))


def _some(
    db: sqlite3.Connection, runs: Sequence[str], question: _Question
) -> tuple[dict[int, str], _Rows]:
    chosen = "SELECT id, CAST(run AS TEXT) FROM runs WHERE run IN (SELECT value FROM json_each(?))"
    ids = dict(db.execute(chosen, (json.dumps([*runs]),)))
    return ids, question(db, json.dumps([*ids]))


_CHOSEN = "run_id IN (SELECT value FROM json_each(?))"


def _params(db: sqlite3.Connection, ids: str) -> _Rows:
    return db.execute(f"SELECT run_id, key, value FROM params WHERE {_CHOSEN}", (ids,)).fetchall()


def _last_values(db: sqlite3.Connection, ids: str) -> _Rows:
    where = f"count > 0 AND name != ? AND {_CHOSEN}"
    rows = db.execute(f"SELECT run_id, name, last FROM keys WHERE {where}", (WALL_KEY, ids))
    return rows.fetchall()


def _stats(db: sqlite3.Connection, ids: str) -> _Rows:
    columns = f"run_id, name, {STAT_COLUMNS}, {axis_column(db)}"
    where = f"name != ? AND {_CHOSEN} ORDER BY run_id, name"
    return db.execute(f"SELECT {columns} FROM keys WHERE {where}", (WALL_KEY, ids)).fetchall()
