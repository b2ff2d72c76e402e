"""The values of a list's own columns: metrics, params and notes, as the store has them.

The runs on the screen are read at once; all others only for a column that order or groups are made
of, and again only when the store has moved and their rows with it. A figure of what a run costs is
in no store: it is read from the run's own files, a few runs at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from albor_core.feed.run.store_follower import DUTY, StoreWatch
from albor_core.feed.view.run_view import RunView
from albor_core.run.errors import UsageError
from albor_core.run.light_dataclass import dataclass
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.values.lenient import NOTHING, finite, sequence, text
from albor_core.store.file.search import param_keys
from albor_core.store.query.column_names import differing_params
from albor_core.store.query.listing import MAX_COLUMNS, TEXT_COLUMNS, ListColumn, parse_column
from albor_core.store.query.terms import MAX_CHARS
from albor_core.store.rows.run_row import Param

AMOUNTS = {"cost": "money", "gpu_hours": "gpu_hours", "energy": "energy_kwh"}
"""Columns of what a run has used, each with its name among the amounts of budgets."""
PAGE = 2_000  # runs of one question: each has the store's limit of time to itself
FILES = 40  # runs whose files are read at one look

Values = Mapping[str, Mapping[str, Param]]


@dataclass(frozen=True)
class CellsWanted:
    """What a list asks for: `columns` of the runs in `visible`, and those in `of_all` of every run;
    the params that differ among the runs in `compared`.
    """

    columns: tuple[str, ...] = ()
    of_all: tuple[str, ...] = ()
    visible: frozenset[str] = frozenset()
    compared: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunCells:
    """What is known: by column, the value of each run that was read (None: it has none); columns
    that no run has; the params that differ.
    """

    values: Values = field(default_factory=dict)
    absent: frozenset[str] = frozenset()
    params: frozenset[str] = frozenset()
    """The columns that are params, and no figure of a run."""
    differing: tuple[str, ...] | None = None
    compared: tuple[str, ...] = ()
    """The runs that `differing` is of."""


class CellReader:
    """Reads the cells of a list. Belongs to the thread that polls."""

    def __init__(self, store: StoreWatch, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._clock = store, clock
        self._last = RunCells()
        self._version: int | None = None
        self._is_stale = False  # whether the store moved since cells were read again
        self._rest_until = 0.0
        self._read_as: dict[str, RunView] = {}  # the rows when all were read

    def read(self, wanted: CellsWanted, rows: Sequence[RunView]) -> RunCells | None:
        """All that is known now; None where nothing is new."""
        before = self._last
        self._drop_unwanted(wanted)
        if wanted != CellsWanted(visible=wanted.visible):
            version = self._store.ask(lambda reader: reader.version())
            if version is not None:
                self._is_stale |= version != self._version
                self._version = version
                self._read(wanted, rows)
                self._compare(wanted.compared)
        return None if self._last is before else self._last

    def _drop_unwanted(self, wanted: CellsWanted) -> None:
        gone = self._last.values.keys() - {*wanted.columns, *wanted.of_all}
        if gone:
            values = {key: found for key, found in self._last.values.items() if key not in gone}
            last = self._last
            self._last = replace(
                last, values=values, absent=last.absent - gone, params=last.params - gone
            )

    def _read(self, wanted: CellsWanted, rows: Sequence[RunView]) -> None:
        began = self._clock()
        is_again = self._is_stale and began >= self._rest_until
        by_id = {view.id: view for view in rows}
        alone = tuple(key for key in wanted.columns if key not in wanted.of_all)
        seen = [run for run in wanted.visible if run in by_id]
        again = [*seen] if is_again else []  # a note moves no row
        read = self._read_all(wanted.of_all, by_id, again)
        read |= self._ask(alone, self._missing(alone, seen, is_again), by_id)
        values: Values = self._last.values
        news = {
            key: {**values.get(key, {}), **found}
            for key, found in read.items()
            if key not in values or any(not _same(values[key], *item) for item in found.items())
        }
        if news or is_again:
            self._take({**values, **news})
        if is_again:
            self._is_stale = False
            self._rest_until = self._clock() + DUTY * (self._clock() - began)

    def _read_all(
        self, columns: tuple[str, ...], rows: Mapping[str, RunView], again: Collection[str]
    ) -> dict[str, dict[str, Param]]:
        """Of every run, what was never read, and where it is read `again` what may have changed
        with its row.
        """
        if not columns:
            self._read_as = {}
            return {}
        runs = {*self._missing(columns, rows, False), *again}
        if again:
            runs |= {run for run, view in rows.items() if self._read_as.get(run) is not view}
        self._read_as |= {run: rows[run] for run in runs}
        return self._ask(columns, sorted(runs), rows)

    def _missing(
        self, columns: tuple[str, ...], runs: Collection[str], is_again: bool
    ) -> list[str]:
        values = [self._last.values.get(key, {}) for key in columns]
        return [run for run in runs if is_again or any(run not in known for known in values)]

    def _ask(
        self, columns: tuple[str, ...], runs: Sequence[str], rows: Mapping[str, RunView]
    ) -> dict[str, dict[str, Param]]:
        """The values of columns, of these runs; of what the store cannot answer, nothing."""
        found: dict[str, dict[str, Param]] = {}
        if not columns or not runs:
            return found
        for key in columns:
            if key in AMOUNTS:
                found[key] = self._used(key, runs, rows)
        stored = [key for key in columns if key not in AMOUNTS][:MAX_COLUMNS]
        parsed = [_column_of(key) for key in stored]
        for start in range(0, len(runs) if stored else 0, PAGE):
            some = runs[start : start + PAGE]
            answer = self._store.ask(lambda reader, some=some: reader.cells(some, parsed))  # type: ignore[misc]
            if answer is None:
                break
            for at, key in enumerate(stored):
                part = {run: answer[run][at] if run in answer else None for run in some}
                found.setdefault(key, {}).update(part)
        return found

    def _used(
        self, column: str, runs: Sequence[str], rows: Mapping[str, RunView]
    ) -> dict[str, Param]:
        """What runs have used of an amount: by their rows, else by the files that they left."""
        left, found = FILES, dict[str, Param]()
        for run in runs:
            view = rows[run]
            if not view.budgets and not view.is_active:
                if left == 0:
                    continue
                left -= 1
            found[run] = _used_by(view, AMOUNTS[column])
        return found

    def _take(self, values: Values) -> None:
        """These are the values now; a column without any may be one that no run has."""
        empty = [k for k, found in values.items() if all(v is None for v in found.values())]
        absent = frozenset(
            key
            for key in empty
            if key not in (*AMOUNTS, *TEXT_COLUMNS)
            and self._store.ask(lambda r, key=key: r.is_known(*_column_of(key))) is False  # type: ignore[misc]
        )
        params = {key for key in values if key not in self._last.values and self._is_param(key)}
        params |= self._last.params
        self._last = replace(self._last, values=values, absent=absent, params=frozenset(params))

    def _is_param(self, key: str) -> bool:
        name, stat = _column_of(key)
        if stat or "/" in name or key in AMOUNTS:
            return False
        return bool(self._store.ask(lambda r: r.query(lambda db: param_keys(db, name))))

    def _compare(self, runs: tuple[str, ...]) -> None:
        if runs and runs != self._last.compared:
            found = self._store.ask(
                lambda reader: reader.query(lambda db: differing_params(db, runs))
            )
            if found is not None:
                self._last = replace(self._last, differing=found, compared=runs)


def _same(known: Mapping[str, Param], run: str, value: Param) -> bool:
    """Whether that is the known value of a run; NaN is NaN."""
    before = known.get(run, _UNREAD)
    return before is value or before == value or (before != before and value != value)


def _column_of(key: str) -> ListColumn:
    """A column of any text that a person may have kept as one."""
    try:
        return parse_column(key)
    except UsageError:
        return ListColumn(key[:MAX_CHARS])


def _used_by(view: RunView, amount: str) -> float | None:
    for one in view.budgets:
        if one.amount == amount:
            return one.used
    if view.budgets or view.is_active or not view.path:
        return None
    run = RunDir(Path(view.path))
    for document in (read_json(run.state), read_json(run.watch)):
        for told in sequence(document or NOTHING, "budgets"):
            if isinstance(told, Mapping) and text(told, "amount") == amount:
                return finite(told, "used")
    return None


_UNREAD = object()
