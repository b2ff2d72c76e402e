"""Rows of token ids out of a Parquet shard, ours or anybody's.

Accepts list, large_list and fixed_size_list of any integer type. A shard is untrusted input: the
footer is compared with limits before anything is allocated, and one row group is read at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from albor_core.data.stage.corpus import read_footer
from albor_core.run.errors import DataError

REPACK_HINT = "pack it again: albor data pretokenize CORPUS --tokenizer FILE --seq-len N --out DIR"
ID_COLUMNS = ("input_ids", "token_ids")
"""The first that is there is read."""
MAX_ROW_GROUP_TOKENS = 1 << 28  # 1 GiB of uint32: a 42 kB file can declare petabytes
_LARGEST_ID = (1 << 32) - 1


@dataclass(frozen=True)
class TokenFooter:
    """Facts in a shard's footer, read without any token."""

    rows: int
    tokens: int
    max_id: int | None
    """From the column statistics, where every row group has them."""


@dataclass(frozen=True)
class TokenRows:
    """The rows of one row group."""

    first_row: int
    lengths: NDArray[np.int64]
    """(R,) tokens per row."""
    ids: NDArray[np.uint32]
    """(sum of lengths,) the rows one after the other."""

    def row_of(self, position: int) -> int:
        """The shard's row that holds `ids[position]`."""
        ends = np.cumsum(self.lengths)
        return self.first_row + int(np.searchsorted(ends, position, side="right"))


def token_footer(file: Path, column: str) -> TokenFooter:
    """Check that `column` holds lists of integers; count. Raises DataError or NotFoundError."""
    footer = read_footer(file)
    schema = footer.schema.to_arrow_schema()
    column = ids_column(schema.names, column)
    if column not in schema.names:
        raise DataError(
            f"{file}: no column {column} (columns: {', '.join(schema.names) or 'none'})",
            hint="set data.input_column to the column of token ids",
        )
    kind = schema.field(column).type
    if not (_is_list(kind) and pa.types.is_integer(kind.value_type)):
        raise DataError(f"{file}: column {column} holds {kind}, not lists of integers")
    paths = [footer.schema.column(i).path.split(".")[0] for i in range(footer.num_columns)]
    chunks = [footer.row_group(i).column(paths.index(column)) for i in range(footer.num_row_groups)]
    if any(chunk.num_values > MAX_ROW_GROUP_TOKENS for chunk in chunks):
        raise DataError(
            f"{file}: a row group declares more than {MAX_ROW_GROUP_TOKENS} tokens",
            hint="write the file again with smaller row groups",
        )
    return TokenFooter(footer.num_rows, sum(c.num_values for c in chunks), _max_id(chunks))


def ids_column(names: Sequence[str], column: str) -> str:
    """`column`, or the other usual name of token ids where a file has that one alone."""
    is_usual = column in ID_COLUMNS and column not in names
    return next((one for one in ID_COLUMNS if is_usual and one in names), column)


def token_rows(file: Path, column: str) -> Iterator[TokenRows]:
    """Every row in order, one row group at a time. Raises DataError naming file, row and cause."""
    token_footer(file, column)
    try:
        reader = pq.ParquetFile(
            file, memory_map=True, pre_buffer=False, page_checksum_verification=True
        )
        column = ids_column(reader.schema_arrow.names, column)
        first_row = 0
        for number in range(reader.num_row_groups):
            values = reader.read_row_group(number, columns=[column]).column(column)
            rows = _decode(file, first_row, values)
            yield rows
            first_row += len(rows.lengths)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{file}: damaged Parquet data: {error}", hint=REPACK_HINT) from error


def check_ids(file: Path, rows: TokenRows, vocab_size: int) -> None:
    """Raise DataError naming file, row and id of the first id that is not below `vocab_size`."""
    if not rows.ids.size or int(rows.ids.max()) < vocab_size:
        return
    position = int(np.argmax(rows.ids >= vocab_size))
    raise DataError(
        f"{file}: row {rows.row_of(position)}: id {int(rows.ids[position])} is not below "
        f"vocab_size {vocab_size}",
        hint="use the tokenizer this data was packed with, or pack it again",
    )


def _is_list(kind: Any) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def _max_id(chunks: list[Any]) -> int | None:
    statistics = [chunk.statistics for chunk in chunks]
    if not statistics or not all(s is not None and s.has_min_max for s in statistics):
        return None
    return max(int(s.max) for s in statistics)


def _decode(file: Path, first_row: int, values: Any) -> TokenRows:
    flat = pc.list_flatten(values)
    if values.null_count or flat.null_count:
        raise DataError(
            f"{file}: null rows or ids after row {first_row}", hint="drop the nulls and try again"
        )
    lengths = pc.list_value_length(values).to_numpy().astype(np.int64)
    wide = flat.to_numpy()
    if wide.size and wide.dtype != np.uint32:
        low, high = int(wide.min()), int(wide.max())
        if low < 0 or high > _LARGEST_ID:
            raise DataError(
                f"{file}: ids from {low} to {high} after row {first_row} are not token ids",
                hint="padding such as -100 belongs into labels, not into input_ids",
            )
    return TokenRows(first_row, lengths, wide.astype(np.uint32, copy=False))
