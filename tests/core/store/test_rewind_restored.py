"""A rewind that is undone: what it took back counts again, alike after a rebuild."""

from __future__ import annotations

import pytest

from albor_core.store.file.paths import global_store, local_store
from albor_core.store.index.annotations import annotate
from albor_core.store.query.attempts import taken_back
from albor_core.store.query.reader import Reader
from albor_core.store.upkeep.rebuild import rebuild


@pytest.fixture
def twice(bench):
    """Ten steps, back to 5 and on to 7, then back to 3 and on to 4, two metrics."""
    run = bench.run()
    journal = bench.journal(run)
    for life, (first, last) in enumerate(((1, 10), (6, 7), (4, 4)), 1):
        if life > 1:
            journal.rewind(first - 1)
        for step in range(first, last + 1):
            journal.metrics(step, {"train/loss": life + step / 100, "acc": float(life)})
    bench.index(run)
    return run


def losses(run, key="train/loss"):
    with Reader(local_store(run)) as reader:
        return {step: round(value, 2) for step, value, _ in reader.points(run.id, key)}


def rewinds(run):
    with Reader(local_store(run)) as reader:
        return reader.query(lambda db: taken_back(db, run.id))


def test_what_the_last_rewind_took_back_counts_again_where_nothing_newer_stands(
    bench, twice, snapshot_of
):
    first, last = rewinds(twice)
    assert (first.metrics, first.points, first.first_step, first.last_step) == (2, 10, 6, 10)
    assert (last.metrics, last.points, last.first_step, last.last_step) == (2, 8, 4, 7)
    annotate(twice, "restore", last.at)
    bench.index(twice)
    kept = {1: 1.01, 2: 1.02, 3: 1.03, 4: 3.04, 5: 1.05, 6: 2.06, 7: 2.07}
    assert losses(twice) == kept
    assert [one.at for one in rewinds(twice)] == [first.at]
    with Reader(global_store()) as reader:
        assert reader.run(twice.id).last_step == 7
    stores = (local_store(twice), global_store())
    before = [snapshot_of(path) for path in stores]
    assert rebuild(None, [twice]).problems == []
    assert [snapshot_of(path) for path in stores] == before
    annotate(twice, "restore", first.at)
    bench.index(twice)
    assert losses(twice) == kept | {8: 1.08, 9: 1.09, 10: 1.1}
    assert rewinds(twice) == ()


def test_a_rewind_after_one_that_was_undone_takes_back_what_came_back(bench, twice):
    annotate(twice, "restore", rewinds(twice)[-1].at)
    bench.index(twice)
    bench.journals[twice.id].rewind(5)
    bench.index(twice)
    assert losses(twice) == {1: 1.01, 2: 1.02, 3: 1.03, 4: 3.04, 5: 1.05}
    assert rebuild(None, [twice]).problems == []
    assert [*losses(twice)] == [1, 2, 3, 4, 5]


def test_a_byte_where_no_rewind_is_changes_no_point(bench, twice):
    before = losses(twice)
    annotate(twice, "restore", 1)
    bench.index(twice)
    assert losses(twice) == before
