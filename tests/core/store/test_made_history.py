"""The history that benchmarks generate is what index processes would have left."""

from __future__ import annotations

import importlib.util
import math
import random
import sqlite3
from pathlib import Path

from albor_core.run.journal import Journal
from albor_core.store.file.paths import global_store
from albor_core.store.index.indexer import Indexer
from albor_core.store.query.filter import parse_filter
from albor_core.store.query.table import RunList

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "tracker" / "make_history.py"
spec = importlib.util.spec_from_file_location("make_history", SCRIPT)
assert spec is not None and spec.loader is not None
make_history = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make_history)

CURVES = (
    "SELECT k.name, k.base, k.count, k.nonfinite, k.first_step, k.last_step, k.last, k.best,"
    " k.best_step, k.minimum, k.maximum, l.data FROM keys k JOIN metric_levels l"
    " USING (run_id, key_id) JOIN runs r ON r.id = k.run_id WHERE r.run = ? ORDER BY k.name"
)


def test_a_generated_run_has_the_rows_of_an_indexed_one(bench, tmp_path):
    path = make_history.make(tmp_path / "made", 12, 300)
    number = 7
    rng = random.Random(number)
    params = make_history.params_of(number, rng)
    curves = make_history.curves_of(params["optimizer.lr"], 300, rng)
    run = bench.run("twin")
    with_journal = Journal(run.journal, attempt=1)
    for key, value in params.items():
        with_journal.append("p", key=key, value=value)
    for step in range(300):
        with_journal.metrics(step, {name: values[step] for name, values in curves.items()})
    with_journal.close()
    with Indexer(run, global_store()) as indexer:
        indexer.drain()
    with sqlite3.connect(path) as made, sqlite3.connect(global_store()) as real:
        ours = made.execute(CURVES, ("sweep-00001-s2",)).fetchall()
        theirs = real.execute(CURVES, ("twin",)).fetchall()
        theirs = [row for row in theirs if row[0] != "_wall"]
        assert [row[:-1] for row in ours] == [row[:-1] for row in theirs]
        assert [row[-1] for row in ours] == [row[-1] for row in theirs]
        columns = "tokens, last_step, tokens_per_s, mfu, loss, val_loss, best_val_loss"
        question = f"SELECT {columns} FROM runs WHERE run = ?"
        assert made.execute(question, ("sweep-00001-s2",)).fetchall() == (
            real.execute(question, ("twin",)).fetchall()
        )


def test_the_generated_history_answers_filters(tmp_path):
    path = make_history.make(tmp_path, 60, 40)
    with RunList(path) as table:
        rows = table.runs(limit=None)
        assert len(rows) == 60 and all(math.isfinite(row.loss or 0) for row in rows[:3])
        assert len(table.matching(parse_filter("seed=0"))) == 12
        assert len(table.matching(parse_filter("gradient spikes"))) == 1
        assert {run for run, _ in table.unended()} == {"sweep-00001-s2"}
