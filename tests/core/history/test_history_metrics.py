"""The metrics of a run side by side: along steps, tokens, time or each other."""

from __future__ import annotations

import math

import pytest

from albor_core import history
from albor_core.run.errors import NotFoundError, UsageError
from albor_core.run.journal import Journal
from albor_core.store.index.indexer import index_now


def columns(metrics):
    return {name: list(column.values) for name, column in metrics.columns().items()}


def test_metrics_stand_side_by_side_and_a_gap_is_none(maker, same):
    steps = [(1, {"train/loss": 3.0}), (2, {"train/loss": math.nan, "val/loss": 2.5}),
             (4, {"val/loss": math.inf})]  # fmt: skip
    maker.make("r", steps)
    assert same(columns(history.run("r").metrics()), {
        "step": [1, 2, 4], "train/loss": [3.0, math.nan, None], "val/loss": [None, 2.5, math.inf],
    })  # fmt: skip


def test_a_metric_is_called_as_it_was_asked_for(maker):
    maker.make("r", [(1, {"train/loss": 3.0, "eval/acc": 0.5})])
    run = history.run("r")
    assert columns(run.metrics("loss")) == {"step": [1], "loss": [3.0]}
    assert columns(run.metrics(["acc", "train/loss"])) == {
        "step": [1], "acc": [0.5], "train/loss": [3.0],
    }  # fmt: skip
    with pytest.raises(NotFoundError, match="r: no metric 'los'; the nearest is 'train/loss'"):
        run.metrics("los").to_list()


def test_every_step_is_there_once_after_a_rewind(maker):
    run, journal = maker.start("r")
    for step in (1, 2, 3, 4):
        journal.metrics(step, {"loss": 10.0 + step})
    journal.rewind(2)
    for step in (3, 4, 5):
        journal.metrics(step, {"loss": 20.0 + step})
    journal.close()
    index_now(run)
    assert columns(history.run("r").metrics()) == {
        "step": [1, 2, 3, 4, 5], "loss": [11.0, 12.0, 23.0, 24.0, 25.0]
    }  # fmt: skip


def test_along_tokens_a_step_that_logged_none_lies_in_proportion(maker):
    steps = [
        (10, {"train/tokens": 1000.0, "train/loss": 3.0}),
        (15, {"val/loss": 2.0}),
        (20, {"train/tokens": 3000.0, "train/loss": 2.5}),
        (30, {"val/loss": 1.0}),
    ]
    maker.make("r", steps)
    run = history.run("r")
    assert columns(run.metrics("val/loss", x="tokens")) == {
        "tokens": [2000.0, 4500.0], "val/loss": [2.0, 1.0],
    }  # fmt: skip
    assert columns(run.metrics("train/loss", x="tokens"))["tokens"] == [1000.0, 3000.0]


def test_along_what_was_not_logged_is_refused_with_the_way_out(maker):
    maker.make("r", [(1, {"loss": 3.0})])
    run = history.run("r")
    with pytest.raises(NotFoundError, match="no tokens were logged") as refused:
        run.metrics(x="tokens").to_list()
    assert refused.value.hint == "x='step'"
    with pytest.raises(NotFoundError, match="no metric 'epoch'"):
        run.metrics(x="epoch").to_list()
    with pytest.raises(UsageError, match="x '' is not"):
        run.metrics(x="")


def test_along_time_are_the_moments_at_which_steps_were_logged(maker):
    run, journal = maker.start("r")
    for step, wall in ((1, 100.0), (2, 250.5)):
        journal.metrics(step, {"loss": 1.0 / step}, wall=wall)
    journal.close()
    index_now(run)
    assert columns(history.run("r").metrics(x="wall")) == {
        "wall": [100.0, 250.5], "loss": [1.0, 0.5]
    }  # fmt: skip


def test_along_another_metric_are_the_steps_that_have_both(maker):
    steps = [(1, {"epoch": 0.5, "acc": 0.1}), (2, {"acc": 0.2}), (3, {"epoch": 1.5}),
             (4, {"epoch": 2.0, "acc": 0.4})]  # fmt: skip
    maker.make("r", steps)
    run = history.run("r")
    assert columns(run.metrics("acc", x="epoch")) == {"epoch": [0.5, 2.0], "acc": [0.1, 0.4]}


@pytest.mark.parametrize("x", ["step", "wall", "tokens"])
def test_a_metric_called_like_the_axis_does_not_take_its_place(maker, x):
    maker.make("r", [(7, {x: 1.5, "train/tokens": 10.0, "other": 2.0})])
    found = columns(history.run("r").metrics(x=x))
    assert found[f"metrics.{x}"] == [1.5]
    if x == "step":
        assert found["step"] == [7]


@pytest.fixture
def watched(maker):
    """A run whose machine was looked at by the second."""
    run, journal = maker.start("r")
    created = run.metadata()["created"]
    journal.metrics(10, {"loss": 2.5}, wall=created + 90)
    system = Journal(run.system, attempt=1)
    for second in (0, 60, 120):
        system.metrics(second, {"gpu0/util_percent": float(second)}, wall=created + second)
    system.close()
    journal.close()
    index_now(run)
    return run, created


def test_figures_of_the_machine_stand_at_the_step_where_the_run_was(watched):
    run = history.run("r")
    assert columns(run.metrics()) == {"step": [10], "loss": [2.5]}
    assert columns(run.metrics(["loss", "gpu0/util_percent"])) == {
        "step": [10], "loss": [2.5], "gpu0/util_percent": [120.0]  # none before its first step
    }  # fmt: skip
    assert columns(run.metrics("loss", x="gpu0/util_percent")) == {
        "gpu0/util_percent": [120.0], "loss": [2.5]
    }  # fmt: skip
    stat = run.summary["gpu0/util_percent"]
    assert (stat.axis, stat.first_step, stat.last_step) == ("step", 10, 10)


def test_figures_of_the_machine_of_a_run_without_steps_are_by_time_alone(maker):
    run, journal = maker.start("r")
    system = Journal(run.system, attempt=1)
    system.metrics(60, {"gpu0/util_percent": 5.0})
    system.close()
    journal.close()
    index_now(run)
    run = history.run("r")
    with pytest.raises(UsageError, match="logged no step, and its machine is seen by time") as no:
        run.metrics("gpu0/util_percent").to_list()
    assert no.value.hint == "x='wall'"
    with pytest.raises(UsageError, match="as x: r logged no step"):
        run.metrics(x="gpu0/util_percent").to_list()


def test_along_time_the_program_and_the_machine_stand_in_one_table(watched):
    _, created = watched
    found = columns(history.run("r").metrics(["loss", "gpu0/util_percent"], x="wall"))
    assert [wall - created for wall in found["wall"]] == pytest.approx([0, 60, 90, 120])
    assert found["loss"] == [None, None, 2.5, None]
    assert found["gpu0/util_percent"] == [0.0, 60.0, None, 120.0]


def test_no_metrics_are_an_empty_table(maker):
    maker.make("r")
    metrics = history.run("r").metrics()
    assert (len(metrics), list(metrics), metrics.to_list()) == (0, [], [])


def test_a_run_with_many_metrics_is_read_whole(maker):
    """SQLite takes a bounded number of values in a statement."""
    names = [f"layer{n}/norm" for n in range(1500)]
    run, journal = maker.start("wide")
    for start in range(0, 1500, 100):
        journal.metrics(1, dict.fromkeys(names[start : start + 100], 1.0))
    journal.close()
    index_now(run)
    found = columns(history.run("wide").metrics())
    assert len(found) == 1501 and found["layer1499/norm"] == [1.0]


def test_all_metrics_are_of_one_moment(maker, monkeypatch):
    """A step that is logged while a table is read is in all of its columns, or in none."""
    run, journal = maker.start("r")
    journal.metrics(1, {"a": 1.0, "b": 1.0})
    index_now(run)
    from albor_core.store.query.reader import Reader

    real = Reader.together

    def grown(reader, *asked):
        journal.metrics(2, {"a": 2.0, "b": 2.0})
        index_now(run)
        return real(reader, *asked)

    monkeypatch.setattr(Reader, "together", grown)
    found = columns(history.run("r").metrics())
    assert found == {"step": [1, 2], "a": [1.0, 2.0], "b": [1.0, 2.0]}
    journal.close()
