"""Metrics that a run logged beyond the room of its store: what its journal alone has."""

from __future__ import annotations

import json
import mmap
import shlex
import sqlite3
from collections.abc import Collection, Iterable

from albor_core.run.errors import NotFoundError
from albor_core.run.home.runs import placed
from albor_core.run.journal import parse_json
from albor_core.run.rundir import RunDir
from albor_core.run.values import metrics
from albor_core.run.values.metrics import NO_ROOM_EVENT


def crowded(db: sqlite3.Connection) -> list[RunDir]:
    """The runs that logged more metrics than a store has room for, the newest first."""
    rows = db.execute(
        "SELECT run, path FROM runs WHERE id IN (SELECT run_id FROM events WHERE name = ?)"
        " ORDER BY created DESC",
        (NO_ROOM_EVENT,),
    )
    return [placed(run, path) for run, path in rows if path]


def refuse_without_room(runs: Iterable[tuple[RunDir, Collection[str]]], name: str) -> None:
    """Raise NotFoundError if one of these runs, with the metrics in its store, logged a metric that
    had no room. Reads the journals of those whose stores are full.
    """
    full = [run for run, keys in runs if len(keys) >= metrics.MAX_NAMES]
    if run := logged_without_room(full, name):
        what, hint = without_room(run, name)
        raise NotFoundError(what, hint=hint)


def without_room(run: RunDir, name: str) -> tuple[str, str]:
    """What is to be said of a metric that a run logged beyond its store's room, and a hint."""
    what = f"{run.id} logged {name!r}, but its store had no room: it stands in the journal only"
    return (
        what,
        f"albor runs pin {run.id} {shlex.quote(name)} gives it room, with all of its values",
    )


def logged_without_room(runs: Iterable[RunDir], name: str) -> RunDir | None:
    """The first of these runs whose journal has values of the metric. Reads all of a journal."""
    return next((run for run in runs if _is_logged(run, name)), None)


def _is_logged(run: RunDir, name: str) -> bool:
    key = json.dumps(name)[1:-1].encode()
    try:
        with (
            run.journal.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text,
        ):
            at = text.find(key)
            while at >= 0:
                end = text.find(b"\n", at)
                end = len(text) if end < 0 else end
                line = parse_json(text[text.rfind(b"\n", 0, at) + 1 : end]) or {}
                values = line.get("v")
                if line.get("t") == "m" and isinstance(values, dict) and name in values:
                    return True
                at = text.find(key, end)
    except (OSError, ValueError):  # gone, or empty
        pass
    return False
