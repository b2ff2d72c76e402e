"""Finds equal texts by 128 bits of BLAKE3, so that different texts are never taken for equal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from albor_core.data.clean.hashed_words import Numbers

SORTED_TOGETHER = 4 << 20  # entries of a sort in memory: about 200 MB


def digests_of(texts: Sequence[bytes], *, normalize: bool) -> Numbers:
    """The digests of texts, (texts, 2). `normalize`: ASCII white space counts as one blank, and is
    ignored at both ends of a text.
    """
    made = b"".join(
        blake3(b" ".join(text.split()) if normalize else text).digest(16) for text in texts
    )
    return np.frombuffer(made, np.uint64).reshape(-1, 2)


def shares_of(documents: int) -> int:
    """The number of shares into which the 64-bit keys of so many documents are divided, a power of
    two."""
    shares = 1
    while documents > shares * SORTED_TOGETHER:
        shares *= 2
    return shares


def share_of(keys: Numbers, shares: int) -> NDArray[np.int64]:
    """The share of each key, by its upper bits."""
    return ((keys >> np.uint64(40)) & np.uint64(shares - 1)).astype(np.int64)


def first_equals(
    units: Sequence[int], read: Callable[[int], Numbers], *, shares: int
) -> NDArray[np.int64]:
    """For each document the number of the first with an equal digest, usually itself.

    `units`: documents in each; `read`: a unit's digests. Memory: 8 bytes per document and one share
    of the digests, which are all read once per share.
    """
    first = np.arange(sum(units), dtype=np.int64)
    for share in range(shares):
        chosen, kept = [], []
        begin = 0
        for number, size in enumerate(units):
            digests = read(number)
            rows = np.flatnonzero(share_of(digests[:, 0], shares) == share)
            chosen.append(digests[rows])
            kept.append(rows + begin)
            begin += size
        keys, documents = np.concatenate(chosen), np.concatenate(kept)
        order = np.lexsort((keys[:, 1], keys[:, 0]))  # stable: equal ones stay in order
        keys, documents = keys[order], documents[order]
        fresh = np.ones(len(keys), bool)
        fresh[1:] = (keys[1:] != keys[:-1]).any(axis=1)
        heads = np.maximum.accumulate(np.where(fresh, np.arange(len(keys)), 0))
        first[documents] = documents[heads]
    return first
