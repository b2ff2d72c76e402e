"""Documents into rows of exactly `seq_len` ids, rows into Parquet shards.

Everything is a function of the token stream: a shard's bytes depend on its rows and nothing else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from albor_core.data.pack.manifest import Shard
from albor_core.run.files.publish import publishing, sha256_file

SHARD_PATTERN = "shard-[0-9][0-9][0-9][0-9][0-9].parquet"
_ROW_GROUP_TOKENS = 1 << 22  # 16 MiB decoded: readers go row group by row group
_SCHEMA = pa.schema([pa.field("input_ids", pa.list_(pa.uint32()))])


class Packer:
    """Packs one split's stream of documents into `directory`, which must exist.

    Holds at most one shard of ids. `finish` writes the last, shorter shard and drops the tokens
    that do not fill a sequence.
    """

    def __init__(self, directory: Path, *, seq_len: int, shard_sequences: int) -> None:
        self.shards: list[Shard] = []
        self.documents = 0
        self.dropped_tokens = 0
        self.max_id = 0
        self._directory = directory
        self._seq_len = seq_len
        self._buffer: NDArray[np.uint32] = np.empty(shard_sequences * seq_len, np.uint32)
        self._filled = 0

    @property
    def sequences(self) -> int:
        """Sequences written so far."""
        return sum(shard.sequences for shard in self.shards)

    def add(self, ids: list[int], end_of_text: int) -> None:
        """Append one document and its end-of-text id."""
        self.documents += 1
        rest: NDArray[np.uint32] = np.array([*ids, end_of_text], np.uint32)
        while rest.size:
            piece = rest[: self._buffer.size - self._filled]
            self._buffer[self._filled : self._filled + piece.size] = piece
            self._filled += piece.size
            rest = rest[piece.size :]
            if self._filled == self._buffer.size:
                self._write()

    def finish(self) -> None:
        """Write what is left, whole sequences only."""
        self._write()

    def _write(self) -> None:
        rows, remainder = divmod(self._filled, self._seq_len)
        self.dropped_tokens += remainder
        self._filled = 0
        if rows == 0:
            return
        ids = self._buffer[: rows * self._seq_len]
        self.max_id = max(self.max_id, int(ids.max()))
        path = self._directory / f"shard-{len(self.shards):05d}.parquet"
        with publishing(path) as temp:
            pq.write_table(
                _table(ids, self._seq_len),
                temp,
                version="2.6",
                compression="zstd",
                compression_level=3,
                use_dictionary=True,  # 4,096 distinct ids take 12 bits each instead of 32
                write_page_checksum=True,  # a flipped bit fails the read, also without verify
                row_group_size=max(1, _ROW_GROUP_TOKENS // self._seq_len),
            )
            shard = Shard(path.name, temp.stat().st_size, sha256_file(temp), rows)
        self.shards.append(shard)


def _table(ids: NDArray[np.uint32], seq_len: int) -> Any:
    offsets = np.arange(0, ids.size + 1, seq_len, dtype=np.int32)
    rows = pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids))
    return pa.Table.from_arrays([rows], schema=_SCHEMA)
