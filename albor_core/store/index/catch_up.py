"""Make the stores catch up with a run's files now, whoever indexes it."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from albor_core.run.errors import InUseError, NotFoundError, StoreError, TryAgainError
from albor_core.run.files.ownership import is_ours
from albor_core.run.home.folders import pointer_of
from albor_core.run.home.registry import known_as
from albor_core.run.home.runs import run_at
from albor_core.run.liveness import lock_holder
from albor_core.run.rundir import RunDir, read_json
from albor_core.store.file.connect import open_reader, remove_copy
from albor_core.store.file.home_store import MAKING_S, is_fresh
from albor_core.store.file.paths import global_store, local_store
from albor_core.store.index.indexer import Indexer, load_positions
from albor_core.store.index.sources import (
    Position,
    files_of,
    is_cut,
    is_same_file,
    parse_plain,
    read_batch,
)

_LOOK_S = 0.1


def drain_index(run: RunDir, *, timeout_s: float = 10.0) -> bool:
    """Index what is left of an ended run into both stores; False if another process still does.

    While the run is alive its own index process does this, and for another user's run that user's,
    so nothing is done. Raises StoreError.
    """
    if not is_ours(run) or not is_wanted(run):
        return False  # a viewer leaves nothing in the folders of others
    deadline = time.monotonic() + timeout_s
    known = known_as(run)
    while not run.liveness().is_alive:
        try:
            with Indexer(known or run, global_store() if known else None) as indexer:
                indexer.drain()
                return True
        except (InUseError, TryAgainError):  # the index process drains as well: let it finish
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_S)
    return False


def is_wanted(run: RunDir) -> bool:
    """Whether a run is to be in the stores: monitoring.tracking.enabled, as its launch has it."""
    return (read_json(run.launch) or {}).get("index") is not False


def catch_up(run: RunDir, *, timeout_s: float) -> bool:
    """For whoever looks at a run: wait, or index, until the stores have all that an ended one
    wrote; False where they do not when the time is up.

    Writes nothing where nothing is missing, into a run that is not ours or not of this home, and
    into stores that are gone or made from other files: they are `albor db check`'s to tell. Raises
    StoreError, OSError.
    """
    if not is_wanted(run):
        return True
    deadline = time.monotonic() + timeout_s
    may_write = is_ours(run) and is_known(run)
    while not run.liveness().is_alive:
        is_drained = lock_holder(run.index_lock) is None
        if is_drained and not is_behind(run):
            return True
        if is_drained and may_write:
            try:
                return _index_until(run, deadline)
            except (InUseError, TryAgainError):  # another process was faster
                pass
        if time.monotonic() > deadline or (is_drained and not may_write):
            return not is_behind(run)
        time.sleep(_LOOK_S)
    return True


def await_first_rows(run: RunDir) -> None:
    """Give the index process of a run that has just started the time to make its store. Raises
    StoreError.
    """
    deadline = time.monotonic() + MAKING_S
    while is_fresh(run) and run.liveness().is_alive and is_wanted(run):
        with contextlib.suppress(NotFoundError):
            if positions_of(local_store(run), run.own_id):
                return
        if time.monotonic() > deadline:
            return
        time.sleep(_LOOK_S)


def index_ended_run(run: RunDir, *, timeout_s: float) -> bool:
    """Index what the store of all runs lacks of an ended run, or wait for who does it; False where
    that was not to be done in time, or by us. Raises StoreError, OSError.
    """
    deadline = time.monotonic() + timeout_s
    may_write = is_ours(run) and is_known(run)
    while may_write and not run.liveness().is_alive:
        try:
            return _index_until(run, deadline)
        except (InUseError, TryAgainError):
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_S)
    return False


def _index_until(run: RunDir, deadline: float) -> bool:
    """Index until nothing is left; False if the time is up before."""
    path = global_store()
    with Indexer(run, path if path.is_file() else None) as indexer:
        while indexer.step():
            if time.monotonic() > deadline:
                return False
        indexer.publish(whole=True)
    return True


def is_known(run: RunDir) -> bool:
    """Whether this home has the run in this folder."""
    known = run_at(run.id, read_json(pointer_of(run.id)))
    return known is not None and known.path.resolve() == run.path.resolve()


def is_behind(run: RunDir) -> bool:
    """Whether the run's own store lacks whole lines of its files. Not where it is damaged, another
    run's, or made from files that are there no more.
    """
    files = files_of(run)
    try:
        positions = positions_of(local_store(run), run.own_id)
    except NotFoundError:
        has_lines = any(path.is_file() and path.stat().st_size for path in files.values())
        return has_lines and not _is_kept_elsewhere(run)
    except StoreError:
        return False
    return all(is_same_file(files[name], position) for name, position in positions.items()) and any(
        read_batch(files[name], position, parse_plain) is not None
        for name, position in positions.items()
    )


def _is_kept_elsewhere(run: RunDir) -> bool:
    """Whether the store of all runs has lines that were cut off the run's files."""
    try:
        known = positions_of(global_store(), run.id)
    except (NotFoundError, StoreError):
        return False
    return any(is_cut(path, known[name]) for name, path in files_of(run).items() if name in known)


def positions_of(store: Path, run_id: str) -> dict[str, Position]:
    """How far each file of a run is in a store; {} where it does not know the run. Raises
    NotFoundError, StoreError.
    """
    db, copy = open_reader(store)
    try:
        found = db.execute("SELECT id FROM runs WHERE run = ?", (run_id,)).fetchone()
        return {} if found is None else load_positions(db, found[0])
    finally:
        db.close()
        remove_copy(copy)
