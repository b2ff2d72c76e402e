"""The store of all runs, for whoever reads it: there, on its way, or missing."""

from __future__ import annotations

import time
from pathlib import Path

from albor_core.run.errors import NotFoundError, StoreError
from albor_core.run.home.folders import check_home
from albor_core.run.home.runs import registered_runs
from albor_core.run.rundir import FRESH_S, RunDir
from albor_core.run.values.quantity import counted
from albor_core.store.file.paths import global_store, rebuild_hint

MAKING_S = 5.0  # from the start of a run to the first rows in its store, on a busy machine


class MissingStoreError(StoreError):
    """Raised if runs are registered but the store that should hold them is gone."""

    exit_code, code = NotFoundError.exit_code, NotFoundError.code


def present_store() -> Path | None:
    """The store of this home; None where it has none since it has no runs either.

    Raises MissingStoreError where runs are registered, UsageError where ALBOR_HOME is not a folder.
    """
    home, path = check_home(), global_store()
    if path.is_file():
        return path
    runs = list(registered_runs())
    if not runs:
        return None
    if _comes_soon(path, runs):
        return path
    raise MissingStoreError(
        f"{path}: no store, though {counted(len(runs), 'run', 'is', 'are')} registered in "
        f"{home / 'runs'}",
        hint=rebuild_hint(path),
    )


def _comes_soon(path: Path, runs: list[RunDir]) -> bool:
    """Whether the store is being made at this moment, by a run that has just started."""
    deadline = time.monotonic() + (MAKING_S if is_fresh(runs[0]) else 0.0)
    while not path.is_file():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)
    return True


def is_fresh(run: RunDir) -> bool:
    """Whether it was made within the last minute; False where its folder is gone."""
    try:
        return time.time() - run.run_json.stat().st_mtime < FRESH_S
    except OSError:
        return False
