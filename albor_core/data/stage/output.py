"""The corpus that a step writes: parts in a work folder first, then all at once in its place."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from albor_core.data.stage.counts import Counts, text_sizes
from albor_core.data.stage.record import FOOTER_KEY, RECORD_NAME, CorpusRecord, read_record
from albor_core.outputs import place
from albor_core.outputs.place import WORK, OutputPlace, publish_files
from albor_core.run.errors import UsageError
from albor_core.run.files.publish import publish_json, publishing, sha256_file, temporary

PART_PATTERN = "part-[0-9][0-9][0-9][0-9][0-9].parquet"
OWN = tuple(  # with what a kill left half written
    name for one in (RECORD_NAME, PART_PATTERN) for name in (one, temporary(Path(one)).name)
)
ROW_GROUP_BYTES = 8 << 20
_BYTES_OF_PART = 180  # in a record


@dataclass(frozen=True)
class Output(OutputPlace):
    """OUT: a folder of parts, or one file where its name ends in .parquet."""

    own: tuple[str, ...] = OWN

    @property
    def is_file(self) -> bool:
        return self.path.suffix == ".parquet"

    @property
    def work(self) -> Path:
        earlier = self.path.with_name(f".{self.path.name}{WORK}")  # of a file, by earlier versions
        return earlier if self.is_file and earlier.is_dir() else super().work

    def record(self) -> CorpusRecord | None:
        """The record of an existing complete output."""
        return read_record(self.path) if self.path.exists() else None

    def check(self) -> None:
        """Raise UsageError for a name that stands for something else."""
        if self.is_file and self.path.is_dir():
            raise UsageError(f"{self.path}: is a folder; name a file", hint="choose another --out")
        if not self.is_file and self.path.is_file():
            raise UsageError(
                f"{self.path}: is a file; name a folder, or a file ending in .parquet",
                hint="choose another --out",
            )

    def is_taken(self) -> bool:
        """A corpus lies there, be its record damaged, or something that no step wrote."""
        if self.is_file:
            return self.path.exists()
        return (self.path / RECORD_NAME).exists() or self.is_foreign()

    def is_foreign(self) -> bool:
        """Something lies there that no step wrote."""
        if not self.path.exists():
            return False
        if self.is_file:
            return self.record() is None
        return bool(self.foreign(self.path))


def write_part(folder: Path, number: int, table: pa.Table) -> dict[str, Any] | None:
    """Write one part; return its name, rows, bytes and SHA-256. None, and no file, for no rows."""
    return stream_part(folder, number, iter((table,)))


def stream_part(
    folder: Path, number: int, tables: Iterator[pa.Table], *, is_final: bool = True
) -> dict[str, Any] | None:
    """As `write_part`, of tables with one schema that are made one after another. A part that is
    not final is only read once, to be joined: half of the time goes into its compression.
    """
    first = next((table for table in tables if table.num_rows), None)
    if first is None:
        return None
    path, rows = folder / f"part-{number:05d}.parquet", 0
    with publishing(path) as temp, corpus_writer(temp, first.schema, is_final) as writer:
        for table in chain((first,), tables):
            write_rows(writer, table)
            rows += table.num_rows
    return {
        "file": path.name,
        "rows": rows,
        "bytes": path.stat().st_size,
        "sha256": sha256_file(path),
    }


def corpus_writer(
    path: Path | pa.BufferOutputStream, schema: pa.Schema, is_final: bool = True
) -> pq.ParquetWriter:
    """A Parquet writer with every setting fixed that affects the file."""
    return pq.ParquetWriter(
        path,
        schema,
        version="2.6",
        compression="zstd" if is_final else "lz4",
        compression_level=3 if is_final else None,
        use_dictionary=[name for name in schema.names if name not in ("text", "file")],
        write_statistics=False,
        write_page_checksum=True,
    )


def write_rows(writer: pq.ParquetWriter, table: pa.Table) -> None:
    """Write a table in row groups of about `ROW_GROUP_BYTES` of text."""
    text = table.column("text")
    rows = max(1, int(table.num_rows * ROW_GROUP_BYTES / max(1, text.nbytes)))
    writer.write_table(table, row_group_size=rows)


def packed_size(table: pa.Table) -> int:
    """Bytes of a file of these rows."""
    sink = pa.BufferOutputStream()
    with corpus_writer(sink, table.schema) as writer:
        write_rows(writer, table)
    return int(sink.getvalue().size)


def sample_of(table: pa.Table) -> tuple[int, int]:
    """Bytes of text, and those that they take in a file."""
    size = packed_size(table) - packed_size(table.schema.empty_table())
    return sum(text_sizes(table)), size


def output_size(
    out: Output,
    schema: pa.Schema,
    samples: Collection[tuple[int, int]],
    text_bytes: float,
    record: CorpusRecord,
) -> int | None:
    """Bytes that `finish` writes of so much text, estimated by samples of it; None without."""
    seen, packed = (sum(one[part] for one in samples) for part in (0, 1))
    if not seen:
        return None
    plain = record.to_json()
    if out.is_file:
        schema = schema.with_metadata({FOOTER_KEY: json.dumps(plain, sort_keys=True).encode()})
    beside = 0 if out.is_file else len(json.dumps(plain, indent=1)) + _BYTES_OF_PART
    empty = packed_size(schema.empty_table())
    return round(empty + beside + packed / seen * text_bytes)


def data_hash_of(parts: Sequence[Mapping[str, Any]]) -> str:
    """SHA-256 over the parts' own, in order."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(bytes.fromhex(part["sha256"]))
    return digest.hexdigest()


def finish(
    out: Output,
    work: Path,
    parts: Sequence[Mapping[str, Any]],
    step: str,
    settings: Mapping[str, Any],
    identity: str,
    counts: Counts,
    history: tuple[Mapping[str, Any], ...] = (),
) -> CorpusRecord:
    """Put the parts in place, the record last, and remove the work folder."""
    total, data_hash = counts.total, data_hash_of(parts)
    record = CorpusRecord(
        step, settings, identity, data_hash, total.documents, total.bytes, counts, history
    )
    files, room = [work / "parts" / part["file"] for part in parts], work.parent
    if out.is_file:
        _join(files, out.path, record)
        place.discard(work)
        return record
    old = [room / RECORD_NAME, *(one for own in OWN[1:] for one in room.glob(own))]
    publish_files(files, room, old)
    publish_json(room / RECORD_NAME, record.to_json() | {"parts": [dict(p) for p in parts]})
    place.finish(out, work)
    return record


def _join(files: Sequence[Path], path: Path, record: CorpusRecord) -> None:
    schema = pq.read_schema(files[0])
    text = json.dumps(record.to_json(), sort_keys=True, allow_nan=False)
    schema = schema.with_metadata({FOOTER_KEY: text.encode()})
    with publishing(path) as temp, corpus_writer(temp, schema) as writer:
        for file in files:
            reader = pq.ParquetFile(file, memory_map=True, pre_buffer=False)
            for group in range(reader.num_row_groups):
                table = reader.read_row_group(group, use_threads=False)
                writer.write_table(table.replace_schema_metadata(schema.metadata))
