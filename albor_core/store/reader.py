"""Every query. A store is opened read-only; SQL appears nowhere above this room.

A reader belongs to the thread and the process that opened it. Rows are frozen; the same calls give
the same rows from a live store and from one rebuilt out of the journals. From the global store
`series` gives the preview of at most 256 buckets and `points` nothing: the points are in the run's
own store.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any

from albor_core.run.errors import NotFoundError, StoreError, UsageError
from albor_core.store.connect import as_store_error, open_reader
from albor_core.store.levels import TOP, Bucket, merge, point, unpack_preview, width
from albor_core.store.rows import (
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
    Series,
)
from albor_core.store.write import WALL_KEY
from albor_core.store.zoom import Zoom

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
_QUIET = ("sample", "guard.state")  # kept as events, shown elsewhere
_MAX_NEEDLE = 256
SORT_KEYS: Mapping[str, str] = {
    "created": "r.created",
    "name": "r.name COLLATE NOCASE",
    "experiment": "e.name COLLATE NOCASE",
    "last": "r.last_wall",
    "step": "r.last_step",
    "tokens": "r.tokens",
    "loss": "r.loss",
    "val_loss": "r.val_loss",
    "val_ppl": "r.val_ppl",
    "best_val_loss": "r.best_val_loss",
    "tokens_per_s": "r.tokens_per_s",
    "mfu": "r.mfu",
    "alerts": "r.alerts_open",
    "attempts": "r.attempts",
    "status": "r.ended_status",
}
_RUN = (
    "SELECT r.run, r.name, e.name, r.kind, r.created, r.path, r.host, r.seed, r.git_commit,"
    " r.git_dirty, r.ended_status, r.ended_reason, r.ended_wall, r.attempts, r.last_step,"
    " r.max_steps, r.tokens, r.loss, r.val_loss, r.val_ppl, r.best_val_loss, r.tokens_per_s, r.mfu,"
    " r.first_wall, r.last_wall, r.alerts_open, r.pinned, r.id"
    " FROM runs r JOIN experiments e ON e.id = r.experiment_id"
)
_RUN_FIELDS = tuple(field.name for field in fields(RunRow))
_ACK = (
    "SELECT data, wall FROM events WHERE run_id = ? AND subject = ? AND name = 'andon.ack'"
    " ORDER BY wall, source LIMIT 1"
)


class Reader:
    """A store, open for reading. Raises NotFoundError, StoreError, TryAgainError (briefly held
    elsewhere).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection, self._folder = open_reader(path)
        self._pid = os.getpid()
        self._file, self._files = _identity(path), 0

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

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
            return self._db.execute(sql, arguments).fetchall()

    def version(self) -> int:
        """A number that moves when another connection commits: cheap to poll, no table is read.

        A store that was replaced (rebuilt, quarantined) is opened again here.
        """
        now = _identity(self.path)
        if now != self._file and now is not None:
            fresh = open_reader(self.path)
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
    ) -> tuple[RunRow, ...]:
        """Runs, newest first by default; unknown values sort last. `name` is a part of a name or
        id.

        Raises UsageError for a sort key that is not in SORT_KEYS.
        """
        if sort not in SORT_KEYS:
            raise UsageError(f"cannot sort by {sort!r}", hint="one of " + ", ".join(SORT_KEYS))
        where: list[str] = []
        arguments: list[Any] = []
        if experiment is not None:
            where.append("e.name = ?")
            arguments.append(experiment)
        if name is not None:
            if len(name) > _MAX_NEEDLE:
                raise UsageError(f"name: at most {_MAX_NEEDLE} characters")
            where.append("(instr(lower(r.name), lower(?)) OR instr(r.run, lower(?)))")
            arguments += [name, name]
        condition = f" WHERE {' AND '.join(where)}" if where else ""
        column, way = SORT_KEYS[sort], "DESC" if descending else "ASC"
        order = f" ORDER BY {column} IS NULL, {column} {way}, r.run {way} LIMIT ?"
        rows = self._all(
            _RUN + condition + order, [*arguments, -1 if limit is None else max(limit, 0)]
        )
        tags = self._tags_of([row[-1] for row in rows] if len(rows) < 100 else None)
        return tuple(_run_row(row, tags.get(row[-1], ())) for row in rows)

    def _tags_of(self, ids: Sequence[int] | None) -> dict[int, tuple[str, ...]]:
        if ids is None:
            rows = self._all("SELECT run_id, tag FROM tags ORDER BY run_id, tag")
        else:
            marks = ", ".join("?" * len(ids))
            rows = self._all(
                f"SELECT run_id, tag FROM tags WHERE run_id IN ({marks}) ORDER BY run_id, tag", ids
            )
        found: dict[int, tuple[str, ...]] = {}
        for run_id, tag in rows:
            found[run_id] = (*found.get(run_id, ()), tag)
        return found

    def run(self, run_id: str) -> RunRow:
        """One run by its id. Raises NotFoundError."""
        row = self._row_of(run_id)
        return _run_row(row, self._tags_of([row[-1]]).get(row[-1], ()))

    def detail(self, run_id: str) -> RunDetail:
        """One run with its command line and the facts of run.json (git, versions, data)."""
        row = self.run(run_id)
        argv, facts = self._all("SELECT argv, facts FROM runs WHERE run = ?", (run_id,))[0]
        with self._errors():
            return RunDetail(row, tuple(json.loads(argv)), json.loads(facts))

    def _row_of(self, run_id: str) -> Any:
        rows = self._all(f"{_RUN} WHERE r.run = ?", (run_id,))
        if not rows:
            raise NotFoundError(f"{self.path}: no run {run_id!r}", hint="albor runs ls")
        return rows[0]

    def _id(self, run_id: str) -> int:
        return int(self._row_of(run_id)[-1])

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

    def summary(self, run_id: str) -> dict[str, KeyStat]:
        """Every series in numbers; of one that a rewind emptied the count is 0."""
        rows = self._all(
            "SELECT name, last, best, best_step, minimum, maximum, count, first_step, last_step,"
            " nonfinite FROM keys WHERE run_id = ? ORDER BY name",
            (self._id(run_id),),
        )
        return {
            name: KeyStat(math.nan if last is None and rest[4] else last, *rest)
            for name, last, *rest in rows
            if name != WALL_KEY
        }

    def series(
        self,
        run_id: str,
        key: str,
        *,
        lo: int | None = None,
        hi: int | None = None,
        max_points: int = 600,
    ) -> Series:
        """A window of a series, lo <= step <= hi, in at most `max_points` buckets, ready to draw.

        Milliseconds whatever the length, and no spike is lost: see levels.py. An unknown key is an
        empty series, since a viewer may ask before the first point.
        """
        number = self._id(run_id)
        rows = self._all(
            "SELECT key_id, base, count, first_step, last_step FROM keys"
            " WHERE run_id = ? AND name = ? AND count > 0",
            (number, key),
        )
        if not rows:
            return _series(key, [], is_raw=True)
        key_id, base, count, first, last = rows[0]
        low, high = max(first, first if lo is None else lo), min(last, last if hi is None else hi)
        if low > high:
            return _series(key, [], is_raw=True)
        with self._errors():
            preview = self._preview(number, key_id)
            if preview is not None:
                inside = [bucket for bucket in preview if low <= bucket.start <= high]
                return _series(key, _at_most(inside, low, high, max_points), is_raw=False)
            zoom = Zoom(self._db, number, key_id, max(base, 1))
            density = count / (last - first + 1)
            return _window(key, zoom, (low, high), last, density, max(max_points, 1))

    def _preview(self, run_id: int, key_id: int) -> list[Bucket] | None:
        row = self._db.execute(
            "SELECT data FROM metric_levels WHERE run_id = ? AND key_id = ? AND level = 0",
            (run_id, key_id),
        ).fetchone()
        return None if row is None else unpack_preview(row[0])

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
        rows = self._all(
            "SELECT m.step, m.value, w.value FROM metrics m JOIN keys k USING (run_id, key_id)"
            " LEFT JOIN keys kw ON kw.run_id = m.run_id AND kw.name = ?"
            " LEFT JOIN metrics w ON w.run_id = m.run_id AND w.key_id = kw.key_id"
            "  AND w.step = m.step"
            " WHERE m.run_id = ? AND k.name = ? AND m.step BETWEEN ? AND ? ORDER BY m.step LIMIT ?",
            (
                WALL_KEY,
                self._id(run_id),
                key,
                -(2**62) if lo is None else lo,
                2**62 if hi is None else hi,
                -1 if limit is None else max(limit, 0),
            ),
        )
        return tuple((step, math.nan if v is None else v, wall) for step, v, wall in rows)

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
            where.append("name NOT IN (?, ?)")
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
            "SELECT r.id, r.run, r.name, v.subject, v.severity, v.step, v.attempt, v.wall, v.data"
            " FROM events v JOIN runs r ON r.id = v.run_id"
            f" WHERE v.subject IS NOT NULL AND v.name = 'andon.alert'{where}"
            " GROUP BY v.run_id, v.subject HAVING v.at = min(v.at) ORDER BY v.wall, v.at",
            arguments,
        )
        found = []
        for number, *row in rows:
            acks = self._all(_ACK, (number, row[2]))
            if not (open_only and acks):
                with self._errors():
                    found.append(_alert_row(row, acks[0] if acks else None))
        return tuple(found)

    def attempts(self, run_id: str) -> tuple[AttemptRow, ...]:
        """The lives of a run, first to last."""
        rows = self._all(
            "SELECT attempt, started, ended, pid, code, signal, exit_class, action, reason,"
            " delay_s, report, step, diagnostic, adopted FROM attempts WHERE run_id = ?"
            " ORDER BY attempt",
            (self._id(run_id),),
        )
        return tuple(_attempt_row(row) for row in rows)

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

    def samples(self, run_id: str) -> tuple[SampleRow, ...]:
        """Generated texts by time."""
        return tuple(
            SampleRow(event.step, event.wall, str(event.data["prompt"]), str(event.data["text"]))
            for event in self.events(run_id, names=("sample",))
        )

    def positions(self, run_id: str) -> tuple[JournalPosition, ...]:
        """How far each file of the run is indexed, and what had to be skipped."""
        rows = self._all(
            "SELECT file, offset, lines, damaged, ignored FROM journal WHERE run_id = ?"
            " ORDER BY file",
            (self._id(run_id),),
        )
        return tuple(JournalPosition(*row) for row in rows)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _run_row(row: Any, tags: tuple[str, ...]) -> RunRow:
    columns: list[Any] = [*row]  # ten thousand of these make a list: no slices, no loops
    columns[27] = tags  # in place of the row's id
    columns[26] = columns[26] == 1
    if columns[9] is not None:
        columns[9] = columns[9] == 1
    if "nan" in columns:
        columns[16:23] = [math.nan if value == "nan" else value for value in columns[16:23]]
    made = object.__new__(RunRow)
    made.__dict__.update(zip(_RUN_FIELDS, columns, strict=True))  # __init__ would take 5 us a row
    return made


def _attempt_row(row: Any) -> AttemptRow:
    columns: list[Any] = [*row[:12], bool(row[12]), bool(row[13])]
    return AttemptRow(*columns)


def _event_row(run_id: str, row: Any) -> EventRow:
    source, at, wall, attempt, step, name, severity, data = row
    event_id = f"{source}:{at}"
    return EventRow(event_id, run_id, source, wall, attempt, step, name, severity, json.loads(data))


def _alert_row(row: Any, ack: Any | None) -> AlertRow:
    run, name, alert_id, severity, step, attempt, wall, raw = row
    data = json.loads(raw)
    acked = None if ack is None else str(json.loads(ack[0]).get("by") or "unknown")
    return AlertRow(
        id=alert_id,
        run_id=run,
        run_name=name,
        rule=str(data.get("rule") or ""),
        severity=severity,
        action=str(data.get("action") or ""),
        metric=data.get("metric"),
        value=_number(data.get("value")),
        threshold=_number(data.get("threshold")),
        message=str(data.get("message") or ""),
        step=step,
        attempt=attempt,
        wall=wall,
        acked_by=acked,
        acked_wall=None if ack is None else ack[1],
    )


def _number(value: Any) -> float | None:
    """A number of an event's data, where NaN and Inf travel as words."""
    if isinstance(value, str) and value in ("nan", "inf", "-inf"):
        return float(value)
    return float(value) if isinstance(value, int | float) else None


def _window(
    key: str,
    zoom: Zoom,
    window: tuple[int, int],
    last: int,
    density: float,
    max_points: int,
) -> Series:
    low, high = window
    span = high - low + 1
    if density * span <= 4 * max_points:
        points = zoom.points(low, high + 1)
        if len(points) <= 8 * max_points:
            buckets = [point(step, value) for step, value in points]
            if len(buckets) <= max_points:
                return _series(key, buckets, is_raw=True)
            return _series(key, _at_most(buckets, low, high, max_points), is_raw=False)
    level = 0  # below the finest level that is kept are the points
    while level < TOP and width(level + 1) * max_points <= span:
        level += 1
    buckets = zoom.cover(level, low, high + 1, last)
    return _series(key, _at_most(buckets, low, high, max_points), is_raw=False)


def _at_most(buckets: list[Bucket], low: int, high: int, max_points: int) -> list[Bucket]:
    """Merged to at most `max_points`, each of the same number of steps."""
    if len(buckets) <= max_points:
        return buckets
    return merge(buckets, (high - low) // max_points + 1, low)


def _series(key: str, buckets: list[Bucket], *, is_raw: bool) -> Series:
    if not buckets:
        return Series(key, (), (), (), (), (), (), (), is_raw)
    starts, counts, nonfinite, minima, maxima, means, lasts = zip(*buckets, strict=True)
    return Series(key, starts, minima, maxima, means, lasts, counts, nonfinite, is_raw)
