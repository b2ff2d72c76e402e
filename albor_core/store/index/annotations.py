"""What people say about a run: tags, notes, pins, acknowledgements, names. One JSON line each.

Appended to RUN_DIR/annotations.jsonl under a lock; the indexer brings them into the stores.
"""

from __future__ import annotations

import fcntl
import getpass
import json
import os
import time
from dataclasses import dataclass
from typing import Any

from albor_core.run.errors import NotFoundError, StoreError, UsageError, remedy
from albor_core.run.rundir import RunDir, read_json
from albor_core.store.index.sources import Position, parse_plain, read_batch

KINDS = ("tag", "untag", "note", "pin", "unpin", "ack", "name")
_MAX_CHARS = {"tag": 64, "untag": 64, "name": 200, "note": 16384, "ack": 256}


@dataclass(frozen=True)
class Annotation:
    """One statement. `wall` is UTC seconds; `value` is text, or True for pins."""

    kind: str
    value: Any
    by: str
    wall: float


def annotate(run: RunDir, kind: str, value: str | None = None) -> Annotation:
    """Say it, durably. For `ack` the value is the alert's id.

    Raises UsageError for an unknown kind or a value that is empty or too long, NotFoundError where
    there is no run, StoreError if the file cannot be written.
    """
    if kind not in KINDS:
        raise UsageError(f"{kind!r} is not a kind of annotation", hint="one of " + ", ".join(KINDS))
    if kind not in ("pin", "unpin"):
        limit = _MAX_CHARS[kind]
        if not value or not value.strip() or len(value) > limit:
            raise UsageError(f"{kind}: needs a text of 1 to {limit} characters")
    if not run.run_json.is_file():
        raise NotFoundError(f"{run.path}: not a run directory", hint="albor runs ls")
    try:
        return append_annotation(run, kind, value or True, by=_user())
    except OSError as error:
        raise StoreError(f"{run.annotations}: {error.strerror}", hint=remedy(error)) from error


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
        for _, record in batch.lines:
            if record is not None and isinstance(record.get("t"), str):
                by, wall = str(record.get("by") or ""), float(record.get("wall") or 0.0)
                found.append(Annotation(record["t"], record.get("value"), by, wall))
    return tuple(found)


def name_of(run: RunDir) -> str:
    """What the run is called now: its newest name, or the one it began with. Its id where there is
    none.
    """
    names = [said.value for said in read_annotations(run) if said.kind == "name"]
    name = names[-1] if names else (read_json(run.run_json) or {}).get("name")
    return name if isinstance(name, str) and name else run.id


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a uid without a name, as in many containers
        return str(os.getuid())
