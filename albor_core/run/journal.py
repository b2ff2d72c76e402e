"""The journal: everything a run said, one JSON line each, appended and never rewritten. The truth
about history.

    {"t":"m","seq":7,"attempt":1,"step":3,"mono":12.5,"wall":1764.1,"v":{"train/loss":2.31},"crc":3735928559}

Types: m metrics, p param, e event, a artefact, b medium (picture, table, ...; its file was there
before), s sample, r rewind ("to": step). NaN and Inf travel as the strings "nan", "inf", "-inf"
since JSON has no such numbers. `crc` is the CRC-32 of the line's bytes before `,"crc":`. A line
that `append` returned for survives `kill -9`, but for those that wait for a disk (`pending`): it is
in the page cache. `barrier` makes it survive power loss.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from albor_core.run.files.line_appender import LineAppender
from albor_core.run.light_dataclass import dataclass
from albor_core.run.rundir import open_plain
from albor_core.run.values.lenient import NOT_FINITE, number_word

MAX_LINE_BYTES = 4096
_MAX_CHAR_BYTES, _MAX_NUMBER_BYTES = 12, 34  # a character beyond 16 bits; a number and its marks
_ROOM_BYTES = MAX_LINE_BYTES - 256  # for the values: the rest is head and crc
_CRC = b',"crc":'
_MAX_BODY_BYTES = MAX_LINE_BYTES - len(_CRC) - 12  # ten digits, brace, newline
# one for all: `json.dumps` with separators makes a new one for each line, half of a line's cost
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


class Journal(LineAppender):
    """The one writer of a journal. Belongs to the thread that made it, and to the holder of
    run.lock.

    Opening cuts a torn last line and continues its sequence. Never raises on a full or failing
    disk, and does not wait for a slow one: lines then wait in memory, bounded, and `pending` counts
    them (line_appender.py).
    """

    def __init__(
        self, path: Path, *, attempt: int, dumps: Callable[[dict[str, Any]], bytes] | None = None
    ) -> None:
        """`dumps` encodes JSON without spaces, NaN and Inf as null, faster than the standard
        library, which is all that this file may import; TypeError is what it may raise.
        """
        super().__init__(path)
        self.attempt = attempt
        self._dumps = dumps
        self.seq = _last_seq(self.fd, self.offset)

    def metrics(
        self, step: int, values: Mapping[str, float | int | None], **times: float | None
    ) -> None:
        """One interval. More than a line holds is split into lines of the same step.

        `times` (wall, mono) stand for now where history is written down later.
        """
        encoded = {k: v if v is None else number_word(v) for k, v in values.items()}
        times = {"mono": time.monotonic(), "wall": time.time(), **times}  # one for all its lines
        for part in _split(encoded):
            self.append("m", step=step, v=part, **times)

    def numbers(self, step: int, values: dict[str, float | int]) -> bool:
        """One interval of plain floats and ints by `dumps`: the lines that `metrics` writes, at a
        tenth of its cost. False, and nothing written, where it needs the general way: numbers that
        are not finite or too large, names that are not text.
        """
        if self._dumps is None or not values:
            return False
        now = time.monotonic(), time.time()
        try:
            body = self._dumps(self._interval(step, values, now))[:-1]
        except TypeError:
            return False
        if len(body) > _MAX_BODY_BYTES:
            for part in _pieces(values, len(body)):
                self._piece(step, part, now)
            return True
        if b"null" in body:
            return False
        self._write_body(body)
        return True

    def _interval(
        self, step: int, values: dict[str, float | int], now: tuple[float, float]
    ) -> dict[str, Any]:
        return {
            "t": "m",
            "seq": self.seq + 1,
            "attempt": self.attempt,
            "step": step,
            "mono": now[0],
            "wall": now[1],
            "v": values,
        }

    def _piece(self, step: int, values: dict[str, float | int], now: tuple[float, float]) -> None:
        """Part of an interval that more than one line holds, in one line or, if need be, more."""
        assert self._dumps is not None
        body = self._dumps(self._interval(step, values, now))[:-1]
        if len(body) > _MAX_BODY_BYTES and len(values) > 1:
            for part in _pieces(values, len(body)):
                self._piece(step, part, now)
        elif len(body) > _MAX_BODY_BYTES or b"null" in body:
            self.metrics(step, values, mono=now[0], wall=now[1])
        else:
            self._write_body(body)

    def _write_body(self, body: bytes) -> None:
        self.seq += 1
        self.write(_sealed(body))

    def event(
        self, name: str, *, step: int | None = None, severity: str = "info", **data: Any
    ) -> None:
        """Something that happened: `name` is a dotted word, `data` small JSON."""
        self.append("e", step=step, name=name, severity=severity, data=data)

    def rewind(self, to: int) -> None:
        """Discard the history after step `to`: a new attempt starts from its checkpoint."""
        self.append("r", to=to)

    def append(self, kind: str, /, **fields: Any) -> None:
        """Write one line of type `kind`; fields must be JSON values.

        What is longer than a line holds has its long texts cut, ending in `[cut]`.
        """
        self.seq += 1
        head = {
            "t": kind,
            "seq": self.seq,
            "attempt": self.attempt,
            "mono": round(time.monotonic(), 6),
            "wall": round(time.time(), 6),
        }
        body = _encode({**head, **fields})
        limit = MAX_LINE_BYTES // 4
        while len(body) > _MAX_BODY_BYTES and limit > 8:
            body = _encode({**head, **{key: _cut(value, limit) for key, value in fields.items()}})
            limit //= 2
        if len(body) > _MAX_BODY_BYTES and kind != "m":
            kept = {k: v for k, v in fields.items() if not isinstance(v, dict | list | tuple)}
            body = _encode({**head, **kept, "data": {"cut": True}})
        self.write(_sealed(body))


@dataclass(frozen=True)
class JournalLine:
    """A whole line of a journal; `record` is None where the line is damaged."""

    start: int
    end: int
    record: dict[str, Any] | None


def written_line(record: Mapping[str, Any]) -> bytes:
    """The line of a record as `parse_json` gives it, its `crc` made anew: for a copy of a journal
    that leaves something out.
    """
    body = _encode({key: value for key, value in record.items() if key != "crc"})
    return _sealed(body)


def read_journal(path: Path, offset: int = 0) -> Iterator[JournalLine]:
    """Whole lines from byte `offset` on; a torn tail is left for later. Raises OSError if there is
    no file.
    """
    with open_plain(path) as file:
        file.seek(offset)
        for raw in file:
            if not raw.endswith(b"\n"):
                return
            end = offset + len(raw)
            yield JournalLine(offset, end, parse_line(raw))
            offset = end


def last_event(path: Path, name: str) -> dict[str, Any] | None:
    """The last event `name` that a journal tells of, whole and undamaged; rewinds are not applied.

    None where it tells of none or cannot be read. Only lines that hold the name are parsed.
    """
    found, word = None, name.encode()
    try:
        with open_plain(path) as file:
            for raw in file:
                record = parse_line(raw) if word in raw else None
                if record is not None and (record.get("t"), record.get("name")) == ("e", name):
                    found = record
    except OSError:
        return None
    return found


def parse_json(line: bytes) -> dict[str, Any] | None:
    """Parse a plain JSON line; None if it is not an object."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def parse_line(raw: bytes, loads: Callable[[bytes], Any] = json.loads) -> dict[str, Any] | None:
    """The record of one line with numbers restored; None if its bytes are not what was written.

    `loads` may be a faster reader of JSON; what it refuses, the standard one reads.
    """
    cut = raw.rfind(_CRC)
    try:
        if cut < 0 or int(raw[cut + len(_CRC) : -2]) != zlib.crc32(raw[:cut]):
            return None
        try:
            record = loads(raw)
        except ValueError:
            record = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    if record.get("t") == "m":
        if not isinstance(record.get("v"), dict):
            return None
        if raw.count(b':"') > 1:  # a text beside the type: perhaps a number that JSON has not
            record["v"] = {
                key: NOT_FINITE.get(value, value) if isinstance(value, str) else value
                for key, value in record["v"].items()
            }
    return record


def _sealed(body: bytes) -> bytes:
    """A whole line from a JSON object without its closing brace."""
    return b'%b,"crc":%d}\n' % (body, zlib.crc32(body))


def _encode(record: Mapping[str, Any]) -> bytes:
    """A JSON object without its closing brace."""
    return _ENCODER.encode(record).encode()[:-1]


def _cut(value: Any, limit: int) -> Any:
    if isinstance(value, str) and len(value) > limit:
        return value[:limit] + "[cut]"
    if isinstance(value, dict):
        return {key: _cut(item, limit) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_cut(item, limit) for item in value]
    return value


def _split(values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """`values`, ready to be encoded, in parts that fit a line each."""
    has_huge = any(type(value) is int and value.bit_length() > 64 for value in values.values())
    most = sum(len(key) * _MAX_CHAR_BYTES + _MAX_NUMBER_BYTES for key in values)
    if most <= _ROOM_BYTES and not has_huge:
        yield values  # fits whatever it holds: no need to encode it twice
        return
    size = len(_ENCODER.encode(values))
    if size <= _ROOM_BYTES or len(values) == 1:
        yield values
        return
    for part in _pieces(values, size):
        yield from _split(part)


def _pieces(values: dict[str, Any], size: int) -> Iterator[dict[str, Any]]:
    """Equal shares of `values`, whose JSON has `size` bytes: likely to fit a line each."""
    most = max(1, min(len(values) - 1, len(values) * _ROOM_BYTES // size))
    items = iter(values.items())
    while part := dict(islice(items, most)):
        yield part


def _last_seq(fd: int, end: int) -> int:
    """The highest sequence number near the end; looks further back while all it sees is damage."""
    span = 16 * MAX_LINE_BYTES
    while True:
        start = max(0, end - span)
        for raw in reversed(os.pread(fd, end - start, start).splitlines(keepends=True)):
            record = parse_line(raw)
            if record is not None and isinstance(record.get("seq"), int):
                return int(record["seq"])
        if start == 0:
            return 0
        span *= 16
