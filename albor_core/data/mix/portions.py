"""Computes how much of each corpus a mix uses: whole copies, and a part of one more.

Without a size a weight is a number of copies: of D documents, round(weight x D) in all. With a
size, in documents or bytes, the weights are shares of it. All arithmetic is exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from albor_core.run.errors import DataError

Edge = tuple[int, int]


@dataclass(frozen=True)
class Size:
    """The total size of a mix."""

    amount: int
    unit: str = "documents"
    """documents, or bytes of text."""


@dataclass(frozen=True)
class Portion:
    """The portion of one corpus: each document `copies` times, and `rest` of them once more."""

    copies: int
    rest: int

    def documents(self, there: int) -> int:
        """The number of documents in the mix, of a corpus of so many."""
        return self.copies * there + self.rest


def apportion(total: int, weights: Sequence[Fraction]) -> list[int]:
    """Split `total` into whole numbers by weight: each is its share rounded down, and the remaining
    units go to the largest remainders, the first of equal ones first.
    """
    whole = sum(weights)
    shares = [total * weight / whole for weight in weights]
    parts = [int(share) for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda n: (parts[n] - shares[n], n))
    for index in by_remainder[: total - sum(parts)]:
        parts[index] += 1
    return parts


def portions(
    weights: Sequence[Fraction], documents: Sequence[int], size: Size | None
) -> list[Portion]:
    """The portion of each corpus in documents. A size in bytes is handled by `bytes_portion`."""
    if size is None:
        wanted = [
            int(weight * there + Fraction(1, 2))
            for weight, there in zip(weights, documents, strict=True)
        ]
    else:
        wanted = apportion(size.amount, weights)
    return [Portion(*divmod(n, there)) for n, there in zip(wanted, documents, strict=True)]


def bytes_portion(wanted: int, sizes: NDArray[np.int64], order: NDArray[np.int64]) -> Portion:
    """As many whole copies as fit into `wanted` bytes, then documents in `order`, up to the first
    that would exceed it. `sizes` in bytes, (D,). Raises DataError for a corpus without any text.
    """
    total = int(sizes.sum())
    if total == 0:
        raise DataError("a corpus of empty documents has no bytes to mix", hint="leave it out")
    copies, left = divmod(wanted, total)
    rest = int(np.searchsorted(sizes[order].cumsum(), left, side="right"))
    return Portion(copies, rest if left else 0)


def order_of(draws: NDArray[np.uint64]) -> NDArray[np.int64]:
    """(D,) the documents ordered by their draws; ties keep their order."""
    return np.argsort(draws, kind="stable")


def edge_of(draws: NDArray[np.uint64], order: NDArray[np.int64], rest: int) -> Edge:
    """(draw, row) of the first document that is not among the `rest` that are used once more."""
    if rest >= len(order):
        return (1 << 64, 0)
    return int(draws[order[rest]]), int(order[rest])
