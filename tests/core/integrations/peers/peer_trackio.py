"""trackio: one project, a run for each history. It numbers what has no step; a run of the same name
goes on at the next step.
"""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from histories import History, Truth, placed


def write(histories: list[History], folder: Path) -> list[Truth]:
    os.environ["TRACKIO_DIR"] = str(folder)
    os.environ["TRACKIO_SHOW_DASHBOARD"] = "0"
    truths = [_write(history) for history in histories]
    with closing(sqlite3.connect(folder / "peers.db")) as db:
        db.execute("PRAGMA journal_mode = DELETE")
    (folder / "peers.lock").unlink(missing_ok=True)
    return truths


def _write(history: History) -> Truth:
    from trackio.sqlite_storage import SQLiteStorage

    said: list[tuple[int, dict[str, float]]] = []
    for rows in history.jobs:
        steps = [row.step for row in rows]
        if history.kind == "none":
            steps = [len(said) + i for i in range(len(rows))]
        values = [row.values for row in rows]
        SQLiteStorage.bulk_log("peers", history.name, values, steps=steps)
        said += zip(steps, values, strict=True)
    metrics, replaced = placed(said)
    return Truth(history.name, metrics, {"replaced": replaced} if replaced else {})
