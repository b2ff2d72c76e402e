"""The series of each run, from a store that is opened read-only."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

from albor_core.run.light_dataclass import dataclass
from albor_core.run.values.directions import Direction, Goals, direction
from albor_core.store.file.axis import SECONDS, STEP, WALL_KEY, axis_column
from albor_core.store.file.goals import best_of, goals_of_run
from albor_core.store.index.series.step_clock import StepsByTime
from albor_core.store.index.series.zoom import Zoom
from albor_core.store.query.series.downsample import Downsampler
from albor_core.store.query.series.window import drawn, placed
from albor_core.store.query.table import RunList
from albor_core.store.rows.rows import KeyStat
from albor_core.store.rows.series import Series

_MOST_BOUND = 500  # values in one statement
STAT_COLUMNS = "last, best, best_step, minimum, maximum, count, first_step, last_step, nonfinite"
"""Of the table keys, for `key_stat`; the axis follows."""


@dataclass(frozen=True)
class SeriesIds:
    """The series of a run by the store's numbers. `began` has those kept by the second: since when;
    `clock` says where the run was then, None for one without steps.
    """

    run: int
    ids: Mapping[str, int]
    began: Mapping[str, float | None]
    clock: StepsByTime | None = None

    @property
    def timed(self) -> frozenset[str]:
        """Series without steps: their points are placed by seconds."""
        return frozenset(() if self.clock else self.began)

    def is_placed(self, key: str) -> bool:
        """Whether it is kept by the second, and read at the steps where the run was."""
        return self.clock is not None and key in self.began

    def at_steps(
        self, key: str, points: Sequence[tuple[int, float]]
    ) -> tuple[tuple[int, float], ...]:
        """Points of a series that is kept by the second at the steps where the run was, the last of
        each step; those without a place are left out.
        """
        rows = _with_places(((at, value, None) for at, value in points), self, key)
        return tuple({step: value for step, value, _ in rows}.items())


class SeriesReader(RunList):
    """The run table and every series of each run."""

    def keys(self, run_id: str) -> tuple[str, ...]:
        """Names of the series, sorted."""
        rows = self._all("SELECT name FROM keys WHERE run_id = ?", (self._id(run_id),))
        return tuple(sorted(name for (name,) in rows if name != WALL_KEY))

    def goals(self, run_id: str) -> dict[str, Direction]:
        """The direction in which each metric is better, as the run's experiment declared it."""
        return self.query(lambda db: goals_of_run(db, run_id))

    def summary(self, run_id: str, *, goals: Goals | None = None) -> dict[str, KeyStat]:
        """Every series in numbers; of one that a rewind emptied the count is 0. `goals` win over
        those that the run's experiment declared.
        """
        number = self._id(run_id)
        rows = self._all(
            f"SELECT name, {STAT_COLUMNS}, {self.query(axis_column)} FROM keys WHERE run_id = ?"
            " ORDER BY name",
            (number,),
        )
        ways = {**self.goals(run_id), **(goals or {})}
        found = {
            name: key_stat(name, columns, ways, partial(self._step_of, number, name))
            for name, *columns in rows
            if name != WALL_KEY
        }
        if any(stat.axis == SECONDS for stat in found.values()):
            clock = self._clock(number)
            found = {name: at_steps(stat, clock) for name, stat in found.items()}
        return found

    def _clock(self, number: int) -> StepsByTime | None:
        with self._errors():
            return StepsByTime.of(self._db, number, WALL_KEY)

    def _step_of(self, number: int, key: str, value: float | None) -> int | None:
        """The first step with this value; None in a store without points."""
        rows = self._all(
            "SELECT min(step) FROM metrics WHERE run_id = ?1 AND value = ?3 AND key_id ="
            " (SELECT key_id FROM keys WHERE run_id = ?1 AND name = ?2)",
            (number, key, value),
        )
        return None if value is None else rows[0][0]

    def series(
        self,
        run_id: str,
        key: str,
        *,
        lo: int | None = None,
        hi: int | None = None,
        max_points: int = 600,
        is_timed: bool = False,
    ) -> Series:
        """A window of a series, lo <= step <= hi, in at most `max_points` buckets, ready to draw.

        Milliseconds whatever the length, and no spike is lost: see levels.py. An unknown key is an
        empty series, since a viewer may ask before the first point. What is kept by the second lies
        where the run was then; where it has no steps, or with `is_timed`, the window and the
        series are of seconds.
        """
        number = self._id(run_id)
        rows = self._all(
            f"SELECT key_id, base, count, first_step, last_step, {self.query(axis_column)}"
            " FROM keys WHERE run_id = ? AND name = ? AND count > 0",
            (number, key),
        )
        if not rows:
            return Series(key)
        *about, axis = rows[0]
        clock = self._clock(number) if axis == SECONDS and not is_timed else None
        window = (lo, hi)
        if clock is not None:
            window = (
                None if lo is None else int(clock.second_at(lo)),
                None if hi is None else math.ceil(clock.second_at(math.floor(hi) + 1)),
            )
        with self._errors():
            found = drawn(self._db, number, key, about, window, max_points)
        return replace(found, axis=axis) if clock is None else placed(found, clock, (lo, hi))

    def points(
        self,
        run_id: str,
        key: str,
        lo: int | None = None,
        hi: int | None = None,
        *,
        limit: int | None = None,
    ) -> tuple[tuple[int, float, float | None], ...]:
        """Raw (step, value, wall) in order of steps, the first `limit` of them; to draw a long
        series prefer `series`.
        """
        known = self.series_ids(run_id, (key,))
        if not known.is_placed(key):
            return self._kept(known, key, (lo, hi), limit)
        low, high = -math.inf if lo is None else lo, math.inf if hi is None else hi
        every = _with_places(self._kept(known, key), known, key)
        found = (point for point in every if low <= point[0] <= high)
        return tuple(islice(found, None if limit is None else max(limit, 0)))

    def series_ids(self, run_id: str, keys: Collection[str] | None = None) -> SeriesIds:
        """What `pages_of` asks the store by: looked up by name once, whatever is read of it."""
        number = self._id(run_id)
        chosen = None if keys is None else json.dumps([*keys, WALL_KEY])
        rows = self._all(
            f"SELECT name, key_id, {self.query(axis_column)} FROM keys WHERE run_id = ?1"
            " AND (?2 IS NULL OR name IN (SELECT value FROM json_each(?2)))",
            (number, chosen),
        )
        ((created,),) = self._all("SELECT created FROM runs WHERE id = ?", (number,))
        began = {name: created for name, _, axis in rows if axis == SECONDS}
        return SeriesIds(
            number,
            {name: key_id for name, key_id, _ in rows},
            began,
            self._clock(number) if began else None,
        )

    def pages_of(
        self, known: SeriesIds, key: str, size: int
    ) -> Iterator[tuple[tuple[int, float, float | None], ...]]:
        """All points of a series, in order, so many at a time."""
        if known.is_placed(key):
            points = _with_places(self._kept(known, key), known, key)
            while page := tuple(islice(points, size)):
                yield page
            return
        after: int | None = None
        while page := self._kept(known, key, (after, None), size):
            yield page
            after = page[-1][0] + 1

    def _kept(
        self,
        known: SeriesIds,
        key: str,
        window: tuple[int | None, int | None] = (None, None),
        limit: int | None = None,
    ) -> tuple[tuple[int, float, float | None], ...]:
        """The points as the store keeps them."""
        number, ids, (lo, hi) = known.run, known.ids, window
        # by the keys' numbers: joined by name, the planner reads every point of the run
        rows = self._all(
            "SELECT m.step, m.value, w.value FROM metrics m LEFT JOIN metrics w"
            " ON w.run_id = m.run_id AND w.key_id = ? AND w.step = m.step"
            " WHERE m.run_id = ? AND m.key_id = ? AND m.step BETWEEN ? AND ?"
            " ORDER BY m.step LIMIT ?",
            (
                ids.get(WALL_KEY),
                number,
                ids.get(key),
                -(2**62) if lo is None else lo,
                2**62 if hi is None else hi,
                -1 if limit is None else max(limit, 0),
            ),
        )
        return tuple(_timed(rows, known, key))

    def together(
        self, run_id: str, keys: Collection[str]
    ) -> dict[str, tuple[tuple[int, float], ...]]:
        """All points of several series as they were at one moment: by key (step, value) in order of
        steps; of one kept by the second, seconds. `WALL_KEY` is the wall time of each step.
        """
        rows = self._all(
            "SELECT k.name, m.step, m.value FROM keys k CROSS JOIN metrics m"
            " ON m.run_id = k.run_id AND m.key_id = k.key_id"
            " WHERE k.run_id = ? AND k.name IN (SELECT value FROM json_each(?))"
            " ORDER BY m.run_id, m.key_id, m.step",
            (self._id(run_id), json.dumps([*keys])),
        )
        found: dict[str, list[tuple[int, float]]] = {key: [] for key in keys}
        for name, step, value in rows:
            found[name].append((step, math.nan if value is None else value))
        return {key: tuple(points) for key, points in found.items()}

    def outline(
        self, run_id: str, key: str, most: int
    ) -> tuple[tuple[int, float, float | None], ...]:
        """At most `most` of a series' own points, (step, value, wall) in order of steps: all of
        them where they are few, else the first, the last and each stretch's extremes.
        """
        number = self._id(run_id)
        rows = self._all(
            "SELECT key_id, base, count, nonfinite, first_step, last_step FROM keys"
            " WHERE run_id = ? AND name = ?",
            (number, key),
        )
        if not rows or most <= 0:
            return ()
        key_id, base, count, nonfinite, first, last = rows[0]
        with self._errors():
            if count <= most or Zoom(self._db, number, key_id, base).preview() is not None:
                return self.points(run_id, key, limit=most)
            outline = Downsampler(self._db, number, key_id, base, (first, last))
            steps = outline.steps(most, count=count, has_nan=bool(nonfinite))
        ids = self.series_ids(run_id, (key,))
        found: list[tuple[int, float | None, float | None]] = []
        for start in range(0, len(steps), _MOST_BOUND):
            some = steps[start : start + _MOST_BOUND]
            found += self._all(
                "SELECT m.step, m.value, w.value FROM metrics m LEFT JOIN metrics w"
                " ON w.run_id = m.run_id AND w.key_id = ? AND w.step = m.step"
                " WHERE m.run_id = ? AND m.key_id = ?"
                f" AND m.step IN ({', '.join('?' * len(some))}) ORDER BY m.step",
                (ids.ids.get(WALL_KEY), number, key_id, *some),
            )
        return tuple(_with_places(_timed(found, ids, key), ids, key))


def key_stat(
    name: str, columns: Sequence[Any], ways: Goals, step_of: Callable[[float | None], int | None]
) -> KeyStat:
    """A series in numbers, of STAT_COLUMNS and its axis. `step_of` finds the step of a best value
    that is another than the one that was kept.
    """
    last, stored, stored_step, low, high, *rest = columns
    best = best_of(direction(name, ways), name, stored, low, high)
    step = stored_step if best == stored else step_of(best)
    last = math.nan if last is None and rest[0] else last
    return KeyStat(last, best, None if best is None else step, low, high, *rest)


Points = Iterator[tuple[int, float, float | None]]


def _timed(rows: Iterable[Any], known: SeriesIds, key: str) -> Points:
    """Rows of step, value and the wall time of that step, as points; of what is kept by the second
    the time is that second's.
    """
    is_timed, began = key in known.began, known.began.get(key)
    for step, value, wall in rows:
        at = wall if not is_timed else None if began is None else began + step
        yield step, math.nan if value is None else value, at


def _with_places(
    points: Iterable[tuple[int, float, float | None]], known: SeriesIds, key: str
) -> Points:
    """What is kept by the second at the step where the run was; what has no place is left out."""
    if known.clock is None or key not in known.began:
        yield from points
        return
    for second, value, wall in points:
        if (place := known.clock.at(second)) is not None:
            yield math.floor(place), value, wall


def at_steps(stat: KeyStat, clock: StepsByTime | None) -> KeyStat:
    """The numbers of a series that is kept by the second, with the steps where the run was."""
    if stat.axis != SECONDS or clock is None:
        return stat
    places = (stat.first_step, stat.last_step, stat.best_step)
    first, last, best = (None if at is None else math.floor(clock.kept_at(at)) for at in places)
    return replace(stat, first_step=first, last_step=last, best_step=best, axis=STEP)
