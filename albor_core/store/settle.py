"""Make the stores catch up with a run's files now, whoever indexes it."""

from __future__ import annotations

import time

from albor_core.run.errors import InUseError, TryAgainError
from albor_core.run.ownership import is_ours
from albor_core.run.rundir import RunDir
from albor_core.store.index import Indexer
from albor_core.store.paths import global_store

_LOOK_S = 0.1


def settle(run: RunDir, *, timeout_s: float = 10.0) -> bool:
    """Index what is left of an ended run into both stores; False if somebody else still does.

    While the run is alive its own index process does this, and for another user's run that user's,
    so nothing is done. Raises StoreError.
    """
    if not is_ours(run):
        return False  # a viewer leaves nothing in the folders of others
    deadline = time.monotonic() + timeout_s
    while not run.liveness().is_alive:
        try:
            with Indexer(run, global_store()) as indexer:
                indexer.drain()
                return True
        except (InUseError, TryAgainError):  # the index process drains as well: let it finish
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_S)
    return False
