"""Hashes the words of many texts to 64-bit numbers, by array arithmetic instead of a loop over
words.

A number is a polynomial over the bytes of a word modulo 2^64, each byte replaced by a random number
first, then mixed. Differences of one running sum give every word of a block at once. Two different
words have the same number with a chance of about 2^-64.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.uint64]

GAP, WORD, SYMBOL = 0, 1, 2  # what a byte is
_BLOCK_BYTES = 1 << 16  # its running sums stay in the cache
_LONG_WORD = 1 << 12  # bytes; a longer one may count as two
_MASK = (1 << 64) - 1
_BASE = 0x9E3779B97F4A7C13  # 3 modulo 8: few low bits are lost where two bytes change places


def random_numbers(seed: int, count: int) -> list[int]:
    """`count` random numbers of 64 bits, always the same for a seed (splitmix64: Steele, Lea and
    Flood 2014)."""
    made = []
    for _ in range(count):
        seed = (seed + 0x9E3779B97F4A7C15) & _MASK
        z = seed
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        made.append(z ^ (z >> 31))
    return made


def mix(numbers: Numbers) -> Numbers:
    """Mix numbers in place so that every bit depends on all others."""
    numbers ^= numbers >> np.uint64(30)
    numbers *= np.uint64(0xBF58476D1CE4E5B9)
    numbers ^= numbers >> np.uint64(27)
    numbers *= np.uint64(0x94D049BB133111EB)
    numbers ^= numbers >> np.uint64(31)
    return numbers


def _powers(base: int, count: int) -> Numbers:
    made = np.full(count, base, np.uint64)
    made[0] = 1
    return np.cumprod(made, dtype=np.uint64)


_LETTERS = np.array(random_numbers(1, 256), np.uint64)
_POWERS = _powers(_BASE, _BLOCK_BYTES)
_INVERSES = _powers(pow(_BASE, -1, 1 << 64), _BLOCK_BYTES)


@dataclass(frozen=True)
class ByteKinds:
    """The kinds of bytes that form words. Bytes above 127 (all bytes of non-ASCII letters) do.

    `symbols`: every other visible character is a word by itself; otherwise it separates words.
    `lower`: ASCII capitals count as small letters.
    """

    symbols: bool
    lower: bool

    def table(self) -> tuple[NDArray[np.uint8], Numbers]:
        """(256,) the kind of each byte, and its random number."""
        kinds = np.full(256, SYMBOL if self.symbols else GAP, np.uint8)
        letters = _LETTERS.copy()
        for byte in range(256):
            if byte <= 32 or byte == 127:
                kinds[byte] = GAP
            elif byte > 127 or chr(byte).isalnum() or byte == ord("_"):
                kinds[byte] = WORD
            if self.lower and chr(byte) in "ABCDEFGHIJKLMNOPQRSTUVWXYZ":
                letters[byte] = _LETTERS[byte + 32]
        return kinds, letters


@dataclass(frozen=True)
class HashedWords:
    """The hashed words of several texts, one after the other."""

    numbers: Numbers
    bounds: NDArray[np.int64]
    """(texts + 1,) where each text's words begin."""


def hash_words(texts: Sequence[bytes], kinds: ByteKinds) -> HashedWords:
    """Hash the words of each text in order."""
    table, letters = kinds.table()
    joined = np.frombuffer(b"\n".join(texts), np.uint8)  # a gap: no word spans two texts
    begins = np.fromiter(
        accumulate((len(text) + 1 for text in texts), initial=0), np.int64, len(texts) + 1
    )
    numbers, places = [], []
    for first, last in _blocks(joined, table):
        made, starts = _block(joined[first:last], table, letters)
        numbers.append(made)
        places.append(starts + first)
    if not numbers:
        return HashedWords(np.zeros(0, np.uint64), np.zeros(len(texts) + 1, np.int64))
    bounds = np.searchsorted(np.concatenate(places), begins)
    return HashedWords(np.concatenate(numbers), bounds.astype(np.int64))


def _blocks(joined: NDArray[np.uint8], table: NDArray[np.uint8]) -> Iterator[tuple[int, int]]:
    """Ranges of blocks, which begin at a byte outside words, or, for words longer than
    `_LONG_WORD`, within one."""
    first = 0
    while first < len(joined):
        last = min(first + _BLOCK_BYTES, len(joined))
        if last < len(joined):
            tail = last - _LONG_WORD
            others = np.flatnonzero(table[joined[tail:last]] != WORD)
            last = tail + int(others[-1]) if len(others) else last
        yield first, last
        first = last


def _block(
    data: NDArray[np.uint8], table: NDArray[np.uint8], letters: Numbers
) -> tuple[Numbers, NDArray[np.int64]]:
    kind = table[data]
    word = np.zeros(len(data) + 2, bool)
    np.equal(kind, WORD, out=word[1:-1])
    alone = kind == SYMBOL
    starts = np.flatnonzero(alone | (word[1:-1] & ~word[:-2]))
    ends = np.flatnonzero(alone | (word[1:-1] & ~word[2:])) + 1
    sums = np.zeros(len(data) + 1, np.uint64)
    values = letters[data]
    values *= _POWERS[: len(data)]
    np.cumsum(values, out=sums[1:])
    made = sums[ends]
    made -= sums[starts]
    made *= _INVERSES[starts]
    made += (ends - starts).astype(np.uint64)
    return mix(made), starts


def runs_of(words: HashedWords, length: int, *, keep_short: bool) -> HashedWords:
    """Every run of `length` consecutive words of each text as one number. With `keep_short` a text
    with fewer words, but at least one, is a single run of all of them.
    """
    count, texts = len(words.numbers), len(words.bounds) - 1
    sizes = np.diff(words.bounds)
    factors = np.array(random_numbers(2, length), np.uint64) | np.uint64(1)
    whole = max(0, count - length + 1)
    made = np.zeros(whole, np.uint64)
    for place in range(length):
        made += words.numbers[place : place + whole] * factors[place]
    owners = np.repeat(np.arange(texts), sizes)
    inside = owners[:whole] == owners[length - 1 :]
    made, owners = mix(made[inside]), owners[:whole][inside]
    short_ones = (sizes > 0) & (sizes < length) & keep_short
    few = np.flatnonzero(short_ones)
    if len(few):
        short = np.zeros(len(few), np.uint64)
        for place in range(length - 1):
            there = place < sizes[few]
            at = np.where(there, words.bounds[few] + place, 0)
            short += np.where(there, words.numbers[at] * factors[place], np.uint64(0))
        short += sizes[few].astype(np.uint64)
        places = np.searchsorted(owners, few)
        made = np.insert(made, places, mix(short))
    per_text = np.where(sizes >= length, sizes - length + 1, short_ones.astype(np.int64))
    return HashedWords(made, np.concatenate(([0], np.cumsum(per_text))).astype(np.int64))
