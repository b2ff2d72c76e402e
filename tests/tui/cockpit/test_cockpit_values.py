"""The pure parts: numbers as text, axes, lines to braille, order of runs."""

from __future__ import annotations

import math
from dataclasses import replace

import fake_feed
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albor_core.feed.runs.cells import RunCells
from albor_core.run.values.directions import direction
from albor_core.run.values.main_metrics import MainMetric
from albor_core.store.rows.series import Series
from albor_tui.look import glyphs, quantity
from albor_tui.screens.charts.curves import loss_chart
from albor_tui.screens.runs.order import arrange, column_order, my_metric, orders_of
from albor_tui.widgets import run_columns
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.cells import words_in_the_middle
from albor_tui.widgets.chart import plot, ticks
from albor_tui.widgets.chart.curves import trace
from albor_tui.widgets.chart.data import Look
from albor_tui.widgets.chart.plot import PlotJob, PlotLine
from albor_tui.widgets.chart.smoothing import smoothed
from albor_tui.widgets.chart.ticks import Range
from albor_tui.widgets.diff_panels import MetricsPanel
from albor_tui.widgets.run_columns import BUILT_IN

NUMBERS = (
    st.none() | st.floats(allow_nan=True, allow_infinity=True) | st.integers(-(10**20), 10**20)
)


@given(NUMBERS)
def test_every_quantity_has_a_text(value):
    functions = (
        quantity.loss,
        quantity.ratio,
        quantity.exponent,
        quantity.si,
        quantity.byte_size,
        quantity.byte_cell,
        quantity.percent,
        quantity.milliseconds,
        quantity.duration,
        quantity.age,
    )
    for function in functions:
        assert function(value)


@given(st.just(0.0) | st.floats(1e-99, 1e12))
def test_a_loss_never_needs_more_than_seven_columns(value):
    assert len(quantity.loss(value)) <= 7


@given(st.floats(0, 1.7e308))
def test_no_number_is_wider_than_its_column(value):
    widths = {
        quantity.si: 5,
        quantity.ratio: 7,
        quantity.duration: 7,
        quantity.age: 7,
        quantity.byte_cell: 7,
        quantity.percent: 7,
        quantity.milliseconds: 9,
    }
    for function, width in widths.items():
        assert len(function(value)) <= width, function.__name__


@pytest.mark.parametrize(
    "function, value, text",
    [
        (quantity.loss, 2.31419, "2.3142"),
        (quantity.loss, 0.0, "0.0000"),
        (quantity.loss, math.nan, "NaN"),
        (quantity.exponent, 0.0003, "3.00e-4"),
        (quantity.si, 187_300, "187k"),
        (quantity.si, 999_600, "1.00M"),
        (quantity.si, 1_001_390_080, "1.00B"),
        (quantity.byte_cell, 61 << 30, "61.0Gi"),
        (quantity.percent, 0.413, "41%"),
        (quantity.duration, 3_725, "1h02m"),
        (quantity.duration, 59.7, "1m00s"),
        (quantity.age, 2_600, "43m"),
        (quantity.milliseconds, 349.8, "350ms"),
        (quantity.si, 1e308, "1e308"),
        (quantity.si, 3.2e15, "3e15"),
        (quantity.count, 1e30, "1e30"),
        (quantity.percent, 1e300, "1e302%"),
        (quantity.percent, 1e308, "1e310%"),
        (quantity.percent, 12.3, "1230%"),
        (quantity.percent, 9_999.0, "999900%"),
        (quantity.percent, 9_999.999, "1e6%"),
    ],
)
def test_quantities_read_as_people_write_them(function, value, text):
    assert function(value) == text


@pytest.mark.parametrize(("step", "words"), [(7, "   7"), (1904, "1.9k"), (12_345, " 12k")])
def test_steps_without_an_end_fit_their_column(step, words):
    assert run_columns._progress(fake_feed.training(step=step, progress=None), 4).plain == words


@pytest.mark.parametrize(("age", "words"), [(6, "<1m ago"), (61, "1m ago"), (7200, "2h ago")])
def test_how_long_ago_a_run_ended_is_told_as_finely_as_it_is_looked_at(age, words):
    view = fake_feed.training(status="completed", is_live=False, age_s=age)
    assert styled.ends(view, 7).plain == words


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.integers(2, 12))
def test_ticks_are_inside_and_not_too_many(low, span, count):
    limits = Range(low, low + span)
    found = ticks.ticks(limits, count)
    slack = span * 1e-6 + 4 * math.ulp(max(abs(limits.low), abs(limits.high)))
    assert len(found) <= count + 1
    assert all(limits.low - slack <= t <= limits.high + slack for t in found)


def test_tick_labels_tell_neighbours_apart():
    assert ticks.labels([2.0, 2.5, 3.0]) == ["2.0", "2.5", "3.0"]
    assert ticks.labels([0.0, 0.25, 0.5]) == ["0.00", "0.25", "0.50"]
    assert ticks.labels([0.0, 10_000.0, 20_000.0]) == ["0", "10k", "20k"]
    assert ticks.labels([0.0, 1e-4, 2e-4]) == ["0", "1e-4", "2e-4"]


def test_limits_hold_while_the_data_fits_and_fills_half():
    before = ticks.around(2.0, 10.0)
    assert ticks.hold(before, 2.1, 9.0) is before
    assert ticks.hold(before, 2.1, 3.0) is not before
    assert ticks.hold(before, 2.1, 11.0).high >= 11.0


def test_the_step_axis_moves_rarely_while_a_run_grows():
    ends = {ticks.reach(float(step)).high for step in range(100, 100_000, 7)}
    assert len(ends) <= 4 * 11  # four ends for each of the ten doublings and one at either side
    assert all(ticks.reach(float(s)).high <= 1.26 * s for s in range(100, 10_000, 77))


def job(line: PlotLine, width: int = 40, height: int = 10) -> PlotJob:
    return PlotJob((line,), width, height, Range(0, 100), Range(0, 10))


def painted(found: plot.PlotJob) -> plot.Canvas:
    return plot.submit(found).result(timeout=30)


def test_a_canvas_has_exactly_the_size_asked_for():
    line = PlotLine("main", tuple(map(float, range(101))), tuple(i / 10 for i in range(101)))
    canvas = painted(job(line, 173, 31))
    assert [sum(len(run.text) for run in row) for row in canvas] == [173] * 31


def test_one_spike_in_a_bucket_reaches_the_top_row():
    xs, flat = tuple(map(float, range(0, 100, 5))), (1.0,) * 20
    high = tuple(9.9 if x == 50 else 1.0 for x in xs)
    top = painted(job(PlotLine("main", xs, flat, low=flat, high=high)))[0]
    assert any(run.tone == "main" for run in top)


def test_a_line_breaks_where_a_value_is_not_finite():
    ys = tuple(math.nan if 40 <= i <= 60 else 5.0 for i in range(101))
    rows = painted(job(PlotLine("main", tuple(map(float, range(101))), ys)))
    drawn = "".join(run.text if run.tone else " " * len(run.text) for run in rows[4])
    drawn = (
        drawn
        if drawn.strip()
        else "".join(run.text if run.tone else " " * len(run.text) for run in rows[5])
    )
    assert drawn[18:22].strip() == ""
    assert drawn[:14].strip() and drawn[26:].strip()


def test_the_upper_line_wins_a_shared_cell():
    xs, ys = (0.0, 100.0), (5.0, 5.0)
    both = PlotJob(
        (PlotLine("raw", xs, ys), PlotLine("main", xs, ys)), 40, 10, Range(0, 100), Range(0, 10)
    )
    tones = {run.tone for row in painted(both) for run in row}
    assert tones == {"", "main"}


def test_smoothing_starts_at_the_first_value_and_ignores_nan():
    noisy = trace("main", Series("k", (1, 2, 3), mean=(4.0, math.nan, 4.0)))
    found = smoothed(noisy, Look(), Range(0, 10), 0.9)
    assert found.y == pytest.approx((4.0, math.nan, 4.0), nan_ok=True)


def test_a_run_without_a_store_is_drawn_from_its_live_history():
    view = fake_feed.training()
    data = loss_chart(view, {})
    assert [line.is_noisy for line in data.traces] == [True]
    assert data.lines[0].x[-1] == view.step


@pytest.mark.parametrize("key", [*BUILT_IN, "val/mse", "notes"])
def test_every_order_keeps_every_run(key):
    rows = fake_feed.rows()
    order = column_order(key, rows, RunCells())
    for reverse in (False, True):
        assert {v.id for v in arrange(rows, order, reverse=reverse)} == {v.id for v in rows}


def judged(name: str, **values: float | None):
    rows = [
        replace(fake_feed.training(id=run), name=run, loss=None, loss_history=(), metrics=(
            () if value is None else (MainMetric(name, value, direction(name)),)
        ))
        for run, value in values.items()
    ]  # fmt: skip
    return tuple(replace(row, val_ppl=None, tokens_per_s=None, val_loss=None) for row in rows)


def cells_of(rows) -> RunCells:
    known = {one.name: {row.id: None for row in rows} for row in rows for one in row.metrics}
    for row in rows:
        for one in row.metrics:
            known[one.name][row.id] = one.last
    return RunCells(known)


def test_a_list_is_ordered_by_its_own_metric_the_better_side_first():
    scores = judged("val/acc", low=0.25, nan=math.nan, high=0.75, none=None)
    assert my_metric(scores, {}) == "val/acc"
    order = column_order("val/acc", scores, cells_of(scores))
    assert (order.store, order.is_falling) == ("val/acc", True)
    assert [view.name for view in arrange(scores, order)] == ["high", "low", "nan", "none"]
    turned = [view.name for view in arrange(scores, order, reverse=True)]
    assert turned == ["low", "high", "nan", "none"], "what is not known is last either way"
    errors = judged("val/mse", a=0.3, b=0.1)
    order = column_order("val/mse", errors, cells_of(errors))
    assert [view.name for view in arrange(errors, order)] == ["b", "a"]
    assert my_metric(errors, {errors[0].experiment: "val/loss"}) == "val_loss", "as was chosen"
    assert orders_of(("status", "metric", "val/mse"), "val/mse") == ("recent", "val/mse", "status")


def test_numbers_come_before_nan_and_unknown():
    rows = fake_feed.rows()
    names = [view.name for view in arrange(rows, column_order("loss", rows, RunCells()))]
    assert names[0] == "code-125m"
    assert names[-2:] == ["sweep-lr-3e3", "queued-62m"]


def test_a_sparkline_is_as_wide_as_asked_and_shows_nothing_for_nothing():
    assert len(glyphs.spark([float(i) for i in range(500)], 12)) == 12
    assert glyphs.spark([math.nan, math.inf], 12) == ""
    nan, mark = math.nan, glyphs.UNICODE.cross
    died = glyphs.spark([3.0, 1.0, nan, nan], 12)
    assert died[0] > died[1] and died[2:] == mark * 2
    assert glyphs.spark([3.0, 3.0, 1.0, 1.0, nan, nan, nan, nan], 4)[2:] == mark * 2
    assert glyphs.spark([1.0, 1.0], 12) == glyphs.UNICODE.spark[0] * 2


@pytest.mark.parametrize(
    "environ, is_ascii",
    [
        ({"TERM": "xterm", "LANG": "en_US.UTF-8"}, False),
        ({"TERM": "xterm", "LC_ALL": "C"}, True),
        ({"TERM": "linux", "LANG": "en_US.UTF-8"}, True),
        ({"TERM": "xterm"}, False),
    ],
)
def test_the_look_follows_the_terminal(environ, is_ascii):
    assert glyphs.fitting(environ).is_ascii is is_ascii


def test_bytes_in_a_comparison_have_their_unit():
    document = {"runs": [{"id": "a"}], "metrics": {"program/rss_bytes": [{"last": 6.73e9}]}}
    assert str(MetricsPanel().lines(document, 50, 9)[1]).endswith(" 6.27Gi")


def test_words_in_the_place_of_a_picture_are_wrapped_and_cut_with_a_mark():
    rows = words_in_the_middle("where it lay is not known: a relative path", 16, 3)
    lines = ["".join(text for text, _ in row).strip() for row in rows]
    assert lines == ["where it lay is", "not known: a", "relative path"]
    rows = words_in_the_middle("where it lay is not known: a relative path", 16, 1)
    assert "".join(text for text, _ in rows[0]) == "where it lay is\u2026"


def test_a_title_with_nothing_behind_it_has_no_room_behind_it():
    assert str(styled.heading("plan")) == "plan"
    assert str(styled.heading("plan", "being made")) == "plan being made"
