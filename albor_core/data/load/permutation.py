"""Permutations of N numbers for each (seed, epoch, stream), the same on every machine and in every
version.

`sorted_draws` sorts random draws: N log N time, and 24 bytes per number while it works. `scattered`
is a keyed Feistel network that repeats until the result is below N: any position by itself, without
memory, so that a source of billions of sequences costs nothing to open. The network has enough
rounds that neighbours, epochs and seeds have no visible relation (Luby and Rackoff 1988; cycle
walking: Black and Rogaway 2002); nothing here is secret.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_ROUNDS = 8
_WORD = 2**64 - 1
_NETWORK = 1  # apart from the draws that are sorted, whose counter begins at 0


def sorted_draws(seed: int, epoch: int, size: int, stream: int = 0) -> NDArray[np.int64]:
    """(size,) every number below `size` once."""
    # NumPy keeps the raw stream of a bit generator across versions, but not the algorithm of
    # Generator.permutation (NEP 19); sorting raw draws keeps resumed runs on their path.
    draws = _generator(seed, epoch, stream, 0).random_raw(size)
    return np.argsort(draws, kind="stable").astype(np.int64)


def scattered(
    positions: NDArray[np.int64], size: int, seed: int, epoch: int, stream: int = 0
) -> NDArray[np.int64]:
    """(n,) the numbers at these positions, all from 0 to `size` - 1, of a permutation of `size`."""
    bits = max(2, (size - 1).bit_length())
    keys = _generator(seed, epoch, stream, _NETWORK).random_raw(_ROUNDS)
    found = _network(positions.astype(np.uint64), bits, keys)
    while (outside := np.flatnonzero(found >= np.uint64(size))).size:
        found[outside] = _network(found[outside], bits, keys)
    return found.astype(np.int64)


def stream_of(data_hash: str) -> int:
    """The stream number of a source's own permutations."""
    return int(data_hash[:15], 16) | 1 << 60


def _generator(seed: int, epoch: int, stream: int, part: int) -> np.random.Philox:
    key = np.array([seed & _WORD, epoch], np.uint64)
    if not (stream or part):
        return np.random.Philox(key=key)
    counter = np.array([0, 0, stream & _WORD, part], np.uint64)
    return np.random.Philox(key=key, counter=counter)


def _network(numbers: NDArray[np.uint64], bits: int, keys: NDArray[np.uint64]) -> NDArray[Any]:
    """A permutation of the numbers of `bits` bits: each round adds a hash of one half to the other,
    an invertible operation.
    """
    low_bits = np.uint64(bits // 2)
    low_mask = np.uint64((1 << (bits // 2)) - 1)
    high_mask = np.uint64((1 << (bits - bits // 2)) - 1)
    low, high = numbers & low_mask, numbers >> low_bits
    for turn, key in enumerate(keys):
        if turn % 2:
            high = high ^ (mixed(low + key) & high_mask)
        else:
            low = low ^ (mixed(high + key) & low_mask)
    return (high << low_bits) | low


def mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Each number hashed to 64 bits (the finalizer of SplitMix64, Steele, Lea and Flood 2014);
    never changes.
    """
    found = numbers + np.uint64(0x9E3779B97F4A7C15)
    found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return found ^ (found >> np.uint64(31))
