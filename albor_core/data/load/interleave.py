"""Assigns each number of a mixture to a source, so evenly that after any n numbers a source of
weight w has got w n of them, with an error below one.

The weights are converted to whole numbers without a common divisor; after their sum the pattern
repeats, so any number is looked up in a table of one period. The pattern is a schedule by earliest
deadline, which keeps all sources within 1 - 1 / (2k - 2) at once (Tijdeman 1980, "The chairman
assignment problem"); rounding each by itself would not.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

LONGEST_PERIOD = 1 << 16


@dataclass(frozen=True)
class Interleaving:
    """The sources of the numbers 0, 1, 2, ..., for whole weights."""

    shares: tuple[int, ...]
    """Numbers of each source in a period."""
    source: NDArray[np.int32]
    """(period,)"""
    earlier: NDArray[np.int64]
    """(period,) numbers of the same source before it in the period."""

    @property
    def period(self) -> int:
        return len(self.source)

    def draws(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """For each number, its source and the count of earlier numbers of that source."""
        periods, within = np.divmod(numbers, self.period)
        source = self.source[within]
        return source, periods * np.array(self.shares, np.int64)[source] + self.earlier[within]

    def drawn(self, number: int) -> tuple[int, ...]:
        """For each source, how many of the numbers below `number` it got."""
        periods, within = divmod(number, self.period)
        begun = np.bincount(self.source[:within], minlength=len(self.shares))
        return tuple(
            periods * share + int(more) for share, more in zip(self.shares, begun, strict=True)
        )


@lru_cache(maxsize=64)
def interleaving(weights: tuple[float, ...]) -> Interleaving:
    """Make the interleaving of the sources' weights, of which at least one is above zero."""
    shares = whole_shares(weights)
    source = np.array(_schedule(shares), np.int32)
    earlier = np.empty(len(source), np.int64)
    for one in np.flatnonzero(shares):
        mine = np.flatnonzero(source == one)
        earlier[mine] = np.arange(len(mine))
    return Interleaving(shares, source, earlier)


def whole_shares(weights: Sequence[float]) -> tuple[int, ...]:
    """The weights as the smallest whole numbers in the same ratio. If their sum exceeds
    LONGEST_PERIOD, the nearest ones whose sum does not: off by at most one in LONGEST_PERIOD.
    """
    exact = [Fraction(repr(float(weight))) for weight in weights]  # as written: 0.1 is 1/10
    total = sum(exact)
    parts = [one / total for one in exact]
    period = math.lcm(*(part.denominator for part in parts))
    if period <= LONGEST_PERIOD:
        return tuple(int(part * period) for part in parts)
    whole = [max(int(part * LONGEST_PERIOD), int(part > 0)) for part in parts]
    by_rest = sorted(range(len(parts)), key=lambda i: whole[i] - parts[i] * LONGEST_PERIOD)
    missing = LONGEST_PERIOD - sum(whole)
    for i in by_rest[: max(0, missing)]:
        whole[i] += 1
    common = math.gcd(*whole)
    return tuple(one // common for one in whole)


def _schedule(shares: Sequence[int]) -> list[int]:
    """The source of each number of a period. The j-th number of a source (from 0) may come once it
    is due by 1 / (2k - 2), and must come before it is overdue by one less that.
    """
    period, sources = sum(shares), [i for i, share in enumerate(shares) if share]
    if len(sources) == 1:
        return [sources[0]] * period
    parts = 2 * len(sources) - 2
    coming: list[list[tuple[int, int]]] = [[] for _ in range(period + 1)]
    for one in sources:
        scale = parts * shares[one]
        for j in range(shares[one]):
            first = -(-(parts * j + 1) * period // scale)
            last = (parts * (j + 1) - 1) * period // scale + 1
            coming[max(1, first)].append((last, one))
    order, waiting = [], list[tuple[int, int]]()
    for number in range(1, period + 1):
        for item in coming[number]:
            heapq.heappush(waiting, item)
        last, one = heapq.heappop(waiting)
        assert last >= number, "no number is late (Tijdeman)"
        order.append(one)
    return order
