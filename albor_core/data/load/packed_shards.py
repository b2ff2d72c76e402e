"""The token ids of a split, with every sequence by its number.

B batch, T seq_len, N sequences. Large splits are read once and stored as a flat file that all ranks
and runs share (token_cache.py); small ones, and those for which no disk has the space, are held in
the memory of the process.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from albor_core.data.load.documents import Boundaries, boundaries_of
from albor_core.data.load.token_cache import TokenFile, Wanted, open_cache
from albor_core.data.pack.manifest import Manifest
from albor_core.data.pack.shard_check import DEFAULT_COLUMN, read_manifest, verify_shards
from albor_core.data.pack.token_rows import REPACK_HINT, TokenRows, check_ids, token_rows
from albor_core.run.errors import ConfigError, DataError

MEMORY_LIMIT_BYTES = 2 << 30
SHARED_FROM_BYTES = 32 << 20
"""Less is read in a fraction of a second, and takes less memory than the process beside it."""
_ROWS, _TOKENS = 4096, 1 << 22  # looked at together


class PackedShards:
    """Every sequence of a split, addressable by index; safe to share between threads and forks.

    Rows longer than `seq_len` are cut into as many sequences as fit, the rest of the row dropped.
    Ids take 2 bytes when the vocabulary is known to fit, else 4. From `shared_from` bytes on they
    are mapped from the cache. If the cache has no space they are in memory, or above `memory_limit`
    bytes in an unlinked temporary file in `spill_dir` (default: the system's), which the kernel
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
        shared_from: int = SHARED_FROM_BYTES,
    ) -> None:
        """Load and check all rows; for a cache, its size and some of its bytes.

        Raises NotFoundError if nothing is there, ConfigError for an impossible `seq_len`, DataError
        naming shard, row and cause for damage, short rows, or ids not below `vocab_size`.
        """
        if seq_len < 1:
            raise ConfigError(f"seq_len {seq_len} is not a length", hint="set data.seq_len")
        self.manifest = read_manifest(split_dir, scan=True, column=column)
        self.seq_len = seq_len
        if problems := verify_shards(split_dir, hashes=False, column=column):
            raise DataError(str(problems[0]), hint=problems[0].hint)
        self._column, self._bound = column, _id_bound(self.manifest, vocab_size)
        self._boundaries = boundaries_of(self.manifest)
        self._limit, self._spill_dir, self._shared_from = memory_limit, spill_dir, shared_from
        self._cache: TokenFile | None = None
        self._inner: NDArray[Any] | None = None
        self._ids = self._opened()

    def _opened(self) -> NDArray[Any]:
        wanted = self._wanted()
        self._cache = None
        if wanted.num_bytes >= self._shared_from:
            self._cache = open_cache(wanted, self._fill)
        if self._cache is not None:
            self._check_highest(self._cache.max_id)
            self._inner = self._cache.inner
            return self._cache.ids
        shape = (wanted.rows, self.seq_len)
        room = _allocate(shape, wanted.dtype, self._limit, self._spill_dir)
        return room[: self._fill(room, None)[0]]

    def _wanted(self) -> Wanted:
        dtype = np.dtype(
            np.uint16 if self._bound is not None and self._bound <= 1 << 16 else np.uint32
        )
        told = self.manifest
        rows = told.tokens // self.seq_len
        eos, bos = told.eos_token_id, told.bos_token_id
        return Wanted(told, self._column, self.seq_len, rows, dtype, eos, bos)

    def _fill(self, ids: NDArray[Any], inner: NDArray[np.uint32] | None) -> tuple[int, int]:
        """Read and check all rows into `ids`, and the number of documents that begin in each into
        `inner`; return (rows, highest id).
        """
        filled = highest = 0
        for path in self.manifest.paths():
            for rows in token_rows(path, self._column):
                if self._bound is not None:
                    check_ids(path, rows, self._bound)
                cut = _cut(path, rows, self.seq_len)
                end = filled + len(cut)
                if end > len(ids):
                    raise DataError(f"{path}: more rows than announced", hint=REPACK_HINT)
                ids[filled:end] = cut
                if inner is not None:
                    assert self._boundaries is not None
                    inner[filled:end] = self._boundaries.inner(cut)
                filled, highest = end, max(highest, int(rows.ids.max(initial=0)))
        if filled == 0:
            split = self.manifest.directory
            raise DataError(f"{split}: the shards hold no rows", hint=REPACK_HINT)
        return filled, highest

    def _check_highest(self, highest: int) -> None:
        """Check ids that another run has read and checked for its own model."""
        if self._bound is None or highest < self._bound:
            return
        for path in self.manifest.paths():
            for rows in token_rows(path, self._column):
                check_ids(path, rows, self._bound)

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, index: int) -> NDArray[np.int64]:
        """(T,) ids of one sequence. Raises IndexError."""
        self._open_if_cut_short()
        row: NDArray[np.int64] = self._ids[index].astype(np.int64)
        return row

    def batch(self, indices: ArrayLike) -> NDArray[np.int64]:
        """(B, T) ids of the sequences `indices`, a copy. Raises IndexError, DataError if a cache
        was truncated and cannot be written again.
        """
        self._open_if_cut_short()
        return self._ids[np.asarray(indices, np.int64)].astype(np.int64)

    def tokens(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) ids at these positions of all rows joined. Raises as `batch`."""
        self._open_if_cut_short()
        return self._ids.reshape(-1)[places].astype(np.int64)

    def document_starts(self) -> NDArray[np.int64]:
        """(D,) positions in all rows joined at which a document begins; the first is 0 in any case.
        Needs `boundaries`; reads all ids.
        """
        self._open_if_cut_short()
        assert self._boundaries is not None
        flat, found = self._ids.reshape(-1), [np.zeros(1, np.int64)]
        for begin in range(0, len(flat), _TOKENS):
            block = flat[begin : begin + _TOKENS + 1]  # its last token begins the next block
            found.append(begin + np.flatnonzero(self._boundaries.firsts(block[None])[0]))
        return np.concatenate(found)

    def is_cut_off(self) -> bool:
        """Whether the last document continues beyond what was packed; False if documents are
        recognised by their begin token.
        """
        end = None if self._boundaries is None else self._boundaries.end
        return end is not None and int(self[-1][-1]) != end

    def _open_if_cut_short(self) -> None:
        if self._cache is not None and self._cache.is_cut_short:
            self._ids = self._opened()

    @property
    def boundaries(self) -> Boundaries | None:
        """The separator of documents, if there is one."""
        return self._boundaries

    def inner_documents(self, indices: ArrayLike) -> NDArray[np.int64]:
        """(B,) documents that begin inside these sequences. Needs `boundaries`; if no cache has
        counted them, the first call reads all ids.
        """
        self._open_if_cut_short()
        if self._inner is None:
            assert self._boundaries is not None
            every = range(0, len(self), _ROWS)
            found = [self._boundaries.inner(self._ids[at : at + _ROWS]) for at in every]
            self._inner = np.concatenate(found)
        return self._inner[np.asarray(indices, np.int64)].astype(np.int64)


def _id_bound(manifest: Manifest, vocab_size: int | None) -> int | None:
    """Ids must stay below this bound: the size of the caller's vocabulary, or what the packer
    recorded."""
    known = [size for size in (vocab_size, manifest.vocab_size) if size is not None]
    return min(known, default=None)


def _allocate(
    shape: tuple[int, int], dtype: np.dtype[Any], memory_limit: int, spill_dir: Path | None
) -> NDArray[Any]:
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
    """(n, T) the sequences cut from these rows."""
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
