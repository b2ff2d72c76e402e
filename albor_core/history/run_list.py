"""Runs of the history, found by a filter or by name and read when first used."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, overload

from albor_core.history.columns import Columns
from albor_core.history.frames import Frame
from albor_core.history.one_run import RecordedRun, bring_up
from albor_core.history.selection import Selection
from albor_core.run.errors import NotFoundError, StoreError
from albor_core.run.rundir import RunDir
from albor_core.store.file.home_store import present_store
from albor_core.store.file.paths import local_store
from albor_core.store.query.filter import parse_filter
from albor_core.store.query.names import Unknown
from albor_core.store.query.resolve import find_id
from albor_core.store.query.table import RunList
from albor_core.store.query.terms import Filter
from albor_core.store.rows.run_row import RunRow

_ROWS = 5_000  # read in one go
_RECENT_S = 3600.0  # a guard restarts within it what it restarts at all
_ARREARS_S = 5.0  # for the last lines of ended runs that are not indexed


def runs(
    filter: str = "",
    *,
    sort: str = "created",
    reverse: bool = False,
    limit: int | None = None,
    db: str | os.PathLike[str] | None = None,
) -> Runs:
    """The runs that match a filter, in the syntax of `albor runs ls`: "experiment:sweep
    val/loss<2".

    `sort` is a column, metric or param: the newest, best, or without a known direction largest
    first. `db` is a store file, by default that of this home. Raises UsageError (FilterError) for a
    filter that cannot be parsed; other errors are raised when the runs are read.
    """
    where = parse_filter(filter) if filter.strip() else Filter()
    store = None if db is None else Path(db)
    question = _Question(where, sort, reverse, limit, store)
    return Runs(lambda: _found(question), f"<runs {filter!r}>")


def run(
    reference: str | os.PathLike[str], *, db: str | os.PathLike[str] | None = None
) -> RecordedRun:
    """One run by its folder, id, name, or the beginning of its id.

    Raises NotFoundError with the nearest name, UsageError if several runs match, StoreError.
    """
    run_id, folder = find_id(os.fspath(reference), None if db is None else Path(db))
    why = "" if folder is None or db is not None else bring_up(folder)
    for path, own_id in _stores_of(run_id, folder, db):
        with RunList(path) as table:
            try:
                row = table.run(own_id)
            except NotFoundError:
                continue
        if folder is not None:  # the home knows first where a run was moved to
            row = replace(row, path=str(folder.path))
        row = _as_of_now(row)
        return RecordedRun(row, Selection(path, (row,)))
    said = os.fspath(reference)
    why = why or "it is not in the store"
    raise NotFoundError(f"cannot read run {said!r}: {why}", hint="albor db rebuild")


def _stores_of(
    run_id: str, folder: RunDir | None, db: str | os.PathLike[str] | None
) -> Iterator[tuple[Path, str]]:
    """The stores in which a run may be recorded, each with the run's id there."""
    if db is not None:
        yield Path(db), run_id
        return
    if (home := present_store()) is not None:
        yield home, run_id
    if folder is not None and (own := local_store(folder)).is_file():
        yield own, folder.own_id


class _Question(NamedTuple):
    where: Filter
    sort: str
    reverse: bool
    limit: int | None
    store: Path | None


def _found(question: _Question) -> Selection:
    path = question.store or present_store()
    if path is None:
        return Selection(Path(os.devnull), ())
    where = question.where
    with RunList(path) as table:
        if question.store is None:
            _index_arrears(table)
        unknown = Unknown(where)
        unknown.look(table)
        unknown.refuse()
        ids = table.ids(
            where=where,
            statuses=_statuses(table, where),
            sort=question.sort,
            descending=table.is_descending(question.sort) != question.reverse,
            limit=sys.maxsize if question.limit is None else question.limit,
        )
        rows: dict[str, RunRow] = {}
        for start in range(0, len(ids), _ROWS):
            rows |= {row.id: _as_of_now(row) for row in table.by_id(ids[start : start + _ROWS])}
    return Selection(path, tuple(rows[one] for one in ids if one in rows))


def _as_of_now(row: RunRow) -> RunRow:
    """The row, without its recorded end if a later attempt follows the ended one."""
    if row.ended_wall is None or time.time() - row.ended_wall > _RECENT_S:
        return row
    from albor_core.feed.runs.listed_status import now_of  # noqa: PLC0415  not for old runs

    return now_of(row).row


def _statuses(table: RunList, where: Filter) -> dict[str, str]:
    from albor_core.feed.runs.listed_status import statuses_for  # noqa: PLC0415  few ask

    return statuses_for(table, where)


def _index_arrears(table: RunList) -> None:
    """Index what runs wrote last that were killed together with their index process."""
    from albor_core.feed.runs.store_lag import find_arrears, index_arrears  # noqa: PLC0415

    try:
        late = [run for run, one in find_arrears(table).items() if one.unindexed_bytes]
        index_arrears(table, late, timeout_s=_ARREARS_S)
    except StoreError:
        pass  # the question itself will say what is wrong with the store


def parts_of(runs: Sequence[RecordedRun]) -> list[Selection]:
    """The runs grouped by the store that each was found in."""
    if isinstance(runs, Runs):
        return [runs.selection]
    found: dict[Path, list[RunRow]] = {}
    for one in runs:
        found.setdefault(one.store, []).append(one.row)
    return [Selection(path, rows) for path, rows in found.items()]


class Runs(Frame, Sequence[RecordedRun]):
    """Runs in order. The store is read for all rows when the first is asked for; params, summaries
    and points when they are. As a table: one row per run, with columns such as `id`, `status`,
    `params.optimizer.lr` and `metrics.val/loss`, the last value.
    """

    def __init__(self, found: Callable[[], Selection], words: str) -> None:
        self._ask, self._words = found, words

    @cached_property
    def selection(self) -> Selection:
        """The rows, and the store they are from."""
        return self._ask()

    @overload
    def __getitem__(self, place: int) -> RecordedRun: ...
    @overload
    def __getitem__(self, place: slice) -> Runs: ...
    def __getitem__(self, place: int | slice) -> RecordedRun | Runs:
        found = self.selection
        if isinstance(place, slice):
            part = Selection(found.path, found.rows[place])
            return Runs(lambda: part, f"<{len(part.rows)} runs>")
        return RecordedRun(found.rows[place], found)

    def __iter__(self) -> Iterator[RecordedRun]:
        found = self.selection
        return (RecordedRun(row, found) for row in found.rows)

    def __len__(self) -> int:
        return len(self.selection.rows)

    def __repr__(self) -> str:
        return self._words

    def columns(self) -> Columns:
        return self.selection.columns()
