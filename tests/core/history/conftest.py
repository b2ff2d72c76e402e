"""Runs to read back: made with journals, as any program makes them, and indexed."""

from __future__ import annotations

import math

import pytest

from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.store.index.indexer import index_now


class Maker:
    """Makes runs below one folder of one home."""

    def __init__(self, folder):
        self.folder = folder

    def start(self, run_id, *, experiment="exp", name="", seed=None, params=None):
        """A run that has not ended, its journal open."""
        run = create_run(
            self.folder, run_id, experiment=experiment, name=name or run_id, kind="track",
            argv=["x"], seed=seed,
        )  # fmt: skip
        journal = Journal(run.journal, attempt=1)
        for key, value in (params or {}).items():
            journal.append("p", key=key, value=value)
        return run, journal

    def make(self, run_id, steps=(), *, is_indexed=True, **facts):
        """A run that completed. `steps`: (step, {metric: value}) in the order they were logged."""
        run, journal = self.start(run_id, **facts)
        for step, values in steps:
            journal.metrics(step, values)
        journal.event("run.end", status="completed", reason="completed", code=0)
        journal.close()
        if is_indexed:
            index_now(run)
        return run


@pytest.fixture
def maker(tmp_path, albor_home):
    return Maker(tmp_path / "out")


@pytest.fixture
def same():
    """Whether two tables are equal, NaN to NaN."""

    def compare(one, other):
        if isinstance(one, float) and isinstance(other, float):
            return one == other or (math.isnan(one) and math.isnan(other))
        if isinstance(one, dict) and isinstance(other, dict):
            return one.keys() == other.keys() and all(compare(one[k], other[k]) for k in one)
        if isinstance(one, list | tuple) and isinstance(other, list | tuple):
            return len(one) == len(other) and all(map(compare, one, other))
        return type(one) is type(other) and one == other

    return compare
