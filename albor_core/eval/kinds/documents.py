"""Reads documents to evaluate: rows of Parquet, lines of JSON, or text files.

A text's group is the value of a column, or for files the first folder below the given one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from albor_core.data.stage.corpus import TEXT_COLUMNS, read_footer, usual_text_column
from albor_core.run.errors import DataError, NotFoundError

_ROWS = 256
_MAX_TEXT_BYTES = 64 << 20
_JSON_LINES = (".jsonl", ".ndjson")


@dataclass(frozen=True)
class TextDocument:
    """One text. `item` names it within its data: file and row."""

    item: str
    text: str
    group: str = ""

    @property
    def num_bytes(self) -> int:
        return len(self.text.encode())


@dataclass(frozen=True)
class TextDocuments:
    """Opened data: checked to be readable, with no text read yet."""

    path: Path
    files: tuple[Path, ...]
    column: str
    by: str | None
    limit: int | None = None
    given: str | None = None
    """The one text, where it is not in a file."""

    @property
    def has_columns(self) -> bool:
        return self.files[0].suffix == ".parquet" or is_json_lines(self.files[0])

    def __iter__(self) -> Iterator[TextDocument]:
        """In order of files and rows. Raises DataError naming file and line."""
        return islice(self._all(), self.limit)

    def count(self) -> int:
        """The number of documents. Raises DataError, OSError."""
        found = 1 if self.given is not None else sum(map(_count, self.files))
        return found if self.limit is None else min(found, self.limit)

    def _all(self) -> Iterator[TextDocument]:
        if self.given is not None:
            yield TextDocument("stdin", self.given)
            return
        for file in self.files:
            name = file.relative_to(self.path).as_posix() if file != self.path else file.name
            if file.suffix == ".parquet":
                yield from self._rows(file, name)
            elif is_json_lines(file):
                yield from self._of_lines(file, name)
            else:
                group = name.partition("/")[0] if "/" in name else ""
                yield TextDocument(name, _text_of(file), group)

    def _rows(self, file: Path, name: str) -> Iterator[TextDocument]:
        columns = [self.column, *([self.by] if self.by else [])]
        row = 0
        try:
            reader = pq.ParquetFile(file, memory_map=True, pre_buffer=False)
            for batch in reader.iter_batches(batch_size=_ROWS, columns=columns):
                texts = batch.column(self.column).to_pylist()
                groups = batch.column(self.by).to_pylist() if self.by else [""] * len(texts)
                for text, group in zip(texts, groups, strict=True):
                    yield TextDocument(f"{name}:{row}", text or "", _group(group))
                    row += 1
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise DataError(f"{file}: cannot be read as Parquet: {error}", hint=_AGAIN) from error

    def _of_lines(self, file: Path, name: str) -> Iterator[TextDocument]:
        for number, record in json_lines(file):
            for column in (self.column, *([self.by] if self.by else [])):
                if column not in record:
                    has = ", ".join(map(str, record)) or "none"
                    raise DataError(f"{file}:{number}: no {column!r} (it has {has})", hint=_COLUMN)
            text = record[self.column]
            if not isinstance(text, str):
                raise DataError(f"{file}:{number}: {self.column!r} is not text", hint=_COLUMN)
            yield TextDocument(f"{name}:{number}", text, _group(record[self.by]) if self.by else "")


_AGAIN = "write or fetch it again"
_COLUMN = "name the column that holds texts: --set column=NAME"


def open_documents(
    path: Path, *, column: str = "text", by: str | None = None, limit: int | None = None
) -> TextDocuments:
    """Open the data at a path. Raises NotFoundError if nothing is there, DataError if there is no
    such column, `by` is used for plain texts, or a folder holds no file.
    """
    if not path.exists():
        raise NotFoundError(f"{path}: no such file or folder", hint="check the path and try again")
    files = _files(path)
    column = _column_of(files[0], column)
    found = TextDocuments(path, files, column, by, limit)
    if not found.has_columns and by is not None:
        what = f"{path}: plain texts have no column {by!r}; they are told apart by folder"
        raise DataError(what, hint="leave `by` out, or name Parquet or JSON lines")
    for file in files:
        if file.suffix == ".parquet":
            _check_columns(file, column, by)
    return found


def _column_of(file: Path, column: str) -> str:
    """The text column: `column`, or, if that is the default and missing, the first of the usual
    names that the file has. Raises DataError, NotFoundError.
    """
    if column != TEXT_COLUMNS[0]:
        return column
    names: Collection[str] = ()
    if file.suffix == ".parquet":
        names = read_footer(file).schema.to_arrow_schema().names
    elif is_json_lines(file):
        names = next((record for _, record in json_lines(file)), {})
    return usual_text_column(names)


def is_json_lines(file: Path) -> bool:
    """Whether the file has a name of JSON lines."""
    return file.suffix in _JSON_LINES


def json_lines(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number from 1, object); empty lines are skipped.

    Raises DataError naming file:line, NotFoundError.
    """
    try:
        with file.open("rb") as lines:
            for number, raw in enumerate(lines, 1):
                if not raw.strip():
                    continue
                try:
                    found = json.loads(raw)
                except (ValueError, RecursionError) as error:
                    why = f": {error.msg}" if isinstance(error, json.JSONDecodeError) else ""
                    what = f"{file}:{number}: is not JSON{why}"
                    raise DataError(what, hint="repair or remove that line") from error
                if not isinstance(found, dict):
                    what = f"{file}:{number}: is not a JSON object"
                    raise DataError(what, hint="repair or remove that line")
                yield number, found
    except FileNotFoundError as error:
        raise NotFoundError(f"{file}: no such file", hint="check the path") from error
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}", hint="ls -l") from error


def _count(file: Path) -> int:
    if file.suffix == ".parquet":
        return int(read_footer(file).num_rows)
    if is_json_lines(file):
        with file.open("rb") as lines:
            return sum(1 for line in lines if line.strip())
    return 1


def _files(path: Path) -> tuple[Path, ...]:
    if path.is_file():
        return (path,)
    kinds: tuple[tuple[str, ...], ...] = ((".parquet",), _JSON_LINES)
    for suffixes in kinds:
        if found := sorted(one for one in path.iterdir() if one.suffix in suffixes):
            return tuple(found)
    texts = sorted(one for one in path.rglob("*") if one.is_file() and not _is_hidden(one, path))
    if not texts:
        raise DataError(f"{path}: holds no file", hint="name Parquet, JSON lines or texts")
    return tuple(texts)


def _is_hidden(file: Path, below: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(below).parts)


def _check_columns(file: Path, column: str, by: str | None) -> None:
    schema = read_footer(file).schema.to_arrow_schema()
    for name in (column, *([by] if by else [])):
        if name not in schema.names:
            has = ", ".join(schema.names) or "none"
            raise DataError(f"{file}: no column {name!r} (columns: {has})", hint=_COLUMN)
    kind = schema.field(column).type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise DataError(f"{file}: column {column!r} holds {kind}, not strings", hint=_COLUMN)


def _group(value: object) -> str:
    return "" if value is None else str(value)


def _text_of(file: Path) -> str:
    try:
        if file.stat().st_size > _MAX_TEXT_BYTES:
            what = f"{file}: larger than {_MAX_TEXT_BYTES >> 20} MiB, and a file is one text"
            raise DataError(what, hint="split it, or make Parquet of it: albor data import")
        return file.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{file}: is not UTF-8 text", hint="leave it out") from error
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror}", hint="ls -l") from error
