"""What differs in the params of many runs, as a matrix."""

from __future__ import annotations

import math

from albor_core.feed.workspace.compare import MOST_RUNS, read_matrix, run_matrix
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.store.file.paths import global_store
from albor_core.store.index.indexer import index_now


def test_only_what_differs_is_a_column_and_numbers_are_the_same_however_written():
    params = {
        "a": {"lr": 0.001, "wd": 0.1, "tags": ["x", "y"], "same": 1, "name": "a"},
        "b": {"lr": "1e-3", "wd": 0.2, "tags": ["x", "y"], "same": 1.0, "name": "b"},
        "c": {"lr": 0.001, "same": 1, "tags": ["y"], "name": "c"},
        "none": {},
    }
    matrix = run_matrix(("a", "b", "c", "none"), params)
    assert [column.key for column in matrix.columns] == ["tags", "name", "wd"]
    assert matrix.alike == 2, "lr and same"
    by_key = {column.key: column.labels for column in matrix.columns}
    assert by_key["wd"] == ("0.1", "0.2", "missing", ""), "who recorded nothing differs in nothing"
    assert by_key["tags"][0] == '["x", "y"]'


def test_runs_are_in_the_order_of_the_metric_or_of_a_column():
    params = {
        run: {"lr": lr}
        for run, lr in {"a": 0.01, "b": "auto", "c": 1e-4, "d": 0.01, "e": None}.items()
    }
    figures = {"a": 0.3, "b": 0.1, "c": math.nan, "d": 0.2}
    matrix = run_matrix([*params], params, metric="f1", figures=figures, better="max")
    assert [matrix.runs[at] for at in matrix.order()] == ["a", "d", "b", "c", "e"]
    assert [matrix.runs[at] for at in matrix.order(0)] == ["c", "a", "d", "b", "e"]
    least = run_matrix([*params], params, metric="f1", figures=figures, better="min")
    assert [least.runs[at] for at in least.order()] == ["b", "d", "a", "c", "e"]


def test_more_runs_than_a_matrix_has_are_counted():
    matrix = run_matrix([f"r{n}" for n in range(MOST_RUNS + 7)], {})
    assert (len(matrix.runs), matrix.left_out, matrix.columns) == (MOST_RUNS, 7, ())


def test_a_matrix_is_read_of_the_store_also_of_runs_that_it_does_not_know(tmp_path, monkeypatch):
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    for index, name in enumerate("ab"):
        run = create_run(
            tmp_path / "out", name, experiment="sweep", name=name, kind="track", argv=["t.py"]
        )
        journal = Journal(run.journal, attempt=1)
        journal.append("p", key="lr", value=10.0**-index)
        journal.metrics(1, {"val/mse": 0.5 - index / 10})
        journal.close()
        index_now(run)
    matrix = read_matrix(global_store(), ("a", "gone", "b"), "val/mse", "min")
    assert matrix.experiments == ("sweep", "", "sweep")
    assert matrix.figures == (0.5, None, 0.4)
    assert [(one.key, one.labels) for one in matrix.columns] == [("lr", ("1", "", "0.1"))]
