"""How long documents are: a histogram by powers of two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

_SLOTS = 64  # a length is below 2^63


class LengthHistogram:
    """Documents by length: slot 0 holds the empty ones, slot k those of 2^(k-1) to 2^k - 1."""

    def __init__(self) -> None:
        self._counts: NDArray[np.int64] = np.zeros(_SLOTS, np.int64)

    def add(self, lengths: ArrayLike) -> None:
        """Count documents of these lengths, none negative."""
        found = np.asarray(lengths, np.int64)
        # frexp is exact to 2^53, far above the length of any document.
        _, exponents = np.frexp(found.astype(np.float64))
        self._counts += np.bincount(exponents, minlength=_SLOTS)

    def add_counts(self, document: Mapping[str, Any]) -> None:
        """Add what another wrote with `to_json`. Raises KeyError or ValueError for another form."""
        counts = [int(count) for count in document["counts"]]
        if list(document["edges"]) != _edges(len(counts)):
            raise ValueError("edges are not the powers of two")
        self._counts[: len(counts)] += counts

    def to_json(self, unit: str) -> dict[str, Any]:
        """counts[i] documents are of `edges[i]` to `edges[i + 1]` - 1 `unit`; no slot is left out
        up to the longest document.
        """
        used = int(self._counts.nonzero()[0].max(initial=0)) + 1
        return {"unit": unit, "edges": _edges(used), "counts": self._counts[:used].tolist()}


def _edges(slots: int) -> list[int]:
    return [0, *(1 << power for power in range(slots))]
