"""One micro-batch on its device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from albor_core.kernels.ops.cross_entropy import IGNORED


@dataclass(frozen=True)
class Batch:
    """A micro-batch of B rows of T positions; other tensors of a recipe's data are in `extra`, B
    rows each."""

    ids: Tensor
    """(B, T)"""
    labels: Tensor | None = None
    """(B, T) aligned with `ids`, IGNORED where nothing is scored; None: the ids themselves."""
    document: Tensor | None = None
    """(B, T) int32, larger by one at each boundary of documents; None: a row is one document."""
    extra: Mapping[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def targets(self) -> Tensor:
        """The token ids that are scored: `labels`, or the ids themselves."""
        return self.ids if self.labels is None else self.labels

    def each(self, work: Callable[[Tensor], Tensor]) -> Batch:
        """The batch with `work` applied to each of its tensors."""

        def done(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else work(tensor)

        extra = {name: work(tensor) for name, tensor in self.extra.items()}
        return Batch(work(self.ids), done(self.labels), done(self.document), extra)

    def to(self, device: torch.device) -> Batch:
        """The batch on another device, copied without waiting."""
        return self.each(lambda tensor: tensor.to(device, non_blocking=True))

    def first(self, rows: int) -> Batch:
        return self.each(lambda tensor: tensor[:rows])

    def corner(self, rows: int, tokens: int) -> Batch:
        """The first `tokens` positions of the first `rows` rows."""
        T = self.ids.shape[1]

        def part(tensor: Tensor) -> Tensor:
            here = tensor[:rows]
            return here[:, :tokens] if here.ndim > 1 and here.shape[1] == T else here

        return self.each(part)

    def cut(self, pieces: int) -> Batch:
        """The batch with each row cut into `pieces` shorter rows."""
        return self.each(lambda tensor: tensor.reshape(len(tensor) * pieces, -1))

    def repeated(self, times: int) -> Batch:
        """The batch with its rows repeated, one copy after the other."""
        return self.each(lambda tensor: torch.cat([tensor] * times))

    def scoring_first(self, rows: int) -> Batch:
        """The batch with labels, of which only those of the first `rows` rows are scored."""
        labels = self.targets.clone()
        labels[rows:] = IGNORED
        return Batch(self.ids, labels, self.document, self.extra)
