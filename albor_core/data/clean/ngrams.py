"""Finds runs of n consecutive words that texts have in common.

Words are letters, digits and underscores of any script, in lower case; whatever stands between them
does not count. A text with fewer than n words has no run. Runs are compared as 64-bit numbers, made
of a million bytes at a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from albor_core.data.clean.hashed_words import ByteKinds, HashedWords, Numbers, hash_words, runs_of
from albor_core.run.errors import AlborError

MOST_RUNS = 32_000_000  # of all items; 57 bytes each while they are sorted (measured at 18 million)
_WORD = re.compile(r"\w+")
_KINDS = ByteKinds(symbols=False, lower=True)
_TOGETHER = 1 << 20  # characters
_T = TypeVar("_T")
_SIEVE_BITS_PER_RUN = 16
_LEAST_SIEVE, _MOST_SIEVE = 10, 26  # powers of two


def words_in(text: str) -> Iterator[re.Match[str]]:
    """The words of a text that is already in lower case."""
    return _WORD.finditer(text)


def runs_in(texts: Sequence[str], n: int) -> HashedWords:
    """Every run of each text in order, with repetitions."""
    return runs_of(hash_words([_plain(text) for text in texts], _KINDS), n, keep_short=False)


def _plain(text: str) -> bytes:
    """The text in bytes with the same words, where bytes above 127 belong only to words."""
    if text.isascii():
        return text.encode()
    return " ".join(match[0] for match in words_in(text.lower())).encode()


def strings_in(value: object) -> Iterator[str]:
    """All strings in a JSON value, in order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from strings_in(one)
    elif isinstance(value, list):
        for one in value:
            yield from strings_in(one)


def in_parts(items: Iterable[_T], text: Callable[[_T], str]) -> Iterator[list[_T]]:
    """The items in order, in groups whose texts are short together."""
    part: list[_T] = []
    size = 0
    for item in items:
        part.append(item)
        size += len(text(item)) + 1
        if size >= _TOGETHER:
            yield part
            part, size = [], 0
    if part:
        yield part


@dataclass(frozen=True)
class ItemRuns:
    """The runs of many items, to be searched in other texts."""

    n: int
    names: tuple[str, ...]
    sizes: NDArray[np.int64]
    """(items,) different runs of each."""
    runs: Numbers
    """All different runs, ascending."""
    _starts: NDArray[np.int64]
    _owners: NDArray[np.int32]
    _sieve: NDArray[np.bool_]
    """Whether there may be a run with such upper bits: few runs of other texts pass."""

    @classmethod
    def of(
        cls,
        items: Iterable[tuple[str, str]],
        n: int,
        *,
        most: int = MOST_RUNS,
        refusal: Callable[[int], AlborError],
    ) -> ItemRuns:
        """The runs of `items`: name and text. Raises `refusal(most)` if they have more runs than
        that."""
        names: list[str] = []
        sets: list[Numbers] = []
        total = 0
        for several in in_parts(items, lambda item: item[1]):
            found = runs_in([text for _, text in several], n)
            names.extend(name for name, _ in several)
            for begin, end in zip(found.bounds[:-1], found.bounds[1:], strict=True):
                sets.append(np.unique(found.numbers[begin:end]))
                total += len(sets[-1])
            if total > most:
                raise refusal(most)
        sizes = np.array([len(one) for one in sets], np.int64)
        every = np.concatenate(sets) if sets else np.zeros(0, np.uint64)
        order = np.argsort(every, kind="stable")  # owners of a run stay in the order of the items
        owners = np.repeat(np.arange(len(sets), dtype=np.int32), sizes)[order]
        runs, starts = np.unique(every[order], return_index=True)
        bits = max(_LEAST_SIEVE, (_SIEVE_BITS_PER_RUN * len(runs)).bit_length())
        sieve = np.zeros(1 << min(bits, _MOST_SIEVE), bool)
        sieve[runs >> _shift(sieve)] = True
        return cls(n, tuple(names), sizes, runs, np.append(starts, len(every)), owners, sieve)

    def found_in(self, found: HashedWords) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """For each text of `runs_in`: which of the items' runs it holds, by their index in `runs`,
        and at which of its own runs, in order and with repetitions.
        """
        place = np.flatnonzero(self._sieve[found.numbers >> _shift(self._sieve)])
        near = np.minimum(np.searchsorted(self.runs, found.numbers[place]), len(self.runs) - 1)
        if len(self.runs):
            hit = self.runs[near] == found.numbers[place]
            place, near = place[hit], near[hit]
        cuts = np.searchsorted(place, found.bounds)
        return [
            (near[a:b], place[a:b] - begin)
            for a, b, begin in zip(cuts[:-1], cuts[1:], found.bounds[:-1], strict=True)
        ]

    def owners(self, run: int) -> list[int]:
        """The items that have the run with this index in `runs`, in their order."""
        owners: list[int] = self._owners[self._starts[run] : self._starts[run + 1]].tolist()
        return owners

    def owned(self, seen: NDArray[np.bool_]) -> list[int]:
        """For each item, how many of its runs are marked in `seen` (len(runs),)."""
        counted = np.repeat(seen, np.diff(self._starts))
        found: list[int] = np.bincount(self._owners[counted], minlength=len(self.names)).tolist()
        return found


def in_order(runs: NDArray[np.int64]) -> list[int]:
    """The distinct runs, in order of first occurrence."""
    _, first = np.unique(runs, return_index=True)
    ordered: list[int] = runs[np.sort(first)].tolist()
    return ordered


def _shift(sieve: NDArray[Any]) -> np.uint64:
    return np.uint64(64 - (len(sieve).bit_length() - 1))
