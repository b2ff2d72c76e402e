"""Fill-in-the-middle while training: documents of a row cut in three and put together again so that
the middle comes last (Bavarian et al. 2022, arXiv:2207.14255).

    psm    PREFIX before SUFFIX after MIDDLE middle end
    spm    PREFIX SUFFIX after MIDDLE before middle end

Each row is processed by itself: the part of a document in it is cut at places that depend on the
row's number, epoch included, and the seed. So the same document is another task in each epoch, and
a resumed run has the same ones. Each cut document adds three sentinels, and the row keeps its
length: the tokens that they push out at its end are dropped before the cut, so that no middle is
lost. A document that already holds a sentinel stays as it is, and so does one that is too short.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from albor_core.data.load.permutation import mixed

LEAST = 4
"""Tokens of a document in a row below which it is not cut."""
_MARKS = 3
_STREAM = 0xF1  # apart from whatever else is drawn by the seed


class SentinelIds(NamedTuple):
    prefix: int
    suffix: int
    middle: int


class Laid(NamedTuple):
    """The layout of the D documents of B rows, in order."""

    row: NDArray[np.int64]
    """(D,)"""
    begin: NDArray[np.int64]
    """(D,) of its first id, in all ids of the batch."""
    span: NDArray[np.int64]
    """(D,) its ids before anything is left out, the end included."""
    place: NDArray[np.int64]
    """(D,) of its first id in the new row; at least T where it is left out."""
    kept: NDArray[np.int64]
    """(D,) its ids that are kept, without the end."""
    ends: NDArray[np.bool_]
    """(D,) whether its end is kept."""
    is_cut: NDArray[np.bool_]
    """(D,)"""
    draws: NDArray[np.uint64]
    """(D,) by which it is cut."""


@dataclass(frozen=True)
class RowCutter:
    """Cuts documents in rows of token ids for filling in the middle. `end`: the token that ends
    each document."""

    rate: float
    format: Literal["psm", "spm"]
    marks: SentinelIds
    end: int
    seed: int

    def lay(self, ids: NDArray[np.int64], numbers: NDArray[np.int64]) -> Laid:
        """Lay out rows (B, T) with the numbers (B,): which documents are cut, and the position of
        each."""
        length = ids.shape[1]
        is_end = ids == self.end
        first = np.empty(ids.shape, bool)
        first[:, 0], first[:, 1:] = True, is_end[:, :-1]
        begin = np.flatnonzero(first)
        span = np.diff(np.append(begin, ids.size))
        row = begin // length
        ends = is_end.ravel()[begin + span - 1]
        content = span - ends
        draws = self._draws(begin, numbers, length)
        share = (draws >> np.uint64(11)) * 2.0**-53
        is_cut = (content >= LEAST) & (share < self.rate) & ~self._is_marked(ids, begin)
        while True:
            place = begin - row * length + _MARKS * _before(is_cut, row)
            room = length - place - _MARKS * is_cut
            is_bad = is_cut & (place < length) & (room < np.minimum(content, LEAST))
            if not is_bad.any():
                break
            is_cut = is_cut & ~is_bad
        is_in = place < length
        kept = np.where(is_in, np.minimum(content, room), 0)
        return Laid(
            row,
            begin,
            span,
            place,
            kept,
            ends & is_in & (content < room),
            is_cut & is_in,
            draws,
        )

    def _draws(
        self, begin: NDArray[np.int64], numbers: NDArray[np.int64], length: int
    ) -> NDArray[np.uint64]:
        """(D,) a random number for each document, from the seed, its row and its position in it."""
        seed = mixed(np.array([self.seed & (2**64 - 1), _STREAM], np.uint64))
        rows = mixed(mixed(numbers.astype(np.uint64) + seed[0]) + seed[1])
        return mixed(rows[begin // length] + (begin % length).astype(np.uint64))

    def _is_marked(self, ids: NDArray[np.int64], begin: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(D,) whether a document holds a sentinel."""
        found = (ids == self.marks[0]) | (ids == self.marks[1]) | (ids == self.marks[2])
        marked = np.flatnonzero(found)
        held = np.zeros(len(begin), bool)
        held[np.searchsorted(begin, marked, side="right") - 1] = True
        return held

    def apply(self, ids: NDArray[np.int64], laid: Laid) -> NDArray[np.int64]:
        """(B, T) the rows as they are trained on."""
        kept, base = laid.kept, ids.size
        low, high = _cuts(laid.draws, kept)
        low = np.where(laid.is_cut, low, kept)
        high = np.where(laid.is_cut, high, kept)
        mark = laid.is_cut.astype(np.int64)
        begin = laid.begin
        before, after, middle = (begin, low), (begin + high, kept - high), (begin + low, high - low)
        prefix, suffix, center = ((np.full_like(begin, base + i), mark) for i in range(_MARKS))
        end = (begin + laid.span - 1, laid.ends.astype(np.int64))
        if self.format == "psm":
            parts = (prefix, before, suffix, after, center, middle, end)
        else:
            parts = (prefix, suffix, after, center, before, middle, end)
        starts = np.stack([start for start, _ in parts], axis=1).ravel()
        lengths = np.stack([length for _, length in parts], axis=1).ravel()
        there = np.flatnonzero(lengths)
        starts, lengths = starts[there], lengths[there]
        begins = np.cumsum(lengths) - lengths
        source = np.repeat(starts - begins, lengths)
        source += np.arange(len(source))
        found: NDArray[np.int64] = np.append(ids.ravel(), self.marks)[source]
        return found.reshape(ids.shape)

    def inner(self, laid: Laid, rows: int, length: int) -> NDArray[np.int64]:
        """(rows,) documents that begin inside each row, as it is trained on."""
        there = laid.place < length
        return np.bincount(laid.row[there], minlength=rows) - 1


def _before(is_cut: NDArray[np.bool_], row: NDArray[np.int64]) -> NDArray[np.int64]:
    """(D,) the number of cut documents before it in the same row."""
    before: NDArray[np.int64] = np.cumsum(is_cut) - is_cut
    first = np.searchsorted(row, np.arange(row[-1] + 1))
    return before - before[first][row]


def _cuts(draws: NDArray[np.uint64], kept: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Two uniformly distributed cut positions of each document, in order."""
    choices = (kept + 1).astype(np.uint64)
    both = [(mixed(draws + np.uint64(i)) % choices).astype(np.int64) for i in (1, 2)]
    return np.minimum(*both), np.maximum(*both)
