"""Rows of exactly `seq_len` ids into a Parquet shard, whose bytes depend on its rows alone."""

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


def shard_name(number: int) -> str:
    return f"shard-{number:05d}.parquet"


def write_shard(path: Path, ids: NDArray[np.uint32], seq_len: int) -> Shard:
    """Write `ids`, whole rows of `seq_len`, and say what came of it."""
    with publishing(path) as temp:
        _write(temp, ids, seq_len)
        return Shard(path.name, temp.stat().st_size, sha256_file(temp), len(ids) // seq_len)


def shard_size(ids: NDArray[np.uint32], seq_len: int) -> int:
    """Bytes of a shard of these ids."""
    sink = pa.BufferOutputStream()
    _write(sink, ids, seq_len)
    return int(sink.getvalue().size)


def _write(where: Path | pa.BufferOutputStream, ids: NDArray[np.uint32], seq_len: int) -> None:
    pq.write_table(
        _table(ids, seq_len),
        where,
        version="2.6",
        compression="zstd",
        compression_level=3,
        use_dictionary=True,  # 4,096 distinct ids take 12 bits each instead of 32
        write_page_checksum=True,  # a flipped bit fails the read, also without verify
        row_group_size=max(1, _ROW_GROUP_TOKENS // seq_len),
    )


def _table(ids: NDArray[np.uint32], seq_len: int) -> Any:
    offsets = np.arange(0, ids.size + 1, seq_len, dtype=np.int32)
    rows = pa.ListArray.from_arrays(pa.array(offsets), pa.array(ids))
    return pa.Table.from_arrays([rows], schema=_SCHEMA)
