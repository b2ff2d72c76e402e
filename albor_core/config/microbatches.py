"""How ranks share a global batch: which micro-batches each of them computes.

A step trains on `data.batch_size` x `training.gradient_accumulation` sequences on any number of
ranks: ranks take micro-batches from one another first, and where those do not go round, sequences
of each. So a config means the same steps on one device and on four, and a run may go on with
another number of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

MAX_RANKS = 1024
MAX_RANKS_HERE = 64  # started on one machine, without torchrun or srun


@dataclass(frozen=True)
class RankShare:
    """The share of one of `world_size` equal ranks in every step."""

    world_size: int
    batch_size: int
    """Sequences of its micro-batch."""
    accumulation: int
    """Its micro-batches."""

    @property
    def sequences_per_step(self) -> int:
        """Sequences per step of all ranks together."""
        return self.world_size * self.batch_size * self.accumulation


def share_of(batch_size: int, accumulation: int, world_size: int) -> RankShare | None:
    """The share of each rank; None if `world_size` does not divide the global batch."""
    fewer = math.gcd(accumulation, world_size)
    smaller, rest = divmod(batch_size, world_size // fewer)
    return None if rest else RankShare(world_size, smaller, accumulation // fewer)


def world_sizes(batch_size: int, accumulation: int, limit: int) -> tuple[int, ...]:
    """How many ranks, up to `limit`, could share this global batch."""
    return tuple(n for n in range(1, limit + 1) if share_of(batch_size, accumulation, n))
