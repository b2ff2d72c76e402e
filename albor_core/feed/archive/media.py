"""Media of a run to be looked at, one of a key after the other: `MediaShelf` brings each as what it
shows, or says in one line why it shows nothing.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from albor_core.feed.archive.media_content import (
    Bins,
    BinsOverSteps,
    TableSheet,
    TextSheet,
    as_sheet,
    over_steps,
    read_bins,
    read_table,
    read_text,
)
from albor_core.feed.archive.pixels import Pixels, decode
from albor_core.run.errors import AlborError, DataError
from albor_core.run.files.media_file import media_path
from albor_core.run.files.media_format import picture_format
from albor_core.run.rundir import NotPlainError, RunDir, open_plain
from albor_core.run.values.clean import clean
from albor_core.run.values.quantity import byte_size
from albor_core.store.query.media import MediaRow, media_steps, nth_medium
from albor_core.store.query.reader import Reader

PICTURES = ("image", "figure")
MOST_STEPS = 48  # of the histograms that are shown beside one
_BINS = (24, 200)  # of these, by the room there is
_MOST_PICTURE = 96 << 20  # bytes of a file
_MOST_READ = 2 << 20  # of a table, a text or a histogram
_UNREAD = "the run's store cannot be read now"

Content = Pixels | TableSheet | TextSheet | Bins
Ask = Callable[[Callable[[Reader], Any]], Any]  # None where the store cannot answer


@dataclass(frozen=True)
class MediumWanted:
    """Which medium of a key, and for how much room. `nth` counts from 0, -1 is the newest; with
    `step` it is the one nearest to that.
    """

    key: str
    kind: str
    nth: int = -1
    step: int | None = None
    room: tuple[int, int] = (80, 40)  # of a picture, in pixels; of histograms: bins and steps
    ground: tuple[int, int, int] = (0, 0, 0)  # beneath what is transparent


@dataclass(frozen=True)
class MediumView:
    """One medium. Texts are raw. `content` is None where `problem` says why; `opener` is the shell
    command that opens its file, "" where it has none.
    """

    key: str
    kind: str
    nth: int = 0
    count: int = 0
    step: int | None = None
    caption: str = ""
    facts: tuple[str, ...] = ()
    path: str = ""
    opener: str = ""
    content: Content | None = None
    others: BinsOverSteps | None = None  # histograms of many steps, this one among them
    place: int = 0  # of this one among them
    problem: str = ""
    is_known: bool = True  # False: the store could not say


class MediaShelf:
    """The media of one run. Belongs to one thread; raises nothing."""

    def __init__(self, run: RunDir, ask: Ask) -> None:
        self._run, self._ask = run, ask
        self._last: tuple[object, Content] | None = None  # what it was made of, and it
        self._bins: dict[str, Bins | None] = {}  # by hash; of one key
        self._bins_of = ""

    def medium(self, wanted: MediumWanted) -> MediumView:
        """The medium, its contents decoded again only where it or the room for it is another."""
        key, kind = wanted.key, wanted.kind
        steps = self._ask(lambda reader: media_steps(reader, self._run, key, kind))
        if not steps:
            why = _UNREAD if steps is None else "it is not recorded any more: the run went back"
            return MediumView(key, kind, problem=why, is_known=steps is not None)
        nth = _place(steps, wanted)
        row = self._row(key, kind, nth)
        if row is None:
            return MediumView(key, kind, nth, len(steps), problem=_UNREAD, is_known=False)
        file = None if row.data is not None else media_path(row.folder, row.hash, row.format)
        path = row.path
        view = MediumView(
            key, kind, nth, len(steps), row.step, row.caption, _facts(row),
            path="" if path is None else str(path),
            opener="" if path is None else f"xdg-open {shlex.quote(str(path))}",
        )  # fmt: skip
        try:
            content = self._content(row, file, wanted)
        except (AlborError, OSError) as error:
            return replace(view, problem=_why(error, row))
        if content is None:
            return replace(view, problem=f"{_named(row)} is not shown in a terminal")
        if isinstance(content, Bins):
            others, place = self._others(wanted, steps, nth)
            return replace(view, content=content, others=others, place=place)
        return replace(view, content=content)

    def _row(self, key: str, kind: str, nth: int) -> MediaRow | None:
        row: MediaRow | None = self._ask(
            lambda reader: nth_medium(reader, self._run, key, kind, nth)
        )
        return row

    def _content(self, row: MediaRow, file: Path | None, wanted: MediumWanted) -> Content | None:
        """None for what cannot be shown in cells. Raises AlborError, OSError."""
        mark = (row.hash, row.at, _stat(file), wanted.room, wanted.ground)
        if self._last is not None and self._last[0] == mark:
            return self._last[1]
        made = _made(row, file, wanted)
        self._last = None if made is None else (mark, made)
        return made

    def _others(
        self, wanted: MediumWanted, steps: tuple[int | None, ...], nth: int
    ) -> tuple[BinsOverSteps | None, int]:
        """Histograms of steps that lie evenly over all, this one among them, and its place."""
        key, kind = wanted.key, wanted.kind
        if self._bins_of != key:
            self._bins_of, self._bins = key, {}
        last = len(steps) - 1
        parts = min(last, max(2, wanted.room[1]), MOST_STEPS - 1)
        places = {nth, *(round(last * part / parts) for part in range(parts + 1) if parts)}
        found: list[tuple[int | None, Bins]] = []
        at = 0
        for place in sorted(places):
            row = self._row(key, kind, place)
            if row is not None and (bins := self._bins_of_row(row)) is not None:
                at = len(found) if place == nth else at
                found.append((row.step, bins))
        return over_steps(found, min(max(_BINS[0], wanted.room[0] - 12), _BINS[1])), at

    def _bins_of_row(self, row: MediaRow) -> Bins | None:
        if row.hash not in self._bins:
            try:
                self._bins[row.hash] = _bins(row)
            except (AlborError, OSError):
                self._bins[row.hash] = None
        return self._bins[row.hash]


def _place(steps: tuple[int | None, ...], wanted: MediumWanted) -> int:
    if wanted.step is None:
        return len(steps) - 1 if wanted.nth < 0 else min(wanted.nth, len(steps) - 1)
    away = [abs(wanted.step - step) if step is not None else float("inf") for step in steps]
    return away.index(min(away))


def _made(row: MediaRow, file: Path | None, wanted: MediumWanted) -> Content | None:
    if row.kind in PICTURES:
        content, _ = _read(row, file, _MOST_PICTURE, whole=True)
        return None if _is_svg(row, content) else decode(content, wanted.room, wanted.ground)
    if row.kind == "histogram":
        return _bins(row)
    if row.kind == "table":
        told = row.data
        if told is not None:
            is_table = isinstance(told, dict)
            return as_sheet(told.get("columns"), told.get("data")) if is_table else as_sheet(0, 0)
        content, is_cut = _read(row, file, _MOST_READ)
        return read_table(content, is_cut=is_cut)
    if row.kind == "text":
        if row.data is not None:
            return read_text(str(row.data).encode("utf-8", "replace"))
        content, is_cut = _read(row, file, _MOST_READ)
        return read_text(content, is_cut=is_cut)
    _read(row, file, 0)  # sound, or a kind that is not known: it must lie there
    return None


def _bins(row: MediaRow) -> Bins:
    told = row.data
    if told is None:
        file = media_path(row.folder, row.hash, row.format)
        content, _ = _read(row, file, _MOST_READ, whole=True)
        try:
            told = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise DataError("its contents are damaged") from error
    return read_bins(told, row.meta)


def _read(
    row: MediaRow, file: Path | None, most: int, *, whole: bool = False
) -> tuple[bytes, bool]:
    """At most `most` bytes of its file, and whether there are more. Raises DataError for a file
    that is gone, empty or not plain, and with `whole` for a larger one; OSError.
    """
    if file is None:
        raise DataError("its record names no file")
    try:
        with open_plain(file) as opened:
            size = os.fstat(opened.fileno()).st_size
            if size == 0:
                raise DataError("its file is empty: 0 bytes")
            if whole and size > most:
                raise DataError(f"its file is too large to be shown: {byte_size(size)}")
            return opened.read(most), size > most
    except NotPlainError as error:
        raise DataError(f"its file {error.strerror}") from error
    except FileNotFoundError as error:
        raise DataError("its file is gone", hint="albor runs gc --media takes old ones") from error


def _is_svg(row: MediaRow, content: bytes) -> bool:
    return row.format == "svg" or picture_format(content[: 1 << 16])[0] == "svg"


def _named(row: MediaRow) -> str:
    form = clean(row.format, limit=12)
    return {"audio": "sound", **dict.fromkeys(PICTURES, f"a picture as {form.upper()}")}.get(
        row.kind, f"{clean(row.kind, limit=20)} as {form or 'a file'}"
    )


def _why(error: AlborError | OSError, row: MediaRow) -> str:
    if isinstance(error, AlborError):
        return f"{error.message} ({error.hint})" if error.hint else error.message
    return f"its file cannot be read: {error.strerror or error}"


def _facts(row: MediaRow) -> tuple[str, ...]:
    """What is known of it without its file."""
    meta = row.meta
    told = [clean(row.format, limit=12)] if row.data is None and row.format else []
    if row.bytes is not None:
        told.append(byte_size(row.bytes))
    if "width" in meta and "height" in meta:
        told.append(f"{_number(meta['width'])} x {_number(meta['height'])} pixels")
    names = {"rows": "rows", "columns": "columns", "seconds": "s", "rate": "Hz",
             "channels": "channels", "bins": "bins", "count": "values",
             "characters": "characters"}  # fmt: skip
    told += [f"{_number(meta[name])} {word}" for name, word in names.items() if name in meta]
    return tuple(told)


def _number(value: object) -> str:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{value:,}" if is_number else clean(str(value), limit=20)


def _stat(file: Path | None) -> tuple[int, int] | None:
    try:
        found = None if file is None else file.lstat()
    except OSError:
        return None
    return None if found is None else (found.st_mtime_ns, found.st_size)
