"""Rows of a Parquet file as documents, some at a time, whatever its footer promises.

A file of kilobytes can stand for petabytes: one long value in a dictionary, repeated for ever. So
the footer's claims are held against the file's size, a batch is as small as the longest value of
the dictionary needs it to be, what comes out is counted, and decoding may map 2 GiB at most.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from albor_core.data.read.inputs import (
    FREE_BYTES,
    MAX_EXPANSION,
    UNIT_BYTES,
    Asked,
    Document,
    pick_column,
    reason_to_skip,
    row_licence,
    too_dense,
)
from albor_core.data.stage.corpus import TEXT_COLUMNS, leaves_of, read_footer
from albor_core.data.stage.stamp import changed, stamp_file, unreadable
from albor_core.run.errors import DataError

MAX_COLUMNS = 10_000
MAX_FOOTER_BYTES = 64 << 20
MEMORY_BYTES = 2 << 30
_BATCH_ROWS = 64
_BATCH_BYTES = 32 << 20


def parquet_column(path: Path, asked: Asked) -> str:
    """The column of text, by the schema. Raises DataError where it is not there, or holds no text,
    and for a footer that cannot be true.
    """
    footer = _footer(path)
    schema = footer.schema.to_arrow_schema()
    texts = [one.name for one in schema if _is_text(one.type)]
    usable = [one for one in texts if one in TEXT_COLUMNS] if asked.column is None else []
    name = pick_column(path, usable or schema.names, asked.column)
    if not _is_text(schema.field(name).type):
        raise DataError(
            f"{path}: column {name} holds {schema.field(name).type}, not strings",
            hint="name the one that holds the text with --column",
        )
    return name


def parquet_units(path: Path, column: str) -> Iterator[tuple[int, int, list[Any]]]:
    """Rows, bytes and [first row group, row groups, number of the first row, stamp] of pieces of at
    least 16 MiB of text.
    """
    stamp, footer = stamp_file(path), _footer(path)
    index = leaves_of(footer).index(column)
    first, row = 0, 1
    rows = size = packed = 0
    for group in range(footer.num_row_groups):
        said = footer.row_group(group).column(index)
        rows += footer.row_group(group).num_rows
        size += said.total_uncompressed_size
        packed += said.total_compressed_size
        if size >= UNIT_BYTES or group == footer.num_row_groups - 1:
            if size > FREE_BYTES + MAX_EXPANSION * packed:
                raise too_dense(path)
            if rows:
                yield rows, size, [first, group + 1 - first, row, stamp]
            first, row = group + 1, row + rows
            rows = size = packed = 0


def parquet_documents(
    path: Path, what: list[Any], column: str, max_bytes: int
) -> Iterator[Document]:
    """The documents of a piece. Raises DataError for a file that changed, cannot be decoded, or
    expands too far."""
    first, groups, row, stamp = what
    if stamp_file(path) != tuple(stamp):
        raise changed(path)
    most = FREE_BYTES + MAX_EXPANSION * stamp[0]
    taken = 0
    try:
        with _confined():
            for name, raw, licence, elsewhere in _rows(
                path, range(first, first + groups), row, column
            ):
                if raw is None:
                    yield Document(name, b"", "no_text", elsewhere=elsewhere)
                    continue
                taken += len(raw)
                if taken > most:
                    raise too_dense(path)
                reason = reason_to_skip(raw, max_bytes)
                text = b"" if reason == "too_large" else raw
                elsewhere = elsewhere if reason == "empty" else ""
                yield Document(name, text, reason, row_licence(licence), elsewhere)
    except (pa.ArrowException, MemoryError, OSError, UnicodeDecodeError) as error:
        if stamp_file(path) != tuple(stamp):
            raise changed(path) from error
        if isinstance(error, MemoryError):
            raise DataError(
                f"{path}: takes more than {MEMORY_BYTES >> 20:,} MiB of memory to decode",
                hint="write it again with smaller pages, or without its longest texts",
            ) from error
        raise DataError(
            f"{path}: cannot be read as Parquet: {error}", hint="download or write it again"
        ) from error
    if stamp_file(path) != tuple(stamp):
        raise changed(path)


def _rows(
    path: Path, groups: range, row: int, column: str
) -> Iterator[tuple[str, bytes | None, Any, str]]:
    """The number, text and licence of each row, and the column that has a text in its stead."""
    reader = pq.ParquetFile(path, pre_buffer=False, page_checksum_verification=True)
    named = [one.name for one in reader.schema_arrow if _is_text(one.type)]
    licences = [one for one in ("licence", "license") if one in named][:1]
    others = [one for one in TEXT_COLUMNS if one in named and one != column]
    for group in groups:
        rest = others if others and _may_lack(reader.metadata, group, column) else []
        columns = [column, *licences, *rest]
        size = _batch_rows(path, group, columns)
        for batch in reader.iter_batches(
            batch_size=size, row_groups=[group], columns=columns, use_threads=False
        ):
            texts = _raw(batch.column(column)).to_pylist()
            said = [batch.column(one).to_pylist() for one in licences] or [[None] * len(texts)]
            beside = [_raw(batch.column(one)).to_pylist() for one in rest]
            for at, (text, licence) in enumerate(zip(texts, said[0], strict=True)):
                full = (
                    one for one, has in zip(rest, beside, strict=True) if (has[at] or b"").strip()
                )
                yield str(row), text, licence, next(full, "")
                row += 1


def _may_lack(footer: Any, group: int, column: str) -> bool:
    """Whether rows of a group may have no text in the column, by its footer."""
    said = footer.row_group(group).column(leaves_of(footer).index(column)).statistics
    if said is None or not said.has_null_count or not said.has_min_max:
        return True
    return bool(said.null_count) or not said.min.strip()


def _batch_rows(path: Path, group: int, columns: list[str]) -> int:
    """The rows per batch, so that the longest dictionary values, repeated, stay within 32 MiB."""
    reader = pq.ParquetFile(path, pre_buffer=False, read_dictionary=columns)
    longest = 1
    for batch in reader.iter_batches(
        batch_size=1, row_groups=[group], columns=columns, use_threads=False
    ):
        for values in batch.columns:
            if isinstance(values, pa.DictionaryArray) and len(values.dictionary):
                longest = max(longest, _longest(values.dictionary))
        break
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES // longest))


def _longest(values: pa.Array) -> int:
    import pyarrow.compute as pc  # noqa: PLC0415

    return int(pc.max(pc.binary_length(values)).as_py() or 1)


def _raw(values: pa.Array) -> pa.Array:
    if isinstance(values, pa.DictionaryArray):
        values = values.dictionary_decode()
    return values.cast(pa.large_binary())


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return any(
        check(kind)
        for check in (
            pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view,
            pa.types.is_binary, pa.types.is_large_binary,
        )
    )  # fmt: skip


def _footer(path: Path) -> Any:
    """The footer. Raises DataError for one that is impossible for a file of this size."""
    size = stamp_file(path)[0]
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, size - 8))
            tail = stream.read(8)
    except OSError as error:
        raise unreadable(path, error) from error
    if int.from_bytes(tail[:4], "little") > MAX_FOOTER_BYTES and tail[4:] == b"PAR1":
        raise DataError(
            f"{path}: its footer is larger than {MAX_FOOTER_BYTES >> 20} MiB",
            hint="write it again with fewer columns and larger row groups",
        )
    footer = read_footer(path)
    if footer.num_columns > MAX_COLUMNS:
        raise DataError(
            f"{path}: has {footer.num_columns:,} columns, more than {MAX_COLUMNS:,}",
            hint="write it again with the column of text alone",
        )
    rows = [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]
    if min(rows, default=0) < 0 or sum(rows) > FREE_BYTES + MAX_EXPANSION * size:
        raise too_dense(path)
    return footer


@contextmanager
def _confined() -> Iterator[None]:
    """This process may map `MEMORY_BYTES` more than it has. A page can claim to be gigabytes, and
    only decoding it would tell.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with Path("/proc/self/statm").open("rb") as stream:
        mapped = int(stream.read().split()[0]) * resource.getpagesize()
    limit = mapped + MEMORY_BYTES
    for other in (soft, hard):
        if other != resource.RLIM_INFINITY:
            limit = min(limit, other)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
