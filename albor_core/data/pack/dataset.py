"""Packed shards as batches, in an order that is a pure function of (seed, step).

B batch, T seq_len, N sequences. There is no iterator state: a resumed run needs its step number
and nothing else, so resuming twice, or at the edge of an epoch, cannot lose or repeat a sequence.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from albor_core.data.pack.manifest import Manifest
from albor_core.data.pack.shard_check import DEFAULT_COLUMN, read_manifest, verify_shards
from albor_core.data.pack.token_rows import REPACK_HINT, TokenRows, check_ids, token_rows
from albor_core.run.errors import ConfigError, DataError

MEMORY_LIMIT_BYTES = 2 << 30


class PackedShards:
    """Every sequence of a split, addressable by index; safe to share between threads and forks.

    Rows longer than `seq_len` are cut into as many sequences as fit, the rest of the row dropped.
    Ids take 2 bytes when the vocabulary is known to fit, else 4. Above `memory_limit` bytes they
    live in an unlinked temporary file in `spill_dir` (default: the system's), which the kernel
    pages in and out and frees with the process.
    """

    def __init__(
        self,
        split_dir: Path,
        *,
        seq_len: int,
        column: str = DEFAULT_COLUMN,
        vocab_size: int | None = None,
        memory_limit: int = MEMORY_LIMIT_BYTES,
        spill_dir: Path | None = None,
    ) -> None:
        """Load and check all rows.

        Raises NotFoundError for nothing there, ConfigError for an impossible `seq_len`, DataError
        naming shard, row and cause for damage, short rows, or ids not below `vocab_size`.
        """
        if seq_len < 1:
            raise ConfigError(f"seq_len {seq_len} is not a length", hint="set data.seq_len")
        self.manifest = read_manifest(split_dir, scan=True, column=column)
        self.seq_len = seq_len
        if problems := verify_shards(split_dir, hashes=False, column=column):
            raise DataError(str(problems[0]), hint=problems[0].hint)
        bound = _id_bound(self.manifest, vocab_size)
        room = _allocate((self.manifest.tokens // seq_len, seq_len), bound, memory_limit, spill_dir)
        filled = 0
        for path in self.manifest.paths():
            for rows in token_rows(path, column):
                if bound is not None:
                    check_ids(path, rows, bound)
                cut = _cut(path, rows, seq_len)
                if filled + len(cut) > len(room):
                    raise DataError(f"{path}: more rows than announced", hint=REPACK_HINT)
                room[filled : filled + len(cut)] = cut
                filled += len(cut)
        if filled == 0:
            raise DataError(f"{split_dir}: the shards hold no rows", hint=REPACK_HINT)
        self._ids: NDArray[Any] = room[:filled]

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, index: int) -> NDArray[np.int64]:
        """(T,) ids of one sequence. Raises IndexError."""
        row: NDArray[np.int64] = self._ids[index].astype(np.int64)
        return row

    def batch(self, indices: ArrayLike) -> NDArray[np.int64]:
        """(B, T) ids of the sequences `indices`, a copy. Raises IndexError."""
        return self._ids[np.asarray(indices, np.int64)].astype(np.int64)


class SequenceOrder:
    """Which sequences each micro-batch holds, for ever: one permutation per (seed, epoch).

    Epochs are whole: of the N sequences of an epoch's permutation the last, incomplete global
    batch (batch_size x grad_accum x world) is left out, and others the next time.
    """

    def __init__(self, seed: int, num_sequences: int, *, shuffle: bool = True) -> None:
        if num_sequences < 1:
            raise ConfigError(f"num_sequences {num_sequences}: nothing to order")
        self.seed = seed
        self.num_sequences = num_sequences
        self.shuffle = shuffle
        self._cached: tuple[int, NDArray[np.int64]] | None = None

    def permutation(self, epoch: int) -> NDArray[np.int64]:
        """(N,) every sequence once, in the order of this epoch. Costs O(N log N), kept for one."""
        if self._cached is None or self._cached[0] != epoch:
            self._cached = (epoch, self._make(epoch))
        return self._cached[1]

    def _make(self, epoch: int) -> NDArray[np.int64]:
        if not self.shuffle:
            return np.arange(self.num_sequences)
        # NumPy keeps the raw stream of a bit generator across versions, but not the algorithm of
        # Generator.permutation (NEP 19); sorting raw draws keeps resumed runs on their path.
        key = np.array([self.seed & (2**64 - 1), epoch], np.uint64)
        draws = np.random.Philox(key=key).random_raw(self.num_sequences)
        return np.argsort(draws, kind="stable").astype(np.int64)

    def steps_per_epoch(self, batch_size: int, grad_accum: int, *, world: int = 1) -> int:
        """floor(N / global batch). Raises ConfigError when not even one fits."""
        steps = self.num_sequences // (batch_size * grad_accum * world)
        if steps == 0:
            raise ConfigError(
                f"{self.num_sequences} sequences do not fill one step of {batch_size} x "
                f"{grad_accum} x {world} (batch_size x gradient_accumulation x processes)",
                hint="lower data.batch_size or training.gradient_accumulation, or add data",
            )
        return steps

    def epoch(self, step: int, batch_size: int, grad_accum: int, *, world: int = 1) -> int:
        """The epoch that step (counted from 0) belongs to."""
        return step // self.steps_per_epoch(batch_size, grad_accum, world=world)

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
        """The same of the global batch that begins with sequence `start` (config/clock.py)."""
        epoch, within = divmod(start, self.num_sequences)
        first = within + (micro * world + rank) * batch_size
        return self.permutation(epoch)[first : first + batch_size]


def val_batches(
    data: PackedShards, batch_size: int, max_batches: int | None = None
) -> Iterator[NDArray[np.int64]]:
    """At most `max_batches` batches (B, T) in stored order; the last may be smaller.

    The same sequences every time, so validation losses can be compared. A subset is spread evenly
    over the whole split: its first rows alone are a few neighbouring files and far from typical
    (0.2 nats off on the standard library).
    """
    wanted = len(data) if max_batches is None else min(len(data), max_batches * batch_size)
    chosen = np.arange(wanted) * len(data) // max(wanted, 1)
    for start in range(0, wanted, batch_size):
        yield data.batch(chosen[start : start + batch_size])


def _id_bound(manifest: Manifest, vocab_size: int | None) -> int | None:
    """Ids must stay below this: what the caller's model holds, or what the packer promised."""
    known = [size for size in (vocab_size, manifest.vocab_size) if size is not None]
    return min(known, default=None)


def _allocate(
    shape: tuple[int, int], bound: int | None, memory_limit: int, spill_dir: Path | None
) -> NDArray[Any]:
    dtype = np.dtype(np.uint16 if bound is not None and bound <= 1 << 16 else np.uint32)
    size = shape[0] * shape[1] * dtype.itemsize
    if size <= memory_limit:
        return np.empty(shape, dtype)
    try:
        with tempfile.TemporaryFile(dir=spill_dir, prefix="albor-") as stream:
            # Reserved now: a disk that fills up later would be a SIGBUS in the middle of a step.
            os.posix_fallocate(stream.fileno(), 0, size)
            return np.memmap(stream, dtype, "r+", shape=shape)
    except OSError as error:
        raise DataError(
            f"{spill_dir or tempfile.gettempdir()}: no room for {size} bytes of token ids: "
            f"{error.strerror}",
            hint="free that much space, or set TMPDIR to a disk that has it",
        ) from error


def _cut(path: Path, rows: TokenRows, seq_len: int) -> NDArray[np.uint32]:
    """(n, T) the sequences of these rows."""
    short = np.flatnonzero(rows.lengths < seq_len)
    if short.size:
        row = int(short[0])
        raise DataError(
            f"{path}: row {rows.first_row + row}: {int(rows.lengths[row])} tokens, fewer than "
            f"seq_len {seq_len}",
            hint="lower data.seq_len, or pack the corpus at this length",
        )
    if rows.lengths.size == 0:
        return np.empty((0, seq_len), np.uint32)
    length = int(rows.lengths[0])
    if np.all(rows.lengths == length):
        kept = rows.ids.reshape(-1, length)[:, : length - length % seq_len]
        return kept.reshape(-1, seq_len)
    starts = np.cumsum(rows.lengths) - rows.lengths
    pieces = [
        rows.ids[start : start + length - length % seq_len]
        for start, length in zip(starts, rows.lengths, strict=True)
    ]
    return np.concatenate(pieces).reshape(-1, seq_len)
