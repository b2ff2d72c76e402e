"""Which keys a query sees: all up to its own, a window of them, or those of its document."""

from __future__ import annotations

import torch
from torch import Tensor

from albor_core.config.shape import ModelShape


def seen_by_layers(
    shape: ModelShape, T: int, device: torch.device, document: Tensor | None = None
) -> list[Tensor | None]:
    """For each layer (T, T), or of documents (B, 1, T, T), whether a query (row) sees a key; None:
    all up to it.
    """
    window = shape.window(T)
    slid = None if window is None else seen_from(torch.arange(T, device=device), T, window)
    layers = range(shape.num_hidden_layers)
    if document is None:
        return [slid if shape.slides(i) else None for i in layers]
    of_kinds = {kind: seen_within(document, slid if kind else None) for kind in kinds_of(shape)}
    return [of_kinds[shape.slides(i)] for i in layers]


def kinds_of(shape: ModelShape) -> set[bool]:
    """Whether layers slide: both, where some do."""
    return {shape.slides(i) for i in range(shape.num_hidden_layers)}


def seen_from(positions: Tensor, reach: int, window: int | None = None) -> Tensor:
    """(N, reach) whether queries at `positions` (N,) see a key: their own and the `window` - 1
    before it, or all before it.
    """
    behind = positions[:, None] - torch.arange(reach, device=positions.device)
    return (behind >= 0) & (behind < (window or reach))


def seen_within(document: Tensor, seen: Tensor | None) -> Tensor:
    """(B, 1, T, T) whether a query sees a key: of those up to it that are `seen` (T, T; None: all),
    the ones of its own document; `document` (B, T) is equal within one. Positions go on from one
    to the next: rotations encode distances alone, and those within a document do not depend on
    where in the row it lies.
    """
    T = document.shape[1]
    same = document[:, None, :, None] == document[:, None, None, :]
    if seen is None:
        seen = seen_from(torch.arange(T, device=document.device), T)
    return same & seen
