"""Pictures, sound, histograms, tables and texts of other trackers, as neutral values.

A foreign file's own claims are not trusted: formats are read from first bytes, sizes
are bounded before anything is read, and a file is only looked for below the folder where its
tracker keeps such files, through no link. What cannot be had is left out, and the caller counts it.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from albor_core.integrations.importers.foreign import Example, ForeignMedium, Losses, not_finite
from albor_core.run.files.media_format import picture_format, sound_format
from albor_core.run.rundir import open_plain
from albor_core.run.values.lenient import is_number, strict_json
from albor_core.run.values.metrics import MAX_DEPTH

MAX_BYTES = 64 << 20
_MAX_TABLE_BYTES = 16 << 20
_MAX_PIXELS = 64 << 20
_MAX_BINS = 4096
_MAX_FILES = 1000  # of one value
At = tuple[Any, float | None]  # step and wall time


def picture(at: At, key: str, content: bytes, caption: str = "") -> ForeignMedium | None:
    """A picture in a form that is known; None for anything else."""
    form, width, height = picture_format(content)
    if not form or width * height > _MAX_PIXELS or len(content) > MAX_BYTES:
        return None
    meta = {"width": width, "height": height} if width else {}
    return ForeignMedium(*at, key, "image", form, content, meta, caption)


def sound(at: At, key: str, content: bytes, caption: str = "") -> ForeignMedium | None:
    """Sound in a form that is known."""
    form = sound_format(content) if len(content) <= MAX_BYTES else ""
    return ForeignMedium(*at, key, "audio", form, content, {}, caption) if form else None


def histogram(at: At, key: str, counts: Any, edges: Any) -> ForeignMedium | None:
    """Counts between edges, of which there is one more."""
    if not isinstance(counts, Sequence) or not isinstance(edges, Sequence):
        return None
    if not 0 < len(counts) <= _MAX_BINS or len(edges) != len(counts) + 1:
        return None
    if not all(is_number(item) and math.isfinite(item) for item in (*counts, *edges)):
        return None
    numbers = [int(count) if float(count).is_integer() else count for count in counts]
    content = _json({"counts": numbers, "edges": [float(f"{edge:.9g}") for edge in edges]})
    meta = {"bins": len(counts), "count": int(sum(counts))}
    return ForeignMedium(*at, key, "histogram", "json", content, meta)


def table(at: At, key: str, columns: Any, rows: Any) -> ForeignMedium | None:
    """Rows as lists under their columns."""
    if not isinstance(columns, list) or not isinstance(rows, list):
        return None
    if not all(isinstance(row, list) and len(row) == len(columns) for row in rows):
        return None
    content = _json({"columns": [str(name) for name in columns], "data": strict_json(rows)})
    meta = {"rows": len(rows), "columns": len(columns)}
    return ForeignMedium(*at, key, "table", "json", content, meta)


def words(at: At, key: str, said: str) -> ForeignMedium | None:
    """A text that holds something."""
    content = said.encode("utf-8", "backslashreplace")
    if not said.strip() or len(content) > MAX_BYTES:
        return None
    return ForeignMedium(*at, key, "text", "txt", content, {"characters": len(said)})


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def inside(folder: Path, name: Any, most: int = MAX_BYTES) -> bytes | None:
    """The bytes of the file `name` below `folder`; None where it is not there, is not a plain file,
    is too large, or a link or a `..` leads to it.
    """
    if not isinstance(name, str) or not name or "\0" in name or len(name) > 4096:
        return None
    place = folder / name
    try:
        if Path(os.path.normpath(place)) != place or place.resolve() != folder.resolve() / name:
            return None
        with open_plain(place) as file:
            content = file.read(most + 1)
    except (OSError, RuntimeError):  # links in a ring
        return None
    return content if len(content) <= most else None


def parted(
    values: Mapping[str, Any], prefix: str = "", depth: int = 0
) -> tuple[dict[str, Any], list[tuple[str, Any]]]:
    """The values that are numbers, and (key, typed value or text) of what is a medium."""
    rest: dict[str, Any] = {}
    found: list[tuple[str, Any]] = []
    for key, value in values.items():
        name = f"{prefix}{key}"
        is_text = isinstance(value, str) and not not_finite(value)
        if is_text or (isinstance(value, Mapping) and "_type" in value):
            found.append((name, value))
        elif isinstance(value, Mapping) and depth + 1 < MAX_DEPTH:
            rest[key], more = parted(value, f"{name}/", depth + 1)
            found += more
        else:
            rest[key] = value
    return rest, found


def typed(
    at: At, found: list[tuple[str, Any]], folder: Path, losses: Losses
) -> Iterator[ForeignMedium]:
    """The media among values as W&B and trackio write them; the others are counted by type."""
    for key, value in found:
        if isinstance(value, str):
            made = [words(at, key, value)] if value.strip() else []
        else:
            made = list(_of_type(at, key, value, folder))[:_MAX_FILES] or [None]
        kind = "text" if isinstance(value, str) else str(value["_type"])
        for medium in made:
            if medium is None:
                losses.note(kind, example=Example(key, at[0]))
            else:
                yield medium


def _of_type(
    at: At, key: str, value: Mapping[str, Any], folder: Path
) -> Iterator[ForeignMedium | None]:
    path = value.get("path") or value.get("file_path")
    match str(value["_type"]).removeprefix("trackio."):
        case "histogram":
            yield histogram(at, key, value.get("values"), _edges(value))
        case "image-file" | "image":
            yield _file(picture, at, key, folder, path, _caption(value))
        case "images/separated":
            yield from _many(at, key, value, folder)
        case "audio-file":
            yield _file(sound, at, key, folder, path, _caption(value))
        case "audio":
            yield from _sounds(at, key, value, folder)
        case "table-file":
            content = inside(folder, path, _MAX_TABLE_BYTES)
            held = _object(content)
            yield table(at, key, held.get("columns"), held.get("data"))
        case "table":
            yield _records(at, key, value.get("_value"))
        case "markdown" if isinstance(value.get("_value"), str):
            yield words(at, key, value["_value"])
        case _:
            yield None


def _caption(value: Mapping[str, Any]) -> str:
    caption = value.get("caption")
    return caption if isinstance(caption, str) else ""


def _sounds(
    at: At, key: str, value: Mapping[str, Any], folder: Path
) -> Iterator[ForeignMedium | None]:
    listed = value.get("audio")
    for item in listed if isinstance(listed, list) else [value]:
        path = item.get("path") or item.get("file_path") if isinstance(item, dict) else ""
        yield _file(sound, at, key, folder, path, _caption(value))


def _file(
    make: Any, at: At, key: str, folder: Path, name: Any, caption: str
) -> ForeignMedium | None:
    content = inside(folder, name)
    made: ForeignMedium | None = None if content is None else make(at, key, content, caption)
    return made


def _many(
    at: At, key: str, value: Mapping[str, Any], folder: Path
) -> Iterator[ForeignMedium | None]:
    names, captions = value.get("filenames"), value.get("captions")
    for place, name in enumerate(names if isinstance(names, list) else ()):
        has_one = isinstance(captions, list) and place < len(captions)
        said = captions[place] if has_one and isinstance(captions, list) else ""
        yield _file(picture, at, key, folder, name, said if isinstance(said, str) else "")


def _edges(value: Mapping[str, Any]) -> Any:
    packed = value.get("packedBins")
    if not isinstance(packed, Mapping):
        return value.get("bins")
    low, width, count = (packed.get(name) for name in ("min", "size", "count"))
    if not (is_number(low) and is_number(width) and isinstance(count, int)):
        return None
    return [low + width * place for place in range(min(max(count, 0), _MAX_BINS) + 1)]


def _object(content: bytes | None) -> Mapping[str, Any]:
    try:
        found = json.loads(content or b"")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _records(at: At, key: str, rows: Any) -> ForeignMedium | None:
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        return None
    names = list(dict.fromkeys(name for row in rows for name in row))
    return table(at, key, names, [[row.get(name) for name in names] for row in rows])


def table_file(at: At, key: str, content: bytes) -> ForeignMedium | None:
    """A table that lies in a file as `{"columns": ..., "data": ...}`."""
    held = _object(content) if len(content) <= _MAX_TABLE_BYTES else {}
    return table(at, key, held.get("columns"), held.get("data"))
