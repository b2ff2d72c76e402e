"""The second half of packing: encoded units into the shards of each split.

A split is one stream of ids: its documents in the order of the corpus. Shard k holds the k-th
stretch of it, so any process can write any shard; how the ids lie in its rows is for pieces.py.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from albor_core.config.choices import PackingName
from albor_core.data.mix.split import OTHER_PART
from albor_core.data.pack.shard_writer import shard_name, write_shard
from albor_core.data.pack.work.encode import EncodedUnit
from albor_core.data.pack.work.pieces import CONCAT, PACKINGS, Stretch, wholeness
from albor_core.data.stage.counts import Counts
from albor_core.data.stage.lengths import LengthHistogram

UNUSABLE = "unusable"
"""Empty, over-long or not UTF-8."""


@dataclass
class SplitTotals:
    """The totals of a split; `tokens` with the end of each text, and with the remainder."""

    name: str
    documents: int = 0
    tokens: int = 0
    starts: list[int] = field(default_factory=lambda: [0])
    """Where each unit's ids begin in the stream, and where the last one's end."""
    sources: dict[str, Counter[str]] = field(default_factory=dict)
    """Source -> documents, bytes, tokens."""
    lengths: LengthHistogram = field(default_factory=LengthHistogram)
    """Of documents in tokens, without the end of text."""
    counts: Counts = field(default_factory=Counts)

    def add(self, unit: EncodedUnit, table: NDArray[Any], belongs: NDArray[np.bool_]) -> None:
        """Take in the documents of a unit that belong here; the others were offered, too."""
        mine = belongs & table["usable"]
        tokens = table["tokens"][mine].astype(np.int64)
        self.documents += len(tokens)
        self.tokens += int(tokens.sum())
        self.starts.append(self.tokens)
        self.lengths.add(tokens - 1)
        for name, (documents, size, ids) in _by_source(unit, table, mine).items():
            if documents:
                total = self.sources.setdefault(name, Counter())
                total.update(documents=documents, bytes=size, tokens=ids)
        self._count(unit, table, belongs)

    def add_none(self) -> None:
        """Pass over a unit of another part of a corpus that was split before: none of its
        documents was ever offered to this split.
        """
        self.starts.append(self.tokens)

    def _count(self, unit: EncodedUnit, table: NDArray[Any], belongs: NDArray[np.bool_]) -> None:
        usable = table["usable"]
        came_in = _by_source(unit, table, np.ones(len(table), np.bool_))
        kept = _by_source(unit, table, belongs & usable)
        dropped = _by_source(unit, table, belongs & ~usable)
        elsewhere = _by_source(unit, table, ~belongs)
        for name in unit.sources:
            one = self.counts.source(name)
            one.documents_in += came_in[name][0]
            one.bytes_in += came_in[name][1]
            one.documents += kept[name][0]
            one.bytes += kept[name][1]
            for reason, lost in ((UNUSABLE, dropped), (OTHER_PART, elsewhere)):
                if lost[name][0]:
                    one.dropped[reason] += lost[name][0]


def _by_source(
    unit: EncodedUnit, table: NDArray[Any], mask: NDArray[np.bool_]
) -> dict[str, tuple[int, int, int]]:
    """Documents, bytes and tokens of each source of a unit."""
    chosen = table[mask]
    many = len(unit.sources)
    sums = [np.bincount(chosen["source"], minlength=many).tolist()]
    for column in ("bytes", "tokens"):  # exact in float64: below 2^53
        sums.append(np.bincount(chosen["source"], chosen[column], many).astype(int).tolist())
    return dict(zip(unit.sources, zip(*sums, strict=True), strict=True))


@dataclass(frozen=True)
class Membership:
    """Which split each document belongs to. `largest`: bytes beyond which a document that was
    held out trains all the same; None where each part of the input is a split by itself.
    """

    largest: float | None

    def is_offered(self, unit: EncodedUnit, split: int) -> bool:
        """Whether documents of a unit can be of split number `split` at all."""
        return self.largest is not None or unit.part == split

    def belongs(self, unit: EncodedUnit, table: NDArray[Any], split: int) -> NDArray[np.bool_]:
        """(documents,) those of split number `split`, usable or not."""
        if self.largest is None:
            return np.full(len(table), unit.part == split)
        held_out: NDArray[np.bool_] = table["held_out"] & (table["bytes"] <= self.largest)
        return held_out if split else ~held_out

    def mask(self, unit: EncodedUnit, table: NDArray[Any], split: int) -> NDArray[np.bool_]:
        """(documents,) those whose ids are in split number `split`."""
        mine: NDArray[np.bool_] = self.belongs(unit, table, split) & table["usable"]
        return mine


@dataclass(frozen=True)
class ShardJob:
    """Writes a shard, by its number over all splits, into `folder`/SPLIT."""

    units: Sequence[EncodedUnit]
    membership: Membership
    names: tuple[str, ...]
    starts: tuple[tuple[int, ...], ...]
    """Of each split, `SplitTotals.starts`."""
    seq_len: int
    shard_sequences: int
    packing: PackingName
    folder: Path

    def numbers(self) -> range:
        """The numbers of all shards."""
        return range(sum(self._shards(split) for split in range(len(self.names))))

    def place(self, number: int) -> tuple[int, int]:
        """The split, and the number of a shard in it."""
        for split in range(len(self.names)):
            if number < self._shards(split):
                return split, number
            number -= self._shards(split)
        raise IndexError(number)

    def path(self, number: int) -> Path:
        split, within = self.place(number)
        return self.folder / self.names[split] / shard_name(within)

    def __call__(self, number: int) -> dict[str, Any]:
        split, within = self.place(number)
        size = self.shard_sequences * self.seq_len
        end = self.starts[split][-1] // self.seq_len * self.seq_len
        first, last = within * size, min((within + 1) * size, end)
        ids, stretch = self._stream(split, first, last), self._stretch(split, first, last)
        pieces = PACKINGS[self.packing](stretch, self.seq_len)
        if self.packing != CONCAT:
            ids = pieces.order(ids)
        shard = write_shard(self.path(number), ids, self.seq_len)
        return {
            "bytes": shard.bytes,
            "sha256": shard.sha256,
            "sequences": shard.sequences,
            "max_id": int(ids.max()),
            "wholeness": asdict(wholeness(stretch, pieces, self.seq_len)),
        }

    def _shards(self, split: int) -> int:
        return -(-(self.starts[split][-1] // self.seq_len) // self.shard_sequences)

    def _stream(self, split: int, first: int, last: int) -> NDArray[np.uint32]:
        """The ids of a split from `first` to `last`, exclusive."""
        pieces = []
        for number, start, end in self._units_of(split, first, last):
            begin = max(first - start, 0)
            pieces.append(self._piece(split, self.units[number], begin, min(last, end) - start))
        return np.concatenate(pieces).astype(np.uint32)

    def _stretch(self, split: int, first: int, last: int) -> Stretch:
        """The same without the ids."""
        starts, ends = [], []
        for number, start, _ in self._units_of(split, first, last):
            table = self.units[number].table()
            tokens = table["tokens"][self.membership.mask(self.units[number], table, split)]
            ends.append(start + tokens.astype(np.int64).cumsum())
            starts.append(ends[-1] - tokens)
        begins = np.concatenate(starts)
        behind = int(np.concatenate(ends)[begins < last][-1]) - last
        inside = begins[(begins >= first) & (begins < last)]
        return Stretch(inside - first, last - first, max(behind, 0))

    def _units_of(self, split: int, first: int, last: int) -> Iterator[tuple[int, int, int]]:
        """Number, first and last id (exclusive) of the units with ids from `first` to `last`."""
        starts = self.starts[split]
        for number in range(bisect_right(starts, first) - 1, len(self.units)):
            start, end = starts[number], starts[number + 1]
            if start >= last:
                return
            if end > max(first, start):
                yield number, start, end

    def _piece(self, split: int, unit: EncodedUnit, begin: int, end: int) -> NDArray[Any]:
        """The same of one unit, counted from its first id in that split."""
        table = unit.table()
        mine = self.membership.mask(unit, table, split)
        tokens = table["tokens"].astype(np.int64)
        ends, own = tokens.cumsum(), np.flatnonzero(mine)
        own_ends = tokens[own].cumsum()
        one, other = np.searchsorted(own_ends, begin, "right"), np.searchsorted(own_ends, end)
        low, high = own[one], own[other]
        ids = unit.ids(int(ends[low] - tokens[low]), int(ends[high]))
        kept = ids[np.repeat(mine[low : high + 1], tokens[low : high + 1])]
        skipped = int(own_ends[one] - tokens[low])
        return kept[begin - skipped : end - skipped]
