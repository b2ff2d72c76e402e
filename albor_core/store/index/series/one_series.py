"""A series as the writer keeps it: its numbers, exact after appends, repeats and rewinds."""

from __future__ import annotations

import math
import sqlite3

from albor_core.run.light_dataclass import dataclass
from albor_core.run.values.directions import direction
from albor_core.store.file.axis import STEP
from albor_core.store.index.series.levels import base_level
from albor_core.store.index.series.zoom import Zoom

_INSERT = "INSERT OR REPLACE INTO metrics (run_id, key_id, step, value) VALUES (?,?,?,?)"
_SAVE = (
    "INSERT OR REPLACE INTO keys (run_id, key_id, name, base, count, nonfinite, first_step,"
    " last_step, last, best, best_step, minimum, maximum, axis)"
    " VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
)
_RECOUNT = (
    "SELECT count(*), sum(value IS NULL OR abs(value) = 9e999), min(step), max(step), min(value),"
    " max(value) FROM metrics WHERE run_id = ? AND key_id = ?"
)
_DISCARD = (
    "INSERT OR REPLACE INTO metrics_discarded (run_id, at, key_id, step, value)"
    " SELECT run_id, ?, key_id, step, value FROM metrics"
    " WHERE run_id = ? AND key_id = ? AND step > ?"
)


@dataclass
class SeriesWriter:
    """One series of one run, within the caller's transaction.

    `base` is 0 until two steps are known. minimum and maximum are None while every point is NaN;
    `best` is over finite points, the earliest where equal; None where the name says no direction.
    """

    db: sqlite3.Connection
    run_id: int
    key_id: int
    name: str
    base: int = 0
    count: int = 0
    nonfinite: int = 0
    first_step: int | None = None
    last_step: int | None = None
    last: float | None = None
    best: float | None = None
    best_step: int | None = None
    minimum: float | None = None
    maximum: float | None = None
    axis: str = STEP

    def add(self, points: dict[int, float]) -> None:
        """Store points, keyed by step in order of arrival; a step that exists is overwritten."""
        if not self.base:
            self._choose_base(points)
        old_last = self.last_step
        ordered = sorted(points.items())
        self.db.executemany(_INSERT, [(self.run_id, self.key_id, s, v) for s, v in ordered])
        if old_last is None or ordered[0][0] > old_last:
            self._append(ordered)
        else:
            self.recount()
        self._save()
        if self.base and self.last_step is not None:
            self._zoom_in(ordered, old_last)

    def _choose_base(self, points: dict[int, float]) -> None:
        known = [self.first_step] if self.first_step is not None else []
        steps = known + [step for step in points if step not in known][: 2 - len(known)]
        if len(steps) == 2:
            self.base = base_level(abs(steps[1] - steps[0]))

    def _zoom_in(self, ordered: list[tuple[int, float]], old_last: int | None) -> None:
        assert self.last_step is not None
        zoom = Zoom(self.db, self.run_id, self.key_id, self.base)
        repeats = [step for step, _ in ordered if old_last is not None and step <= old_last]
        if repeats and old_last is not None:
            zoom.extend(repeats[0], old_last, until=repeats[-1])
        start = ordered[0][0] if old_last is None else old_last
        zoom.extend(start, self.last_step)

    def _append(self, ordered: list[tuple[int, float]]) -> None:
        numbers = [value for _, value in ordered]
        if math.isfinite(sum(numbers)):
            finite = ordered
        else:  # NaN or Inf among them; or a sum beyond floats, which costs time only
            finite = [pair for pair in ordered if math.isfinite(pair[1])]
            self.nonfinite += len(ordered) - len(finite)
            numbers = [value for value in numbers if value == value]
        if finite:
            self._see_best([value for _, value in finite], finite)
        if numbers:
            low, high = min(numbers), max(numbers)
            self.minimum = low if self.minimum is None else min(self.minimum, low)
            self.maximum = high if self.maximum is None else max(self.maximum, high)
        self.count += len(ordered)
        if self.first_step is None:
            self.first_step = ordered[0][0]
        self.last_step, self.last = ordered[-1][0], ordered[-1][1]

    def _see_best(self, values: list[float], points: list[tuple[int, float]]) -> None:
        way = direction(self.name)
        if way is None:
            return
        lower = way == "min"
        best = min(values) if lower else max(values)
        if self.best is None or (best < self.best if lower else best > self.best):
            self.best, self.best_step = best, points[values.index(best)][0]

    def recount(self) -> None:
        """All numbers from the points: after a repeat or a rewind, where an extreme may be gone."""
        mine = (self.run_id, self.key_id)
        row = self.db.execute(_RECOUNT, mine).fetchone()
        self.count, self.nonfinite = row[0], row[1] or 0
        self.first_step, self.last_step, self.minimum, self.maximum = row[2:]
        way = direction(self.name)
        self.best = self.best_step = None
        if way is not None:
            best = self.db.execute(
                "SELECT value, step FROM metrics WHERE run_id = ? AND key_id = ?"
                f" AND abs(value) < 9e999 ORDER BY value {'' if way == 'min' else 'DESC'}, step"
                " LIMIT 1",
                mine,
            ).fetchone()
            self.best, self.best_step = best or (None, None)
        found = self.db.execute(
            "SELECT value FROM metrics WHERE run_id = ? AND key_id = ? AND step = ?",
            (*mine, self.last_step),
        ).fetchone()
        self.last = None if found is None else (math.nan if found[0] is None else found[0])

    def rewind(self, to: int, at: int) -> None:
        """Move points with step > `to` aside; `at` is the byte of the journal that says so."""
        if self.last_step is None or self.last_step <= to:
            return
        mine = (self.run_id, self.key_id)
        self.db.execute(_DISCARD, (at, *mine, to))
        self.db.execute(
            "DELETE FROM metrics WHERE run_id = ? AND key_id = ? AND step > ?", (*mine, to)
        )
        self.recount()
        if self.base:
            Zoom(self.db, self.run_id, self.key_id, self.base).trim(self.last_step)
        self._save()

    def clear(self) -> None:
        """Let every point go: the name is meant for another axis."""
        for table in ("metrics", "metric_levels"):
            self.db.execute(
                f"DELETE FROM {table} WHERE run_id = ? AND key_id = ?", (self.run_id, self.key_id)
            )
        self.base = 0
        self.recount()
        self._save()

    def _save(self) -> None:
        self.db.execute(
            _SAVE,
            (
                self.run_id,
                self.key_id,
                self.name,
                self.base,
                self.count,
                self.nonfinite,
                self.first_step,
                self.last_step,
                self.last,
                self.best,
                self.best_step,
                self.minimum,
                self.maximum,
                self.axis,
            ),
        )


def load_series(db: sqlite3.Connection, run_id: int) -> dict[str, SeriesWriter]:
    """The series of a run by name, as the last transaction left them."""
    rows = db.execute(
        "SELECT key_id, name, base, count, nonfinite, first_step, last_step, last, best, best_step,"
        " minimum, maximum, axis FROM keys WHERE run_id = ?",
        (run_id,),
    )
    found = {}
    for row in rows:
        series = SeriesWriter(db, run_id, *row)
        if series.count and series.last is None:
            series.last = math.nan
        found[series.name] = series
    return found
