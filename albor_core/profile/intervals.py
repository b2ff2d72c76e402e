"""Set operations on time spans: union, intersection, gaps. Pure; times in microseconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Span = tuple[float, float]
"""From, to."""


def union(spans: Iterable[Span]) -> list[Span]:
    """The same time as ordered spans that do not overlap."""
    merged: list[list[float]] = []
    for begin, end in sorted(spans):
        if end <= begin:
            continue
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    return [(begin, end) for begin, end in merged]


def total(spans: Iterable[Span]) -> float:
    """The total length of spans that do not overlap."""
    return sum(end - begin for begin, end in spans)


def within(spans: Iterable[Span], window: Span) -> list[Span]:
    """The parts of the spans in `window`."""
    low, high = window
    return [(max(a, low), min(b, high)) for a, b in spans if min(b, high) > max(a, low)]


def gaps(merged: Sequence[Span], window: Span) -> list[Span]:
    """The parts of `window` in none of the spans, which do not overlap and are in order."""
    found, at = [], window[0]
    for begin, end in within(merged, window):
        if begin > at:
            found.append((at, begin))
        at = max(at, end)
    if window[1] > at:
        found.append((at, window[1]))
    return found


def shared(one: Sequence[Span], other: Sequence[Span]) -> list[Span]:
    """The intersection of two lists of ordered spans, each without overlaps."""
    found, i, j = [], 0, 0
    while i < len(one) and j < len(other):
        begin, end = max(one[i][0], other[j][0]), min(one[i][1], other[j][1])
        if end > begin:
            found.append((begin, end))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return found


def without(one: Sequence[Span], other: Sequence[Span]) -> list[Span]:
    """The time of `one` that is not in `other`; both ordered and without overlaps."""
    found: list[Span] = []
    at = 0
    for begin, end in one:
        while at < len(other) and other[at][1] <= begin:
            at += 1
        place, now = at, begin
        while place < len(other) and other[place][0] < end:
            if other[place][0] > now:
                found.append((now, other[place][0]))
            now = max(now, other[place][1])
            place += 1
        if end > now:
            found.append((now, end))
    return found


def self_times(spans: Sequence[Span]) -> list[float]:
    """The own time of each nested span of one thread: that in no span inside it, in the given
    order."""
    own = [end - begin for begin, end in spans]
    open_: list[int] = []
    for at in sorted(range(len(spans)), key=lambda i: (spans[i][0], -spans[i][1])):
        begin, end = spans[at]
        while open_ and spans[open_[-1]][1] <= begin:
            open_.pop()
        if open_:  # a clock that is not exact may let one end a little behind its parent
            parent = spans[open_[-1]]
            own[open_[-1]] -= min(end, parent[1]) - begin
        open_.append(at)
    return [max(0.0, time) for time in own]
