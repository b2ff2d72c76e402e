"""A split whose documents are joined in another order in each epoch, and cut into rows again.

Documents are taken from all rows of the split joined: one that crosses the edge of a row is whole
again. The order of the D documents is a function of seed and epoch, and row r of an epoch is tokens
r T to (r + 1) T of the joined documents, so any row is found by itself, every token is in exactly
one row of an epoch, and a resumed run reads the same rows. The last document of the split, if
packing cut it off before its end, is last in each epoch: otherwise the next document would appear
to be its continuation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from albor_core.data.load.order import SORTED_UP_TO
from albor_core.data.load.packed_shards import PackedShards
from albor_core.data.load.permutation import scattered, sorted_draws, stream_of

_KEPT = 2
"""Epochs: a batch of a mixture, and one that is read ahead, reach over the end of one."""
_APART = 1 << 61
"""From the stream by which a mixture draws the rows of the same split."""


@dataclass(frozen=True)
class _Joined:
    """One epoch: the position of each document."""

    order: NDArray[np.int64]
    """(D,) documents."""
    begins: NDArray[np.int64]
    """(D + 1,) token of the epoch at which each of them begins, and the end."""


class ShuffledDocuments:
    """Rows of T tokens of a split, by row and epoch; the first epoch is shuffled like any other."""

    def __init__(self, shards: PackedShards, seed: int) -> None:
        """Reads all tokens once; takes 16 bytes per document, and 16 for each of two epochs.
        `shards` have boundaries, and rows whose length `seq_len` divides.
        """
        self._shards, self._seed = shards, seed
        self._starts = shards.document_starts()
        self._lengths = np.diff(self._starts, append=len(shards) * shards.seq_len)
        self._moved = len(self._starts) - shards.is_cut_off()
        self._stream = stream_of(shards.manifest.data_hash) | _APART
        self._kept: dict[int, _Joined] = {}

    def batch(self, rows: NDArray[np.int64], epochs: NDArray[np.int64]) -> NDArray[np.int64]:
        """(B, T) ids of these rows, each of its epoch."""
        length = self._shards.seq_len
        found = np.empty((len(rows), length), np.int64)
        for epoch in np.unique(epochs):
            here = epochs == epoch
            places = self._places(self._joined(int(epoch)), rows[here] * length, length)
            found[here] = self._shards.tokens(places).reshape(-1, length)
        return found

    def _places(self, joined: _Joined, first: NDArray[np.int64], length: int) -> NDArray[np.int64]:
        """(B T,) positions in the split of the `length` tokens of the epoch from `first` on."""
        begin = np.searchsorted(joined.begins, first, side="right") - 1
        end = np.searchsorted(joined.begins, first + length, side="left")
        pieces = end - begin
        row = np.repeat(np.arange(len(first)), pieces)
        at = np.arange(len(row)) - np.repeat(np.cumsum(pieces) - pieces - begin, pieces)
        low = np.maximum(joined.begins[at], first[row])
        high = np.minimum(joined.begins[at + 1], first[row] + length)
        sizes = high - low
        source = self._starts[joined.order[at]] + low - joined.begins[at]
        shift = source - (np.cumsum(sizes) - sizes)
        return np.repeat(shift, sizes) + np.arange(int(sizes.sum()))

    def _joined(self, epoch: int) -> _Joined:
        found = self._kept.get(epoch)
        if found is None:
            size = self._moved
            if size <= SORTED_UP_TO:
                order = sorted_draws(self._seed, epoch, size, self._stream)
            else:
                order = scattered(np.arange(size), size, self._seed, epoch, self._stream)
            order = np.append(order, np.arange(size, len(self._starts)))
            found = _Joined(order, np.concatenate(([0], np.cumsum(self._lengths[order]))))
            kept = dict(list(self._kept.items())[1 - _KEPT :])
            self._kept = kept | {epoch: found}  # whole: another thread may read it
        return found
