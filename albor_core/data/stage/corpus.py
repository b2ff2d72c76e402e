"""A corpus on disk: one Parquet file, or a directory of them, with a string column of text, called
`text`, or by another of TEXT_COLUMNS.

Each document has a key: `source/file` where those columns exist, else the hash of its text. The
key, not the position, decides anything about a document, so adding documents moves no other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from albor_core.outputs.place import OutputPlace
from albor_core.run.errors import DataError, NotFoundError

IMPORT_HINT = "make one with: albor data import DIR --out FILE.parquet"
TEXT_COLUMNS = ("text", "content", "code", "body")
"""The first that is there is read, where none is named."""
_ROWS_PER_READ = 256
_MAX_ROW_GROUP_BYTES = 4 << 30  # a row group is decoded as a whole; a bomb declares petabytes


class CorpusHash:
    """SHA-256 over the ordered (key, sha256(text)) of every document; blind to file layout."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def add(self, key: str, text: bytes) -> None:
        """Take in one document, `text` being its UTF-8 bytes."""
        self.take(self.entry(key, text))

    @staticmethod
    def entry(key: str, text: bytes) -> bytes:
        """The hash entry of one document; entries may be computed elsewhere and joined."""
        name = key.encode("utf-8")
        return len(name).to_bytes(4, "little") + name + hashlib.sha256(text).digest()

    def take(self, entries: bytes) -> None:
        """Take in the next documents by their joined entries."""
        self._digest.update(entries)

    def hexdigest(self) -> str:
        """The hash of what was added so far."""
        return self._digest.hexdigest()


@dataclass(frozen=True)
class Corpus:
    """An opened corpus: footers are checked, no text is read yet."""

    path: Path
    files: tuple[Path, ...]
    rows: int
    text_bytes: int
    """Uncompressed size of the text column as the footers declare it."""
    column: str = "text"
    """Where the text is."""

    def documents(self) -> Iterator[tuple[str, bytes]]:
        """Every (key, UTF-8 bytes) in order; a null text is empty. Memory: one row group.

        The bytes are as stored: a careless writer can put invalid UTF-8 into a string column.
        Raises DataError naming a file that cannot be decoded.
        """
        for file in self.files:
            try:
                yield from _documents(file, self.column)
            except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
                raise DataError(
                    f"{file}: cannot be read as Parquet: {error}", hint=IMPORT_HINT
                ) from error


def open_corpus(path: Path, column: str | None = None) -> Corpus:
    """Check that `path` is a readable corpus with at least one row, its text in `column`, or in the
    first of TEXT_COLUMNS that its first file has.

    Raises NotFoundError if nothing is there, DataError naming the file and the cause.
    """
    files = _corpus_files(path)
    rows = text_bytes = 0
    for file in files:
        footer = read_footer(file)
        column = column or usual_text_column(footer.schema.to_arrow_schema().names)
        index = _text_column(file, footer, column)
        rows += footer.num_rows
        for number in range(footer.num_row_groups):
            size = footer.row_group(number).column(index).total_uncompressed_size
            if size > _MAX_ROW_GROUP_BYTES:
                raise DataError(
                    f"{file}: row group {number} declares {size} bytes of text, more than "
                    f"{_MAX_ROW_GROUP_BYTES}",
                    hint="write the file again with smaller row groups",
                )
            text_bytes += size
    if rows == 0 or column is None:
        raise DataError(f"{path}: the corpus has no rows", hint=IMPORT_HINT)
    return Corpus(path, files, rows, text_bytes, column)


def read_footer(file: Path) -> Any:
    """The Parquet footer of `file` (pyarrow.parquet.FileMetaData).

    Raises NotFoundError, or DataError naming the file and the cause.
    """
    try:
        return pq.read_metadata(file)
    except FileNotFoundError as error:
        raise NotFoundError(f"{file}: no such file") from error
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"{file}: not a readable Parquet file: {error}", hint="download or write it again"
        ) from error


def leaves_of(footer: Any) -> list[str]:
    """The paths of a Parquet file's columns, in the order in which row groups have them."""
    return [footer.schema.column(i).path for i in range(footer.num_columns)]


def _corpus_files(path: Path) -> tuple[Path, ...]:
    if not path.is_file() and OutputPlace(path).work.exists():
        raise DataError(
            f"{path}: the corpus is not finished",
            hint="run the command that makes it again: it goes on where it was",
        )
    if path.is_dir():
        files = tuple(sorted(path.glob("*.parquet")))
        if not files:
            raise DataError(f"{path}: the directory holds no .parquet file", hint=IMPORT_HINT)
        return files
    if not path.exists():
        raise NotFoundError(f"{path}: no such corpus", hint=IMPORT_HINT)
    return (path,)


def usual_text_column(names: Collection[str]) -> str:
    """The first of TEXT_COLUMNS that is among `names`, or the first of all."""
    return next((one for one in TEXT_COLUMNS if one in names), TEXT_COLUMNS[0])


def _text_column(file: Path, footer: Any, column: str) -> int:
    schema = footer.schema.to_arrow_schema()
    if column not in schema.names:
        raise DataError(
            f"{file}: no column {column} (columns: {', '.join(schema.names) or 'none'})",
            hint=f"its text has to be called {', '.join(TEXT_COLUMNS[:-1])} or {TEXT_COLUMNS[-1]}; "
            + IMPORT_HINT,
        )
    kind = schema.field(column).type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise DataError(f"{file}: column {column} holds {kind}, not strings", hint=IMPORT_HINT)
    return leaves_of(footer).index(column)


def _documents(file: Path, column: str) -> Iterator[tuple[str, bytes]]:
    # pre_buffer would hold the whole file's columns at once
    reader = pq.ParquetFile(file, memory_map=True, pre_buffer=False)
    named = {"source", "file"} <= set(reader.schema_arrow.names)
    columns = [column, "source", "file"] if named else [column]
    for batch in reader.iter_batches(batch_size=_ROWS_PER_READ, columns=columns):
        texts = [value or b"" for value in batch.column(column).cast(pa.large_binary()).to_pylist()]
        if not named:
            yield from ((hashlib.sha256(text).hexdigest(), text) for text in texts)
            continue
        sources = batch.column("source").to_pylist()
        names = batch.column("file").to_pylist()
        for source, name, text in zip(sources, names, texts, strict=True):
            yield f"{source}/{name}", text
