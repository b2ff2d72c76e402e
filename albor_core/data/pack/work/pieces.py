"""Which stretch of which document comes where in the rows of a shard.

A shard holds a stretch of its split's stream: whole rows of ids, in which documents begin at known
places. `concat` cuts that at every row. `best_fit` lays the same ids out otherwise, so that
documents stay whole (Ding et al. 2024, arXiv:2404.10830): each id is there once, and no row is
padded. What is left of a document that was cut ends with its end of text, and what is cut off from
it ends a row, so that ends of text and ends of rows are the ends of all pieces.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from albor_core.config.choices import PackingName

CONCAT: PackingName = "concat"

Ints = NDArray[np.int64]


class Stretch(NamedTuple):
    """Whole rows of a stream of documents."""

    starts: Ints
    """Where documents begin, ascending, from 0; the first may come later, where the stretch begins
    within a document."""
    size: int
    behind: int
    """Ids of its last document that come after it."""


class Pieces(NamedTuple):
    """The pieces of documents that fill the rows, one after the other."""

    begins: Ints
    """(P,) of the first id of each, in the stretch."""
    lengths: Ints
    """(P,)"""

    def order(self, ids: NDArray[Any]) -> NDArray[Any]:
        """The ids of the stretch as the rows hold them."""
        found, at = np.empty_like(ids), 0
        for begin, length in zip(self.begins.tolist(), self.lengths.tolist(), strict=True):
            found[at : at + length] = ids[begin : begin + length]
            at += length
        return found


@dataclass(frozen=True)
class Wholeness:
    """How whole documents are in rows."""

    cut_documents: int = 0
    """Of those that begin in the rows, not whole in one."""
    long_documents: int = 0
    """Of these, longer than a row."""
    rows_from_start: int = 0
    """Rows that begin where a document does."""

    def __add__(self, other: Wholeness) -> Wholeness:
        return Wholeness(
            self.cut_documents + other.cut_documents,
            self.long_documents + other.long_documents,
            self.rows_from_start + other.rows_from_start,
        )


def wholeness(stretch: Stretch, pieces: Pieces, seq_len: int) -> Wholeness:
    spans = np.diff(np.append(stretch.starts, stretch.size))
    spans[-1:] += stretch.behind
    of_start = np.isin(pieces.begins, stretch.starts)
    held = pieces.lengths[of_start][np.argsort(pieces.begins[of_start])]
    at = pieces.lengths.cumsum() - pieces.lengths
    return Wholeness(
        int(np.count_nonzero(held != spans)),
        int(np.count_nonzero(spans > seq_len)),
        int(np.count_nonzero(of_start & (at % seq_len == 0))),
    )


def concat(stretch: Stretch, seq_len: int) -> Pieces:
    """Pieces in the order of the stream, cut at the end of every row."""
    rows = np.arange(0, stretch.size, seq_len)
    begins = np.union1d(stretch.starts, rows)
    return Pieces(begins, np.diff(np.append(begins, stretch.size)))


def best_fit(stretch: Stretch, seq_len: int) -> Pieces:
    """Documents whole where they can be.

    1. A document longer than a row fills rows of its own; what remains of it is a rest.
    2. Documents and rests are placed by decreasing length, each into the row with the least room
       that holds it, else into a new row.
    3. As many rows as the ids fill are kept, the fullest; what lies in the others fills these, most
       room first: the longest piece that fits, else the first part of the shortest that does not,
       whose rest is placed later.
    4. In a row what begins a document comes first, and what has no end of text last; rows are in
       the order of their earliest id.
    """
    begins = np.union1d(stretch.starts, [0]).astype(np.int64)
    lengths = np.diff(np.append(begins, stretch.size))
    full = lengths // seq_len
    rests = np.flatnonzero(lengths % seq_len)
    rest_begins = (begins + full * seq_len)[rests]
    is_open = stretch.behind > 0 and len(lengths) - 1 in rests[-1:]
    rows = _rows_of_rests(rest_begins, (lengths % seq_len)[rests], seq_len, is_open=is_open)
    within = np.arange(full.sum()) - np.repeat(full.cumsum() - full, full)
    for begin in (np.repeat(begins, full) + within * seq_len).tolist():
        rows.append([(begin, seq_len)])
    rows.sort(key=min)
    documents = set(stretch.starts.tolist())
    ends = set((begins + lengths).tolist())
    if is_open:
        ends.discard(stretch.size)
    flat = []
    for row in rows:
        row.sort(key=lambda one: (sum(one) not in ends, one[0] not in documents, one[0]))
        flat += row
    found = np.array(flat, np.int64).reshape(-1, 2)
    return Pieces(found[:, 0], found[:, 1])


PACKINGS: dict[PackingName, Callable[[Stretch, int], Pieces]] = {
    "concat": concat,
    "best-fit": best_fit,
}


Row = list[tuple[int, int]]
"""Begin and length of its pieces."""


def _rows_of_rests(begins: Ints, lengths: Ints, seq_len: int, *, is_open: bool) -> list[Row]:
    """`is_open`: the last piece has no end of text."""
    pieces = list(zip(begins.tolist(), lengths.tolist(), strict=True))
    rows: list[Row] = []
    rooms = _Shelf()
    for number in np.argsort(-lengths, kind="stable").tolist():
        length = pieces[number][1]
        found = rooms.least(length)
        if found is None:
            found = seq_len, len(rows)
            rows.append([])
        room, row = found
        rows[row].append(pieces[number])
        rooms.put(room - length, row)
    return _filled(rows, int(lengths.sum()) // seq_len, pieces[-1] if is_open else None, seq_len)


def _filled(
    rows: list[Row], count: int, open_end: tuple[int, int] | None, seq_len: int
) -> list[Row]:
    """`count` rows without any room, of all pieces. The row with `open_end` is filled last: what is
    left then fills it as it is, and nothing has to be cut to end where `open_end` does.
    """
    rooms = {number: seq_len - sum(n for _, n in row) for number, row in enumerate(rows)}
    ascending = sorted(rooms, key=lambda n: (open_end not in rows[n], rooms[n]))
    kept, pool = ascending[:count], _Shelf()
    for number in ascending[count:]:
        for begin, length in rows[number]:
            pool.put(length, begin)
    for number in reversed(kept):
        room = rooms[number]
        while room:
            length, begin = pool.most(room) or _first_part(pool, room)
            rows[number].append((begin, length))
            room -= length
    return [rows[number] for number in kept]


def _first_part(pool: _Shelf, length: int) -> tuple[int, int]:
    """`length` and begin of the first part of the shortest piece that is longer."""
    found = pool.least(length)
    assert found is not None, "as much is left as there is room"
    whole, begin = found
    pool.put(whole - length, begin + length)
    return length, begin


class _Shelf:
    """Things by their size; which sizes there are is a bit each of one integer, so that the next
    size is found among some thousands at once. Of one size, the last put comes first.
    """

    def __init__(self) -> None:
        self._things: dict[int, list[int]] = {}
        self._sizes = 0

    def put(self, size: int, thing: int) -> None:
        """Nothing is kept of size 0."""
        if size:
            self._things.setdefault(size, []).append(thing)
            self._sizes |= 1 << size

    def least(self, size: int) -> tuple[int, int] | None:
        """The smallest thing of at least `size`, taken out."""
        above = self._sizes >> size
        return self._take(size + (above & -above).bit_length() - 1) if above else None

    def most(self, size: int) -> tuple[int, int] | None:
        """The largest thing of at most `size`, taken out."""
        below = self._sizes & ((2 << size) - 1)
        return self._take(below.bit_length() - 1) if below else None

    def _take(self, size: int) -> tuple[int, int]:
        things = self._things[size]
        thing = things.pop()
        if not things:
            del self._things[size]
            self._sizes ^= 1 << size
        return size, thing
