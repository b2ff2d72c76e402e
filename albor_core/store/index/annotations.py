"""What people say about a run: tags, notes, pins, acknowledgements, names. One JSON line each.

Appended to RUN_DIR/annotations.jsonl under a lock; the indexer brings them into the stores.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from albor_core.run.control import user_name
from albor_core.run.errors import NotFoundError, StoreError, UsageError, remedy
from albor_core.run.files.pulled_file import refuse_pulled
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.values.lenient import finite_of
from albor_core.run.values.metrics import MAX_KEY_CHARS
from albor_core.store.index.sources import Position, parse_plain, read_batch

KINDS = (
    *("tag", "untag", "note", "note.edit", "pin", "unpin", "metric.pin", "metric.unpin", "ack"),
    *("name", "group", "job_type", "attention.ack", "attention.mute", "restore"),
)
MAX_CHARS = {
    **{"tag": 64, "untag": 64, "name": 200, "group": 64, "job_type": 64},
    **{"note": 16384, "ack": 256, "attention.ack": 256},
    **dict.fromkeys(("metric.pin", "metric.unpin"), MAX_KEY_CHARS),
}


@dataclass(frozen=True)
class Annotation:
    """A single annotation. `wall` is UTC seconds; `value` is text, or True for pins."""

    kind: str
    value: Any
    by: str
    wall: float
    at: int = -1  # the byte of the file where it stands, of one that was read


@dataclass(frozen=True)
class Note:
    """A note as it reads now. `number` counts from 1 and stays the note's own when others go;
    `at` is where it was first said, `by` and `wall` are of its newest text.
    """

    number: int
    at: int
    text: str
    by: str
    wall: float


def annotate(
    run: RunDir, kind: str, value: str | int | Mapping[str, Any] | None = None, *, by: str = ""
) -> Annotation:
    """Say it, durably. For `ack` the value is the alert's id, for `attention.ack` that of an entry
    of attention, for `attention.mute` {"id": the same, "until": UTC seconds}, for `note.edit`
    {"at": the byte of a note, "text": what it says from now on, "" to take it back},
    for `restore` the byte of the journal where the rewind is that is undone.

    Raises UsageError for an unknown kind or a value that is empty or too long, NotFoundError where
    there is no run, StoreError if the file cannot be written.
    """
    if kind not in KINDS:
        raise UsageError(f"{kind!r} is not a kind of annotation", hint="one of " + ", ".join(KINDS))
    if kind in MAX_CHARS:
        check_text(kind, value)
    elif kind == "note.edit" and isinstance(value, Mapping) and value["text"]:
        check_text("note", value["text"])
    if not run.run_json.is_file():
        raise NotFoundError(f"{run.path}: not a run directory", hint="albor runs ls")
    refuse_pulled(run, "write down what you say of", f"albor runs show {run.own_id}")
    try:
        return append_annotation(run, kind, value or True, by=by or user_name())
    except OSError as error:
        raise StoreError(f"{run.annotations}: {error.strerror}", hint=remedy(error)) from error


def check_text(kind: str, value: object) -> None:
    """Raise UsageError for what cannot be said: nothing, or more than is kept."""
    limit = MAX_CHARS[kind]
    if not isinstance(value, str) or not value.strip() or len(value) > limit:
        raise UsageError(f"{kind}: needs a text of 1 to {limit} characters")


def append_annotation(run: RunDir, kind: str, value: Any, *, by: str) -> Annotation:
    """One line under the file's lock; a torn line of a killed writer is closed first. Raises
    OSError.
    """
    said = Annotation(kind, value, by, round(time.time(), 3))
    body = {"t": kind, "value": value, "by": by, "wall": said.wall}
    line = json.dumps(body, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(run.annotations, flags, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        size = os.fstat(fd).st_size
        if size and os.pread(fd, 1, size - 1) != b"\n":
            line = b"\n" + line
        if os.write(fd, line) < len(line):
            raise OSError(28, "short write")
        os.fsync(fd)
    finally:
        os.close(fd)
    return said


def read_annotations(run: RunDir) -> tuple[Annotation, ...]:
    """Everything said about a run, in order; damaged lines are left out."""
    found: list[Annotation] = []
    position = Position()
    while batch := read_batch(run.annotations, position, parse_plain):
        position = batch.position
        for at, record in batch.lines:
            if record is not None and isinstance(record.get("t"), str):
                by, wall = str(record.get("by") or ""), finite_of(record.get("wall")) or 0.0
                found.append(Annotation(record["t"], record.get("value"), by, wall, at))
    return tuple(found)


def notes_in(said: Iterable[Annotation]) -> tuple[Note, ...]:
    """The notes that what was said comes to, in the order they were first written."""
    notes: dict[int, Note] = {}
    number = 0
    for one in said:
        if one.kind == "note" and isinstance(one.value, str) and one.value:
            number += 1
            notes[one.at] = Note(number, one.at, one.value, one.by, one.wall)
        elif one.kind == "note.edit" and isinstance(one.value, dict):
            at, words = one.value.get("at"), one.value.get("text")
            if at in notes and isinstance(words, str):
                notes[at] = replace(notes[at], text=words, by=one.by, wall=one.wall)
    return tuple(note for note in notes.values() if note.text)


def tags_in(said: Iterable[Annotation]) -> tuple[str, ...]:
    """The tags that what was said comes to, sorted."""
    now: set[str] = set()
    for one in said:
        if one.kind == "tag":
            now.add(str(one.value))
        elif one.kind == "untag":
            now.discard(str(one.value))
    return tuple(sorted(now))


def name_of(run: RunDir) -> str:
    """What the run is called now: its newest name, or the one it began with. Its id where there is
    none.
    """
    names = [said.value for said in read_annotations(run) if said.kind == "name"]
    name = names[-1] if names else (read_json(run.run_json) or {}).get("name")
    return name if isinstance(name, str) and name else run.id
