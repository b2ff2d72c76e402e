"""The cells of a list's own columns, read from the store."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from albor_core.feed.runs.cells import CellsWanted
from albor_core.feed.runs.watch import RunsFeed
from albor_core.run.home.folders import albor_home
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.run.rundir import RunDir
from albor_core.store.file.paths import global_store
from albor_core.store.index.annotations import annotate
from albor_core.store.index.indexer import Indexer
from albor_core.store.query.column_names import column_names
from albor_core.store.query.reader import Reader


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Four runs with lr and val/mse; the last one's is NaN, and it has no lr."""
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    for number in range(4):
        run = create_run(
            albor_home() / "runs",
            f"run-{number}",
            experiment="e",
            name=f"run {number}",
            kind="track",
            argv=[],
        )
        journal = Journal(run.journal, attempt=1)
        if number < 3:
            journal.append("p", key="optim.lr", value=1e-3 if number else 3e-4)
        journal.append("p", key="seed", value=number)
        for step in range(3):
            mse = math.nan if number == 3 else 0.5 - 0.1 * step * number
            journal.metrics(step, {"val/mse": mse, "_hidden": 1.0})
        journal.event("run.end", status="completed", reason="completed", code=0)
        journal.close()
        with Indexer(run, global_store()) as indexer:
            indexer.drain()
    return albor_home()


def test_cells_are_read_once_for_what_is_seen_and_for_all_where_that_is_wanted(home):
    feed = RunsFeed()
    rows = feed.complete().rows
    seen = frozenset({"run-1"})
    wanted = CellsWanted(("val/mse", "optim.lr", "gone", "notes", "cost"), visible=seen)
    found = feed.cells.read(wanted, rows)
    assert found is not None
    assert found.values["val/mse"] == {"run-1": pytest.approx(0.3)}
    assert found.values["cost"] == {"run-1": None}
    assert found.absent == {"gone"} and found.params == {"optim.lr"}
    assert feed.cells.read(wanted, rows) is None, "nothing has moved"
    every = CellsWanted(("val/mse",), ("val/mse", "optim.lr"), seen, tuple(r.id for r in rows))
    found = feed.cells.read(every, rows)
    assert found is not None and "notes" not in found.values
    assert found.values["optim.lr"] == {
        **{"run-0": 3e-4, "run-1": 1e-3, "run-2": 1e-3, "run-3": None},
    }
    assert math.isnan(found.values["val/mse"]["run-3"])  # type: ignore[arg-type]
    assert found.differing == ("optim.lr",), "a seed tells each run from all others"
    feed.close()


def test_a_note_that_was_written_meanwhile_is_read(home):
    feed = RunsFeed()
    rows = feed.complete().rows
    wanted = CellsWanted(("notes",), visible=frozenset({"run-2"}))
    first = feed.cells.read(wanted, rows)
    assert first is not None and first.values["notes"] == {"run-2": None}
    row = next(row for row in rows if row.id == "run-2")
    run = RunDir(Path(row.path))
    annotate(run, "note", "keep this")
    with Indexer(run, global_store()) as indexer:
        indexer.drain()
    found = next(f for _ in range(200) if (f := feed.cells.read(wanted, feed.poll().rows)))
    assert found.values["notes"] == {"run-2": "keep this"}
    feed.close()


def test_what_a_run_cost_is_read_from_the_files_that_it_left(home):
    feed = RunsFeed()
    rows = feed.complete().rows
    told = {"budgets": [{"amount": "money", "unit": "EUR", "used": 2.5}]}
    (home / "runs" / "run-1" / "training_state.json").write_text(json.dumps(told))
    found = feed.cells.read(CellsWanted((), ("cost",)), rows)
    assert found is not None
    assert found.values["cost"]["run-1"] == 2.5 and found.values["cost"]["run-0"] is None
    feed.close()


def test_the_names_of_columns_have_no_clocks_and_no_doubles(home):
    with Reader(global_store()) as reader:
        names = reader.query(column_names)
    assert ("val/mse", 4) in names.metrics and ("optim.lr", 3) in names.params
    assert all(not name.startswith("_") for name, _ in names.metrics)
    assert names.joined(names).params[0][1] == 2 * names.params[0][1]
