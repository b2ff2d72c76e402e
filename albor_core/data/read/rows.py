"""Rows of a JSONL (also compressed) or CSV file as documents. Memory is bounded whatever the file
holds; what it expands to is at most 200 times what it is.

A document is named by the number of its line or row, from 1.
"""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from albor_core.data.read.inputs import (
    FREE_BYTES,
    MAX_EXPANSION,
    UNIT_BYTES,
    Asked,
    Document,
    pick_column,
    reason_to_skip,
    row_licence,
    text_elsewhere,
    too_dense,
)
from albor_core.data.stage.corpus import TEXT_COLUMNS
from albor_core.data.stage.stamp import Stamp, changed, stamp_file, unreadable
from albor_core.run.errors import DataError

MAX_ROW_BYTES = 16 << 20  # of CSV, which keeps four bytes a letter
_BLOCK = 1 << 20
_MAX_NAMES = 1_000  # of columns, to be told
_BOM = b"\xef\xbb\xbf"


def is_gzip(path: Path) -> bool:
    return path.name.lower().endswith(".gz")


# JSONL


def json_column(path: Path, asked: Asked) -> str:
    """The column of text, by the first row that has one. Raises DataError where none has it."""
    names: dict[str, None] = {}
    wanted = (asked.column,) if asked.column else TEXT_COLUMNS
    said = ""
    with _opened(path) as stream:
        for number, line in enumerate(_lines(stream, _longest_line(asked.max_bytes)), 1):
            row, reason = _parsed(line)
            if row is not None:
                if any(one in row for one in wanted):
                    names = dict.fromkeys(row)
                    break
                if len(names) < _MAX_NAMES:
                    names.update(dict.fromkeys(row))
            elif reason and not said:
                said = f"line {number} is {reason.replace('_', ' ')}"
    if not names:
        raise DataError(
            f"{path}: no line is a JSON object: {said or 'it is empty'}",
            hint="write one JSON object on each line",
        )
    return pick_column(path, list(names), asked.column)


def json_units(path: Path) -> Iterator[tuple[int, int, list[Any]]]:
    """Lines, bytes and [first byte, end, number of the first line, stamp] of pieces of at least
    16 MiB that end with a line; a compressed file is one piece.
    """
    stamp = stamp_file(path)
    if is_gzip(path):
        yield 0, stamp[0], [0, None, 1, stamp]
        return
    start = position = lines = 0
    first = 1
    with _opened(path) as stream:
        while block := stream.read(_BLOCK):
            cut = 0
            if position + len(block) - start >= UNIT_BYTES:
                cut = block.rfind(b"\n") + 1
            lines += block.count(b"\n", 0, cut or len(block))
            if cut:
                yield lines, position + cut - start, [start, position + cut, first, stamp]
                start, first, lines = position + cut, first + lines, block.count(b"\n", cut)
            position += len(block)
    if position > start:
        yield lines, position - start, [start, position, first, stamp]


def json_documents(path: Path, what: list[Any], column: str, max_bytes: int) -> Iterator[Document]:
    """The documents of one piece. Raises DataError for a file that changed or is damaged."""
    start, end, first, stamp = what
    with _opened(path, tuple(stamp)) as stream:
        stream.seek(start)
        left = None if end is None else end - start
        most = _longest_line(max_bytes)
        for number, line in enumerate(_lines(stream, most, left), first):
            row, reason = _parsed(line)
            if row is not None:
                yield _document(str(number), row, column, max_bytes)
            elif reason:
                yield Document(str(number), b"", reason)


def _longest_line(max_bytes: int) -> int:
    """The longest line of JSON, in which a text has escapes and other columns beside it."""
    return 8 * max_bytes + (1 << 20)


def _parsed(line: bytes | None) -> tuple[dict[str, Any] | None, str]:
    """The object, or None and why; None and "" for an empty line."""
    if line is None:
        return None, "too_large"
    try:
        row = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError:
        return None, "not_utf8"
    except (ValueError, RecursionError):
        return None, "not_json" if not line.isspace() else ""
    return (row, "") if isinstance(row, dict) else (None, "not_an_object")


def _document(name: str, row: dict[str, Any], column: str, max_bytes: int) -> Document:
    text = row.get(column)
    if not isinstance(text, str):
        return Document(name, b"", "no_text", elsewhere=text_elsewhere(row, column))
    try:
        raw = text.encode("utf-8")
    except UnicodeEncodeError:  # half of a pair of surrogates, as an escape
        return Document(name, b"", "not_utf8")
    return _text_document(name, raw, row, column, max_bytes)


def _text_document(
    name: str, raw: bytes, row: dict[str, Any], column: str, max_bytes: int
) -> Document:
    reason = reason_to_skip(raw, max_bytes)
    elsewhere = text_elsewhere(row, column) if reason == "empty" else ""
    text = b"" if reason == "too_large" else raw
    return Document(name, text, reason, _licence(row), elsewhere)


def _licence(row: dict[str, Any]) -> str | None:
    return row_licence(row.get("licence", row.get("license")))


# CSV


def csv_column(path: Path, asked: Asked) -> str:
    """The column of text, by the header. Raises DataError where it is not there."""
    with _opened(path) as stream:
        header = next(_csv_rows(path, stream), None)
    if header is None:
        raise DataError(f"{path}: is empty", hint="the first line names the columns")
    return pick_column(path, header[1], asked.column)


def csv_units(path: Path) -> Iterator[tuple[int, int, list[Any]]]:
    """One: where a row ends is known only to who has read all before it."""
    stamp = stamp_file(path)
    yield 0, stamp[0], [stamp]


def csv_documents(path: Path, what: list[Any], column: str, max_bytes: int) -> Iterator[Document]:
    """The documents of a file. Raises DataError for a file that changed, or whose quotes do not
    match."""
    with _opened(path, tuple(what[0])) as stream:
        rows = _csv_rows(path, stream)
        _, header = next(rows, (0, []))
        for number, cells in rows:
            if not cells:
                continue
            if _is_header(cells, header, column):
                header = cells
                continue
            if len(cells) != len(header):
                yield Document(str(number), b"", "other_columns")
                continue
            row = dict(zip(header, cells, strict=True))
            if column not in row:
                elsewhere = text_elsewhere(row, column)
                yield Document(str(number), b"", "no_text", elsewhere=elsewhere)
                continue
            raw = row[column].encode("utf-8", "surrogateescape")
            yield _text_document(str(number), raw, row, column, max_bytes)


def _is_header(cells: list[str], header: list[str], column: str) -> bool:
    """Whether a row is a header again, as files have that were joined: the same names, or others
    with the column of text, or one that may be it, among them.
    """
    names, known = set(cells), set(header)
    if names == known and len(cells) == len(header):
        return True
    wanted = {column, *TEXT_COLUMNS}
    has_text = len(names) == len(cells) > 1 and not names.isdisjoint(wanted)
    return has_text and 2 * len(names & (known | wanted)) > len(names)


def _csv_rows(path: Path, stream: BinaryIO) -> Iterator[tuple[int, list[str]]]:
    """The line that each row begins with, and its cells; bytes that are not UTF-8 are escaped."""
    number, taken = 0, 0

    def decoded() -> Iterator[str]:
        nonlocal number, taken
        for line in _lines(stream, MAX_ROW_BYTES):
            number += 1
            taken += len(line or b"")
            if line is None or taken > MAX_ROW_BYTES:
                raise csv.Error(f"a row longer than {MAX_ROW_BYTES:,} bytes begins here")
            yield line.decode("utf-8", "surrogateescape")

    csv.field_size_limit(MAX_ROW_BYTES)
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    first = 1
    try:
        for cells in csv.reader(decoded(), delimiter=delimiter, strict=True):
            yield first, cells
            first, taken = number + 1, 0
    except csv.Error as error:
        raise DataError(
            f"{path}: line {first}: {error}",
            hint="look for a quote that is not closed there, or write the rows as JSONL",
        ) from error


# streams


@contextmanager
def _opened(path: Path, stamp: Stamp | None = None) -> Iterator[BinaryIO]:
    """Bytes of the file, decompressed where it is compressed. Raises DataError where they cannot be
    read, and at the end where the file is not what `stamp` says.
    """
    try:
        with path.open("rb", buffering=_BLOCK) as plain:
            if is_gzip(path):
                with gzip.GzipFile(fileobj=plain) as stream:
                    yield cast(BinaryIO, _Capped(path, stream, plain))
            else:
                yield plain
        if stamp is not None and stamp_file(path) != stamp:
            raise changed(path)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"{path}: is a damaged gzip file: {error}", hint=f"check it with: gzip -t {path}"
        ) from error
    except OSError as error:
        raise unreadable(path, error) from error


class _Capped:
    """A compressed file that may expand to 200 times its size."""

    def __init__(self, path: Path, stream: gzip.GzipFile, plain: BinaryIO) -> None:
        self._path, self._stream, self._plain = path, stream, plain
        self._taken = 0

    def seek(self, position: int) -> None:
        assert position == 0

    def readline(self, size: int) -> bytes:
        line = self._stream.readline(size)
        self._taken += len(line)
        if self._taken > FREE_BYTES + MAX_EXPANSION * self._plain.tell():
            raise too_dense(self._path)
        return line


def _lines(stream: BinaryIO, most: int, left: int | None = None) -> Iterator[bytes | None]:
    """Each line of the next `left` bytes, None for one that is longer than `most`."""
    is_first = True
    while left is None or left > 0:
        line = stream.readline(most + 1)
        if not line:
            return
        size = len(line)
        is_long = size > most and not line.endswith(b"\n")
        while is_long and (piece := stream.readline(_BLOCK)):
            size += len(piece)
            if piece.endswith(b"\n"):
                break
        if left is not None:
            left -= size
        if is_first:
            line = line.removeprefix(_BOM)
            is_first = False
        yield None if is_long else line
