"""Which way a metric is better is one answer: in sorts, best values, verdicts and reports."""

from __future__ import annotations

import pytest

from albor_core.report.scores import captions
from albor_core.run.values.directions import direction
from albor_core.store.diff.compare import diff_runs
from albor_core.store.file.paths import global_store
from albor_core.store.query.reader import Reader
from albor_core.store.query.table import RunList

NAMES = {
    "humaneval/pass@1": "max",
    "val/loss/dataloader_idx_0": "min",
    "gsm8k/exact_match,strict-match": "max",
    "dice_coef": "max",
    "neg_elbo": "min",
    "tokens/sec": "max",
    "self_bleu": "min",
    "codebook_perplexity": None,
    "toxicity_score": None,
    "zorp": None,
}
VALUES = {"low": (3.0, 1.0, 2.0), "high": (3.0, 5.0, 4.0)}


@pytest.fixture
def stored(bench):
    for run_id, values in VALUES.items():
        run = bench.run(run_id)
        journal = bench.journal(run)
        for step, value in enumerate(values, 1):
            journal.metrics(step, dict.fromkeys(NAMES, value))
        journal.event("run.end", status="completed", reason="completed", code=0)
        bench.index(run)


@pytest.mark.parametrize("name", NAMES)
def test_every_reader_gives_the_one_answer(stored, name):
    way = NAMES[name]
    assert direction(name) == way
    with RunList(global_store()) as table:
        is_descending = table.is_descending(name)
        first = table.runs(sort=name, descending=is_descending)[0].id
        mains = {
            one.name: one.better for one in table.standings(["low"])["low"].chosen(most=len(NAMES))
        }
        with Reader(global_store()) as reader:
            best = {run: reader.summary(run)[name].best for run in VALUES}
            verdict = diff_runs(reader, ["low", "high"], metric=name)
    assert mains.get(name, way) == way
    assert best == {None: dict.fromkeys(VALUES), "min": {"low": 1.0, "high": 3.0},
                    "max": {"low": 3.0, "high": 5.0}}[way]  # fmt: skip
    assert (is_descending, first) == ((False, "low") if way == "min" else (True, "high"))
    assert verdict.direction == way
    words = {"min": "lower is better", "max": "higher is better", None: ""}[way]
    assert captions([name])[name].endswith(words) and ("better" in captions([name])[name]) == bool(
        words
    )
