"""Runs of one config as one: who belongs together, mean and band, a diverged seed is said."""

from __future__ import annotations

import math

import pytest

from albor_core.run.program.job_rank import JobRank
from albor_core.store.file.paths import global_store
from albor_core.store.query.filter import parse_filter
from albor_core.store.query.group import band, groups_of
from albor_core.store.query.lineage import parent_id
from albor_core.store.query.listing import parse_column
from albor_core.store.query.reader import Reader


def record(bench, run_id, *, seed, lr, losses, job=None, **params):
    run = bench.run(run_id, name=f"sweep-{run_id}", seed=seed, **({"job": job} if job else {}))
    journal = bench.journal(run)
    given = {"optimizer.lr": lr, "training.seed": seed, "training.output_dir": f"/x/{run_id}"}
    for key, value in {**given, **params}.items():
        journal.append("p", key=key, value=value)
    for step, loss in enumerate(losses):
        journal.metrics(step, {"train/loss": loss})
    bench.index(run)


def test_runs_that_differ_by_seed_name_and_folder_are_one_group(bench):
    record(bench, "a0", seed=0, lr=0.1, losses=[3.0, 1.0])
    record(bench, "a1", seed=1, lr=0.1, losses=[5.0, 2.0])
    record(bench, "a2", seed=2, lr=0.1, losses=[4.0, math.nan])
    record(bench, "b0", seed=0, lr=0.2, losses=[3.0, 7.0])
    record(bench, "c0", seed=0, lr=0.1, losses=[3.0, 7.0], **{"optimizer.name": "lion"})
    bench.index(bench.run("plain-1"))
    bench.index(bench.run("plain-2"))  # nothing is known of either: never the same
    with Reader(global_store()) as reader:
        rows = reader.runs(sort="id", descending=False)
        groups = groups_of(reader, rows, [parse_column("lr"), parse_column("train/loss:max")])
    assert [group.runs for group in groups] == [
        ("a0", "a1", "a2"), ("b0",), ("c0",), ("plain-1",), ("plain-2",),
    ]  # fmt: skip
    first = groups[0]
    assert (first.seeds, first.name, first.experiment) == ((0, 1, 2), "sweep-a", "exp")
    loss = first.bands["loss"]
    assert (loss.n, loss.nonfinite, loss.mean, loss.minimum, loss.maximum) == (2, 1, 1.5, 1.0, 2.0)
    assert loss.std == pytest.approx(math.sqrt(0.5))
    assert first.bands["lr"].mean == pytest.approx(0.1)
    assert first.bands["train/loss:max"].mean == 4.0
    assert groups[1].bands["loss"].std is None
    assert groups[3].bands["loss"].mean is None


def test_a_group_has_the_same_key_in_every_store(bench):
    record(bench, "a0", seed=0, lr=0.1, losses=[3.0])
    record(bench, "a1", seed=1, lr=0.1, losses=[3.0])
    keys = []
    for path in (global_store(), bench.root / "out" / "a1" / ".albor" / "experiments.db"):
        with Reader(path) as reader:
            keys += [group.key for group in groups_of(reader, reader.runs())]
    assert len(set(keys)) == 1 and len(keys) == 2


def test_no_values_have_no_band():
    assert band([]).mean is None


def test_a_run_names_its_parent_or_its_weights_do():
    assert parent_id("mother", None) == "mother"
    assert parent_id(None, "/out/mother/checkpoints/step-00000100") == "mother"
    assert parent_id("mother", "/out/other/checkpoints/step-00000100") == "mother"
    for said, path in ((None, None), (3, 4), ("../x", None), (None, "/models/llama"),
                       (None, "checkpoints/step-1")):  # fmt: skip
        assert parent_id(said, path) is None


def test_parents_and_children_find_each_other(bench):
    bench.index(bench.run("mother"))
    bench.index(bench.run("said", parent="mother"))
    child = bench.run("fork")
    path = "/somewhere/mother/checkpoints/step-00000002"
    bench.journal(child).append("p", key="model.path", value=path)
    bench.index(child)
    with Reader(global_store()) as reader:
        assert reader.parents(["mother", "said", "fork"]) == {"said": "mother", "fork": "mother"}
        assert reader.children("mother") == {"said", "fork"}
        assert reader.children("moth") == reader.children("fork") == frozenset()
        assert reader.matching(parse_filter("has:parent")) == {"said", "fork"}


def rank(number, job="j", *, restart=0):
    """What run.json has of a rank."""
    return JobRank(number, 4, job, job, restart).facts()["job"]


def counted(bench, words=""):
    with Reader(global_store()) as reader:
        rows = reader.runs(sort="id", descending=False, where=parse_filter(words))
        return [(one.runs, one.ranks, one.seeds, one.bands["loss"].n) for one in
                groups_of(reader, rows)]  # fmt: skip


def test_the_ranks_of_a_job_are_no_seeds(bench):
    for number in range(4):
        record(bench, f"r{number}", seed=number, lr=0.1, losses=[number], job=rank(number),
               local_rank=number)  # fmt: skip
    assert counted(bench) == [(("r0",), ("r1", "r2", "r3"), (0,), 1)]
    assert counted(bench, "-name:sweep-r0 -name:sweep-r1") == [(("r2",), ("r3",), (2,), 1)]


def test_jobs_of_several_ranks_count_once_each_and_beside_runs_without_ranks(bench):
    for seed, job in enumerate("jk"):
        for number in range(2):
            record(bench, f"{job}{number}", seed=seed, lr=0.1, losses=[1], job=rank(number, job))
    record(bench, "alone", seed=9, lr=0.1, losses=[1])
    assert counted(bench) == [(("alone", "j0", "k0"), ("j1", "k1"), (9, 0, 1), 3)]


def test_a_job_that_was_started_again_counts_once(bench):
    for restart in range(3):
        record(bench, f"r{restart}", seed=7, lr=0.1, losses=[1], job=rank(0, restart=restart))
    for seed in (1, 2):  # of a program that makes one run after the other
        record(bench, f"s{seed}", seed=seed, lr=0.1, losses=[1], job=rank(0))
    assert counted(bench) == [(("r2", "s1", "s2"), ("r0", "r1"), (7, 1, 2), 3)]
