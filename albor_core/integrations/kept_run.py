"""Which run a checkpoint is of: what a trainer's callback keeps, to go on with that run later.

A checkpoint that was copied elsewhere is another training's beginning, and not its run: where it
lies has to be where it was written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from albor_core import track
from albor_core.run.errors import AlborError
from albor_core.run.rundir import is_run_id, read_json
from albor_core.track.last_words import tell

_FILE = "albor_run.json"
Folder = str | os.PathLike[str]


def mark(folder: Folder, run_id: str) -> dict[str, str]:
    """The mark to store in a checkpoint below `folder`."""
    return {"run": run_id, "folder": os.path.realpath(folder)}


def run_of_mark(kept: object, folder: Folder) -> tuple[str | None, str | None]:
    """The run to go on with, and the run whose weights these are; either may be None."""
    if not isinstance(kept, Mapping) or not is_run_id(str(kept.get("run"))):
        return None, None
    is_here = kept.get("folder") == os.path.realpath(folder)
    return (kept["run"], None) if is_here else (None, kept["run"])


def keep(folder: Folder, run_id: str, names: Iterable[str] = (".",)) -> None:
    """Write down that checkpoints in `folder`, or with "." the folder itself, are of a run.

    Raises nothing: a training does not end by it.
    """
    path = Path(folder) / _FILE
    before = read_json(path) or {}
    is_here = before.get("folder") == os.path.realpath(folder)
    known = before.get("runs") if is_here else None
    runs = {**(known if isinstance(known, dict) else {}), **dict.fromkeys(names, run_id)}
    document = {"folder": os.path.realpath(folder), "runs": runs}
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f"{_FILE}.{os.getpid()}")
        beside.write_text(json.dumps(document))
        beside.replace(path)


def run_of_checkpoint(checkpoint: Folder | None) -> tuple[str | None, str | None]:
    """The run of a checkpoint's file or folder, as `run_of_mark`."""
    if checkpoint is None:
        return None, None
    path = Path(checkpoint)
    folder, name = (path, ".") if path.is_dir() else (path.parent, path.name)
    found = read_json(folder / _FILE) or {}
    runs = found.get("runs")
    run_id = runs.get(name) if isinstance(runs, dict) else None
    return run_of_mark({"run": run_id, "folder": found.get("folder")}, folder)


def start(
    settings: Mapping[str, Any],
    going_on: str | None,
    parent: str | None,
    *,
    fresh_id: str | None = None,
    **words: Any,
) -> track.Run:
    """`track.start` by a user's settings, which win; else the run that a checkpoint is of goes on.

    Where it cannot, because another process works on it, say, a new run begins from it; `fresh_id`
    is the id of a new one.
    """
    run = _started({**words, **settings}, "id" in settings, going_on, parent, fresh_id)
    run.repeats_steps = True  # a framework says a step's figures several times
    return run


def _started(
    given: Mapping[str, Any],
    has_id: bool,
    going_on: str | None,
    parent: str | None,
    fresh_id: str | None,
) -> track.Run:
    if has_id:
        return track.start(**given)
    if going_on is not None:
        try:
            return track.start(**given, id=going_on, resume="allow")
        except AlborError as error:
            tell(f"{error.message}; this training is a run of its own")
            parent = going_on
    return track.start(**{"parent": parent, "id": fresh_id, **given})


def parameters(*models: Any) -> dict[str, Any]:
    """How many parameters models of torch have, in all and to be trained; {} for anything else."""
    try:
        found = [one for model in models for one in model.parameters()]
        total = sum(one.numel() for one in found)
        trainable = sum(one.numel() for one in found if one.requires_grad)
    except Exception:  # a foreign object
        return {}
    return {"parameters": {"total": total, "trainable": trainable}}
