"""What a program says of its metrics is what lists and readers go by."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from albor_core import history, track
from albor_core.guard.process.index_process import IndexProcess
from albor_core.run.errors import UsageError
from albor_core.run.values.defined_metrics import FACT, Defined, defined_by
from albor_core.run.values.main_metrics import Logged, main_metrics
from albor_core.store.file.paths import global_store
from albor_core.store.index.catch_up import drain_index
from albor_core.store.query.reader import Reader
from albor_core.store.query.table import RunList

ROOT = Path(__file__).resolve().parents[3]
ALBOR = [sys.executable, "-m", "albor_core.cli"]


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for word in ("RUN_DIR", "ATTEMPT", "NONCE", "RUN_LOCK_FD"):
        monkeypatch.delenv(f"ALBOR_{word}", raising=False)
    monkeypatch.setenv("ALBOR_CONSOLE", "0")
    monkeypatch.setattr(IndexProcess, "tend", lambda self: None)


def standing(run):
    drain_index(run.dir)
    with RunList(global_store()) as table:
        return table.standings([run.id])[run.id].chosen()


def test_the_value_that_a_program_chose_stands_for_its_run():
    with track.start("e", id="x") as run:
        run.define_metric("wer", goal="min", summary="min")
        run.define_metric("score", summary="max")
        run.define_metric("noise", summary="none")
        for step, wer in enumerate((0.9, 0.2, 0.5)):
            run.log({"wer": wer, "score": step, "noise": 10.0 * step, "acc": wer}, step=step)
        run.log({"score": -5.0}, step=3)
    found = {one.name: one for one in standing(run)}
    assert (found["wer"].last, found["wer"].better, found["wer"].stat) == (0.2, "min", "min")
    assert (found["score"].last, found["score"].stat) == (2.0, "max")
    assert (found["acc"].last, found["acc"].stat) == (0.5, "last")
    assert "noise" not in found


@pytest.mark.slow
def test_the_list_names_the_value_as_filters_do():
    with track.start("e", id="x") as run:
        run.define_metric("wer", goal="min", summary="min")
        run.log({"wer": 0.2}, step=1)
        run.log({"wer": 0.5}, step=2)
    drain_index(run.dir)
    text, document = (
        subprocess.run(
            [*ALBOR, "runs", "ls", *words],
            cwd=ROOT, capture_output=True, text=True, timeout=60, check=True,
        ).stdout
        for words in ((), ("--json",))
    )  # fmt: skip
    assert "wer:min 0.2" in text
    (row,) = json.loads(document)["runs"]
    assert row["metrics"] == [
        {"name": "wer", "last": 0.2, "better": "min", "is_pinned": False, "stat": "min"}
    ]


def test_a_metric_is_read_back_over_the_one_that_it_was_defined_over():
    with track.start("e", id="x") as run:
        run.define_metric("val/acc", x="epoch")
        run.define_metric("val_loss", x="epoch")
        for step in range(1, 7):
            run.log({"loss": 1.0}, step=step)
            if step % 3 == 0:
                run.log({"val/acc": 0.1 * step, "val_loss": 0.5, "epoch": step // 3}, step=step)
    drain_index(run.dir)
    found = history.run("x")
    assert found.metrics("val/acc").to_list() == [
        {"epoch": 1.0, "val/acc": pytest.approx(0.3)},
        {"epoch": 2.0, "val/acc": pytest.approx(0.6)},
    ]
    assert found.metrics(["val/acc", "val/loss"]).x == "epoch"
    assert found.metrics(["val/acc", "loss"]).x == "step"
    assert found.metrics().x == "step"
    assert found.metrics("val/acc", x="step").x == "step"


def test_what_is_said_later_of_a_metric_counts_and_the_rest_stays():
    with track.start("e", id="x") as run:
        run.define_metric("a", x="epoch", summary="max")
        run.define_metric("a", summary="min")
        run.define_metric("lr", x="step")
    with track.start(id="x", resume="must") as run:
        run.define_metric("a", x="tokens")
    drain_index(run.dir)
    with Reader(global_store()) as reader:
        facts = reader.detail("x").facts
    assert facts[FACT] == {
        "a": {"x": "train/tokens", "summary": "min"}, "optim/lr": {"x": ""},
    }  # fmt: skip


@pytest.mark.parametrize("words, match", [
    ({"name": ""}, "is not a name"), ({"name": 3}, "is not a name"),
    ({"name": "a", "x": " "}, "x ' ' is not a name"),
    ({"name": "a", "summary": "mean"}, "one of last, min, max, none"),
    ({"name": "a", "goal": "low"}, "low"),
])  # fmt: skip
def test_what_cannot_be_meant_is_refused_and_nothing_is_recorded(words, match):
    with track.start(id="x") as run:
        before = run.dir.journal.read_bytes()
        with pytest.raises(UsageError, match=match):
            run.define_metric(**words)
        assert run.dir.journal.read_bytes() == before


def test_a_pinned_metric_is_shown_though_its_program_hid_it():
    defined = {"a": Defined(summary="none"), "b": Defined(summary="none")}
    logged = [Logged("a", 1.0), Logged("b", 2.0), Logged("c", 3.0)]
    names = [one.name for one in main_metrics(logged, pins=["b"], defined=defined)]
    assert names == ["b", "c"]


def test_a_chosen_extreme_counts_the_newest_value_too_and_leaves_nan_alone():
    defined = {"a": Defined(summary="min")}

    def value(last, low, high):
        return main_metrics([Logged("a", last, low, high)], defined=defined)[0].last

    assert value(0.5, 1.0, 2.0) == 0.5
    assert value(math.nan, 1.0, 2.0) == 1.0
    assert value(0.5, None, None) == 0.5


@pytest.mark.parametrize("facts", [None, 3, [], {"a": 3}, {"": {}}, {"a": {"x": 3, "summary": []}}])
def test_facts_that_somebody_planted_define_nothing(facts):
    assert set(defined_by(facts).values()) <= {Defined()}
