"""All series of a run: what has room, points that wait for the end of a batch, headline figures."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from albor_core.run.headlines import COLUMNS, Headline
from albor_core.run.values.lenient import is_number, real
from albor_core.run.values.metrics import NameRoom
from albor_core.store.file.axis import SECONDS, STEP, WALL_KEY
from albor_core.store.index.series.one_series import SeriesWriter, load_series

MAX_STEP = 1 << 48
_MAX_KEY_CHARS = 256


class _Rooms:
    """The metrics of a run that its store accepts: the program's own, and the machine's. Those
    chosen by a pin or a goal are accepted from then on, also if the files are read again.
    """

    def __init__(self, chosen: Iterable[str], recorded: Iterable[str]) -> None:
        self._chosen = dict.fromkeys(chosen)
        self.begin(recorded)

    def begin(self, recorded: Iterable[str] = ()) -> None:
        """Start from the names that a store already has."""
        self.own, self.machine = NameRoom(), NameRoom()
        self.own.always(self._chosen)
        for name in recorded:
            self.own.takes(name)

    def give(self, names: Iterable[str]) -> bool:
        """Room for what a pin or a goal chose; whether values of it had none until now."""
        new = [name for name in names if name not in self._chosen]
        had_none = any(self.own.lacks(name) for name in new)
        self._chosen.update(dict.fromkeys(new))
        self.own.always(new)
        return had_none


class RunSeries:
    """Points are held until `flush`, within the caller's transaction."""

    def __init__(self, db: sqlite3.Connection, run_id: int) -> None:
        self._db, self._run_id = db, run_id
        self._series = load_series(db, run_id)
        recorded = (
            name
            for name, series in self._series.items()
            if name != WALL_KEY and series.axis == STEP
        )
        self._rooms = _Rooms(_chosen(db, run_id), recorded)
        self._pending: dict[str, dict[int, float]] = {}
        self._figures: dict[str, dict[int, float]] = {}  # over seconds: of system.jsonl

    def add(self, record: Mapping[str, Any], wall: float | None) -> bool:
        """Metrics of a step; False if some of it is of no known shape or has no room."""
        step, values = record.get("step"), record.get("v")
        if not isinstance(step, int) or not 0 <= step < MAX_STEP or not isinstance(values, dict):
            return False
        whole = True
        for key, value in values.items():
            if type(value) is float:
                points = self._pending.get(key)
                if points is None:
                    if not self._may_record(key):
                        whole = False
                        continue
                    points = self._pending[key] = {}
                points[step] = value
            elif value is not None:
                whole = self._take_odd(step, key, value) and whole
        if wall is not None:
            self._pending.setdefault(WALL_KEY, {})[step] = wall
        return whole

    def _take_odd(self, step: int, key: str, value: Any) -> bool:
        """A value that is not a float: integers and truths are numbers, the rest is not."""
        if not isinstance(value, int) or not self._may_record(key):
            return False
        self._pending.setdefault(key, {})[step] = real(value)
        return True

    def _may_record(self, key: str, room: NameRoom | None = None) -> bool:
        if key in self._series:
            return key != WALL_KEY
        is_name = key != WALL_KEY and 0 < len(key) <= _MAX_KEY_CHARS and key.isprintable()
        return is_name and (room or self._rooms.own).takes(key)

    def add_scores(self, step: int, found: Mapping[str, Any]) -> dict[str, float]:
        """Numbers of an evaluation at a step; those that have room."""
        known = {
            key: real(number)
            for key, number in found.items()
            if is_number(number) and self._may_record(key)
        }
        for key, number in known.items():
            self._pending.setdefault(key, {})[step] = number
        return known

    def add_figures(self, second: int, values: Mapping[str, Any]) -> bool:
        """Figures of the machine; False if some of it is of no known shape or has no room."""
        whole = True
        for key, value in values.items():
            if not isinstance(value, int | float) or not (
                key in self._figures or self._may_record(key, self._rooms.machine)
            ):
                whole = whole and value is None
                continue
            self._figures.setdefault(key, {})[second] = real(value)
        return whole

    def make_room(self, chosen: Iterable[str]) -> bool:
        """Room for what a pin or a goal chose; whether values of it had none until now."""
        return self._rooms.give(chosen)

    def rewind(self, to: int, at: int, *, but: Collection[str]) -> None:
        """Take back the steps after `to`, for the line at byte `at`, of all metrics but some."""
        self.flush()
        for name, series in self._series.items():
            if series.axis == STEP and name not in but:
                series.rewind(to, at)

    def flush(self) -> None:
        """Let the points taken so far become rows."""
        for key, points in self._pending.items():
            self._add(key, points, STEP)
        for key, points in self._figures.items():
            self._add(key, points, SECONDS)
        self._pending, self._figures = {}, {}

    def _add(self, key: str, points: dict[int, float], axis: str) -> None:
        series = self._series.get(key)
        if series is None:
            series = SeriesWriter(self._db, self._run_id, len(self._series), key, axis=axis)
            self._series[key] = series
        elif series.axis != axis:
            if axis == SECONDS:
                return  # the program logs this name itself
            series.clear()
            series.axis = axis
        series.add(points)

    def headlines(self) -> dict[str, Any]:
        """Columns of the run's row that its series say."""
        steps = [
            series.last_step
            for series in self._series.values()
            if series.last_step is not None and series.axis == STEP
        ]
        found: dict[str, Any] = {one.name: self._headline(one) for one in COLUMNS}
        return {**found, "last_step": max(steps, default=None)}

    def _headline(self, one: Headline) -> float | str | None:
        series = self._series.get(one.key)
        if series is None or one.stat == "best":
            return None if series is None else series.best
        if series.last is None:
            return None
        return "nan" if math.isnan(series.last) else series.last

    def clear(self) -> None:
        """Begin anew, once their rows are gone."""
        self._series, self._pending, self._figures = {}, {}, {}
        self._rooms.begin()


def _chosen(db: sqlite3.Connection, run_id: int) -> list[str]:
    """The metrics of a run with a goal or a pin."""
    rows = db.execute(
        "SELECT metric FROM goals WHERE run_id = ?1 UNION SELECT data ->> 'metric'"
        " FROM events WHERE run_id = ?1 AND name = 'metric.pin'",
        (run_id,),
    )
    return [name for (name,) in rows if isinstance(name, str)]
