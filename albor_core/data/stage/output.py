"""The corpus that a step writes: parts in a work folder first, then all at once in its place."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from albor_core.data.read.corpus import WORK_NAME
from albor_core.data.stage.record import (
    FOOTER_KEY,
    RECORD_NAME,
    CorpusRecord,
    read_record,
)
from albor_core.run.errors import AlborError, InUseError, UsageError, remedy
from albor_core.run.files.publish import (
    link_or_copy,
    publish_json,
    publishing,
    sha256_file,
    temporary,
)
from albor_core.run.files.whole_file import fsync_dir

PART_PATTERN = "part-[0-9][0-9][0-9][0-9][0-9].parquet"
ROW_GROUP_BYTES = 8 << 20
_LOCK, _MARK = "lock", "identity"  # in the work folder


@dataclass(frozen=True)
class Output:
    """OUT: a folder of parts, or one file where its name ends in .parquet."""

    path: Path

    @property
    def is_file(self) -> bool:
        return self.path.suffix == ".parquet"

    @property
    def work(self) -> Path:
        """Where the parts are made; it is there as long as the corpus is not whole."""
        if self.is_file:
            return self.path.with_name(f".{self.path.name}{WORK_NAME}")
        return self.path / WORK_NAME

    def record(self) -> CorpusRecord | None:
        """Of what is there and whole."""
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

    def begun(self) -> str | None:
        """The identity of what an unfinished try makes; None where there is none."""
        return _begun(self.work)

    def is_foreign(self) -> bool:
        """Something lies there that no step wrote."""
        if not self.path.exists():
            return False
        if self.is_file:
            return self.record() is None
        record = self.path / RECORD_NAME
        ours = {
            record.name,
            temporary(record).name,
            WORK_NAME,
            *(one.name for one in _parts_in(self.path)),
        }
        return any(entry.name not in ours for entry in self.path.iterdir())


@contextmanager
def working(out: Output) -> Iterator[Path]:
    """The work folder, held against other processes. Raises InUseError, AlborError where the disk
    refuses. Results in it stay for the next try; without any it goes.
    """
    made = [one for one in (out.work, *out.work.parents) if not one.exists()]
    try:
        out.work.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(out.work / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        _remove_empty(made)
        raise _refused(out.path, error) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
            raise InUseError(
                f"{out.path}: another process (pid {holder or 'unknown'}) is writing it",
                hint="wait for it, or choose another --out",
            ) from None
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            yield out.work
        except OSError as error:
            raise _refused(Path(error.filename or out.path), error) from error
        finally:
            if out.work.exists() and not _has_results(out.work):
                clear(out.work)
                (out.work / _LOCK).unlink(missing_ok=True)
                _remove_empty([out.work, *made])
    finally:
        os.close(descriptor)


def begin(work: Path, identity: str, keep: Sequence[str] = ()) -> bool:
    """Ready `work` for the job of this identity; True where an earlier try of the same is in it.
    What another job left is removed, but for what is called as one of `keep`.
    """
    if _begun(work) == identity:
        return True
    clear(work, keep)
    (work / _MARK).write_text(f"{identity}\n", encoding="ascii")
    return False


def _begun(work: Path) -> str | None:
    try:
        return (work / _MARK).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None


def _has_results(work: Path) -> bool:
    """Anything that a later try could go on from."""
    return any(one.is_file() and one.name not in (_LOCK, _MARK) for one in work.rglob("*"))


def clear(work: Path, keep: Sequence[str] = ()) -> None:
    """Leave nothing in it for a later try, but what is called as one of `keep`."""
    for entry in work.iterdir():
        if entry.name not in (_LOCK, *keep):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def tidy(out: Output) -> None:
    """Remove what a kill after the very last step left beside a whole output."""
    if out.work.exists():
        with suppress(InUseError), working(out) as work:
            clear(work)


def write_part(folder: Path, number: int, table: pa.Table) -> dict[str, Any] | None:
    """One part; its name, rows, bytes and SHA-256. None, and no file, for no rows."""
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


def corpus_writer(path: Path, schema: pa.Schema, is_final: bool = True) -> pq.ParquetWriter:
    """With every setting that reaches the file fixed."""
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
    """As row groups of about `ROW_GROUP_BYTES` of text."""
    text = table.column("text")
    rows = max(1, int(table.num_rows * ROW_GROUP_BYTES / max(1, text.nbytes)))
    writer.write_table(table, row_group_size=rows)


def data_hash_of(parts: Sequence[Mapping[str, Any]]) -> str:
    """SHA-256 over the parts' own, in order."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(bytes.fromhex(part["sha256"]))
    return digest.hexdigest()


def finish(out: Output, parts: Sequence[Mapping[str, Any]], record: CorpusRecord) -> None:
    """Put the parts in place, the record last, and remove the work folder."""
    files = [out.work / "parts" / part["file"] for part in parts]
    if out.is_file:
        _join(files, out.path, record)
    else:
        (out.path / RECORD_NAME).unlink(missing_ok=True)
        for old in _parts_in(out.path):
            old.unlink()
        for file in files:
            link_or_copy(file, out.path / file.name)
        fsync_dir(out.path)
        publish_json(out.path / RECORD_NAME, record.to_json() | {"parts": [dict(p) for p in parts]})
    shutil.rmtree(out.work)


def _parts_in(folder: Path) -> list[Path]:
    """Those that are whole, and one that a kill left half copied."""
    patterns = (PART_PATTERN, temporary(Path(PART_PATTERN)).name)
    return [one for pattern in patterns for one in folder.glob(pattern)]


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


def _remove_empty(folders: Sequence[Path]) -> None:
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


def _refused(path: Path, error: OSError) -> AlborError:
    return AlborError(
        f"{path}: cannot be written: {error.strerror or error}",
        hint=f"{remedy(error) or 'run it again'}; or choose another --out",
    )
