"""The order of rows of several weighted sources: maps a number of the clock to a source and one of
its rows.

interleave.py chooses the source of a number; the k-th draw of a source of N rows is position k mod
N of its epoch k / N. A mixture may change at any number: by its stages, or because a run is resumed
with other weights or sources. Each source then continues at its own position, since the number of
its earlier draws is computed, and a checkpoint stores it from the last change on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from albor_core.data.load.interleave import Interleaving, interleaving
from albor_core.data.load.order import RowBlocks, steps_per_epoch
from albor_core.data.load.permutation import scattered, sorted_draws, stream_of

_SORTED_BELOW = 1 << 16
"""Rows of a source whose order is made by sorting: a network over few numbers mixes them badly."""


@dataclass(frozen=True)
class DrawnSource:
    """The facts of a source that a mixture needs."""

    name: str
    data_hash: str
    """By which a resumed run knows it again, wherever it lies and whatever it is called."""
    rows: int


Stages = tuple[tuple[int, Mapping[str, float]], ...]
"""(number from which it holds, weight of each source by data_hash), ascending from 0."""


class _Stretch(NamedTuple):
    """Numbers from `first` on that use one set of weights."""

    first: int
    pattern: Interleaving
    hashes: tuple[str, ...]
    drawn: Mapping[str, int]
    """What each source had given at `first`."""

    def drawn_at(self, number: int) -> dict[str, int]:
        here = self.pattern.drawn(number - self.first)
        more = dict(zip(self.hashes, here, strict=True))
        return {**self.drawn, **{one: self.drawn.get(one, 0) + n for one, n in more.items()}}


class MixtureOrder:
    """Rows are numbered through all sources, and on in each epoch of their source: row r of the
    source that begins at b is e * N + b + r in epoch e, N all rows of all sources.

    Batches cross the ends of epochs, since sources end theirs anywhere.
    """

    def __init__(self, seed: int, sources: Sequence[DrawnSource], stages: Stages) -> None:
        self.seed = seed
        self.sources = tuple(sources)
        self.num_sequences = sum(one.rows for one in sources)
        self.stages = stages
        self.changed_at: int | None = None
        """The number from which a resumed run draws from another mixture than before."""
        self._is_resumed = False
        self._begins = np.cumsum([0, *(one.rows for one in sources)])
        self._index = {one.data_hash: i for i, one in enumerate(sources)}
        self._from, self._given = 0, dict[str, int]()
        self._blocks = RowBlocks()
        self._stretches = _stretches(stages, 0, {})

    def steps_per_epoch(self, batch_size: int, grad_accum: int, *, world: int = 1) -> int:
        """The number of steps that all rows would fill. Raises ConfigError if they do not fill
        one."""
        return steps_per_epoch(self.num_sequences, batch_size, grad_accum, world)

    def part(
        self, start: int, micro: int, batch_size: int, *, rank: int = 0, world: int = 1
    ) -> NDArray[np.int64]:
        """(B,) rows of a micro-batch of the global batch that begins with number `start`."""
        first = start + (micro * world + rank) * batch_size
        return self._blocks.take(
            lambda begin, end: self.rows(np.arange(begin, end)), first, batch_size
        )

    def rows(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) the rows of these numbers, which ascend."""
        firsts = [stretch.first for stretch in self._stretches]
        at = np.searchsorted(firsts, numbers, side="right") - 1
        found = np.full(len(numbers), -1)  # before the first stretch: of another mixture
        for index in np.unique(at[at >= 0]):
            here = at == index
            found[here] = self._rows_in(self._stretches[index], numbers[here])
        return found

    def _rows_in(self, stretch: _Stretch, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        source, draws = stretch.pattern.draws(numbers - stretch.first)
        found = np.empty(len(numbers), np.int64)
        for one in np.unique(source):
            name, here = stretch.hashes[one], source == one
            found[here] = self._rows_of(name, draws[here] + stretch.drawn.get(name, 0))
        return found

    def _rows_of(self, data_hash: str, draws: NDArray[np.int64]) -> NDArray[np.int64]:
        index = self._index[data_hash]
        size, begin = self.sources[index].rows, int(self._begins[index])
        epochs, positions = np.divmod(draws, size)
        found, stream = np.empty(len(draws), np.int64), stream_of(data_hash)
        for epoch in np.unique(epochs):
            here = epochs == epoch
            rows = _placed(positions[here], size, self.seed, int(epoch), stream)
            found[here] = int(epoch) * self.num_sequences + begin + rows
        return found

    def drawn_at(self, number: int) -> dict[str, int]:
        """For each source, by its data_hash, the number of draws before `number`."""
        return _drawn_at(self._stretches, number)

    def seen(self, cursor: int) -> dict[str, int]:
        """For each source, by its name, the number of sequences before `cursor`."""
        drawn = self.drawn_at(cursor)
        return {one.name: drawn.get(one.data_hash, 0) for one in self.sources}

    def to_json(self, cursor: int) -> dict[str, Any]:
        stages = [[first, dict(weights)] for first, weights in self.stages]
        mixture = {"from": self._from, "drawn": self._given, "stages": stages}
        return {"seed": self.seed, "cursor": cursor, "kind": "mixture", "mixture": mixture}

    def resume(self, saved: Mapping[str, Any], cursor: int) -> None:
        """Continue at `cursor`; a mixture that differs from the saved one applies from there on.
        Called once: a rollback returns to older weights, but never to data that were read
        before.
        """
        if self._is_resumed:
            return
        self._is_resumed = True
        told = saved.get("mixture")
        if told is None:
            begin, given, is_same = cursor, dict[str, int](), False
        else:
            stages = tuple((int(first), dict(weights)) for first, weights in told["stages"])
            begin, given = int(told["from"]), dict(told["drawn"])
            at = int(saved["cursor"])
            is_same = stages == tuple((f, dict(w)) for f, w in self.stages) and at == cursor
            if not is_same:
                given = _drawn_at(_stretches(stages, begin, given), at)
                if at and at != cursor:  # sequences of another length: their tokens were as many
                    given = {one: number * cursor // at for one, number in given.items()}
                begin = cursor
        self._from, self._given, self._blocks = begin, given, RowBlocks()
        self._stretches = _stretches(self.stages, begin, given)
        self.changed_at = None if is_same else cursor


@lru_cache(maxsize=16)
def _sorted(size: int, seed: int, epoch: int, stream: int) -> NDArray[np.int64]:
    return sorted_draws(seed, epoch, size, stream)


def _placed(
    positions: NDArray[np.int64], size: int, seed: int, epoch: int, stream: int
) -> NDArray[np.int64]:
    if size < _SORTED_BELOW:
        return _sorted(size, seed, epoch, stream)[positions]
    return scattered(positions, size, seed, epoch, stream)


def _stretches(stages: Stages, begin: int, given: Mapping[str, int]) -> list[_Stretch]:
    """Stretches from number `begin` on, before which each source had made the draws of `given`."""
    current = max(0, bisect_right([first for first, _ in stages], begin) - 1)
    found: list[_Stretch] = []
    for first, weights in stages[current:]:
        start = max(first, begin)
        drawn = found[-1].drawn_at(start) if found else dict(given)
        hashes = tuple(weights)
        pattern = interleaving(tuple(weights.values()))
        found.append(_Stretch(start, pattern, hashes, drawn))
    return found


def _drawn_at(stretches: list[_Stretch], number: int) -> dict[str, int]:
    index = max(0, bisect_right([one.first for one in stretches], number) - 1)
    return stretches[index].drawn_at(max(number, stretches[0].first))
