"""A run on disk with a journal to write to, and everything a reader can say about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.run.rundir import RunDir
from albor_core.store.file.paths import global_store
from albor_core.store.index.indexer import Indexer
from albor_core.store.query.media import rows_of
from albor_core.store.query.reader import Reader


@dataclass
class Bench:
    """Makes runs below one ALBOR_HOME and indexes them."""

    root: Path
    journals: dict[str, Journal] = field(default_factory=dict)

    def run(self, run_id: str = "r1", **facts: Any) -> RunDir:
        return create_run(
            self.root / "out",
            run_id,
            experiment=facts.pop("experiment", "exp"),
            name=facts.pop("name", run_id),
            kind="train",
            argv=["train"],
            seed=facts.pop("seed", 0),
            facts=facts,
        )

    def journal(self, run: RunDir, attempt: int = 1) -> Journal:
        old = self.journals.pop(run.id, None)
        if old is not None:
            old.close()
        journal = self.journals[run.id] = Journal(run.journal, attempt=attempt)
        return journal

    def index(self, run: RunDir, *, globally: bool = True) -> int:
        with Indexer(run, global_store() if globally else None) as indexer:
            return indexer.drain()


@pytest.fixture(scope="session")
def new_bench() -> type[Bench]:
    """For a bench that several tests share."""
    return Bench


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    return Bench(tmp_path)


def everything(path: Path) -> dict[str, Any]:
    """All that a Reader gives out about all runs, NaN made comparable."""
    found: dict[str, Any] = {}
    with Reader(path) as reader:
        for row in reader.runs():
            keys = reader.keys(row.id)
            found[row.id] = {
                "detail": reader.detail(row.id),
                "params": reader.params(row.id),
                "summary": reader.summary(row.id),
                "series": {k: reader.series(row.id, k, max_points=37) for k in keys},
                "points": {k: reader.points(row.id, k) for k in keys},
                "events": reader.events(row.id),
                "states": reader.events(row.id, names=("guard.state",)),
                "alerts": reader.alerts(row.id),
                "attempts": reader.attempts(row.id),
                "notes": reader.notes(row.id),
                "artifacts": reader.artifacts(row.id),
                "media": reader.query(partial(rows_of, run=row.id)),
                "samples": reader.samples(row.id),
                "positions": reader.positions(row.id),
            }
        found["alerts"] = reader.alerts()
    return {key: repr(value) for key, value in found.items()}


@pytest.fixture
def snapshot_of() -> Any:
    return everything
