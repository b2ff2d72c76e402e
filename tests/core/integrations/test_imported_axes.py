"""Imported metrics are compared only where their steps count the same thing."""

import json
import math

import pytest

from albor_core.integrations.importers import run_import
from albor_core.integrations.importers.foreign import (
    CALLS,
    NO_STEP,
    ORDER,
    ForeignRun,
    Losses,
    MetricWord,
    Point,
)
from albor_core.integrations.importers.steps.order import numbered, stepless
from albor_core.run.errors import DataError
from albor_core.store.diff.compare import diff_runs
from albor_core.store.file.paths import global_store
from albor_core.store.query.reader import Reader


def imported(folder, name, *items):
    made = ForeignRun("csv", name, name, "e", folder, lambda losses: iter(items))
    return run_import.import_run(made).run


def curve(axis, stride, count=40):
    return [
        Point(stride * i, None, {"train/loss": 5.0 * math.exp(-i / 20)}, axis) for i in range(count)
    ]


def compared(*runs):
    with Reader(global_store()) as reader:
        return diff_runs(reader, runs)


@pytest.mark.parametrize(
    ("axis", "stride", "other", "spacing"),
    [("epoch", 1, "", 1), ("epoch", 1, "tokens", 1), (CALLS, 1, "", 10), (ORDER, 1, "", 2)],
)
def test_two_kinds_of_axis_are_refused_by_what_they_count(tmp_path, axis, stride, other, spacing):
    one = imported(tmp_path, "one", *curve(axis, stride))
    two = imported(tmp_path, "two", *curve(other, spacing))
    with pytest.raises(DataError, match="two kinds of axis") as raised:
        compared(one, two)
    assert f"{one} counts {axis}" in raised.value.message
    assert raised.value.exit_code == 7 and "--metric" in raised.value.hint


@pytest.mark.parametrize(
    ("axis", "other"),
    [("", ""), ("epoch", "epoch"), (CALLS, ""), (ORDER, CALLS), (ORDER, "")],
)
def test_the_same_curve_over_axes_that_count_alike_shows_no_difference(tmp_path, axis, other):
    one = imported(tmp_path, "one", *curve(axis, 1))
    two = imported(tmp_path, "two", *curve(other, 1))
    assert compared(one, two).verdict.outcome == "indistinguishable"


def test_goals_and_summaries_of_the_source_are_those_of_the_run(tmp_path):
    items = [Point(1, None, {"val/oddity": 2.0}), MetricWord("val/oddity", "max", "max")]
    run = imported(tmp_path, "goal", *items)
    with Reader(global_store()) as reader:
        assert reader.goals(run) == {"val/oddity": "max"}


def test_a_definition_that_is_none_is_counted(tmp_path):
    made = ForeignRun(
        "csv", "k", "k", "e", tmp_path, lambda losses: iter([MetricWord("a*", "min")])
    )
    assert run_import.import_run(made).unmapped == {"definition of a metric": 1}


START = 1_767_225_600.0


def rows(steps, walls):
    return [
        Point(s, w, {"loss": float(i)}) for i, (s, w) in enumerate(zip(steps, walls, strict=True))
    ]


@pytest.mark.parametrize(
    ("steps", "walls", "is_stepless"),
    [
        ([0, 0, 0], [START, START + 1, START + 2], True),
        ([7, 7], [START, START + 1], True),
        ([0, 0], [START, START], False),  # one moment: replaced, and counted as that
        ([0], [START], False),
        ([0, 1, 1], [START, START + 1, START + 2], False),
        ([int(START), int(START) + 5], [START, START + 5], True),  # seconds in place of a step
        ([int(START * 1000)], [START], True),  # milliseconds
        ([int(START * 1e6), int(START * 1e6) + 9], [START, START + 1], True),
        ([int(START * 1e9)], [START], True),
        ([1_000_000, 2_000_000], [START, START + 1], False),
        ([1, 2], [1.0, 2.0], False),  # seconds of a run are no dates
        ([1, 2], [None, None], False),
    ],
)
def test_order_is_the_step_where_none_was_given(steps, walls, is_stepless):
    assert stepless(rows(steps, walls)) == ({"loss"} if is_stepless else set())


def test_each_metric_without_steps_is_numbered_alone_and_the_others_stay():
    items = [Point(0, START + i, {"loss": 1.0 * i, "best": 2.0} if i == 1 else {"loss": 1.0 * i})
             for i in range(3)]  # fmt: skip
    losses = Losses()
    found = [*numbered(items, stepless(items), losses)]
    assert [(p.step, dict(p.values), p.axis) for p in found] == [
        (0, {"loss": 0.0}, ORDER),
        (0, {"best": 2.0}, ""),
        (1, {"loss": 1.0}, ORDER),
        (2, {"loss": 2.0}, ORDER),
    ]
    assert losses.unmapped == {NO_STEP: 3}
    assert json.dumps(str(losses.examples[NO_STEP])) == '"loss at step 0: 0"'
