"""Finds documents that are similar to a kept one: candidates by their bands, compared exactly.

In corpus order each remaining document is compared with the kept documents of its buckets, those
that share most bands first; it is removed if one is similar enough, else it is kept itself. So
every removed document has a kept one of at least the requested similarity: there are no chains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from albor_core.data.clean.exact import share_of
from albor_core.data.clean.hashed_words import Numbers
from albor_core.data.clean.minhash import jaccards

MOST_COMPARED = 200
"""Kept documents that one is compared with, so that time grows no faster than a corpus. Of 3,000
texts of one template, 0.7 alike, with 123 that are 0.9 like another, 50 are enough to find all."""
_READ_TOGETHER = 1 << 16  # documents
_CACHED, _MOST_CACHED = 1 << 12, 1 << 12  # sets, and shingles of each: 128 MiB at most

Documents = NDArray[np.int64]
Slots = NDArray[np.int32]


def slots_of(
    units: Sequence[int],
    read: Callable[[int], tuple[Numbers, NDArray[np.bool_]]],
    *,
    shares: int,
) -> tuple[Slots, int]:
    """For one band: the offset of each document's bucket, -1 if it is alone in it, and the total
    size of all buckets. `read`: a unit's keys, and which of them count.
    """
    slots = np.full(sum(units), -1, np.int32)
    room = 0
    for share in range(shares):
        chosen, kept = [], []
        begin = 0
        for number, size in enumerate(units):
            keys, counts = read(number)
            rows = np.flatnonzero(counts & (share_of(keys, shares) == share))
            chosen.append(keys[rows])
            kept.append(rows + begin)
            begin += size
        keys, documents = np.concatenate(chosen), np.concatenate(kept)
        order = np.argsort(keys, kind="stable")
        keys, documents = keys[order], documents[order]
        same = keys[1:] == keys[:-1]
        shared = np.zeros(len(keys), bool)
        shared[1:] |= same
        shared[:-1] |= same
        keys, documents = keys[shared], documents[shared]
        fresh = np.ones(len(keys), bool)
        fresh[1:] = keys[1:] != keys[:-1]
        heads = np.maximum.accumulate(np.where(fresh, np.arange(len(keys)), 0))
        slots[documents] = heads + room
        room += len(keys)
    return slots, room


@dataclass
class Verdicts:
    """`kept_as`: for each document the kept one that it is similar to, -1 if it is kept itself."""

    kept_as: Documents
    compared: int = 0
    """Pairs."""
    cut: int = 0
    """Documents that have more candidates than were compared."""


@dataclass
class Decider:
    """Decides on documents in corpus order. `sets`: the shingles of a candidate, ascending, by its
    number."""

    threshold: float
    sets: Callable[[int], Numbers]
    size: Callable[[Documents], Documents]
    """How many shingles candidates have."""
    given: int = 0
    """The first so many documents are those of other corpora: they are kept, and compared with
    before any other.
    """
    _rooms: Documents = field(init=False)
    _used: NDArray[np.int32] = field(init=False)
    _kept: NDArray[np.int32] = field(init=False)

    def decide(
        self,
        slots: Sequence[Slots],
        rooms: Sequence[int],
        done: Callable[[int], None] | None = None,
    ) -> Verdicts:
        """`slots` and `rooms` of each band, as `slots_of` makes them. `done` is called with the
        number of documents decided.
        """
        self._rooms = np.concatenate(([0], np.cumsum(rooms)[:-1])).astype(np.int64)
        self._used = np.zeros(sum(rooms), np.int32)  # kept documents in each bucket, at its begin
        self._kept = np.zeros(sum(rooms), np.int32)
        documents = len(slots[0])
        verdicts = Verdicts(np.full(documents, -1, np.int64))
        for begin in range(0, documents, _READ_TOGETHER):
            for document, buckets in self._buckets(slots, begin):
                if document >= self.given:
                    found = self._similar(document, buckets, verdicts)
                    if found is not None:
                        verdicts.kept_as[document] = found
                        continue
                used = self._used[buckets]
                self._kept[buckets + used] = document
                self._used[buckets] = used + 1
            if done is not None:
                done(min(begin + _READ_TOGETHER, documents))
        return verdicts

    def _buckets(self, slots: Sequence[Slots], begin: int) -> Iterator[tuple[int, Documents]]:
        """The documents that share a bucket, with where their buckets begin."""
        several = np.stack([one[begin : begin + _READ_TOGETHER] for one in slots], axis=1)
        shared = several >= 0
        places = several + self._rooms
        for row in np.flatnonzero(shared.any(axis=1)):
            yield begin + int(row), places[row][shared[row]]

    def _similar(self, document: int, buckets: Documents, verdicts: Verdicts) -> int | None:
        used = self._used[buckets]
        if not used.any():
            return None
        several = [
            self._kept[b : b + n] for b, n in zip(buckets.tolist(), used.tolist(), strict=True) if n
        ]
        found, shared = np.unique(np.concatenate(several), return_counts=True)
        order = np.lexsort((found, -shared, found >= self.given))
        others = found[order].astype(np.int64)
        sizes = np.append(self.size(others), self.size(np.array([document])))
        # |A and B| <= min, |A or B| >= max: the quotient bounds the similarity
        bound = np.minimum(sizes[:-1], sizes[-1]) / np.maximum(sizes[:-1], sizes[-1])
        others = others[bound >= self.threshold]
        if len(others) > MOST_COMPARED:
            verdicts.cut += 1
            others = others[:MOST_COMPARED]
        if not len(others):
            return None
        ours = self.sets(document)
        first, together = 0, 1  # most often the first is it; where it is not, there are many
        while first < len(others):
            several = others[first : first + together].tolist()
            verdicts.compared += len(several)
            similar = jaccards(ours, [self.sets(one) for one in several]) >= self.threshold
            if similar.any():
                return int(several[int(similar.argmax())])
            first, together = first + together, 8 * together
        return None


def cached(sets: Callable[[int], Numbers]) -> Callable[[int], Numbers]:
    """`sets` with a cache of small ones that were used recently: the same document is compared with
    all that are similar to it.
    """

    @lru_cache(maxsize=_CACHED)
    def small(document: int) -> Numbers | None:
        found = sets(document)
        return found if len(found) <= _MOST_CACHED else None

    def read(document: int) -> Numbers:
        found = small(document)
        return sets(document) if found is None else found

    return read
