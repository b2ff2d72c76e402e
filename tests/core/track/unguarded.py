"""A tracked run of the test's own process: no guard, no index process, and what its store has."""

import pytest

from albor_core.guard.process.index_process import IndexProcess
from albor_core.store.index.catch_up import drain_index
from albor_core.store.query.reader import Reader


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for word in ("RUN_DIR", "ATTEMPT", "NONCE", "RUN_LOCK_FD"):
        monkeypatch.delenv(f"ALBOR_{word}", raising=False)
    monkeypatch.setattr(IndexProcess, "tend", lambda self: None)


def series(run):
    """Steps and values by metric."""
    drain_index(run.dir)
    with Reader(run.dir.store) as reader:
        return {key: [p[:2] for p in reader.points(run.id, key)] for key in reader.keys(run.id)}
