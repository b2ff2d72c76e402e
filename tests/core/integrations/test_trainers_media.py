"""Pictures and tables that a program hands to its trainer's tracker are media of the run."""

from __future__ import annotations

import pytest

from albor_core.run.rundir import RunDir
from albor_core.store.index.indexer import index_now
from albor_core.store.query.media import media

numpy = pytest.importorskip("numpy")
pytest.importorskip("accelerate")


@pytest.fixture
def alone(monkeypatch):
    for word in ("RUN_DIR", "ATTEMPT", "NONCE", "RUN_LOCK_FD"):
        monkeypatch.delenv(f"ALBOR_{word}", raising=False)
    monkeypatch.setattr("albor_core.guard.process.index_process.IndexProcess.tend", lambda self: 0)


def test_images_and_tables_of_accelerate_are_kept(alone):
    from albor_core.integrations.accelerate import AlborTracker

    tracker = AlborTracker("exp")
    tracker.log_images({"early": [numpy.zeros((2, 2))]})  # before there is a run: nothing
    tracker.start()
    path = tracker.run.path
    pixels = numpy.zeros((2, 5, 6, 3), numpy.uint8)
    pixels[1] = 9
    tracker.log_images({"several": pixels, "listed": [pixels[0], pixels[1]], "one": pixels[0]}, 3)
    tracker.log_table("rows", columns=["a"], data=[[1], [2]], step=4)
    tracker.finish()
    index_now(RunDir(path))
    found = media(RunDir(path))
    assert [(row.key, row.step) for row in found if row.kind == "image"] == [
        ("several", 3), ("several", 3), ("listed", 3), ("listed", 3), ("one", 3)
    ]  # fmt: skip
    (table,) = (row for row in found if row.kind == "table")
    assert (table.step, table.data) == (4, {"columns": ["a"], "data": [[1], [2]]})
