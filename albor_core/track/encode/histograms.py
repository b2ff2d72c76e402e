"""Numbers by bins: `{"counts": [...], "edges": [...]}`, one more edge than counts."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from itertools import islice, pairwise
from typing import Any

import orjson

from albor_core.run.values.metrics import as_number
from albor_core.track.encode.arrays import as_array, is_array
from albor_core.track.encode.medium import Medium, RefusedError

_MAX_BINS = 4096
_MAX_LISTED = 1 << 22


def histogram_of(value: Any, bins: int, edges: Any) -> Medium:
    """Raises RefusedError."""
    if type(bins) is not int or not 0 < bins <= _MAX_BINS:
        raise RefusedError("media_unreadable", f"{bins!r} bins: 1 to {_MAX_BINS:,} are possible")
    if edges is not None:
        return counted_already(_listed(value), _listed(edges))
    if is_array(value):
        return _of_array(as_array(value), bins)
    return _of_list(_listed(value), bins)


def counted_already(counts: Sequence[float], edges: Sequence[float]) -> Medium:
    """A histogram that the user computed. Raises RefusedError."""
    if not counts or len(edges) != len(counts) + 1 or len(counts) > _MAX_BINS:
        raise RefusedError(
            "media_unreadable", f"{len(counts)} counts and {len(edges)} edges are not a histogram"
        )
    if not all(map(math.isfinite, (*counts, *edges))) or min(counts) < 0:
        raise RefusedError("media_not_finite", "a count or an edge that is not a number from 0 on")
    if any(right < left for left, right in pairwise(edges)):
        raise RefusedError("media_unreadable", "edges that are not in order")
    return _medium(counts, edges, sum(counts), 0)


def _listed(value: Any) -> list[float]:
    """The numbers of a flat list or array. Raises RefusedError."""
    try:
        items = (
            as_array(value).ravel().tolist()
            if is_array(value)
            else list(islice(value, _MAX_LISTED + 1))  # it may never end
        )
    except TypeError as error:
        raise RefusedError(
            "media_unreadable", f"{type(value).__name__!r} holds no numbers"
        ) from error
    if len(items) > _MAX_LISTED:
        raise RefusedError(
            "media_too_large", f"more than {_MAX_LISTED:,} numbers that are not an array"
        )
    found = [as_number(item) for item in items]
    if any(number is None for number in found):
        raise RefusedError("media_unreadable", "something among them is not a number")
    return [float(number) for number in found if number is not None]


def _of_list(values: list[float], bins: int) -> Medium:
    finite = [value for value in values if math.isfinite(value)]
    low, high = _range(min(finite, default=None), max(finite, default=None))
    width = (high - low) / bins
    counts = [0] * bins
    for value in finite:
        counts[min(int((value - low) / width), bins - 1)] += 1
    edges = [low + width * place for place in range(bins)] + [high]
    return _medium(counts, edges, len(finite), len(values) - len(finite))


def _of_array(array: Any, bins: int) -> Medium:
    numpy = sys.modules["numpy"]
    flat = array.ravel()
    if flat.dtype.kind == "b":
        flat = flat.astype(numpy.uint8)
    size = flat.size
    if flat.dtype.kind == "f":
        is_finite = numpy.isfinite(flat)
        if not is_finite.all():
            flat = flat[is_finite]
    some = flat.size > 0
    low, high = _range(float(flat.min()) if some else None, float(flat.max()) if some else None)
    if flat.dtype.kind == "f" and flat.dtype.itemsize < 4:
        flat = flat.astype(numpy.float32)  # half precision has no room for edges
    counts, edges = numpy.histogram(flat, bins=bins, range=(low, high))
    return _medium(counts.tolist(), edges.tolist(), flat.size, size - flat.size)


def _range(low: float | None, high: float | None) -> tuple[float, float]:
    if low is None or high is None:
        raise RefusedError("media_not_finite", "it holds no finite number")
    if not math.isfinite(high - low):
        raise RefusedError("media_unreadable", f"from {low:g} to {high:g} is too wide")
    if high - low < max(abs(low), abs(high), 1e-300) * 1e-9:  # one value: a bin around it
        room = max(abs(low) * 0.5, 0.5)
        return low - room, high + room
    return low, high


def _medium(
    counts: Sequence[float], edges: Sequence[float], total: float, nonfinite: int
) -> Medium:
    data = {
        "counts": [int(count) if float(count).is_integer() else count for count in counts],
        "edges": [float(f"{edge:.9g}") for edge in edges],
    }
    meta = {"bins": len(counts), "count": int(total), "nonfinite": nonfinite}
    return Medium("json", orjson.dumps(data), meta, inline=data)
