"""Tables of many runs for `albor runs export`, with one page of rows in memory at a time.

Each has its own row schema (`albor schema albor.runs.export.WHAT`); that of points is
`albor.runs.export.row`. Rows are ordered by run, as given, then by time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from albor_core.history.columns import joined, rows_of
from albor_core.history.one_run import (
    EVENT_KINDS,
    MEDIA_KINDS,
    RecordedRun,
    bring_up,
    cell,
    check_points,
)
from albor_core.history.run_list import parts_of
from albor_core.run.errors import NotFoundError
from albor_core.run.values.quantity import counted
from albor_core.store.file.crowded import refuse_without_room
from albor_core.store.query.export import COLUMNS, PAGE, pages
from albor_core.store.query.names import has_metric, nearest

Page = Sequence[Sequence[Any]]
POINT_KINDS = dict(zip(COLUMNS, ("name", "name", "name", "int", "float", "float"), strict=True))
_STEP = COLUMNS.index("step")
_OF_RUN = {"run": "name", "experiment": "name"}


Tell = Callable[[str], object]


def _mute(_: str) -> None:
    """Ignore a message: the default of `tell`."""


class Table(NamedTuple):
    """A table that is read while it is written. `schema` is the schema of a row."""

    kinds: Mapping[str, str]
    pages: Iterator[Page]
    schema: str


def points(runs: Sequence[RecordedRun], keys: Sequence[str] = (), *, tell: Tell = _mute) -> Table:
    """A row for every point. Reading raises NotFoundError for a run whose folder is gone and for a
    key that a run does not have. `tell` gets messages about missing data.
    """
    found = ((run, keys) for run in runs)
    return Table(POINT_KINDS, _pages(found, tell), "albor.runs.export.row/1")


def points_of_any(
    runs: Sequence[RecordedRun], keys: Sequence[str] = (), *, tell: Tell = _mute
) -> Table:
    """As `points`, of the runs that have any: runs without a folder or without one of the keys are
    left out. Raises NotFoundError for a key that none of them has.
    """
    here = _present(runs, "points", tell)
    found = [(run, [said for said in keys if has_metric(said, run.keys)]) for run in here]
    had = {said for _, some in found for said in some}
    if missing := next((said for said in keys if said not in had), None):
        refuse_without_room(((run.folder, run.keys) for run in here), missing)
        names = {key for run in here for key in run.keys}
        raise NotFoundError(
            f"no run that was chosen has a metric {missing!r}{nearest(missing, names)}",
            hint="albor runs show RUN",
        )
    chosen = ((run, some) for run, some in found if some or not keys)
    return Table(POINT_KINDS, _pages(chosen, tell), "albor.runs.export.row/1")


def _present(runs: Sequence[RecordedRun], what: str, tell: Tell) -> list[RecordedRun]:
    """The runs whose folder exists."""
    here = [run for run in runs if run.folder.run_json.is_file()]
    if lost := len(runs) - len(here):
        tell(f"left out: {counted(lost, 'run')} whose run directory is gone, with the {what}")
    return here


def media(runs: Sequence[RecordedRun], *, is_lenient: bool = False, tell: Tell = _mute) -> Table:
    """A row for each medium, with its kind and the path of its file. Reading raises NotFoundError
    for a run whose folder is gone; with `is_lenient` such runs are left out.
    """
    rows = (
        (run.id, run.experiment, *(cell(one, name) for name in MEDIA_KINDS))
        for run in (_present(runs, "media", tell) if is_lenient else runs)
        for one in run.media
    )
    return Table({**_OF_RUN, **MEDIA_KINDS}, _paged(rows), "albor.runs.export.media/1")


def _pages(chosen: Iterable[tuple[RecordedRun, Sequence[str]]], tell: Tell) -> Iterator[Page]:
    for run, keys in chosen:
        check_points(run.folder)
        if why := bring_up(run.folder):
            tell(f"{run.id}: {why}")
        has_steps = True
        for page in pages(run.folder, keys=keys or None):
            has_steps = has_steps and all(row[_STEP] is not None for row in page)
            yield page
        if not has_steps:
            tell(f"{run.id}: it logged no step, so figures of its machine have a time alone")


def params(runs: Sequence[RecordedRun]) -> Table:
    """A row for each param of each run. `number` is its value if that is a number."""
    kinds = {**_OF_RUN, "key": "name", "value": "mixed", "number": "float"}
    rows = (
        (run.id, run.experiment, key, value, _number(value))
        for run in runs
        for key, value in run.params.items()
    )
    return Table(kinds, _paged(rows), "albor.runs.export.params/1")


def events(runs: Sequence[RecordedRun]) -> Table:
    """A row for each event."""
    rows = (
        (run.id, run.experiment, *(getattr(event, name) for name in EVENT_KINDS))
        for run in runs
        for event in run.events
    )
    return Table({**_OF_RUN, **EVENT_KINDS}, _paged(rows), "albor.runs.export.events/1")


def _number(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else None  # type: ignore[arg-type]


def _paged(rows: Iterator[Sequence[Any]]) -> Iterator[Page]:
    while page := list(islice(rows, PAGE)):
        yield page


def run_table(runs: Sequence[RecordedRun]) -> Table:
    """A row for each run, with its params and the last value of each metric."""
    columns = joined([part.columns() for part in parts_of(runs)])
    kinds = {name: column.kind for name, column in columns.items()}
    return Table(kinds, _paged(rows_of(columns)), "albor.runs.export.runs/1")
