"""Where the cockpit looks for the runs that a filter keeps."""

from __future__ import annotations

import pytest

from albor_core.run.errors import NotFoundError
from albor_core.run.journal import Journal
from albor_core.run.rundir import RunDir, create_run
from albor_core.store.file.paths import global_store
from albor_core.store.index.indexer import Indexer
from albor_core.store.query.filter import FilterError
from albor_tui.model.desk import LiveDesk, RunSelection


def made(folder, name: str, *, loss: float) -> RunDir:
    run = create_run(folder, name, experiment="e", name=name, kind="guard", argv=["x"])
    journal = Journal(run.journal, attempt=1)
    journal.metrics(1, {"train/loss": loss})
    journal.close()
    return run


def index(run: RunDir, store) -> None:
    with Indexer(run, store) as indexer:
        indexer.drain()


def test_a_folder_is_searched_through_the_stores_of_its_runs_too(tmp_path):
    low, high = (made(tmp_path / "out", n, loss=v) for n, v in (("low", 1.0), ("high", 9.0)))
    with pytest.raises(NotFoundError, match="no store yet"):
        LiveDesk(tmp_path / "out").matching(RunSelection("loss<2"))
    index(low, None)  # in stores of their own alone
    index(high, None)
    assert not global_store().exists()
    assert LiveDesk(tmp_path / "out").matching(RunSelection("loss<2")).ids == {low.id}


def test_another_home_is_searched_in_its_own_store(tmp_path):
    run = made(tmp_path / "out", "there", loss=1.0)
    (tmp_path / "elsewhere" / "runs").mkdir(parents=True)
    index(run, tmp_path / "elsewhere" / "experiments.db")
    index(made(tmp_path / "here", "here", loss=1.0), global_store())
    assert LiveDesk(tmp_path / "elsewhere").matching(RunSelection("loss<2")).ids == {run.id}


def test_what_no_run_of_a_folder_has_is_refused_and_what_one_has_is_not(tmp_path):
    low, high = (made(tmp_path / "out", n, loss=v) for n, v in (("low", 1.0), ("high", 9.0)))
    journal = Journal(low.journal, attempt=1)
    journal.metrics(2, {"val/accuracy": 0.5})
    journal.close()
    for run in (low, high):
        index(run, None)
    desk = LiveDesk(tmp_path / "out")
    assert desk.matching(RunSelection("val/accuracy>0.1")).ids == {low.id}
    with pytest.raises(FilterError, match="nearest is 'val/accuracy'"):
        desk.matching(RunSelection("val/acuracy>0.1"))
