"""Zoom levels of a series: what a bucket is, how buckets are made, merged and packed. Pure.

Level n cuts the step axis into buckets of 8^n steps. A bucket is *closed* once a later step arrived
beyond it; only closed, non-empty buckets are stored, so what is stored is a function of the points
alone and not of the batches they came in. The open rest is made from the finer level, and at last
from the points.

A bucket keeps minimum and maximum, so no spike is lost at any zoom. NaN takes no part in them; Inf
does. `mean` is over finite points. Where nothing qualifies the number is NaN.
"""

from __future__ import annotations

import math
import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from operator import mul
from typing import NamedTuple

FACTOR = 8
TOP = 6  # 262,144 steps: beyond a billion steps a window still reads a few thousand buckets
CHUNK = 64  # buckets per stored row
PREVIEW_BUCKETS = 256
_ENTRY = struct.Struct("<HII4d")  # place in chunk, count, nonfinite, minimum, maximum, mean, last
_PREVIEW_HEAD = struct.Struct("<qqd")  # first step, steps per bucket, last value
_PREVIEW_ENTRY = struct.Struct("<BH3f")  # 15 bytes: 256 of them and the head stay below 4 KiB
_F32_MAX = 3.4028234e38


class Bucket(NamedTuple):
    """The points of one stretch of steps that begins at `start`."""

    start: int
    points: int
    nonfinite: int
    minimum: float
    maximum: float
    mean: float
    last: float


_bucket = tuple.__new__  # a third of the cost of calling Bucket, for what is right by construction


def width(level: int) -> int:
    """Steps per bucket."""
    return int(FACTOR**level)


def base_level(gap: int) -> int:
    """The finest level worth keeping for a series whose points lie `gap` steps apart.

    Below four points a bucket would cost more bytes than the points. At most 3, so that a series
    that turns denser later still has no bucket above 512 points.
    """
    level = 1
    while level < 3 and width(level) < 4 * gap:
        level += 1
    return level


def point(step: int, value: float | None) -> Bucket:
    """A single point as a bucket; None is NaN, as the store keeps it."""
    number = math.nan if value is None else value
    mean = number if math.isfinite(number) else math.nan
    return Bucket(step, 1, 0 if mean == number else 1, number, number, mean, number)


def group_points(
    points: Sequence[tuple[int, float | None]], steps_per_bucket: int, origin: int | None = None
) -> list[Bucket]:
    """Buckets of points in step order; the same as merging them one by one, but faster.

    With an `origin` a bucket starts at its first point, as those of `merge` do, otherwise at its
    place on the grid of all steps.
    """
    if not points:
        return []
    steps = [step for step, _ in points]
    grid = steps_per_bucket
    return [
        _bucket_of(steps[i] // grid * grid if origin is None else steps[i], points[i:j])
        for i, j in _places(steps, grid, origin or 0)
    ]


def _bucket_of(start: int, points: Sequence[tuple[int, float | None]]) -> Bucket:
    values = [value for _, value in points]
    total: float
    try:
        total = sum(values)  # type: ignore[arg-type]
    except TypeError:  # a NaN among them
        total = math.nan
    if math.isfinite(total):
        numbers: list[float] = values  # type: ignore[assignment]
        count = len(numbers)
        return Bucket(start, count, 0, min(numbers), max(numbers), total / count, numbers[-1])
    return as_one(start, [point(step, value) for step, value in points])


def merge(buckets: Sequence[Bucket], steps_per_bucket: int, origin: int = 0) -> list[Bucket]:
    """Coarser buckets of buckets in step order; each goes where its start lies."""
    if not buckets:
        return []
    starts, counts, nonfinites, minima, maxima, means, lasts = zip(*buckets, strict=True)
    if any(nonfinites):
        return [
            as_one(starts[i], buckets[i:j]) for i, j in _places(starts, steps_per_bucket, origin)
        ]
    weighted = tuple(map(mul, means, counts))
    merged = []
    for i, j in _places(starts, steps_per_bucket, origin):
        count, low, high = sum(counts[i:j]), min(minima[i:j]), max(maxima[i:j])
        mean = sum(weighted[i:j]) / count
        merged.append(Bucket(starts[i], count, 0, low, high, mean, lasts[j - 1]))
    return merged


def _places(steps: Sequence[int], width: int, origin: int) -> Iterator[tuple[int, int]]:
    """Slices [i, j) of ascending `steps` that lie in one place of a grid."""
    i, n = 0, len(steps)
    while i < n:
        end = origin + ((steps[i] - origin) // width + 1) * width
        j = bisect_left(steps, end, i, min(n, i + width))
        yield i, j
        i = j


def as_one(start: int, part: Sequence[Bucket]) -> Bucket:
    """Several buckets in order, merged to one that begins at `start`."""
    _, counts, nonfinites, minima, maxima, means, lasts = zip(*part, strict=True)
    count, nonfinite = sum(counts), sum(nonfinites)
    if nonfinite == 0:
        mean = sum(map(mul, means, counts)) / count
        return Bucket(start, count, 0, min(minima), max(maxima), mean, lasts[-1])
    finite = count - nonfinite
    weighted = sum(
        m * (c - bad) for m, c, bad in zip(means, counts, nonfinites, strict=True) if c > bad
    )
    low = min((v for v in minima if v == v), default=math.nan)
    high = max((v for v in maxima if v == v), default=math.nan)
    mean = weighted / finite if finite else math.nan
    return Bucket(start, count, nonfinite, low, high, mean, lasts[-1])


def pack(buckets: Iterable[Bucket], level: int) -> Iterator[tuple[int, bytes]]:
    """(chunk, bytes) of buckets in step order that lie on the grid of `level`."""
    steps, current = width(level), None
    parts: list[bytes] = []
    for bucket in buckets:
        chunk, place = divmod(bucket.start // steps, CHUNK)
        if chunk != current:
            if current is not None:
                yield current, b"".join(parts)
            current, parts = chunk, []
        parts.append(_ENTRY.pack(place, *bucket[1:]))
    if current is not None:
        yield current, b"".join(parts)


def unpack(chunk: int, level: int, data: bytes) -> list[Bucket]:
    """The buckets of one stored row. Raises ValueError if it is not one."""
    steps, first = width(level), chunk * CHUNK
    try:
        return [
            _bucket(Bucket, ((first + entry[0]) * steps, *entry[1:]))
            for entry in _ENTRY.iter_unpack(data)
        ]
    except struct.error as error:
        raise ValueError(f"level {level}, chunk {chunk}: {error}") from error


def pack_preview(buckets: Sequence[Bucket], first: int, steps_per_bucket: int) -> bytes:
    """Packs at most 256 buckets into at most 4 KiB: 32-bit numbers, counts that stop at 65,535."""
    last = buckets[-1].last if buckets else math.nan
    parts = [_PREVIEW_HEAD.pack(first, steps_per_bucket, last)]
    for bucket in buckets:
        place = (bucket.start - first) // steps_per_bucket
        numbers = (_f32(bucket.minimum), _f32(bucket.maximum), _f32(bucket.mean))
        parts.append(_PREVIEW_ENTRY.pack(place, min(bucket.points, 65535), *numbers))
    return b"".join(parts)


def unpack_preview(data: bytes) -> list[Bucket]:
    """The buckets of a preview; `last` is the mean but in the final one. Raises ValueError."""
    try:
        first, steps_per_bucket, last = _PREVIEW_HEAD.unpack_from(data)
        entries = _PREVIEW_ENTRY.iter_unpack(data[_PREVIEW_HEAD.size :])
        found = [
            Bucket(first + place * steps_per_bucket, count, _nonfinite(low, high), low, high, m, m)
            for place, count, low, high, m in entries
        ]
    except struct.error as error:
        raise ValueError(f"preview: {error}") from error
    if found:
        found[-1] = found[-1]._replace(last=last)
    return found


def _nonfinite(low: float, high: float) -> int:
    return 0 if math.isfinite(low) and math.isfinite(high) else 1


def _f32(value: float) -> float:
    """A double that 32 bits can hold: beyond them it is infinite, as the conversion would say."""
    return math.copysign(math.inf, value) if abs(value) > _F32_MAX else value
