"""Versions of artefacts, one home's: ALBOR_HOME/artifacts/SLUG-CRC.jsonl, a line for each.

The same contents under the same name are the same version, whichever run brings them. Numbers begin
at 1 and are never given twice. Every line stands in the journal of its run as well: this file only
says who was first.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from albor_core.run.errors import InUseError, NotFoundError
from albor_core.run.files.media_file import is_hash
from albor_core.run.home.folders import albor_home, private_folder
from albor_core.run.journal import parse_json
from albor_core.run.rundir import open_plain
from albor_core.run.values.metrics import as_text, printable

MAX_NAME_CHARS = 128
_MAX_BYTES = 64 << 20  # of a list of versions
_WAIT_S = 2.0
_VERSION = re.compile(r"(.+):(?:v(\d{1,9})|latest)", re.DOTALL)


@dataclass(frozen=True)
class Version:
    """`form` is "bin" of a file and "tree" of a folder that were copied into the run's folder, ""
    of what stayed at `path`.
    """

    name: str
    version: int
    hash: str
    bytes: int
    form: str
    run: str
    folder: str
    path: str
    wall: float

    @property
    def reference(self) -> str:
        return f"{self.name}:v{self.version}"


def name_of(said: object) -> str:
    """A name as versions have it: printable, bounded, and no colon, which begins the version."""
    return (printable(as_text(said)).replace(":", "_") or "artifact")[:MAX_NAME_CHARS]


def take(found: Version) -> Version:
    """The version that these contents have under this name; a new one where they have none yet.

    `found.version` does not matter. Raises InUseError, OSError, AlborError.
    """
    folder = albor_home() / "artifacts"
    private_folder(folder)
    with _held(folder):
        known = versions(found.name)
        for one in known:
            if one.hash == found.hash and one.form == found.form:
                return one
        number = max((one.version for one in known), default=0) + 1
        fresh = Version(**{**asdict(found), "version": number})
        line = json.dumps(asdict(fresh), separators=(",", ":")).encode() + b"\n"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(_list(found.name), flags, 0o600)
        try:
            _append(fd, b"\n" * _is_torn(_list(found.name)) + line)
        finally:
            os.close(fd)
    return fresh


def _append(fd: int, line: bytes) -> None:
    """Whole or not at all: of a line that the disk took in part nothing stays. Raises OSError."""
    size = os.fstat(fd).st_size
    try:
        taken = os.write(fd, line)
        if taken != len(line):
            taken += os.write(fd, line[taken:])  # says why
        if taken != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        with suppress(OSError):
            os.ftruncate(fd, size)
        raise


def find(reference: str) -> Version:
    """What `NAME:v3` names; `NAME` and `NAME:latest` are the newest. Raises NotFoundError."""
    parts = _VERSION.fullmatch(reference)
    name, number = (parts[1], parts[2]) if parts else (reference, None)
    known = versions(name)
    for one in reversed(known):
        if number is None or one.version == int(number):
            return one
    numbers = ", ".join(f"v{one.version}" for one in known[-5:])
    raise NotFoundError(
        f"no artefact {reference!r} in this home",
        hint=f"it has {numbers}" if numbers else "run.artifact(PATH, name=NAME) makes one",
    )


def versions(name: str) -> list[Version]:
    """All of a name, the oldest first; what stands in the list and is none is left out."""
    try:
        with open_plain(_list(name)) as file:
            lines = file.read(_MAX_BYTES).splitlines()
    except OSError:
        return []
    found = (_version(line) for line in lines)
    known = [one for one in found if one is not None and one.name == name]
    return sorted(known, key=lambda one: one.version)


def _version(line: bytes) -> Version | None:
    record = parse_json(line)
    try:
        found = Version(**(record or {}))
        is_one = is_hash(found.hash) and type(found.version) is int
    except TypeError:
        return None
    return found if is_one else None


def _list(name: str) -> Path:
    slug = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")[:48]
    mark = zlib.crc32(name.encode("utf-8", "backslashreplace"))
    return albor_home() / "artifacts" / f"{slug}-{mark:08x}.jsonl"


def _is_torn(path: Path) -> bool:
    """Whether the last line of a list has no end: its writer was killed."""
    with open_plain(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 1))
        return file.read(1) not in (b"", b"\n")


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    fd = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    deadline = time.monotonic() + _WAIT_S
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise InUseError("another program holds the list of versions") from None
                time.sleep(0.01)
        yield
    finally:
        os.close(fd)
