"""A long series in few of its own points: of each stretch the lowest, the highest and one that is
NaN, so that no spike is lost. Found by going down the zoom levels, not by reading every point.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from albor_core.store.index.series.levels import TOP, Bucket, merge, width
from albor_core.store.index.series.zoom import Zoom

_SCAN_STEPS = 512  # a stretch that is read point by point
_FEW_POINTS = 50_000  # of a whole series, to be read at once
_ONE_NAN = (
    "SELECT step FROM metrics WHERE run_id = ? AND key_id = ? AND value IS NULL"
    " AND step >= ? AND step < ? LIMIT 1"
)


class Downsampler:
    """The steps that stand for one series of one run, `first` to `last`."""

    def __init__(
        self, db: sqlite3.Connection, run_id: int, key_id: int, base: int, span: tuple[int, int]
    ) -> None:
        self._db, self._ids = db, (run_id, key_id)
        self._zoom = Zoom(db, run_id, key_id, max(base, 1))
        self._first, self._last = span

    def steps(self, most: int, *, count: int, has_nan: bool) -> list[int]:
        """At most `most` steps in order, including the first and the last of the `count`."""
        stretch = self._stretch(max(1, (most - 2) // (3 if has_nan else 2)), count)
        level = self._level_within(stretch)
        found = {self._first, self._last}
        for bucket in merge(
            self._zoom.cover(level, self._first, self._last + 1, self._last), stretch
        ):
            start = bucket.start // stretch * stretch
            found.update(self._of(bucket, start, start + stretch))
        kept = sorted(found)
        return kept[: max(most - 1, 0)] + kept[-1:] if len(kept) > most > 0 else kept[:most]

    def _stretch(self, places: int, count: int) -> int:
        """Steps of a stretch, of which at most `places` on the grid of all steps are needed."""
        least = self._last + 1
        if places > 1:
            least = -(-(self._last - self._first + 1) // (places - 1))
        level = self._level_within(least)
        # no finer level is kept: the points themselves, if they are few
        if level < self._zoom.base:
            level = 0 if count <= _FEW_POINTS else self._zoom.base
        return -(-least // width(level)) * width(level)

    def _level_within(self, steps: int) -> int:
        """The coarsest level of which a bucket lies whole in an aligned stretch of `steps`."""
        level = 0
        while level < TOP and width(level + 1) <= steps:
            level += 1
        return level

    def _of(self, bucket: Bucket, start: int, end: int) -> Iterator[int]:
        if bucket.minimum == bucket.minimum:  # not NaN: there is a number
            yield self._step_of("minimum", bucket.minimum, start, end)
            if bucket.maximum != bucket.minimum:
                yield self._step_of("maximum", bucket.maximum, start, end)
        if bucket.nonfinite:
            row = self._db.execute(_ONE_NAN, (*self._ids, start, end)).fetchone()
            if row is not None:
                yield int(row[0])

    def _step_of(self, extreme: str, value: float, start: int, end: int) -> int:
        """The first step in [start, end) with this value, which is that stretch's extreme."""
        while end - start > _SCAN_STEPS:
            level = self._level_within((end - start) // 2)
            for bucket in self._zoom.cover(level, start, end, self._last):
                if getattr(bucket, extreme) == value:
                    start = bucket.start
                    end = min(end, start + width(level))
                    break
            else:
                break
        return next(
            (step for step, found in self._zoom.points(start, end) if found == value), self._last
        )
