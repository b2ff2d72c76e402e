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


def answers(table, reader, name):
    """What each reader says of a metric: a sort, best values, a verdict, lists, a report."""
    is_descending = table.is_descending(name)
    first = table.runs(sort=name, descending=is_descending)[0].id
    mains = table.standings(["low"])["low"].chosen(most=len(NAMES))
    best = [reader.summary(run)[name].best for run in VALUES]
    verdict = diff_runs(reader, ["low", "high"], metric=name)
    title = captions([name])[name].rpartition(", ")[2]
    main = [one.better for one in mains if one.name == name] or [verdict.direction]
    return direction(name), first, best, verdict.direction, main, title.rpartition(" is ")[0]


SAID = {
    "min": ("min", "low", [1.0, 3.0], "min", ["min"], "lower"),
    "max": ("max", "high", [3.0, 5.0], "max", ["max"], "higher"),
    None: (None, "high", [None, None], None, [None], ""),
}


@pytest.mark.slow
def test_every_reader_gives_the_one_answer(bench):
    for run_id, values in VALUES.items():
        run = bench.run(run_id)
        journal = bench.journal(run)
        for step, value in enumerate(values, 1):
            journal.metrics(step, dict.fromkeys(NAMES, value))
        journal.event("run.end", status="completed", reason="completed", code=0)
        bench.index(run)
    with RunList(global_store()) as table, Reader(global_store()) as reader:
        found = {name: answers(table, reader, name) for name in NAMES}
    assert found == {name: SAID[way] for name, way in NAMES.items()}
