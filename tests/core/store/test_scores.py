"""Scores of checkpoints are metrics of their run, in whichever order its files are read."""

import json

from albor_core.run.values.lenient import strict_json
from albor_core.store.file.paths import global_store
from albor_core.store.index.annotations import append_annotation
from albor_core.store.query.reader import Reader
from albor_core.store.upkeep.rebuild import rebuild
from albor_core.track.scores import record_scores, recorded_scores

NAME = "eval/held-out/bpb"


def points(run, key):
    with Reader(run.store) as reader:
        return {step: value for step, value, _ in reader.points(run.id, key)}


def score(run, step, value, id="e1"):
    record_scores(run, step, {NAME: value, "eval/x/odd": 3.0}, {NAME: "min"}, id=id)


def test_scores_of_a_live_or_ended_run_are_metrics_of_the_checkpoints_step(bench):
    run = bench.run()
    journal = bench.journal(run)
    for step in (1, 2, 3):
        journal.metrics(step, {"train/loss": 1.0 / step})
    bench.index(run)
    before = run.journal.read_bytes()
    score(run, 2, 0.5)
    bench.index(run)
    assert points(run, NAME) == {2: 0.5}
    assert run.journal.read_bytes() == before
    score(run, 3, 0.4, id="e2")
    score(run, 2, 0.6, id="e3")
    bench.index(run)
    assert points(run, NAME) == {2: 0.6, 3: 0.4}
    with Reader(global_store()) as reader:
        assert reader.summary(run.id)[NAME].best == 0.4
        assert reader.detail(run.id).row.last_step == 3
    assert recorded_scores(run, "e3") == {NAME, "eval/x/odd"}
    assert not recorded_scores(run, "e4")


def test_what_a_figure_wants_to_be_is_declared_where_its_name_does_not_say(bench):
    run = bench.run()
    bench.journal(run).metrics(1, {"train/loss": 1.0})
    record_scores(run, 1, {"eval/t/grommets": 2.0}, {"eval/t/grommets": "max"}, id="e")
    bench.index(run)
    with Reader(global_store()) as reader:
        assert reader.goals(run.id)["eval/t/grommets"] == "max"


def test_a_rewind_of_the_program_takes_no_score_back_live_or_in_a_rebuild(bench, snapshot_of):
    run = bench.run()
    journal = bench.journal(run)
    for step in range(1, 6):
        journal.metrics(step, {"train/loss": float(step)})
    score(run, 4, 0.5)
    bench.index(run)
    journal.rewind(2)
    journal.metrics(3, {"train/loss": 9.0})
    bench.index(run)
    assert points(run, NAME) == {4: 0.5}
    assert points(run, "train/loss") == {1: 1.0, 2: 2.0, 3: 9.0}
    live = snapshot_of(run.store)
    for path in run.store.parent.glob("experiments.db*"):
        path.unlink()
    bench.index(run)
    assert snapshot_of(run.store) == live
    assert not rebuild(None, [run]).problems
    assert points(run, NAME) == {4: 0.5}


def test_a_damaged_line_of_scores_is_passed_over_and_the_others_stand(bench):
    run = bench.run()
    bench.journal(run).metrics(1, {"train/loss": 1.0})
    for value in ({"step": -1, "v": {NAME: 1.0}}, {"step": 1, "v": [1]}, {"step": 1}, 7):
        append_annotation(run, "scores", value, by="x")
    append_annotation(run, "scores", {"step": 1, "v": {NAME: "high", "eval/x": 2.0}}, by="x")
    bench.index(run)
    assert points(run, "eval/x") == {1: 2.0}
    assert points(run, NAME) == {}


def test_values_that_are_not_finite_are_left_out(bench):
    run = bench.run()
    bench.journal(run).metrics(1, {"train/loss": 1.0})
    record_scores(run, 1, {NAME: float("nan"), "eval/x": 1.0}, {}, id="e")
    lines = [json.loads(line) for line in run.annotations.read_text().splitlines()]
    assert [line["value"]["v"] for line in lines] == [strict_json({"eval/x": 1.0})]
