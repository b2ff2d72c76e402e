"""A window of a series in at most so many buckets, ready to draw. Pure but for the zoom's reads."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from dataclasses import replace

from albor_core.store.index.series.levels import (
    TOP,
    Bucket,
    as_one,
    group_points,
    merge,
    point,
    width,
)
from albor_core.store.index.series.step_clock import StepsByTime
from albor_core.store.index.series.zoom import Zoom
from albor_core.store.rows.series import Series

_MOST_GROUPED = 8  # points per bucket of a chart, where it is made of points


def drawn(
    db: sqlite3.Connection,
    number: int,
    key: str,
    about: Sequence[int],
    window: tuple[int | None, int | None],
    max_points: int,
) -> Series:
    """The buckets of a series between two of its places; `about`: key_id, base, count, first and
    last of it. Raises sqlite3.Error.
    """
    (key_id, base, count, first, last), (lo, hi) = about, window
    low, high = max(first, first if lo is None else lo), min(last, last if hi is None else hi)
    if low > high:
        return Series(key)
    zoom = Zoom(db, number, key_id, max(base, 1))
    preview = zoom.preview()
    if preview is not None:
        inside = [bucket for bucket in preview if low <= bucket.start <= high]
        if len(inside) > max_points:
            inside = merge(inside, _steps_per_bucket(low, high, max_points))
        return _series(key, inside, is_raw=False)
    density = count / (last - first + 1)
    return _window(key, zoom, (low, high), last, density, max(max_points, 1))


def placed(series: Series, clock: StepsByTime, window: tuple[int | None, int | None]) -> Series:
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


def _window(
    key: str, zoom: Zoom, window: tuple[int, int], last: int, density: float, max_points: int
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
