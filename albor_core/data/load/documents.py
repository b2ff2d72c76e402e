"""Finds the documents of packed rows by the token that separates them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from albor_core.data.pack.manifest import Manifest


@dataclass(frozen=True)
class Boundaries:
    """The separator of documents: the token that ends each, or the one that begins it. A row may
    begin and end within a document.
    """

    end: int | None
    begin: int | None

    def firsts(self, ids: NDArray[Any]) -> NDArray[np.bool_]:
        """(B, T) whether a document begins there; the beginning of a row does not count."""
        found = np.zeros(ids.shape, bool)
        if self.end is not None:
            found[:, 1:] = ids[:, :-1] == self.end
        else:
            found[:, 1:] = ids[:, 1:] == self.begin
        return found

    def numbers(self, ids: NDArray[Any]) -> NDArray[np.int32]:
        """(B, T) the number of the document in its row, from 0, one more at each first token of a
        document."""
        numbers: NDArray[np.int32] = self.firsts(ids).cumsum(axis=1, dtype=np.int32)
        return numbers

    def inner(self, ids: NDArray[Any]) -> NDArray[np.int64]:
        """(B,) documents that begin inside each row."""
        found: NDArray[np.int64] = self.firsts(ids).sum(axis=1, dtype=np.int64)
        return found


def boundaries_of(manifest: Manifest) -> Boundaries | None:
    """The separator of a manifest; None if documents cannot be told apart."""
    end, begin = manifest.eos_token_id, manifest.bos_token_id
    return None if end is None and begin is None else Boundaries(end, begin)
