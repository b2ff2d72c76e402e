"""The zoom levels of a series in the store: kept up to date as points arrive, read for any window.

Invariant: level n holds exactly the non-empty buckets that end at or before the series' last step.
`extend` after new points, `trim` after a rewind keep it; both read what they need from the table
below, so nothing has to be remembered between batches and a killed indexer leaves no half-filled
bucket.
"""

from __future__ import annotations

import sqlite3

from albor_core.store.index.series.levels import (
    CHUNK,
    FACTOR,
    TOP,
    Bucket,
    group_points,
    merge,
    pack,
    point,
    unpack,
    unpack_preview,
    width,
)

_POINTS = (
    "SELECT step, value FROM metrics WHERE run_id = ? AND key_id = ? AND step >= ? AND step < ?"
    " ORDER BY step"
)
_LOAD = (
    "SELECT chunk, data FROM metric_levels WHERE run_id = ? AND key_id = ? AND level = ?"
    " AND chunk BETWEEN ? AND ? ORDER BY chunk"
)
_PREVIEW = "SELECT data FROM metric_levels WHERE run_id = ? AND key_id = ? AND level = 0"
_STORE = (
    "INSERT OR REPLACE INTO metric_levels (run_id, key_id, level, chunk, data) VALUES (?,?,?,?,?)"
)
_DELETE = (
    "DELETE FROM metric_levels WHERE run_id = ? AND key_id = ? AND level = ?"
    " AND chunk BETWEEN ? AND ?"
)


class Zoom:
    """The levels of one series of one run; `base` is the finest level kept."""

    def __init__(self, db: sqlite3.Connection, run_id: int, key_id: int, base: int) -> None:
        self._db, self._run, self._key, self.base = db, run_id, key_id, base

    def points(self, first: int, end: int) -> list[tuple[int, float | None]]:
        """Raw (step, value) with first <= step < end; None is NaN."""
        return self._db.execute(_POINTS, (self._run, self._key, first, end)).fetchall()

    def preview(self) -> list[Bucket] | None:
        """All of it in one row, in the store of all runs; None in a run's own."""
        row = self._db.execute(_PREVIEW, (self._run, self._key)).fetchone()
        return None if row is None else unpack_preview(row[0])

    def load(self, level: int, first: int, end: int) -> list[Bucket]:
        """Stored buckets whose place on the grid of `level` is in [first, end)."""
        if first >= end:
            return []
        rows = self._db.execute(
            _LOAD, (self._run, self._key, level, first // CHUNK, (end - 1) // CHUNK)
        ).fetchall()
        found = [bucket for chunk, data in rows for bucket in unpack(chunk, level, data)]
        low, high = first * width(level), end * width(level)
        if found and (found[0].start < low or found[-1].start >= high):
            found = [bucket for bucket in found if low <= bucket.start < high]
        return found

    def extend(self, changed: int, last: int, *, until: int | None = None) -> None:
        """Points at `changed` to `until` (default `last`, the series' last step) are new."""
        top = last if until is None else until
        for level in range(self.base, TOP + 1):
            steps = width(level)
            first, end = changed // steps, min(last // steps, top // steps + 1)
            if first >= end:
                return  # nothing closed here, so nothing above either
            if level == self.base:
                buckets = group_points(self.points(first * steps, end * steps), steps)
            else:
                finer = self.load(level - 1, first * FACTOR, end * FACTOR)
                buckets = merge(finer, steps)
            self._replace(level, first, end, buckets)

    def trim(self, last: int | None) -> None:
        """The series now ends at `last` (None: it is empty): drop buckets that are open again."""
        for level in range(self.base, TOP + 1):
            end = 0 if last is None else last // width(level)
            kept = self.load(level, end // CHUNK * CHUNK, end)
            self._db.execute(_DELETE, (self._run, self._key, level, end // CHUNK, 2**62))
            self._put(level, kept)

    def _replace(self, level: int, first: int, end: int, buckets: list[Bucket]) -> None:
        """Let `buckets` be all there is at places [first, end) of `level`."""
        before = self.load(level, first // CHUNK * CHUNK, first)
        after = self.load(level, end, ((end - 1) // CHUNK + 1) * CHUNK)
        if not buckets or len(buckets) < end - first:  # gaps: a chunk may have become empty
            self._db.execute(
                _DELETE, (self._run, self._key, level, first // CHUNK, (end - 1) // CHUNK)
            )
        self._put(level, [*before, *buckets, *after])

    def _put(self, level: int, buckets: list[Bucket]) -> None:
        self._db.executemany(
            _STORE,
            [(self._run, self._key, level, chunk, data) for chunk, data in pack(buckets, level)],
        )

    def cover(self, level: int, first: int, end: int, last: int) -> list[Bucket]:
        """Everything with first <= step < end, in closed buckets of `level` where they fit and
        finer at the edges; `last` is the series' last step. Level below base: the points.
        """
        if first >= end:
            return []
        if level < self.base:
            return [point(step, value) for step, value in self.points(first, end)]
        steps = width(level)
        left, right = -(-first // steps), min(end, last) // steps
        if left >= right:
            return self.cover(level - 1, first, end, last)
        return [
            *self.cover(level - 1, first, left * steps, last),
            *self.load(level, left, right),
            *self.cover(level - 1, right * steps, end, last),
        ]
