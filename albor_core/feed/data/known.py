"""Which data sets are known here: those that this home registered as they were made, and those that
runs of the store were trained on. What became of their folders is looked up, never taken for fine.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from albor_core.feed.data.folder import FolderView
from albor_core.feed.data.place import data_set_of, look_at, whole_path
from albor_core.run.errors import AlborError
from albor_core.run.home.folders import albor_home
from albor_core.run.rundir import read_json
from albor_core.run.values.lenient import Document, number, number_of, text
from albor_core.store.query.lineage import Trained, trained_runs
from albor_core.store.query.reader import Reader

REGISTRY = "datasets"
MOST_USERS = 200  # runs that are named of one data set, the newest
_MOST_ENTRIES = 10_000


@dataclass(frozen=True)
class DataUser:
    """A run that was trained on a data set. `is_same`: whether it read the bytes that lie there
    now; None where that is not known.
    """

    id: str
    name: str = ""
    created: float | None = None
    path: str = ""
    is_same: bool | None = None


@dataclass(frozen=True)
class DataSetView:
    """A data set that is known here. `path` is relative only where it is not known to what."""

    name: str
    path: str
    kind: str = ""
    made: float | None = None
    is_registered: bool = False
    folder: FolderView = field(default_factory=FolderView)
    users: tuple[DataUser, ...] = ()
    num_users: int = 0

    @property
    def changed(self) -> int:
        """How many of the named runs are known to have read other bytes."""
        return sum(user.is_same is False for user in self.users)

    @property
    def last_used(self) -> float | None:
        return max((user.created for user in self.users if user.created is not None), default=None)


@dataclass(frozen=True)
class DataShelf:
    """All known data sets: those at hand first, then the newest; `problem` says why some may be
    missing.
    """

    sets: tuple[DataSetView, ...] = ()
    problem: str = ""


@dataclass
class _Found:
    """A data set folder whose facts are being collected."""

    path: str
    name: str = ""
    kind: str = ""
    made: float | None = None
    is_registered: bool = False
    users: list[Trained] = field(default_factory=list)


def known_data_sets(store: Path) -> DataShelf:
    """Looks into each folder: not for an event loop. Raises nothing."""
    problem = ""
    runs: tuple[Trained, ...] = ()
    try:
        if store.is_file():
            with Reader(store) as reader:
                runs = reader.query(trained_runs)
    except AlborError as error:
        problem = f"data of runs is not known: {error.message}"
    found, broken = _registered()
    places: dict[str, str] = {}  # of what runs read: many read the same
    for run in runs:
        whole = whole_path(run.data_path, run.path)
        if whole not in places:
            places[whole] = data_set_of(whole)
        if path := places[whole]:
            found.setdefault(path, _Found(path)).users.append(run)
    if broken:
        problem = "; ".join(filter(None, (problem, f"cannot be read: {', '.join(broken)}")))
    views = (_view(one) for one in found.values())
    return DataShelf(tuple(sorted(views, key=_rank)), problem)


def _rank(view: DataSetView) -> tuple[bool, float, str]:
    newest = max((wall for wall in (view.made, view.last_used) if wall is not None), default=0.0)
    return view.folder.state == "gone", -newest, view.path


def _registered() -> tuple[dict[str, _Found], list[str]]:
    """Registered data sets by path; and the names of unreadable pointer files."""
    found: dict[str, _Found] = {}
    broken: list[str] = []
    try:
        files = sorted((albor_home() / REGISTRY).glob("*.json"))[:_MOST_ENTRIES]
    except OSError as error:
        return {}, [f"{albor_home() / REGISTRY}: {error.strerror}"]
    for file in files:
        entry: Document = read_json(file) or {}
        path = text(entry, "path")
        if not path or "\0" in path or not path.startswith("/"):
            broken.append(f"{REGISTRY}/{file.name}")
            continue
        path = os.path.normpath(path)
        found[path] = _Found(
            path, file.stem, text(entry, "kind"), _moment(entry, "made"), is_registered=True
        )
    return found, broken


def _moment(entry: Mapping[str, Any], key: str) -> float | None:
    """UTC seconds, from a number or an ISO date."""
    if (seconds := number(entry, key)) is not None:
        return seconds
    try:
        return datetime.fromisoformat(text(entry, key)).timestamp()
    except (ValueError, OverflowError):
        return None


def _view(found: _Found) -> DataSetView:
    folder = look_at(found.path)
    users = sorted(found.users, key=lambda run: run.created or 0.0, reverse=True)
    return DataSetView(
        found.name or _name_of(found.path),
        found.path,
        folder.kind or found.kind,
        found.made,
        found.is_registered,
        replace(folder, kind=folder.kind or found.kind),
        tuple(_user(run, folder) for run in users[:MOST_USERS]),
        len(users),
    )


def _user(run: Trained, folder: FolderView) -> DataUser:
    is_same = folder.has_sealed(run.data_hash)
    return DataUser(run.id, run.name, number_of(run.created), run.path, is_same)


def _name_of(path: str) -> str:
    """The last part of a path, and the one before if that says little."""
    parts = [part for part in path.split("/") if part]
    plain = ("train", "shards", "data", "corpus")
    return "/".join(parts[-2:] if parts[-1:] and parts[-1] in plain else parts[-1:]) or path
