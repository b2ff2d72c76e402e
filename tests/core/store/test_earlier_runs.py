from __future__ import annotations

import math

import pytest

from albor_core.run.rundir import RunDir
from albor_core.run.values.flatten import flatten
from albor_core.store.file.paths import global_store
from albor_core.store.index.earlier_runs import earlier_losses

CONFIG = {
    "optimizer": {"lr": 3e-4, "min_lr": 3e-5},
    "training": {"seed": 1, "output_dir": "a", "max_steps": 400},
    "monitoring": {"alerts": []},
}


def changed(**sections):
    return {name: {**CONFIG.get(name, {}), **sections.get(name, {})} for name in CONFIG}


def record(bench, run_id, config=CONFIG, *, status="completed", loss=None, **facts) -> RunDir:
    run = bench.run(run_id, **facts)
    journal = bench.journal(run)
    for key, value in flatten(config).items():
        journal.append("p", key=key, value=value)
    for step in range(1, 401):
        journal.metrics(step, {"train/loss": 2 + 3 / step if loss is None else loss})
    if status:
        journal.event("run.end", step=400, status=status, code=0)
    bench.index(run)
    return run


def found(config=CONFIG, experiment="exp", **more):
    return earlier_losses(global_store(), "new", experiment=experiment, config=config, **more)


def test_runs_of_the_same_config_are_found_whatever_their_seed_and_place(bench):
    record(bench, "one")
    record(bench, "two", changed(training={"seed": 2, "output_dir": "b"}))
    record(bench, "three", changed(monitoring={"alerts": ["loss > 1"]}))
    curves = found()
    assert len(curves) == 3
    steps, values = curves[0]
    assert 150 < len(steps) <= 256 and steps == sorted(steps)
    middle = len(steps) // 2
    assert values[middle] == pytest.approx(2 + 3 / steps[middle], rel=0.01)


def test_other_configs_and_experiments_and_unfinished_runs_are_not(bench):
    record(bench, "longer", changed(training={"max_steps": 800}))
    record(bench, "elsewhere", experiment="other")
    record(bench, "unfinished", status="")
    record(bench, "died", status="failed")
    record(bench, "exploded", loss=math.nan)
    assert found() == ()
    assert len(found(experiment="other")) == 1


def test_another_rate_counts_where_it_is_asked_for(bench):
    record(bench, "tenth", changed(optimizer={"lr": 3e-5, "min_lr": 3e-6}))
    assert found() == ()
    assert len(found(same_lr=False)) == 1


def test_the_newest_five_are_taken_and_never_the_run_itself(bench):
    for number in range(7):
        record(bench, f"r{number}")
    assert len(found()) == 5
    own = earlier_losses(global_store(), "r0", experiment="exp", config=CONFIG)
    assert len(own) == 5
    record(bench, "alone", changed(training={"max_steps": 9}))
    lonely = changed(training={"max_steps": 9})
    assert earlier_losses(global_store(), "alone", experiment="exp", config=lonely) == ()


def test_without_a_config_or_a_store_there_is_nothing(bench, tmp_path):
    record(bench, "one")
    assert found(config={}) == () and found(config={"training": {"seed": 3}}) == ()
    assert earlier_losses(tmp_path / "none.db", "x", experiment="exp", config=CONFIG) == ()
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(b"no database" * 1_000)
    assert earlier_losses(damaged, "x", experiment="exp", config=CONFIG) == ()
