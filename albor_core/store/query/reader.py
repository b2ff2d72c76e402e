"""Every query. A store is opened read-only; SQL appears nowhere above this room.

A reader belongs to the thread and the process that opened it. Rows are frozen; the same calls give
the same rows from a live store and from one rebuilt out of the journals. From the global store
`series` gives the preview of at most 256 buckets and `points` nothing: the points are in the run's
own store.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

from albor_core.andon.severity import alert_data, severity_of
from albor_core.run.light_dataclass import dataclass
from albor_core.run.values.directions import Direction, Goals, direction
from albor_core.run.values.lenient import number_of
from albor_core.store.file.axis import SECONDS, STEP, axis_column
from albor_core.store.file.goals import best_of, goals_of_run
from albor_core.store.index.levels import (
    TOP,
    Bucket,
    as_one,
    group_points,
    merge,
    point,
    width,
)
from albor_core.store.index.step_clock import StepsByTime
from albor_core.store.index.write import WALL_KEY
from albor_core.store.index.zoom import Zoom
from albor_core.store.query.attempts import attempts_of
from albor_core.store.query.downsample import Downsampler
from albor_core.store.query.listing import SORT_KEYS
from albor_core.store.query.table import RunList
from albor_core.store.rows.rows import (
    AlertRow,
    ArtifactRow,
    AttemptRow,
    EventRow,
    JournalPosition,
    KeyStat,
    NoteRow,
    Param,
    RunDetail,
    RunRow,
    SampleRow,
)
from albor_core.store.rows.series import Series

__all__ = [
    "SORT_KEYS",
    "AlertRow",
    "ArtifactRow",
    "AttemptRow",
    "EventRow",
    "JournalPosition",
    "KeyStat",
    "NoteRow",
    "Param",
    "Reader",
    "RunDetail",
    "RunRow",
    "SampleRow",
    "Series",
]
_MOST_GROUPED = 8  # points per bucket of a chart, where it is made of points
_MOST_BOUND = 500  # values in one statement
_QUIET = ("sample", "guard.state", "kernels.chosen")  # kept as events, shown elsewhere
_ACK = (
    "SELECT data, wall FROM events WHERE run_id = ? AND subject = ? AND name = 'andon.ack'"
    " ORDER BY wall, source LIMIT 1"
)
_CLEARED = (  # when it was over; not where it fired again since
    "SELECT max(CASE WHEN name = 'andon.clear' AND wall >= (SELECT max(wall) FROM events a"
    " WHERE a.run_id = v.run_id AND a.subject = v.subject AND a.name = 'andon.alert')"
    " THEN wall END) FROM events v WHERE run_id = ? AND subject = ?"
)


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
        """Those that have no place among steps: their points lie at seconds."""
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


class Reader(RunList):
    """The run table and everything about each run."""

    def detail(self, run_id: str) -> RunDetail:
        """One run with its command line and the facts of run.json (git, versions, data)."""
        row = self.run(run_id)
        argv, facts = self._all("SELECT argv, facts FROM runs WHERE id = ?", (self._id(run_id),))[0]
        with self._errors():
            return RunDetail(row, tuple(json.loads(argv)), json.loads(facts))

    def params(self, run_id: str) -> dict[str, Param]:
        """The resolved config as recorded, flattened to dotted keys."""
        rows = self._all(
            "SELECT key, value FROM params WHERE run_id = ? ORDER BY key", (self._id(run_id),)
        )
        with self._errors():
            return {key: json.loads(value) for key, value in rows}

    def keys(self, run_id: str) -> tuple[str, ...]:
        """Names of the series, sorted."""
        rows = self._all("SELECT name FROM keys WHERE run_id = ?", (self._id(run_id),))
        return tuple(sorted(name for (name,) in rows if name != WALL_KEY))

    def goals(self, run_id: str) -> dict[str, Direction]:
        """Which way metrics are better, as the run's experiment declared it."""
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
            return _series(key, [], is_raw=True)
        *about, axis = rows[0]
        clock = self._clock(number) if axis == SECONDS and not is_timed else None
        if clock is None:
            return replace(self._drawn(number, key, about, (lo, hi), max_points), axis=axis)
        window = (
            None if lo is None else int(clock.second_at(lo)),
            None if hi is None else math.ceil(clock.second_at(math.floor(hi) + 1)),
        )
        return _placed(self._drawn(number, key, about, window, max_points), clock, (lo, hi))

    def _drawn(
        self,
        number: int,
        key: str,
        about: Sequence[int],
        window: tuple[int | None, int | None],
        max_points: int,
    ) -> Series:
        (key_id, base, count, first, last), (lo, hi) = about, window
        low, high = max(first, first if lo is None else lo), min(last, last if hi is None else hi)
        if low > high:
            return _series(key, [], is_raw=True)
        with self._errors():
            zoom = Zoom(self._db, number, key_id, max(base, 1))
            preview = zoom.preview()
            if preview is not None:
                inside = [bucket for bucket in preview if low <= bucket.start <= high]
                if len(inside) > max_points:
                    inside = merge(inside, _steps_per_bucket(low, high, max_points))
                return _series(key, inside, is_raw=False)
            density = count / (last - first + 1)
            return _window(key, zoom, (low, high), last, density, max(max_points, 1))

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

    def events(
        self,
        run_id: str,
        *,
        names: Collection[str] | None = None,
        limit: int | None = None,
        after: float | None = None,
    ) -> tuple[EventRow, ...]:
        """Events in order of time; with `limit` the newest ones, with `after` those later than that
        time.

        Samples and the guard's states are only given when named.
        """
        where = ["run_id = ?"]
        arguments: list[Any] = [self._id(run_id)]
        if names is None:
            where.append(f"name NOT IN ({', '.join('?' * len(_QUIET))})")
            arguments += [*_QUIET]
        else:
            where.append(f"name IN ({', '.join('?' * len(names))})")
            arguments += [*names]
        if after is not None:
            where.append("wall > ?")
            arguments.append(after)
        rows = self._all(
            "SELECT source, at, wall, attempt, step, name, severity, data FROM events"
            f" WHERE {' AND '.join(where)} ORDER BY wall DESC, source DESC, at DESC LIMIT ?",
            [*arguments, -1 if limit is None else max(limit, 0)],
        )
        with self._errors():
            return tuple(_event_row(run_id, row) for row in reversed(rows))

    def alerts(self, run_id: str | None = None, *, open_only: bool = False) -> tuple[AlertRow, ...]:
        """Andon alerts of one run or of all, oldest first, each once."""
        where, arguments = "", []
        if run_id is not None:
            where, arguments = " AND r.id = ?", [self._id(run_id)]
        rows = self._all(
            "SELECT r.id, r.run, r.name, v.subject, v.source, v.at, v.wall, v.attempt, v.step,"
            " v.name, v.severity, v.data FROM events v JOIN runs r ON r.id = v.run_id"
            f" WHERE v.subject IS NOT NULL AND v.name = 'andon.alert'{where}"
            " GROUP BY v.run_id, v.subject HAVING v.at = min(v.at) ORDER BY v.wall, v.at",
            arguments,
        )
        found = []
        for number, run, name, alert_id, *row in rows:
            acks = self._all(_ACK, (number, alert_id))
            ((cleared,),) = self._all(_CLEARED, (number, alert_id))
            with self._errors():
                event = _event_row(run_id or run, row)
                alert = alert_of(event, alert_id, name, acks[0] if acks else None, cleared)
            if alert.is_open or not open_only:
                found.append(alert)
        return tuple(found)

    def attempts(self, run_id: str) -> tuple[AttemptRow, ...]:
        """The attempts of a run, first to last, each with the step that it came to."""
        number = self._id(run_id)
        return self.query(lambda db: attempts_of(db, number))

    def span_ids(self, run_id: str) -> dict[str, tuple[str, str]]:
        """The trace id and the span id of the run ("run") and of each "attempt N"."""
        rows = self._all(
            "SELECT name, trace_id, span_id FROM span_ids WHERE run_id = ?", (self._id(run_id),)
        )
        return {name: (trace_id, span_id) for name, trace_id, span_id in rows}

    def tags(self, run_id: str) -> tuple[str, ...]:
        return self.run(run_id).tags

    def notes(self, run_id: str) -> tuple[NoteRow, ...]:
        """Notes in the order they were written."""
        rows = self._all(
            'SELECT wall, "by", text FROM notes WHERE run_id = ? ORDER BY at', (self._id(run_id),)
        )
        return tuple(NoteRow(*row) for row in rows)

    def artifacts(self, run_id: str) -> tuple[ArtifactRow, ...]:
        """Files the run made, by time."""
        rows = self._all(
            "SELECT name, path, kind, bytes, hash, step, wall FROM artifacts WHERE run_id = ?"
            " ORDER BY wall, path",
            (self._id(run_id),),
        )
        return tuple(ArtifactRow(*row) for row in rows)

    def samples(self, run_id: str, *, limit: int | None = None) -> tuple[SampleRow, ...]:
        """Generated texts by time; with `limit` the newest ones."""
        return tuple(
            SampleRow(event.step, event.wall, str(event.data.get("prompt", "")), str(text))
            for event in self.events(run_id, names=("sample",), limit=limit)
            if (text := event.data.get("text")) is not None  # not so of an event by that name
        )

    def positions(self, run_id: str) -> tuple[JournalPosition, ...]:
        """How far each file of the run is indexed, and what had to be skipped."""
        rows = self._all(
            "SELECT file, offset, lines, damaged, ignored FROM journal WHERE run_id = ?"
            " ORDER BY file",
            (self._id(run_id),),
        )
        return tuple(JournalPosition(*row) for row in rows)


def key_stat(
    name: str,
    columns: Sequence[Any],
    ways: Goals,
    step_of: Callable[[float | None], int | None],
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


def _placed(series: Series, clock: StepsByTime, window: tuple[int | None, int | None]) -> Series:
    """A series over seconds, over the steps where the run was; of one place there is one entry."""
    low = -math.inf if window[0] is None else window[0]
    high = math.inf if window[1] is None else window[1]
    found: list[tuple[float, list[Bucket]]] = []
    columns = (series.steps, series.counts, series.nonfinite, series.minimum, series.maximum)
    for one in map(Bucket, *columns, series.mean, series.last):
        place = clock.at(one.start)
        if place is None or not low <= place <= high:
            continue
        if found and found[-1][0] >= place:
            found[-1][1].append(one)
        else:
            found.append((place, [one]))
    drawn = _series(series.key, [as_one(some[0].start, some) for _, some in found], is_raw=False)
    is_raw = series.is_raw and all(len(some) == 1 for _, some in found)
    return replace(drawn, steps=tuple(place for place, _ in found), is_raw=is_raw)


def _event_row(run_id: str, row: Any) -> EventRow:
    source, at, wall, attempt, step, name, severity, data = row
    event_id = f"{source}:{at}"
    word, known = severity_of(severity), alert_data(name, json.loads(data))
    return EventRow(event_id, run_id, source, wall, attempt, step, name, word, known)


def alert_of(
    event: EventRow,
    alert_id: str,
    run_name: str = "",
    ack: Any | None = None,
    cleared: float | None = None,
) -> AlertRow:
    """The alert that an `andon.alert` event tells of; `ack`: what acknowledged it, and when."""
    data = event.data
    return AlertRow(
        id=alert_id,
        run_id=event.run_id,
        run_name=run_name,
        rule=str(data.get("rule") or ""),
        kind=str(data.get("kind") or ""),
        severity=event.severity,
        action=str(data.get("action") or ""),
        metric=data.get("metric"),
        value=number_of(data.get("value")),
        threshold=number_of(data.get("threshold")),
        message=str(data.get("message") or ""),
        step=event.step,
        attempt=event.attempt,
        wall=event.wall,
        acked_by=None if ack is None else str(json.loads(ack[0]).get("by") or "unknown"),
        acked_wall=None if ack is None else ack[1],
        cleared_wall=cleared,
    )


def _window(
    key: str,
    zoom: Zoom,
    window: tuple[int, int],
    last: int,
    density: float,
    max_points: int,
) -> Series:
    low, high = window
    expected = density * (high - low + 1)
    steps = _steps_per_bucket(low, high, max_points)
    level = 0  # the coarsest whose buckets lie whole in those that are wanted
    while level < TOP and width(level + 1) <= steps:
        level += 1
    if expected <= (4 if level else _MOST_GROUPED) * max_points:
        points = zoom.points(low, high + 1)
        if len(points) <= max_points:
            return _series(key, [point(step, value) for step, value in points], is_raw=True)
        if len(points) <= _MOST_GROUPED * max_points:
            return _series(key, group_points(points, steps, 0), is_raw=False)
    level = max(level, zoom.base)  # of a series that turned denser: coarser than wanted, in time
    buckets = merge(zoom.cover(level, low, high + 1, last), max(steps, width(level)))
    return _series(key, buckets, is_raw=False)


def _steps_per_bucket(low: int, high: int, most: int) -> int:
    """The smallest power of two that cuts the grid of all steps into at most `most` places over a
    window: while a run grows, old buckets stay as they are, and so does their picture."""
    width = 1 << ((high - low) // most).bit_length()
    while high // width - low // width >= most and width < 1 << 60:
        width *= 2
    return width


def _series(key: str, buckets: list[Bucket], *, is_raw: bool) -> Series:
    if not buckets:
        return Series(key, is_raw=is_raw)
    starts, counts, nonfinite, minima, maxima, means, lasts = zip(*buckets, strict=True)
    return Series(key, starts, minima, maxima, means, lasts, counts, nonfinite, is_raw)
