"""The run table of a store, open for reading: what lists need, and nothing that takes long to load.

`Reader` (reader.py) adds what is asked about single runs.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, TypeVar

from albor_core.run.errors import NotFoundError, StoreError, UsageError
from albor_core.run.home.folders import pointer_of
from albor_core.run.home.runs import run_at
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.values.directions import Direction, Goals, direction
from albor_core.store.file.access import restrict, time_limit, with_any_text
from albor_core.store.file.connect import as_store_error, open_reader, remove_copy
from albor_core.store.file.crowded import crowded
from albor_core.store.file.goals import goal_of
from albor_core.store.file.paths import local_store
from albor_core.store.file.standing import Standing, standings
from albor_core.store.query import lineage, listing
from albor_core.store.query.listing import ListColumn
from albor_core.store.query.terms import MAX_CHARS, Filter, Term
from albor_core.store.rows.run_row import Param, RunRow

T = TypeVar("T")
_AT_ONCE = 500  # runs with all their metrics, well within the time of one question


class RunList:
    """A store, open for reading. Belongs to the thread and the process that opened it.

    Raises NotFoundError, StoreError, TryAgainError (briefly held elsewhere).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection, self._folder = _open(path)
        self._pid = os.getpid()
        self._file, self._files = _identity(path), 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()
        remove_copy(self._folder)

    @property
    def _db(self) -> sqlite3.Connection:
        if os.getpid() != self._pid:
            raise StoreError(f"{self.path}: opened before a fork; open it again in this process")
        return self._connection

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, ValueError) as error:
            raise as_store_error(self.path, error) from error

    def _all(self, sql: str, arguments: Sequence[Any] = ()) -> list[Any]:
        with self._errors():
            ask = self._db.execute
            return with_any_text(self._db, lambda: ask(sql, arguments).fetchall())

    def query(self, question: Callable[[sqlite3.Connection], T]) -> T:
        """The answer to a question that must not take longer than two seconds."""
        with self._errors(), time_limit(self._db):
            return with_any_text(self._db, lambda: question(self._db))

    def version(self) -> int:
        """A number that moves when another connection commits: cheap to poll, no table is read.

        A store that was replaced (rebuilt, quarantined) is opened again here.
        """
        now = _identity(self.path)
        if now != self._file and now is not None:
            fresh = _open(self.path)
            self.close()
            self._connection, self._folder = fresh
            self._file, self._files = now, self._files + 1
        return (self._files << 40) + int(self._all("PRAGMA data_version")[0][0])

    def runs(
        self,
        *,
        limit: int | None = None,
        experiment: str | None = None,
        name: str | None = None,
        sort: str = "created",
        descending: bool = True,
        where: Filter | None = None,
        statuses: Mapping[str, str] | None = None,
        pinned_first: bool = False,
    ) -> tuple[RunRow, ...]:
        """Runs, newest first by default; unknown values sort last. `name` is a part of a name or
        id. `sort` is one of SORT_KEYS, a metric or a param (see filter.py). `statuses` has the
        present word of the runs in `unended`; a filter by status is not answered without.

        Raises UsageError for an unknown sort key, StoreError after two seconds.
        """
        terms = (where or Filter()).terms
        for field, value in (("experiment", experiment), ("name", name)):
            if value is not None:
                terms = (*terms, Term("text", field, "=", (_bounded(field, value),), 0))
        asked = listing.ListQuery(Filter(terms), statuses, sort, descending, pinned_first, limit)
        return tuple(self.query(lambda db: listing.rows_of(db, asked)))

    def ids(
        self, *, where: Filter, statuses: Mapping[str, str], sort: str, descending: bool, limit: int
    ) -> tuple[str, ...]:
        """Ids of what `runs` would give: of a hundred thousand runs in a tenth of its time."""
        asked = listing.ListQuery(where, statuses, sort, descending, False, limit)
        return tuple(self.query(lambda db: listing.ids_of(db, asked)))

    def by_id(self, run_ids: Collection[str]) -> tuple[RunRow, ...]:
        """These runs, of those that the store has, in no order."""
        return tuple(self.query(lambda db: listing.by_id(db, run_ids)))

    def outstanding(self, limit: int) -> tuple[str, ...]:
        """Ids of the newest runs that are pinned or have no recorded end."""
        return tuple(self.query(lambda db: listing.outstanding(db, limit)))

    def count(self, where: Filter, statuses: Mapping[str, str] | None = None) -> int:
        """How many runs a filter keeps. Raises StoreError after two seconds."""
        return self.query(lambda db: listing.count(db, listing.ListQuery(where, statuses)))

    def matching(self, where: Filter, statuses: Mapping[str, str] | None = None) -> frozenset[str]:
        """Ids of the runs that a filter keeps. Raises StoreError after two seconds."""
        return self.query(lambda db: listing.ids(db, listing.ListQuery(where, statuses)))

    def pointers(self) -> frozenset[str]:
        """The names of the files by which a home knows the runs of its store."""
        return self.query(listing.pointers)

    def names(self) -> tuple[tuple[str, str, str], ...]:
        """Id, name and path of every run, the oldest first."""
        return tuple(self.query(listing.names))

    def unended(self) -> tuple[tuple[str, str], ...]:
        """Id and path of every run without a recorded end: what it does now is asked of locks,
        not of a store.
        """
        return tuple(self.query(listing.unended))

    def indexed(self, shown: Collection[str]) -> tuple[tuple[str, str, int, int, str | None], ...]:
        """Of each run in `shown`, and of each without a recorded end: id, path, how many bytes of
        its journal are indexed, whether it has ended, and its facts where they tell of lost lines.
        """
        return tuple(self.query(lambda db: listing.indexed(db, shown)))

    def losses(self) -> dict[str, tuple[int, int]]:
        """By run, how many log lines and how many console bytes were lost, for ended runs with such
        losses."""
        return self.query(listing.losses)

    def cells(
        self, run_ids: Sequence[str], columns: Sequence[ListColumn]
    ) -> dict[str, tuple[Param, ...]]:
        """By run, the values of metric and param columns; None if a run has no such value."""
        return self.query(lambda db: listing.cells(db, run_ids, columns))

    def goal(self, metric: str, experiment: str | None = None) -> Direction | None:
        """The direction in which a metric is better, as runs declared it (those of one experiment,
        if named); None if none did, or if they disagree.
        """
        return self.query(lambda db: goal_of(db, metric, experiment))

    def standings(self, run_ids: Collection[str]) -> dict[str, Standing]:
        """What the metrics that stand for each of these runs are chosen from; runs that log nothing
        are left out.
        """
        found: dict[str, Standing] = {}
        wanted = [*run_ids]
        for start in range(0, len(wanted), _AT_ONCE):
            some = wanted[start : start + _AT_ONCE]
            found |= self.query(lambda db, some=some: standings(db, some))  # type: ignore[misc]
        return found

    def is_descending(
        self, sort: str, goals: Goals | None = None, experiment: str | None = None
    ) -> bool:
        """Whether an order begins with the newest and the largest: names begin with A, and metrics
        with the best where that is known. Raises UsageError for what is not a column.
        """
        if sort in listing.SORT_KEYS:
            return sort not in listing.ASCENDING
        metric, stat = listing.parse_column(sort or "-")
        if stat == "count":
            return True
        if metric not in (ways := goals or {}):
            metric = (*self.query(lambda db: listing.metric_keys(db, metric)), metric)[0]
        if metric not in ways and (declared := self.goal(metric, experiment)) is not None:
            ways = {**ways, metric: declared}
        return direction(metric, ways) != "min"

    def is_known(self, name: str, stat: str = "") -> bool:
        """Whether any run has a metric or param of this name; a `stat` is of metrics only."""
        return self.query(lambda db: listing.is_known(db, name, stat))

    def is_empty(self) -> bool:
        """Whether it has no run at all."""
        return not self._all("SELECT 1 FROM runs LIMIT 1")

    def measured(self) -> frozenset[str]:
        """The names of all metrics and params, and the numbers of the run table."""
        return self.query(listing.measured)

    def crowded(self) -> list[RunDir]:
        """The runs that logged more metrics than their stores have room for."""
        return self.query(crowded)

    def parents(self, run_ids: Sequence[str]) -> dict[str, str]:
        """By run, the run whose checkpoint it began from, if it did."""
        return self.query(lambda db: lineage.parents(db, run_ids))

    def children(self, run_id: str) -> frozenset[str]:
        """The runs that began from a checkpoint of this one."""
        return self.matching(Filter((Term("text", "parent", "=", (run_id,), 0),))) - {run_id}

    def newest_children(
        self, run_id: str, limit: int
    ) -> tuple[tuple[RunRow, ...], tuple[str, ...]]:
        """The newest runs that began from a checkpoint of this one, and the ids of all, sorted."""
        ids = self.children(run_id)
        rows = self.by_id(ids) if ids else ()
        newest = sorted(rows, key=lambda row: (row.created or 0.0, row.id), reverse=True)
        return tuple(newest[:limit]), tuple(sorted(ids))

    def run(self, run_id: str) -> RunRow:
        """The row of a run by its id. Raises NotFoundError."""
        with self._errors():
            return listing.with_tags(self._db, [self._row_of(run_id)])[0]

    def _row_of(self, run_id: str) -> Any:
        rows = self._all(f"{listing.RUN} WHERE r.run = ?", (run_id,))
        if not rows and "@" in run_id:
            rows = self._all(f"{listing.RUN} WHERE r.run = ?", (self._own_id(run_id),))
            rows = [(run_id, *row[1:]) for row in rows]
        if not rows:
            raise NotFoundError(f"{self.path}: no run {run_id!r}", hint="albor runs ls")
        return rows[0]

    def _own_id(self, run_id: str) -> str | None:
        """What this store calls the run that the home knows by `run_id`, if it is its own store."""
        run = run_at(run_id, read_json(pointer_of(run_id)))
        return run.own_id if run is not None and local_store(run) == self.path else None

    def _id(self, run_id: str) -> int:
        return int(self._row_of(run_id)[-1])


def _open(path: Path) -> tuple[sqlite3.Connection, Path | None]:
    connection, folder = open_reader(path)
    restrict(connection)
    return connection, folder


def _bounded(field: str, value: str) -> str:
    if len(value) > MAX_CHARS:
        raise UsageError(f"{field}: at most {MAX_CHARS} characters")
    return value


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
