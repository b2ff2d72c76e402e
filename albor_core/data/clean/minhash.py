"""MinHash signatures, whose agreement estimates the similarity of texts, and their bands.

Tokens   a run of letters, digits, underscores and bytes above 127, or any other visible character
         by itself; case counts, white space does not.
Shingles the set of all runs of SHINGLE_TOKENS = 5 consecutive tokens (of a text with fewer: the
         one run of all), each as a 64-bit number. Texts without a token have none.
Jaccard  shingles in both / shingles in either, exactly, from the sets of numbers.
MinHash  (Broder 1997) permutation i maps a shingle's upper 32 bits x to a_i x + b_i modulo 2^32,
         a_i odd; the least value over a text is its i-th. Two texts agree in it with a chance of
         their Jaccard similarity.
Bands    (Leskovec, Rajaraman and Ullman, Mining of Massive Datasets, 3.4) the values in bands of
         r; two texts are candidates where one band is equal: recall 1 - (1 - J^r)^b.

Of the ways to divide at most 128 permutations, that with the longest bands whose recall at the
threshold is at least 0.99 is taken. At 0.8 this is 21 bands of 6, 126 permutations:

    Jaccard   0.3    0.4    0.5    0.6    0.7    0.8    0.85   0.9    0.95
    recall    0.015  0.083  0.282  0.634  0.928  0.998  1.000  1.000  1.000

Candidates are compared exactly, so a low Jaccard costs time and removes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from albor_core.data.clean.hashed_words import (
    ByteKinds,
    HashedWords,
    Numbers,
    hash_words,
    mix,
    random_numbers,
    runs_of,
)

SHINGLE_TOKENS = 5
MOST_PERMUTATIONS = 128
LEAST_RECALL = 0.99  # at the threshold
TOKENS = ByteKinds(symbols=True, lower=False)
_TEXT_BYTES = 1 << 20  # worked on together
_BLOCK_SHINGLES = 1 << 15


@dataclass(frozen=True)
class Bands:
    """The division of a signature into bands."""

    count: int
    rows: int

    @property
    def permutations(self) -> int:
        return self.count * self.rows

    def recall(self, jaccard: float) -> float:
        """The chance that two texts of this similarity become candidates."""
        return float(1 - (1 - jaccard**self.rows) ** self.count)


def bands_for(threshold: float) -> Bands:
    """The bands that find pairs of at least this similarity."""
    for rows in range(MOST_PERMUTATIONS, 0, -1):
        bands = Bands(MOST_PERMUTATIONS // rows, rows)
        if bands.recall(threshold) >= LEAST_RECALL:
            return bands
    return Bands(MOST_PERMUTATIONS, 1)


def shingles_of(texts: Sequence[bytes]) -> HashedWords:
    """All shingles of each text in order, with repetitions."""
    return runs_of(hash_words(texts, TOKENS), SHINGLE_TOKENS, keep_short=True)


def shingle_sets(texts: Sequence[bytes]) -> list[Numbers]:
    """The set of each text's shingles, ascending."""
    sets: list[Numbers] = []
    for first, last in _parts(texts):
        found = shingles_of(texts[first:last])
        sets.extend(
            np.unique(found.numbers[a:b])
            for a, b in zip(found.bounds[:-1], found.bounds[1:], strict=True)
        )
    return sets


def jaccards(ours: Numbers, others: Sequence[Numbers]) -> NDArray[np.float64]:
    """Jaccard similarity of one ascending set with each of others; 0 if both are empty."""
    sizes = np.array([len(one) for one in others], np.int64)
    if not len(ours) or not sizes.any():
        return np.zeros(len(others))
    joined = np.concatenate(others)
    at = np.minimum(np.searchsorted(ours, joined), len(ours) - 1)
    held = np.concatenate(([0], np.cumsum(ours[at] == joined)))
    ends = np.cumsum(sizes)
    both = held[ends] - held[ends - sizes]
    shares: NDArray[np.float64] = both / (len(ours) + sizes - both)
    return shares


def band_keys(texts: Sequence[bytes], bands: Bands) -> tuple[Numbers, NDArray[np.bool_]]:
    """(bands, texts) the key of each band of each text, and which texts have a shingle at all: the
    keys of the others are meaningless.
    """
    keys = np.zeros((bands.count, len(texts)), np.uint64)
    have = np.zeros(len(texts), bool)
    for first, last in _parts(texts):
        found = shingles_of(texts[first:last])
        filled = np.flatnonzero(np.diff(found.bounds) > 0)
        have[first + filled] = True
        if len(filled):
            starts = found.bounds[filled]
            keys[:, first + filled] = _keys(_signatures(found.numbers, starts, bands), bands)
    return keys, have


def _signatures(shingles: Numbers, starts: NDArray[np.int64], bands: Bands) -> NDArray[np.uint32]:
    """The signatures, (permutations, texts); each text has a shingle."""
    seeds = np.array(random_numbers(3, 2 * bands.permutations), np.uint64)
    factors, offsets = np.split((seeds >> np.uint64(32)).astype(np.uint32), 2)
    factors |= np.uint32(1)
    values = (shingles >> np.uint64(32)).astype(np.uint32)
    ends = np.append(starts[1:], len(shingles))
    least = np.empty((bands.permutations, len(starts)), np.uint32)
    first = 0
    while first < len(starts):
        fit = int(np.searchsorted(ends, starts[first] + _BLOCK_SHINGLES, side="right"))
        last = max(first + 1, fit)
        block = values[starts[first] : ends[last - 1]]
        within = starts[first:last] - starts[first]
        room = np.empty_like(block)
        for number in range(bands.permutations):
            np.multiply(block, factors[number], out=room)
            np.add(room, offsets[number], out=room)
            np.minimum.reduceat(room, within, out=least[number, first:last])
        first = last
    return least


def _keys(signatures: NDArray[np.uint32], bands: Bands) -> Numbers:
    factors = np.array(random_numbers(4, bands.rows), np.uint64) | np.uint64(1)
    rows = signatures.reshape(bands.count, bands.rows, -1)
    keys = np.zeros((bands.count, rows.shape[2]), np.uint64)
    for number in range(bands.rows):
        keys += mix(rows[:, number].astype(np.uint64) + np.uint64(1)) * factors[number]
    return mix(keys)


def _parts(texts: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Ranges of texts of about `_TEXT_BYTES` each, so that intermediate arrays stay small."""
    first = size = 0
    for number, text in enumerate(texts, 1):
        size += len(text)
        if size >= _TEXT_BYTES or number == len(texts):
            yield first, number
            first, size = number, 0
