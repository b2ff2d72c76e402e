"""Runs of Albor in folders of this machine: another disk, a mount, what was unpacked."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from albor_core.integrations.importers.copies.copied_runs import (
    HEADS,
    MAX_HEAD_BYTES,
    Copy,
    CopyResult,
    FoundRun,
    Stamp,
    put_file,
    room_for,
)
from albor_core.integrations.importers.run_import import ImportResult
from albor_core.run.errors import AlborError
from albor_core.run.home.runs import place_of, placed
from albor_core.run.rundir import open_plain, read_json
from albor_core.store.file.paths import local_store
from albor_core.store.query.reader import Reader


def run_folders(path: Path) -> list[Path]:
    """The run directories that `path` means: itself, those directly below it, or those of a home.
    [] where it is none of these.
    """
    if _is_run(path):
        return [path.resolve()]
    if below := [one.parent for one in sorted(path.glob("*/run.json")) if _is_run(one.parent)]:
        return [folder.resolve() for folder in below]
    pointers = [place_of(read_json(one)) for one in sorted((path / "runs").glob("*.json"))]
    places = [Path(place) for place in pointers if place is not None]
    inside = [one.parent for one in sorted((path / "runs").glob("*/run.json"))]
    known = dict.fromkeys(folder.resolve() for folder in (*places, *inside))
    return [folder for folder in known if _is_run(folder)]


def _is_run(folder: Path) -> bool:
    return str((read_json(folder / "run.json") or {}).get("schema")).startswith("albor.run/")


class LocalFolder:
    """Runs in folders that can be read here: another disk, a mount, what was unpacked."""

    host = ""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = tuple(folders)

    def find(self) -> Sequence[FoundRun]:
        return [_found(folder) for folder in self._folders]

    def fetch(self, copies: Sequence[Copy]) -> None:
        for copy in copies:
            for name in copy.names:
                with suppress(FileNotFoundError):
                    _copy_file(Path(copy.folder) / name, copy.target / name, copy.files[name])


def _found(folder: Path) -> FoundRun:
    heads: dict[str, bytes] = {}
    for name in HEADS:  # before the list of files: what they tell of is in those
        with suppress(OSError), open_plain(folder / name) as file:
            raw = file.read(MAX_HEAD_BYTES + 1)
            if len(raw) <= MAX_HEAD_BYTES:
                heads[name] = raw
    files: dict[str, Stamp] = {}
    for base, folders, names in os.walk(folder):
        folders.sort()
        for name in names:
            with suppress(FileNotFoundError):
                status = Path(base, name).lstat()
                if stat.S_ISREG(status.st_mode):
                    known = Path(base, name).relative_to(folder).as_posix()
                    files[known] = (status.st_size, status.st_mtime_ns, status.st_ino)
    return FoundRun(str(folder), files, heads)


def _copy_file(source: Path, target: Path, listed: int) -> None:
    with open_plain(source) as file:
        status = os.fstat(file.fileno())
        if most := room_for(target, status.st_size, listed):
            put_file(target, file, status.st_mtime_ns / 1e9, most)


def arrival(copy: CopyResult, origin: str) -> ImportResult:
    """The result of importing a copy: how much of it is in its store."""
    change = {"updated": "extended"}.get(copy.change, copy.change)
    run = placed(copy.run, copy.path)
    told = ImportResult(copy.run, "albor", origin, copy.name, "", copy.path, change, copy.status)
    told.experiment = str((read_json(run.run_json) or {}).get("experiment") or "")
    with suppress(AlborError, OSError), Reader(local_store(run)) as reader:
        summary = reader.summary(run.own_id)
        told.points, told.keys = sum(one.count for one in summary.values()), len(summary)
        told.last_step = reader.run(run.own_id).last_step
    return told
