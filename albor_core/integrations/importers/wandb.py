"""Weights & Biases: the transaction log (`run-ID.wandb`) of an offline run directory.

Blocks of 32 KiB as in LevelDB's log, with CRC-32, after a head of 7 bytes; each record a protobuf
`Record`. Several logs of one run id are one run that was resumed. Keys of nested values are joined
with `/`; the axis of `define_metric`, else `_step`, and `_timestamp` place a value, other keys with
an underscore are the peer's own (steps/wandb_axes.py). A
number that only the summary has becomes `summary/KEY` at the last step.
Source: wandb/proto/wandb_internal.proto and core/pkg/leveldb of wandb 0.31.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from albor_core.integrations.importers.foreign import (
    CALLS,
    Example,
    ForeignRun,
    Importer,
    Item,
    Losses,
    MetricWord,
    Point,
    Refusal,
    Rewind,
    numbers_in,
)
from albor_core.integrations.importers.formats.protobuf import (
    ProtobufError,
    block,
    double,
    fields,
    seconds,
    signed,
    text,
    zigzag,
)
from albor_core.integrations.importers.media.kept import parted, typed
from albor_core.integrations.importers.steps.wandb_axes import (
    Axes,
    Definition,
    LogSpan,
    is_step,
    offsets,
    whole_step,
)
from albor_core.run.errors import DataError
from albor_core.run.values.lenient import finite_of, is_number, number_of

SOURCE = "wandb"
HEAD = b":W&B"
BLOCK_BYTES = 32 << 10
MAX_RECORD_BYTES = 64 << 20
_CHUNK = struct.Struct("<IHB")  # CRC-32 of kind and data, length, kind
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_HISTORY, _SUMMARY, _METRIC, _RUN = 2, 3, 12, 17
_UNMAPPED = {4: "console line", 7: "system sample", 8: "artifact", 10: "alert",
             13: "console line", 25: "artifact", 27: "console line"}  # fmt: skip
_MAX_SUMMARY = 10_000


@dataclass
class _Head:
    """The records of one log besides its history; later ones replace earlier ones."""

    run: dict[int, Any] = field(default_factory=dict)
    tags: list[str] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    exit_code: int | None = None
    runtime: float = 0.0
    host: str = ""
    program: str = ""

    def said(self, number: int) -> str:
        return text(self.run.get(number, b""))

    @property
    def created(self) -> float | None:
        return seconds(block(self.run[17])) if 17 in self.run else None


def is_log(head: bytes) -> bool:
    """Whether a file that begins so is a transaction log."""
    return head.startswith(HEAD)


def read(files: list[Path], root: Path) -> Iterator[ForeignRun | Refusal]:
    """A run for each run id; logs of one id belong together, oldest first."""
    logs: dict[str, list[tuple[float, Path, _Head]]] = {}
    for path in sorted(files):
        try:
            head = _head(path)
        except (DataError, OSError) as error:
            yield Refusal(path, str(error))
            continue
        if not head.run:
            yield Refusal(path, f"{path}: no run record in it, so nothing says what run this is")
            continue
        key = "/".join(head.said(number) for number in (2, 3, 1))
        logs.setdefault(key, []).append((head.created or 0.0, path, head))
    for key, found in logs.items():
        found.sort(key=lambda log: log[:2])
        yield _run(key, [path for _, path, _ in found], [head for *_, head in found])


def _run(key: str, files: list[Path], heads: list[_Head]) -> ForeignRun:
    last = heads[-1]
    created = heads[0].created
    status, ending = _ending(last)
    config: dict[str, Any] = {}
    for head in heads:
        config.update(head.config)
    config.pop("_wandb", None)
    about = {name: last.said(number) for name, number in (("group", 6), ("job_type", 7))}
    git = dict(fields(block(last.run.get(21, b""))))
    return ForeignRun(
        source=SOURCE,
        key=key,
        name=last.said(8) or last.said(1),
        experiment=last.said(3) or "wandb",
        where=files[-1].parent,
        items=partial(_items, tuple(files), last.said(1)),
        created=created,
        ended=None if last.created is None else last.created + last.runtime,
        status=status,
        ending=ending,
        params=config,
        tags=tuple(last.tags),
        notes=last.said(9),
        facts={
            "id": last.said(1),
            "host": last.host or last.said(13),
            "program": last.program,
            "commit": text(git.get(2, b"")),
            **about,
        },
    )


def _ending(head: _Head) -> tuple[str, str]:
    if head.exit_code is None:
        return "failed", "no exit record: it was killed, or it still runs"
    return ("completed" if head.exit_code == 0 else "failed"), f"exit code {head.exit_code}"


def records(path: Path, losses: Losses) -> Iterator[bytes]:
    """The records of a log. Damaged chunks and a torn end are left out and counted."""
    parts: list[bytes] = []
    for kind, data in _chunks(path, losses):
        if kind in (_FULL, _FIRST):
            if parts:  # a record that was never finished
                losses.spoil(f"a record without its end in {path.name}")
            parts = []
        elif not parts:
            continue  # the rest of a record whose beginning is damaged
        parts.append(data)
        if kind not in (_FULL, _LAST):
            if len(parts) * BLOCK_BYTES > MAX_RECORD_BYTES:
                losses.note("record over 64 MiB")
                parts = []
            continue
        whole, parts = b"".join(parts), []
        yield whole
    if parts:
        losses.note("torn record at the end of a file")


def _chunks(path: Path, losses: Losses) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as file:
        page = file.read(BLOCK_BYTES)
        if not is_log(page) or page[6:7] not in (b"", b"\0"):
            raise DataError(f"{path}: not a W&B log of a version that is known")
        at = 7
        while page:
            yield from _chunks_of(page, at, losses)
            page, at = file.read(BLOCK_BYTES), 0


def _chunks_of(page: bytes, at: int, losses: Losses) -> Iterator[tuple[int, bytes]]:
    while at + _CHUNK.size <= len(page):
        crc, length, kind = _CHUNK.unpack_from(page, at)
        if kind == 0 and length == 0:
            return  # the block is filled up with zeros
        start = at + _CHUNK.size
        at = start + length
        if at > len(page) or not _FULL <= kind <= _LAST:
            if len(page) < BLOCK_BYTES and at > len(page):
                losses.note("torn record at the end of a file")
            else:
                losses.spoil("a block of the log")
            return  # only the next block is sure to begin with a chunk
        if zlib.crc32(page[start:at], zlib.crc32(bytes((kind,)))) != crc:
            losses.spoil("a record of the log", page[start:at])
            continue
        yield kind, page[start:at]


def _head(path: Path) -> _Head:
    head = _Head()
    for record in records(path, Losses()):
        try:
            for number, value in fields(record):
                _take(head, number, value)
        except ProtobufError:
            continue  # counted where the history is read
    return head


def _take(head: _Head, number: int, value: int | bytes) -> None:
    match number:
        case 17:
            run = block(value)
            head.run.update(fields(run))
            head.tags = [text(tag) for at, tag in fields(run) if at == 10]
            _configure(head.config, block(dict(fields(run)).get(4, b"")))
        case 5:
            _configure(head.config, block(value))
        case 18:
            found = dict(fields(block(value)))
            head.exit_code = signed(found.get(1, 0))
            head.runtime = float(signed(found.get(2, 0)))
        case 26:
            found = dict(fields(block(value)))
            head.host, head.program = text(found.get(12, b"")), text(found.get(6, b""))


def _configure(config: dict[str, Any], message: bytes) -> None:
    for number, value in fields(message):
        path, item = _item(block(value))
        if number == 2 and path:
            config.pop(path[0], None)
        elif path:
            _put(config, path, item)


def _put(target: dict[str, Any], path: list[str], value: Any) -> None:
    for word in path[:-1]:
        inner = target.setdefault(word, {})
        if not isinstance(inner, dict):
            inner = target[word] = {}
        target = inner
    target[path[-1]] = value


def _item(message: bytes) -> tuple[list[str], Any]:
    """(key as a path, value) of a config, summary or history item. ProtobufError for bad JSON."""
    path: list[str] = []
    value: Any = None
    for number, found in fields(message):
        match number:
            case 1:
                path = [text(found), *path]
            case 2:
                path.append(text(found))
            case 4:
                value = bool(found)
            case 5:
                value = zigzag(found)
            case 6:
                value = double(found)
            case 7:
                value = text(found)
            case 8 | 16:
                value = _json(text(found))
    return path[:16], value


def _json(said: str) -> Any:
    try:
        return json.loads(said)  # NaN and Infinity are written as such
    except (ValueError, RecursionError) as error:
        raise ProtobufError("a value that is not JSON") from error


def _items(files: tuple[Path, ...], run: str, losses: Losses) -> Iterator[Item]:
    axes, spans = _surveyed(files)
    places = _Places(axes, frozenset().union(*(span.fractions for span in spans)), losses)
    keys: set[str] = set()
    summary: dict[str, Any] = {}
    yield from _defined(axes)  # first: what has a goal has room
    for path, add in zip(files, offsets(spans), strict=True):
        places.add = add
        for record in records(path, losses):
            try:
                for number, value in fields(record):
                    if number == _HISTORY:
                        row = _row(block(value))
                        keys.update(row)
                        yield from places.items(row, path.parent / "files")
                    elif number == _RUN:
                        yield from places.branched(block(value), run)
                    elif number == _SUMMARY and len(summary) < _MAX_SUMMARY:
                        _configure(summary, block(value))
                    elif number in _UNMAPPED:
                        losses.note(_UNMAPPED[number])
            except ProtobufError:
                losses.spoil(f"a record of {path.name}", record)
    own = {
        key: value for key, value in summary.items() if key not in keys and not key.startswith("_")
    }
    if numbers := numbers_in(own, losses):
        yield Point(*places.last, {"summary": numbers}, CALLS)


def _surveyed(files: Sequence[Path]) -> tuple[Axes, list[LogSpan]]:
    """The definitions of all logs of a run, and what each covers: known before a row is placed."""
    axes, spans = Axes(), []
    for path in files:
        span = LogSpan()
        spans.append(span)
        for record in records(path, Losses()):
            with suppress(ProtobufError):  # counted where the history is read
                for number, value in fields(record):
                    if number == _METRIC:
                        _learn(axes, block(value))
                    elif number == _HISTORY:
                        row = _row(block(value))
                        step, wall = row.get("_step"), row.get("_timestamp")
                        if isinstance(step, int):
                            span.see(step, wall if is_number(wall) else None, row)
    return axes, spans


def _learn(axes: Axes, message: bytes) -> None:
    """A MetricRecord: name 1, pattern 2, axis 4, options 6 (step_sync 1), summary 7 (min 1, max 2,
    last 5, none 6), goal 8 (1 is to minimise, 2 to maximise).
    """
    found = dict(fields(message))
    name, pattern = (text(found.get(number, b"")).replace("\\.", ".") for number in (1, 2))
    options, summary = (dict(fields(block(found.get(number, b"")))) for number in (6, 7))
    chosen = [word for number, word in ((1, "min"), (2, "max"), (6, "none")) if summary.get(number)]
    way = found.get(8)
    goal = "min" if way == 1 else "max" if way == 2 else ""
    said = Definition(
        text(found.get(4, b"")).replace("\\.", "."),
        bool(options.get(1)),
        chosen[0] if len(chosen) == 1 else "",
        goal,
    )
    if pattern.endswith("*"):
        axes.patterns[pattern] = said
    elif name:
        axes.named[name] = said


def _defined(axes: Axes) -> Iterator[MetricWord]:
    """The main metrics that the author defined: for the smallest of a metric, lower is better."""
    for name, about in axes.named.items():
        goal = about.goal or (about.summary if about.summary in ("min", "max") else "")
        if goal or about.summary:
            yield MetricWord(name.replace(".", "/"), goal, about.summary)


class _Places:
    """Rows to points: each value over the axis that its author chose."""

    def __init__(self, axes: Axes, fractions: frozenset[str], losses: Losses) -> None:
        self._axes, self._fractions, self._losses = axes, fractions, losses
        self.add = 0  # to the peer's own steps of this log
        self.last: tuple[Any, float | None] = (0, None)

    def items(self, row: dict[str, Any], folder: Path) -> Iterator[Item]:
        wall = finite_of(row.get("_timestamp"))
        step = row.get("_step")
        row, media = parted({key: value for key, value in row.items() if key[:1] != "_"})
        numbers = numbers_in(row, self._losses, step=step)
        if isinstance(step, int) and self.add:
            step += self.add
        self.last = (step, wall)
        here = self._axes.see(numbers)
        for axis, values in self._axes.split(numbers).items():
            yield self._point(axis, values, step, wall, is_here=axis in here)
        for key, medium in media:
            about = self._axes.of(key.replace("/", ".")) or self._axes.of(key)
            place = whole_step(self._axes.newest.get(about.axis)) if about is not None else None
            at = (step if place is None else place, wall)
            yield from typed(at, [(key, medium)], folder, self._losses)

    def _point(
        self, axis: str, values: dict[str, Any], step: Any, wall: float | None, *, is_here: bool
    ) -> Point:
        place = whole_step(self._axes.newest.get(axis))
        if not axis or place is None or axis in self._fractions:
            if axis:
                self._note(f"axis {axis} not followed", values, step)
            elif self.add:
                self._note("renumbered", values, step)
            return Point(step, wall, values, CALLS)
        if not is_here:
            self._note(f"axis {axis} filled in", values, place)
        return Point(place, wall, values, "" if is_step(axis) else axis)

    def _note(self, what: str, values: dict[str, Any], step: Any) -> None:
        key, value = next(iter(values.items()))
        self._losses.note(what, len(values), Example(key, whole_step(step), number_of(value)))

    def branched(self, message: bytes, run: str) -> Iterator[Item]:
        """A run that was resumed from a step of its own takes back what lay behind it."""
        branch = dict(fields(block(dict(fields(message)).get(23, b""))))
        origin, value = text(branch.get(1, b"")), branch.get(2)
        if origin == run and value is not None and not self._axes.axes:
            step = whole_step(double(value))
            if step is not None:
                yield Rewind(step)


def _row(message: bytes) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for number, value in fields(message):
        if number == 1:
            path, item = _item(block(value))
            if path:
                _put(row, path, item)
        elif number == 2:
            row.setdefault("_step", signed(dict(fields(block(value))).get(1, 0)))
    return row


IMPORTER = Importer(
    name=SOURCE,
    title="W&B (offline)",
    read=read,
    may_be=lambda name: name.lower().endswith(".wandb"),
    is_file=lambda path, head: is_log(head),
    group=lambda path: Path(),  # a run may have been resumed in any folder
)
