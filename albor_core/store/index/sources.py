"""The files that a run's store is made from, read by byte offset: whole lines only, bounded, never
trusted.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from albor_core.run.journal import parse_line
from albor_core.run.rundir import RunDir, open_plain

BATCH_BYTES = 256 << 10  # about 700 lines of 8 metrics: one transaction of some 6,000 rows
MAX_LINE_BYTES = 1 << 20
Parser = Callable[[bytes], dict[str, Any] | None]


@dataclass(frozen=True)
class Position:
    """How far a file is indexed, and enough of it to notice that it is another file now."""

    offset: int = 0
    tail: int = 0
    tail_crc: int = 0
    head_crc: int = 0
    lines: int = 0
    damaged: int = 0
    ignored: int = 0


@dataclass(frozen=True)
class LineBatch:
    """Lines as (start, record or None where damaged), and where they end."""

    lines: tuple[tuple[int, dict[str, Any] | None], ...]
    position: Position
    is_full: bool  # more may follow at once

    def counting(self, ignored: int) -> Position:
        """The position after this batch, of which `ignored` lines had no known shape."""
        return replace(self.position, ignored=self.position.ignored + ignored)


FILES = ("journal", "attempts", "annotations", "system")


def files_of(run: RunDir) -> dict[str, Path]:
    """Every such file by the name of its position."""
    return {
        "journal": run.journal,
        "attempts": run.attempts,
        "annotations": run.annotations,
        "system": run.system,
    }


def read_batch(path: Path, position: Position, parse: Parser) -> LineBatch | None:
    """The next lines after `position`; None where there is no new whole line. Raises OSError but
    for a missing file, NotPlainError.
    """
    try:
        with open_plain(path) as file:
            fd = file.fileno()
            if os.fstat(fd).st_size <= position.offset:
                return None
            raw = os.pread(fd, BATCH_BYTES, position.offset)
            if b"\n" not in raw and len(raw) == BATCH_BYTES:
                raw = os.pread(fd, MAX_LINE_BYTES, position.offset)
    except FileNotFoundError:
        return None
    end = raw.rfind(b"\n") + 1
    if end == 0 and len(raw) < MAX_LINE_BYTES:
        return None
    return _parsed(raw[:end] if end else raw, position, parse)


def _parsed(raw: bytes, position: Position, parse: Parser) -> LineBatch:
    lines: list[tuple[int, dict[str, Any] | None]] = []
    start, damaged = position.offset, 0
    tail, last = position.tail, b""
    head_crc = position.head_crc
    for whole in _pieces(raw):
        record = parse(whole)
        damaged += record is None
        lines.append((start, record))
        if start == 0:
            head_crc = zlib.crc32(whole)
        tail, last = start, whole
        start += len(whole)
    after = Position(
        offset=position.offset + len(raw),
        tail=tail,
        tail_crc=zlib.crc32(last),
        head_crc=head_crc,
        lines=position.lines + len(lines),
        damaged=position.damaged + damaged,
        ignored=position.ignored,
    )
    return LineBatch(tuple(lines), after, len(raw) > BATCH_BYTES // 2)


def _pieces(raw: bytes) -> list[bytes]:
    """Lines with their ends; bytes without any end are one piece, which no parser accepts."""
    parts = raw.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def is_same_file(path: Path, position: Position) -> bool:
    """Whether the file still begins and, at the offset, ends as it did when it was indexed."""
    if position.offset == 0:
        return True
    try:
        with open_plain(path) as file:
            file.seek(position.tail)
            tail = file.read(position.offset - position.tail)
            file.seek(0)
            head = file.readline(MAX_LINE_BYTES)
    except OSError:
        return False
    return zlib.crc32(tail) == position.tail_crc and zlib.crc32(head) == position.head_crc


def is_cut(path: Path, position: Position) -> bool:
    """Whether the file lost lines that are indexed: it is gone, or its end is. The store knows more
    of it then than it does. Not where it is another file now.
    """
    try:
        with open_plain(path) as file:
            head = file.readline(MAX_LINE_BYTES)
            size = os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        return position.offset > 0
    except OSError:
        return False
    is_its = not head.endswith(b"\n") or zlib.crc32(head) == position.head_crc
    return size < position.offset and is_its


def parse_journal(raw: bytes) -> dict[str, Any] | None:
    """A journal line whose CRC holds and that is an object; None otherwise."""
    try:
        return parse_line(raw, orjson.loads)
    except (AttributeError, KeyError, TypeError, ValueError):  # right CRC, but not a line of ours
        return None


def parse_plain(raw: bytes) -> dict[str, Any] | None:
    """A line of JSON without a CRC (attempts, annotations); None if it is not an object."""
    try:
        record = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None
