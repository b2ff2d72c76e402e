"""TensorBoard's event files: each folder that holds some is a run, as in TensorBoard itself.

A file is a row of TFRecords (length, its CRC-32C, an Event, its CRC-32C). Scalars come as
`simple_value` (tensorboardX, torch) or as tensors of one element (TensorFlow 2, whose metadata only
stands with the first value of a tag). A SessionLog START takes back the steps from its own on, as
`purge_step` of the writers means it. Hyper-parameters are read from the head of each file.
Source: tensorflow/core/util/event.proto, framework/summary.proto, tsl/lib/io/record_writer.cc.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from albor_core.integrations.importers.foreign import (
    Example,
    ForeignMedium,
    ForeignRun,
    Importer,
    Item,
    Losses,
    Point,
    Refusal,
    Rewind,
)
from albor_core.integrations.importers.formats.protobuf import (
    ProtobufError,
    block,
    double,
    fields,
    packed_varints,
    signed,
    single,
    text,
)
from albor_core.integrations.importers.media.kept import At
from albor_core.integrations.importers.media.summary_value import media_of
from albor_core.integrations.importers.steps.order import numbered, stepless

SOURCE = "tensorboard"
MAX_RECORD_BYTES = 64 << 20
# a longer record is a picture or a graph: its CRC would cost more than it
_CHECKED_BYTES = 64 << 10
_HEAD_RECORDS = 256
_MAX_TAGS = 100_000
_MAX_KEYS_A_POINT = 512
_START = 1  # SessionLog.START
_FORMATS = {1: "f", 2: "d", 3: "i", 4: "B", 5: "h", 6: "b", 9: "q", 10: "?", 17: "H", 19: "e",
            22: "I", 23: "Q"}  # fmt: skip  # DataType -> struct
_MEDIA = {3: "histogram", 4: "image", 5: "histogram", 6: "audio"}


def _crc_of_byte(crc: int) -> int:
    for _ in range(8):
        crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)  # Castagnoli's polynomial, reversed
    return crc


_BYTE = tuple(map(_crc_of_byte, range(256)))


def is_event_file(head: bytes) -> bool:
    """Whether a file that begins so is a row of TFRecords."""
    return len(head) >= 12 and _masked(head[:8]) == int.from_bytes(head[8:12], "little")


def read(files: list[Path], root: Path) -> Iterator[ForeignRun | Refusal]:
    """A run for each folder with event files, but for one that `add_hparams` made: it belongs to
    the folder it lies in. `root` is where the search began.
    """
    folders: dict[Path, list[Path]] = {}
    for path in sorted(files):
        folders.setdefault(path.parent, []).append(path)
    base = root if root.is_dir() else root.parent
    told: dict[Path, dict[str, Any]] = {}
    for folder in list(folders):
        try:
            told[folder] = _hparams(folders[folder])
        except OSError as error:
            where = folders.pop(folder)[0]
            yield Refusal(where, f"{error.filename or where}: {error.strerror}")
    trials = _trials(told)
    for folder, inside in folders.items():
        if folder in trials.values():
            continue
        first = next((r for path in inside for r in records(path, Losses())), None)
        if first is None:
            continue  # a writer that has not said anything yet
        created, _, _ = _event(first)
        trial = tuple(folders[trials[folder]]) if folder in trials else ()
        yield ForeignRun(
            source=SOURCE,
            key=f"{inside[0].name}\0{sha256(first).hexdigest()}",
            name=str(folder.relative_to(base)) if folder != base else folder.name,
            experiment=base.name or "tensorboard",
            where=folder,
            items=partial(_whole, tuple(inside), trial),
            created=created or None,
            params=told[trials.get(folder, folder)],
            facts={"files": len(inside) + len(trial)},
        )


def _trials(told: Mapping[Path, Mapping[str, Any]]) -> dict[Path, Path]:
    """Folder -> the one folder in it that says its hyper-parameters. Several are runs of a search,
    each of its own.
    """
    inside: dict[Path, list[Path]] = {}
    for folder, params in told.items():
        if params and folder.parent in told and not told[folder.parent]:
            inside.setdefault(folder.parent, []).append(folder)
    return {folder: trials[0] for folder, trials in inside.items() if len(trials) == 1}


def _whole(files: tuple[Path, ...], trial: tuple[Path, ...], losses: Losses) -> Iterator[Item]:
    """The history of a run, numbered by order where its writer gave no steps, then what stands
    beside its hyper-parameters: under `summary/` where the run has a curve of that name.
    """
    curves: set[str] = set()
    keys = stepless(_items(files, Losses()))
    for item in numbered(_items(files, losses), keys, losses):
        if isinstance(item, Point):
            curves.update(item.values)
        yield item
    for item in _items(trial, losses):
        if isinstance(item, Point):
            values = {f"summary/{k}" if k in curves else k: v for k, v in item.values.items()}
            yield replace(item, values=values)
        else:
            yield item


def records(path: Path, losses: Losses) -> Iterator[bytes]:
    """The payloads of a file's records. A damaged one is skipped; after a damaged length nothing
    can be found again, and the rest is counted as one.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        while len(head := file.read(12)) == 12:
            length = int.from_bytes(head[:8], "little")
            if not is_event_file(head):
                losses.spoil(f"byte {file.tell() - 12:,} of {path.name}")
                losses.note("bytes after a damaged length", size - file.tell() + 12)
                return
            if length > MAX_RECORD_BYTES:
                losses.note("record over 64 MiB")
                file.seek(length + 4, 1)
                continue
            payload, crc = file.read(length), file.read(4)
            if len(crc) < 4:
                break
            if length <= _CHECKED_BYTES and _masked(payload) != int.from_bytes(crc, "little"):
                losses.spoil(f"a record that ends at byte {file.tell():,} of {path.name}")
                continue
            yield payload
        else:
            if not head:
                return
    losses.note("torn record at the end of a file")


def _masked(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _BYTE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _event(payload: bytes) -> tuple[float, int, list[tuple[int, bytes]]]:
    """(wall, step, the parts that are messages or bytes by field number)."""
    wall, step = 0.0, 0
    parts: list[tuple[int, bytes]] = []
    for number, value in fields(payload):
        if number == 1:
            wall = double(value)
        elif number == 2:
            step = signed(value)
        elif isinstance(value, bytes):
            parts.append((number, value))
    return wall, step, parts


def _items(files: tuple[Path, ...], losses: Losses) -> Iterator[Item]:
    plugins: dict[str, str] = {}
    waiting: Point | None = None
    for payload in (record for path in files for record in records(path, losses)):
        try:
            wall, step, parts = _event(payload)
            values, media, starts = _parts(parts, (step, wall or None), plugins, losses)
        except ProtobufError:
            losses.spoil("an event", payload)
            continue
        if starts and waiting is not None:
            yield waiting
            yield Rewind(step - 1)
            waiting = None
        yield from media
        if not values:
            continue
        if waiting is not None and _joins(waiting, step, values):
            waiting = Point(step, waiting.wall, {**waiting.values, **values})
            continue
        if waiting is not None:
            yield waiting
        waiting = Point(step, wall, values)
    if waiting is not None:
        yield waiting


def _joins(waiting: Point, step: int, values: dict[str, float]) -> bool:
    """Whether an event says more of the same step: writers make one for each scalar."""
    is_same = waiting.step == step and waiting.values.keys().isdisjoint(values)
    return is_same and len(waiting.values) < _MAX_KEYS_A_POINT


def _parts(
    parts: list[tuple[int, bytes]], at: At, plugins: dict[str, str], losses: Losses
) -> tuple[dict[str, float], list[ForeignMedium], bool]:
    """The scalars and media of an event, and whether a session starts with it."""
    values: dict[str, float] = {}
    media: list[ForeignMedium] = []
    starts = False
    for number, part in parts:
        if number == 5:
            for inner, value in fields(part):
                if inner == 1:
                    media += _take_value(block(value), at, values, plugins, losses)
        elif number == 7:
            starts = dict(fields(part)).get(1) == _START
        elif number in (4, 8, 9):
            losses.note("graph")
    return values, media, starts


def _take_value(
    message: bytes, at: At, values: dict[str, float], plugins: dict[str, str], losses: Losses
) -> list[ForeignMedium]:
    found = dict(fields(message))
    tag = text(found.get(1, b""))
    plugin = _plugin(found)[0] if 9 in found else plugins.get(tag, "")
    if 9 in found and len(plugins) < _MAX_TAGS:
        plugins[tag] = plugin
    if 2 in found:
        values[tag] = single(found[2])
        return []
    number = _scalar(block(found[8])) if 8 in found and plugin in ("", "scalars") else None
    if number is not None:
        values[tag] = number
        return []
    made = media_of(at, tag, plugin, found)
    if None in made or not made:
        media = next((word for at, word in _MEDIA.items() if at in found), "value of no known kind")
        if plugin != "hparams":  # they are parameters
            losses.note(plugin or media, max(1, made.count(None)), Example(tag, at[0]))
    return [medium for medium in made if medium is not None]


def _plugin(value: dict[int, Any]) -> tuple[str, bytes]:
    """(plugin's name, its content) of a Summary.Value with metadata."""
    data = dict(fields(block(dict(fields(block(value[9]))).get(1, b""))))
    return text(data.get(1, b"")), block(data.get(2, b""))


def _scalar(tensor: bytes) -> float | int | None:
    """The one number of a TensorProto; None if there are several, or it is not a number."""
    found = dict(fields(tensor))
    kind = found.get(1)
    form = _FORMATS.get(kind) if isinstance(kind, int) else None
    if form is None or not _has_one_element(block(found.get(2, b""))):
        return None
    content = block(found.get(4, b""))
    if content:
        fits = len(content) == struct.calcsize("<" + form)
        number: float | int | None = struct.unpack("<" + form, content)[0] if fits else None
        return number
    if form in "fd":
        raw = block(found.get(5 if form == "f" else 6, b""))
        return (single(raw) if form == "f" else double(raw)) if raw else 0.0
    return _listed(found, form)


def _listed(found: dict[int, Any], form: str) -> float | int | None:
    """A number from the tensor's lists of whole numbers; half precision lies there as bits."""
    at = {"q": 10, "?": 11, "I": 16, "Q": 17, "e": 13}.get(form, 7)
    value = found.get(at, b"\0")
    numbers = [value] if isinstance(value, int) else packed_varints(value, 2)
    if len(numbers) != 1:
        return None
    if form == "e":
        half: float = struct.unpack("<e", (numbers[0] & 0xFFFF).to_bytes(2, "little"))[0]
        return half
    return int(numbers[0]) if form in "QI?" else signed(numbers[0])


def _has_one_element(shape: bytes) -> bool:
    dims = [dict(fields(block(value))) for number, value in fields(shape) if number == 2]
    return all(dim.get(1) == 1 for dim in dims)


def _hparams(files: list[Path]) -> dict[str, Any]:
    """Hyper-parameters of the hparams plugin, said once near the head of a file."""
    found: dict[str, Any] = {}
    for path in files:
        for _, payload in zip(range(_HEAD_RECORDS), records(path, Losses()), strict=False):
            try:
                for number, part in _event(payload)[2]:
                    if number == 5:
                        found.update(_session(part))
            except ProtobufError:
                continue  # counted where the history is read
    return found


def _session(summary: bytes) -> dict[str, Any]:
    params: dict[str, Any] = {}
    for number, value in fields(summary):
        inside = dict(fields(block(value))) if number == 1 else {}
        if 9 not in inside:
            continue
        plugin, content = _plugin(inside)
        if plugin != "hparams":
            continue
        start = block(dict(fields(content)).get(3, b""))
        for at, entry in fields(start):
            if at == 1:
                pair = dict(fields(block(entry)))
                params[text(pair.get(1, b""))] = _plain(block(pair.get(2, b"")))
    return params


def _plain(value: bytes) -> float | str | bool | None:
    """google.protobuf.Value but for lists and structures."""
    for number, inside in fields(value):
        match number:
            case 2:
                return double(inside)
            case 3:
                return text(inside)
            case 4:
                return bool(inside)
    return None


IMPORTER = Importer(
    name=SOURCE,
    title="TensorBoard",
    read=read,
    may_be=lambda name: "tfevents" in name,
    is_file=lambda path, head: is_event_file(head),
    group=lambda path: Path(),  # one that add_hparams made belongs to the one it lies in
)
