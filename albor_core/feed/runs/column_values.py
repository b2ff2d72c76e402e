"""The value of a column for each run, by which runs are put in order and in groups. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from albor_core.feed.runs.cells import RunCells
from albor_core.feed.view.run_status import shown_word
from albor_core.feed.view.run_view import RunView
from albor_core.run.headlines import STORED
from albor_core.run.status import SILENT
from albor_core.store.rows.run_row import Param

UNREAD = object()
"""The value of a run that the store was not asked about yet."""
GROUPS = ("experiment", "status", "tags", "host")
"""What every list is grouped by; params by which its runs differ follow."""


def shown_state(view: RunView) -> str:
    """The state of a run as the list shows it."""
    return SILENT if view.is_silent else shown_word(view.status)


FIELDS: Mapping[str, Callable[[RunView], object]] = {
    "status": shown_state,
    "name": lambda v: v.name or v.id,
    "experiment": lambda v: v.experiment or None,
    "done": lambda v: v.step if v.progress is None else v.progress,
    "duration": lambda v: v.elapsed_s,
    "ends": lambda v: v.eta_s if v.is_live else None,  # and those are always here
    "alerts": lambda v: v.alerts_open,
    "step": lambda v: v.step,
    "created": lambda v: v.created,
    "seen": lambda v: v.age_s,
    "tags": lambda v: " ".join(v.tags) or None,
    "host": lambda v: v.host or None,
    "kind": lambda v: v.kind,
    "seed": lambda v: v.seed,
    "commit": lambda v: v.git_commit or None,
    "attempts": lambda v: v.attempts_total,
    "id": lambda v: v.id,
    **{one.name: lambda v, name=one.name: getattr(v, name) for one in STORED},  # type: ignore[misc]
}
"""Columns that a run's row has, each with its value."""


def is_stored(column: str) -> bool:
    """Whether a store has to be asked for a column; of a seed only where it is a param."""
    return column not in FIELDS or column == "seed"


def cell_value(view: RunView, key: str, cells: RunCells) -> Param | object:
    """The value of a column for one run: of one at work the newest; UNREAD before it is known."""
    if view.is_live:
        name = key.removesuffix(":last")
        for one in view.metrics:
            if one.name == name and one.stat == "last" and one.last is not None:
                return one.last
    return cells.values.get(key, {}).get(view.id, UNREAD)


def column_values(rows: Iterable[RunView], key: str, cells: RunCells) -> dict[str, object]:
    """The values of any column by run, as groups are made of; UNREAD before the store was asked.
    Runs are of the day when they were created.
    """
    if key == "created":
        return {view.id: _day(view.created) for view in rows}
    if (value := FIELDS.get(key)) is None:
        return {view.id: cell_value(view, key, cells) for view in rows}
    known = cells.values.get(key, {}) if is_stored(key) else {}
    return {view.id: known.get(view.id) if (v := value(view)) is None else v for view in rows}


def _day(wall: float | None) -> str | None:
    try:
        return None if wall is None else time.strftime("%Y-%m-%d", time.gmtime(wall))
    except (OverflowError, ValueError, OSError):  # a clock that was never set
        return None
