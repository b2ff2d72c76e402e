"""What a run came from: another run, whose checkpoint its weights were, and its data.

A run says so itself (`parent` in run.json), or its config does: `model.path` inside the checkpoints
of a run directory. A resumed run is not a child, it is one more attempt of the same run.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from albor_core.run.rundir import is_run_id

_WHERE_FROM = (
    "SELECT r.run, json_extract(r.facts, '$.parent'), (SELECT json_extract(p.value, '$')"
    " FROM params p WHERE p.run_id = r.id AND p.key = 'model.path')"
    " FROM runs r WHERE r.run IN (SELECT value FROM json_each(?))"
)


def parents(db: sqlite3.Connection, runs: Sequence[str]) -> dict[str, str]:
    """By run, the id of the run it began from; runs that began from nothing are left out."""
    rows = db.execute(_WHERE_FROM, (json.dumps([*runs]),))
    found = {run: parent_id(said, model_path) for run, said, model_path in rows}
    return {run: parent for run, parent in found.items() if parent is not None and parent != run}


def parent_id(said: Any, model_path: Any) -> str | None:
    """The run that `parent` of run.json names, else the one whose checkpoint `model_path` is."""
    if isinstance(said, str) and is_run_id(said):
        return said
    if not isinstance(model_path, str):
        return None
    parts = PurePosixPath(model_path).parts
    for run, folder in pairwise(parts):
        if folder == "checkpoints" and is_run_id(run):
            return run
    return None


class Trained(NamedTuple):
    """A run that recorded which data it is trained on, in the words of its config: a path may be
    relative to where the run was started.
    """

    id: str
    name: str
    path: str
    created: float | None
    data_path: str
    data_hash: str  # what seals those shards; "" where it was not recorded


MOST_TRAINED = 10_000  # the newest
_TRAINED = (
    "SELECT run, CAST(name AS TEXT), CAST(path AS TEXT), created,"
    " json_extract(facts, '$.data.train.path'), json_extract(facts, '$.data.train.data_hash'),"
    " json_extract(facts, '$.data.train.sources')"
    " FROM runs ORDER BY created DESC, id DESC LIMIT ?"
)


def trained_runs(db: sqlite3.Connection) -> tuple[Trained, ...]:
    """The runs of Albor's own trainer with their data, newest first; a run that mixes several
    folders of shards stands there once for each.
    """
    found = []
    for run, name, folder, created, path, seal, sources in db.execute(_TRAINED, (MOST_TRAINED,)):
        mixed = json.loads(sources) if isinstance(sources, str) else []
        one = {"path": path, "data_hash": seal}
        for part in (part for part in mixed or [one] if isinstance(part, dict)):
            where, said = part.get("path"), part.get("data_hash")
            if isinstance(where, str) and where:
                told = said if isinstance(said, str) else ""
                found.append(Trained(run, name, folder, created, where, told))
    return tuple(found)
