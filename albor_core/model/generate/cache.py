"""Keys and values of the sequences that are being written.

Shapes: L layers, S slots, C tokens, K key/value heads, E head_dim. A sequence is a slot; what lies
beyond its length is finite, and no query sees it.
"""

from __future__ import annotations

import torch

from albor_core.config.shape import ModelShape


class Cache:
    """(L, S, C, K, E) keys, turned to their positions, and values."""

    def __init__(
        self,
        shape: ModelShape,
        slots: int,
        length: int,
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        """Memory that was never written is not taken on a CPU."""
        sizes = (shape.num_hidden_layers, slots, length, shape.num_key_value_heads, shape.head_dim)
        self.keys = torch.zeros(sizes, dtype=dtype, device=device)  # 0 * NaN would be seen
        self.values = torch.zeros(sizes, dtype=dtype, device=device)

    def copy(self, source: int, to: slice, length: int) -> None:
        """The first `length` tokens of a slot to others."""
        for held in (self.keys, self.values):
            held[:, to, :length] = held[:, source : source + 1, :length]


def cache_bytes(shape: ModelShape, dtype: torch.dtype) -> int:
    """Bytes of the cache for one token of one sequence."""
    numbers = 2 * shape.num_hidden_layers * shape.key_width
    return numbers * dtype.itemsize
