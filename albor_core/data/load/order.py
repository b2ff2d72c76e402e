"""Decides which rows each micro-batch holds: a pure function of the seed and a number of the clock.

Sequence number n of a run (config/clock.py) is a row of a source; `Order` says which. There is no
iterator: a resumed run needs only its number, whatever its ranks and batches are now, so resuming
twice, or at the edge of an epoch, can neither lose nor repeat a sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from albor_core.data.load.permutation import scattered, sorted_draws
from albor_core.run.errors import ConfigError

SORTED_UP_TO = 1 << 22
"""Sequences whose order is made by sorting, at 24 bytes each; of more, no order is ever held."""


class Order(Protocol):
    """The interface of an order, as the loop uses it."""

    @property
    def seed(self) -> int: ...
    @property
    def num_sequences(self) -> int:
        """Sequences per epoch."""

    @property
    def changed_at(self) -> int | None:
        """The number from which a resumed run draws from another mixture than before."""

    def steps_per_epoch(self, batch_size: int, grad_accum: int, *, world: int = 1) -> int:
        """Steps per epoch. Raises ConfigError if the data does not fill one."""

    def part(
        self, start: int, micro: int, batch_size: int, *, rank: int = 0, world: int = 1
    ) -> NDArray[np.int64]:
        """(B,) rows of a micro-batch of the global batch that begins with number `start`."""

    def resume(self, saved: Mapping[str, Any], cursor: int) -> None:
        """Continue at `cursor`, with the state of a checkpoint's `to_json`."""

    def to_json(self, cursor: int) -> dict[str, Any]:
        """The state for a checkpoint; `cursor`: the next number."""

    def seen(self, cursor: int) -> dict[str, int]:
        """Sequences of each named source before `cursor`; empty without named sources."""


class RowBlocks:
    """A cache of rows made block by block: in each step every rank asks for the rows of all ranks,
    one micro-batch at a time.
    """

    SIZE = 4096
    KEPT = 16

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int], NDArray[np.int64]] = {}

    def take(
        self, make: Callable[[int, int], NDArray[np.int64]], first: int, count: int, epoch: int = 0
    ) -> NDArray[np.int64]:
        """Up to `count` rows from `first` on; `make(begin, end)` makes those of an epoch."""
        blocks = range(first // self.SIZE, (first + max(1, count) - 1) // self.SIZE + 1)
        found = [self._block(make, block, epoch) for block in blocks]
        offset = first - blocks[0] * self.SIZE
        return np.concatenate(found)[offset : offset + count]

    def _block(
        self, make: Callable[[int, int], NDArray[np.int64]], block: int, epoch: int
    ) -> NDArray[np.int64]:
        if (block, epoch) not in self._kept:
            if len(self._kept) >= self.KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[block, epoch] = make(block * self.SIZE, (block + 1) * self.SIZE)
        return self._kept[block, epoch]


class SequenceOrder:
    """One permutation of all sequences per (seed, epoch).

    Epochs are whole: of the N sequences of an epoch's permutation the last, incomplete global batch
    (batch_size x grad_accum x world) is left out, and others the next time.

    Up to SORTED_UP_TO sequences the permutation is the same as in every earlier version; for more
    it is one that takes no memory. Runs from before that permutation existed keep their own.
    """

    def __init__(
        self, seed: int, num_sequences: int, *, shuffle: bool = True, tells_epochs: bool = False
    ) -> None:
        """`tells_epochs`: rows of epoch e are numbered from e * N on, for sources whose rows differ
        in each epoch.
        """
        if num_sequences < 1:
            raise ConfigError(f"num_sequences {num_sequences}: nothing to order")
        self.seed = seed
        self.num_sequences = num_sequences
        self.shuffle = shuffle
        self.changed_at: int | None = None
        self.is_sorted = num_sequences <= SORTED_UP_TO
        self._tells_epochs = tells_epochs
        self._cached: tuple[int, NDArray[np.int64]] | None = None
        self._blocks = RowBlocks()

    def permutation(self, epoch: int) -> NDArray[np.int64]:
        """(N,) every sequence once, in the order of this epoch. Costs O(N log N); the last one is
        cached."""
        if self._cached is None or self._cached[0] != epoch:
            self._cached = (epoch, self._make(epoch))
        return self._cached[1]

    def _make(self, epoch: int) -> NDArray[np.int64]:
        every = np.arange(self.num_sequences)
        if not self.shuffle:
            return every
        if self.is_sorted:
            return sorted_draws(self.seed, epoch, self.num_sequences)
        return scattered(every, self.num_sequences, self.seed, epoch)

    def steps_per_epoch(self, batch_size: int, grad_accum: int, *, world: int = 1) -> int:
        """floor(N / global batch). Raises ConfigError if the data does not fill one step."""
        return steps_per_epoch(self.num_sequences, batch_size, grad_accum, world)

    def indices(
        self,
        step: int,
        micro: int,
        batch_size: int,
        grad_accum: int,
        *,
        rank: int = 0,
        world: int = 1,
    ) -> NDArray[np.int64]:
        """(B,) sequences of micro-batch `micro` of step `step` (both from 0) on process `rank`.

        A step's global batch is the same set for every split of it into micro-batches and ranks.
        """
        epoch, within = divmod(step, self.steps_per_epoch(batch_size, grad_accum, world=world))
        start = epoch * self.num_sequences + within * grad_accum * world * batch_size
        return self.part(start, micro, batch_size, rank=rank, world=world)

    def part(
        self, start: int, micro: int, batch_size: int, *, rank: int = 0, world: int = 1
    ) -> NDArray[np.int64]:
        """The same for the global batch that begins with sequence `start` (config/clock.py)."""
        epoch, within = divmod(start, self.num_sequences)
        first = within + (micro * world + rank) * batch_size
        if self.is_sorted or not self.shuffle:
            rows = self.permutation(epoch)[first : first + batch_size]
        else:

            def make(begin: int, end: int) -> NDArray[np.int64]:
                positions = np.arange(begin, min(end, self.num_sequences))
                return scattered(positions, self.num_sequences, self.seed, epoch)

            rows = self._blocks.take(make, first, batch_size, epoch)
        return rows + epoch * self.num_sequences if self._tells_epochs else rows

    def resume(self, saved: Mapping[str, Any], cursor: int) -> None:
        kind = saved.get("kind", "sorted")  # older checkpoints know no other
        if kind != "mixture":  # of which none of these rows has an order yet
            self.is_sorted = kind == "sorted"
        self._cached = None

    def to_json(self, cursor: int) -> dict[str, Any]:
        kind = "sorted" if self.is_sorted else "scattered"
        return {"seed": self.seed, "cursor": cursor, "kind": kind}

    def seen(self, cursor: int) -> dict[str, int]:
        return {}


def steps_per_epoch(num_sequences: int, batch_size: int, grad_accum: int, world: int = 1) -> int:
    """floor(N / global batch). Raises ConfigError if the data does not fill one step."""
    steps = num_sequences // (batch_size * grad_accum * world)
    if steps == 0:
        raise ConfigError(
            f"{num_sequences} sequences do not fill one step of {batch_size} x "
            f"{grad_accum} x {world} (batch_size x gradient_accumulation x processes)",
            hint="lower data.batch_size or training.gradient_accumulation, or add data",
        )
    return steps


def val_rows(
    num_rows: int, batch_size: int, max_batches: int | None = None
) -> Iterator[NDArray[np.int64]]:
    """The rows (B,) of at most `max_batches` batches in stored order; the last may be smaller.

    Always the same sequences, so that validation losses can be compared. A subset is spread evenly
    over the whole split: its first rows alone are a few neighbouring files and not typical (0.2
    nats off on the standard library).
    """
    wanted = num_rows if max_batches is None else min(num_rows, max_batches * batch_size)
    chosen = np.arange(wanted) * num_rows // max(wanted, 1)
    for start in range(0, wanted, batch_size):
        yield chosen[start : start + batch_size]
