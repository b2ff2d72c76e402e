"""The runs that a home knows, and where their folders lie, also where the home was moved."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from albor_core.run.home.folders import albor_home, pointer_of
from albor_core.run.rundir import RUN_ID, RunDir, is_run_id, read_json

_TWIN_ID = re.compile(rf"{RUN_ID.pattern}@[a-z0-9._-]+")  # as `known_as` makes them
_MAX_PATH = 4000  # bytes, so that the names of a run's files fit into the system's 4096
_MAX_BELOW_HOME = 12  # folders between a home and a run in it


def registered_runs() -> Iterator[RunDir]:
    """Every run this home knows of, newest first, whether or not its folder still exists."""
    found = []
    for pointer in (albor_home() / "runs").glob("*.json"):
        entry = read_json(pointer)
        if (run := run_at(pointer.stem, entry)) is not None:
            found.append((_created(entry), str(run.path), run))
    for _, _, run in sorted(found, key=lambda item: item[:2], reverse=True):
        yield run


def run_at(run_id: str, entry: Mapping[str, Any] | None, *, is_ours: bool = True) -> RunDir | None:
    """The run that a file of ALBOR_HOME/runs, named `run_id`, leads to; None where it does not.
    `is_ours`: as `placed`.
    """
    path = place_of(entry)
    if path is None or not is_known_id(run_id):
        return None
    return placed(run_id, path, (entry or {}).get("created"), is_ours=is_ours)


def place_of(entry: Mapping[str, Any] | None) -> str | None:
    """The folder that a file of ALBOR_HOME/runs names; None where that is nothing that one could
    ask the system for.
    """
    path = (entry or {}).get("path")
    if not isinstance(path, str) or not path.startswith("/"):
        return None
    try:
        raw = os.fsencode(path)
    except UnicodeEncodeError:
        return None
    is_sound = b"\0" not in raw and len(raw) < _MAX_PATH and max(map(len, raw.split(b"/"))) < 256
    return path if is_sound else None


def placed(
    run_id: str, path: str | Path, created: object = None, *, is_ours: bool = False
) -> RunDir:
    """The run that this home knows by `run_id`, recorded in the folder `path`; or where it lies now
    that the home has another place. `created`: by which its folder is told from another run's.

    `is_ours`: it is this home that recorded it, so that a folder within another one is what this
    was copied from. A path that a user gave, or that another home has, is followed there.
    """
    folder = _place_now(Path(path), created)
    other = other_home(folder, run_id) if is_ours and folder == Path(path) else None
    if other is not None and not is_lent(run_id, folder):
        folder = albor_home() / folder.relative_to(other)
    return RunDir(folder, "" if folder.name == run_id else run_id)


def _place_now(path: Path, created: object) -> Path:
    """A home that was moved, copied or mounted elsewhere has its runs below itself: what it holds
    is its own, before the folder of that path that another home may still have.
    """
    home, name = str(albor_home()), path.name
    own = f"{home}/runs/{name}"
    if own == str(path):
        return path
    is_gone = not os.path.lexists(path)
    if _is_of(own, created):
        return path if not is_gone and path.resolve() == Path(own).resolve() else Path(own)
    if not is_gone:
        return path
    parts = path.parts[1:-1]
    for begin in range(len(parts), max(-1, len(parts) - _MAX_BELOW_HOME), -1):
        inside = "/".join((home, *parts[begin:], name))  # an output_dir below the home
        if _is_of(inside, created):
            return Path(inside)
    is_half = os.path.isdir(own) and not os.path.lexists(f"{own}/run.json")  # noqa: PTH112
    return Path(own) if is_half else path


def other_home(path: Path, run_id: str) -> Path | None:
    """The home that has the run in the folder `path`, below itself, where it is not this one."""
    here = albor_home()
    if path.is_relative_to(here):
        return None
    for place in path.parents[:_MAX_BELOW_HOME]:
        runs = place / "runs"
        if os.path.lexists(runs / f"{run_id}.json") or (runs == path.parent and has_store(place)):
            return None if _is_here(place) else place
    return None


def has_store(home: str | Path) -> bool:
    """Whether a folder has a store of all runs, as homes have."""
    return os.path.isfile(os.path.join(home, "experiments.db"))  # noqa: PTH113, PTH118


def _is_here(place: Path) -> bool:
    try:
        return place.samefile(albor_home())
    except OSError:
        return False


def _is_of(folder: str, created: object) -> bool:
    """Whether a folder has the run of its name that was made at the moment `created`."""
    about = read_json(Path(folder) / "run.json")
    return about is not None and created in (None, about.get("created"))


def stray_runs() -> list[RunDir]:
    """Runs that lie in this home, to whose folders nothing in ALBOR_HOME/runs leads."""
    home = albor_home()
    inside = [home / "runs", *sorted((home / "hosts").glob("*/"))]
    found = [run for folder in inside for run in runs_in(folder)]
    if not found:
        return []
    known = {run.path.resolve() for run in registered_runs()}
    return [run for run in found if run.path.resolve() not in known]


def is_known_id(text: str) -> bool:
    """Whether a home may know a run by `text`: a run id, or one with its host."""
    return is_run_id(text) or _TWIN_ID.fullmatch(text) is not None


def runs_in(folder: Path) -> list[RunDir]:
    """The run directories directly below `folder`, newest first."""
    runs = [
        RunDir(child.parent) for child in folder.glob("*/run.json") if is_run_id(child.parent.name)
    ]
    return sorted(runs, key=lambda run: _created(read_json(run.run_json)), reverse=True)


def _created(document: Mapping[str, Any] | None) -> float:
    """When, for sorting; a damaged document is old, never an error for everybody else."""
    created = (document or {}).get("created")
    try:
        return float(created) if isinstance(created, int | float) else 0.0
    except OverflowError:  # an int of any length is JSON
        return 0.0


def lent(run: RunDir) -> dict[str, str]:
    """What a file of ALBOR_HOME/runs says besides of a run that lies in another home and is meant
    to: it did not come as part of a copy of that one.
    """
    other = other_home(run.path, run.id)
    return {} if other is None else {"of_home": str(other)}


def is_lent(run_id: str, path: Path) -> bool:
    """Whether this home says so of the run in the folder `path`."""
    entry = read_json(pointer_of(run_id)) or {}
    return "of_home" in entry and entry.get("path") == str(path)
