"""What charts draw, without a screen: buckets, smoothing, axes, marks, and how little one more
point changes."""

from __future__ import annotations

import itertools
import math
import random
from dataclasses import replace

import chart_stage
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from albor_core.store.rows.rows import AttemptRow
from albor_core.store.rows.ruler import Ruler
from albor_core.store.rows.series import Series
from albor_tui.look.run_colours import DASHES
from albor_tui.widgets.base.cells import Row, row_of
from albor_tui.widgets.chart import plot, ticks
from albor_tui.widgets.chart.canvas import whole_axis
from albor_tui.widgets.chart.curves import chart_of, marks, phases, rulers, single_chart, trace
from albor_tui.widgets.chart.data import ChartData, Look, Mark, Trace
from albor_tui.widgets.chart.frame import ChartFrame, Overlay, compose, measure
from albor_tui.widgets.chart.lines import (
    bucket_steps,
    bucketed,
    extremes,
    project,
    smoothed_line,
    snapped,
)
from albor_tui.widgets.chart.plot import PlotJob, PlotLine
from albor_tui.widgets.chart.reading import exact, reading
from albor_tui.widgets.chart.smoothing import smoothed
from albor_tui.widgets.chart.ticks import Range

SIZE = (60, 12)
PLAIN = Look()


def drawn(
    data: ChartData, look: Look = PLAIN, y: Range | None = None, size: tuple[int, int] = SIZE
) -> tuple[ChartFrame, list[Row]]:
    """A chart as its rows."""
    first, last = (min(t.x[0] for t in data.traces), max(t.x[-1] for t in data.traces))
    x = look.window or whole_axis(first, last, data.is_growing)
    lines = project(data.traces, look, x, size[0] - 6)
    ends = extremes(lines.lines)
    assert ends is not None
    y = y or ticks.around(*ends, "log" if look.is_log else "linear")
    frame = measure(size, x, y, axis=look.axis, is_log=look.is_log, has_marks=bool(data.marks))
    canvas = plot.submit(PlotJob(lines.lines, frame.canvas_width, frame.canvas_height, x, y))
    places = tuple((mark.step, mark) for mark in data.marks)
    return frame, compose(frame, canvas.result(timeout=30), Overlay(lines.broken, places))


def text(row: Row) -> str:
    return "".join(character for character, _ in row)


def noisy(last: int, every: int = 1) -> Series:
    """A falling, noisy series whose past does not depend on its length."""
    rng = random.Random(5)
    steps = tuple(float(s) for s in range(every, last + 1, every))
    ys = tuple(2 + 6 / (1 + s / 300) + rng.uniform(-0.2, 0.2) for s in steps)
    return Series("k", steps, ys, ys, ys)


def stored(curve: Series, width: int) -> Series:
    """The curve in buckets of `width` steps, as a store gives it."""
    found = bucketed(trace("main", curve), width)
    return replace(
        curve, steps=found.x, mean=found.y, minimum=found.low, maximum=found.high, is_raw=False
    )


@pytest.mark.parametrize("width", [pytest.param(1, marks=pytest.mark.slow), 8])
@pytest.mark.parametrize("look", [Look(), Look(smoothing=0), Look(is_log=True)], ids=str)
def test_one_more_point_changes_the_last_columns_and_nothing_else(width, look):
    y = Range(0.0, 1.0) if look.is_log else Range(0.0, 10.0)
    changed = []
    for last in range(1300, 1500, 10):  # between two moves of the axis
        rows = []
        for end in (last, last + 10):
            curve = noisy(end) if width == 1 else stored(noisy(end), width)
            data = single_chart(chart_stage.view(step=end), curve, "main")
            frame, cells = drawn(data, look, y)
            rows.append(cells)
        places = {
            (at, row)
            for row, (a, b) in enumerate(zip(*rows, strict=True))
            for at in range(frame.width)
            if a[at] != b[at]
        }
        newest = frame.column(last)
        assert newest is not None
        assert all(at >= frame.gutter + newest - 2 for at, _ in places)
        changed.append(len(places))
    assert max(changed) <= 3 * frame.canvas_height
    assert sum(changed) / len(changed) <= 8  # cells, of 720


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=400),
    st.integers(1, 97),
    st.integers(2, 300),
)
def test_buckets_keep_every_extreme_and_every_step_inside(values, every, places):
    steps = tuple(float(i * every) for i in range(len(values)))
    whole = Trace("main", steps, tuple(values))
    width = bucket_steps(whole, places)
    assert width & (width - 1) == 0
    found = bucketed(whole, width)
    assert len(found.x) <= places + 1  # a window may begin within a bucket
    assert min(found.low or found.y) == min(values)
    assert max(found.high or found.y) == max(values)
    assert set(found.x) <= set(steps)


@pytest.mark.parametrize("columns", [10, 37, 70, 150])
@pytest.mark.parametrize("at", [1, 777, 4_999, 9_999])
def test_a_spike_of_one_step_is_drawn_at_every_size_and_window(columns, at):
    ys = [1.0] * 10_000
    ys[at] = 50.0
    line = Trace("main", tuple(map(float, range(10_000))), tuple(ys), is_noisy=True)
    windows = [None, Range(max(0, at - 2500), at + 2500), Range(max(0, at - 20), at + 20)]
    for window in windows:
        look = Look(window=window)
        found = project([line], look, window or Range(0, 10_240), columns)
        assert extremes(found.lines) == (1.0, 50.0)


def test_a_nan_among_others_in_a_bucket_still_leaves_a_mark():
    curve = replace(stored(noisy(2000), 8), nonfinite=tuple(int(i == 100) for i in range(251)))
    frame, rows = drawn(single_chart(chart_stage.view(), curve, "main"))
    at = text(rows[0]).index("\u2717") - frame.gutter
    assert at == frame.column(curve.steps[100])


def test_a_stretch_where_nothing_was_logged_stays_empty():
    steps = (*range(0, 400, 10), *range(700, 1000, 10))
    line = Trace("main", tuple(map(float, steps)), (5.0,) * len(steps))
    frame, rows = drawn(ChartData((line,), is_growing=False), y=Range(0, 10))
    middle = frame.gutter + (frame.column(550) or 0)
    assert all(row[middle][1] in ("", "grid") for row in rows[:-1])
    assert any(row[frame.gutter + 5][1] == "main" for row in rows)


def test_points_that_come_seldom_but_evenly_are_one_line():
    steps = tuple(float(s) for s in range(0, 1001, 100))
    frame, rows = drawn(ChartData((Trace("val", steps, (5.0,) * 11),), is_growing=False))
    tones = {at for row in rows for at, (_, tone) in enumerate(row) if tone == "val"}
    assert len(tones) == frame.canvas_width


def test_a_line_reaches_the_edges_of_a_window_between_two_points():
    line = Trace("main", (0.0, 1000.0), (0.0, 10.0))
    look = Look(window=Range(400, 600))
    frame, rows = drawn(ChartData((line,)), look)
    tones = {at for row in rows for at, (_, tone) in enumerate(row) if tone == "main"}
    assert len(tones) == frame.canvas_width
    assert (frame.y.low, frame.y.high) == (4.0, 6.0)


@given(st.floats(0.5, 0.999), st.floats(-100, 100), st.integers(2, 50))
def test_smoothing_leaves_a_constant_alone_and_stays_within_the_values(weight, level, count):
    steps = tuple(float(i) for i in range(count))
    flat = smoothed(Trace("main", steps, (level,) * count), Look(), Range(0, 100), weight)
    assert flat.y == pytest.approx((level,) * count, abs=1e-6)
    rng = random.Random(count)
    values = tuple(rng.uniform(-1, 1) for _ in steps)
    found = smoothed(Trace("main", steps, values), Look(), Range(0, 100), weight).y
    assert all(min(values) - 1e-9 <= y <= max(values) + 1e-9 for y in found)


@pytest.mark.parametrize("weight", [0.8, 0.95, 0.995])
def test_smoothing_is_the_plain_local_line_of_all_points(weight):
    rng = random.Random(7)
    steps = sorted(rng.uniform(0, 900) for _ in range(70))
    values = [10.0 + rng.gauss(0, 0.5) for _ in steps]
    line = Trace("main", tuple(steps), tuple(values))
    found = smoothed(line, Look(), Range(0, 1000), weight).y

    def plain(at: float) -> float:
        away = [step - at for step in steps]
        weights = [weight ** abs(d) for d in away]
        mean_d = math.fsum(w * d for w, d in zip(weights, away, strict=True)) / sum(weights)
        pairs = zip(weights, away, values, strict=True)
        slope = math.fsum(w * (d - mean_d) * y for w, d, y in pairs)
        slope /= math.fsum(w * (d - mean_d) ** 2 for w, d in zip(weights, away, strict=True))
        mean = math.fsum(w * y for w, y in zip(weights, values, strict=True)) / sum(weights)
        return mean - slope * mean_d

    expected = [min(max(plain(at), min(values)), max(values)) for at in steps]
    assert found == pytest.approx(expected, abs=1e-9)


@given(st.floats(0.5, 0.999), st.floats(-9, 9), st.lists(st.floats(0, 900), min_size=2))
def test_a_straight_line_is_its_own_smoothed_line_up_to_both_ends(weight, slope, steps):
    steps = sorted(set(steps))
    line = Trace("main", tuple(steps), tuple(3 + slope * step for step in steps))
    assert smoothed(line, Look(), Range(0, 1000), weight).y == pytest.approx(line.y, abs=1e-6)


def test_a_smoothed_line_lags_behind_no_rise_and_reads_beyond_the_edges_of_a_window():
    steps = tuple(float(step) for step in range(1000))
    line = Trace("main", steps, tuple(math.log1p(step) for step in steps), is_noisy=True)
    for look, x in ((Look(), Range(0, 1000)), (Look(window=Range(400, 600)), Range(400, 600))):
        smooth = smoothed_line(line, look, x, 60)
        apart = {s: abs(y - math.log1p(s)) for s, y in zip(smooth.x, smooth.y, strict=True)}
        assert max(d for s, d in apart.items() if 410 <= s <= 590) < 0.02
    assert smooth.x[0] < 400 < 600 < smooth.x[-1]


def test_smoothing_does_not_depend_on_how_densely_a_metric_is_logged():
    dense = trace("main", noisy(3000))
    sparse = trace("main", noisy(3000, 5))
    ends = [smoothed(line, Look(), Range(0, 4096), 0.98).y[-1] for line in (dense, sparse)]
    assert ends[0] == pytest.approx(ends[1], abs=0.06)  # noise of 0.2 over about 40 points


def test_log_axes_draw_nothing_where_there_is_no_logarithm():
    line = Trace("main", (0.0, 1.0, 2.0, 3.0), (10.0, 0.0, -3.0, 1000.0))
    found = project([line], Look(is_log=True), Range(0, 3), 30).lines[0]
    assert found.y[0] == 1.0
    assert found.y[-1] == 3.0
    assert [math.isnan(y) for y in found.y] == [False, True, True, False]


@given(st.floats(-12, 12), st.floats(0.01, 20), st.integers(2, 12))
@example(-3.0, 0.109375, 6)  # 1e-3, 1.02e-3, ...: two digits do not tell them apart
def test_log_ticks_are_inside_tell_apart_and_not_too_many(low, span, count):
    limits = Range(low, low + span)
    found = ticks.ticks(limits, count, "log")
    assert len(found) <= count + 2
    assert all(limits.low - 1e-6 <= t <= limits.high + 1e-6 for t in found)
    if span > 0.1:
        texts = ticks.labels(found, "log")
        assert len(set(texts)) == len(texts)


@pytest.mark.parametrize(
    "end, texts",
    [
        (45, ["0", "10s", "20s", "30s", "40s"]),
        (7_300, ["0", "30m", "1h", "1h30m", "2h"]),
        (500_000, ["0", "1d", "2d", "3d", "4d", "5d"]),
    ],
)
def test_times_have_round_ticks(end, texts):
    assert ticks.labels(ticks.ticks(Range(0, end), 6, "time"), "time") == texts


@given(
    st.sets(st.integers(1, 10**6), min_size=1, max_size=30),
    st.sets(st.integers(1, 10**6), min_size=1, max_size=30),
)
def test_a_ruler_goes_there_and_back(steps, values):
    ruler = Ruler.of(list(zip(sorted(steps), map(float, sorted(values)), strict=False)))
    assert ruler is not None
    for step in (0.5, min(steps), (min(steps) + max(steps)) / 2, max(steps), max(steps) * 2):
        assert ruler.step_at(ruler.at(step)) == pytest.approx(step, rel=1e-6)


def test_a_clock_set_back_does_not_bend_the_axis():
    ruler = Ruler.of([(10, 100.0), (20, 50.0), (30, 200.0)])
    assert ruler is not None
    assert [ruler.at(s) for s in (0, 10, 20, 30)] == [0, 100, 150, 200]


def test_rulers_come_from_what_was_logged_else_from_the_state_of_now():
    view = chart_stage.view(step=100, tokens=5000, elapsed_s=50.0)
    guessed = rulers(view, {})
    assert (guessed["tokens"].at(50), guessed["time"].at(50)) == (2500, 25)
    wall = chart_stage.curve("_wall", None, None, 500)
    logged = rulers(view, {"_wall": wall})
    assert logged["time"].at(4112 + 100) - logged["time"].at(4112 - 100) > 900  # the pause


def test_marks_tell_alerts_restarts_checkpoints_and_phases():
    view = chart_stage.view()
    found = list(marks(view, chart_stage.curve("optim/lr", None, None, 500)))
    kinds = [mark.kind for mark in found]
    assert kinds.count("checkpoint") == 15
    assert {"alert", "warning", "restart", "phase"} <= set(kinds)
    assert Mark("restart", 4112, "attempt 2 after cuda_oom") in found


def test_phases_of_a_learning_rate():
    lr = Series("optim/lr", (1, 2, 3, 4, 5, 6), mean=(0.1, 0.2, 0.3, 0.3, 0.2, 0.1))
    assert [(m.step, m.words) for m in phases(lr)] == [(3, "warm-up ends"), (4, "decay begins")]
    assert not list(phases(Series("optim/lr", (1, 2, 3), mean=(0.3, 0.3, 0.3))))


def test_the_worst_mark_of_a_column_is_shown():
    happened = tuple(
        Mark(kind, 500, kind) for kind in ("checkpoint", "warning", "alert", "restart", "phase")
    )
    data = replace(chart_of(chart_stage.view(), [trace("main", noisy(1000))], {}), marks=happened)
    frame, rows = drawn(data)
    assert rows[-2][frame.gutter + (frame.column(500) or 0)][1] == "alert"


def test_attempts_without_a_step_leave_no_mark():
    view = chart_stage.view(attempts=(AttemptRow(1), AttemptRow(2)), alerts=(), events=())
    assert not list(marks(view))


def test_a_reading_gives_exact_values_and_says_where_another_line_was_measured():
    lines = [
        Trace("main", (1000.0, 1001.0, 1002.0), (2.123456, 2.5, 3.0), label="loss"),
        Trace("val", (900.0, 1000.0), (2.75, math.nan), label="val"),
    ]
    look, x = Look(cursor=1001.0), Range(0, 2000)
    words = "".join(piece for piece, _ in reading(lines, [], look, x, (100, 100)))
    assert words == "step 1,001  loss  2.5  val  NaN  at 1,000"
    tight = "".join(piece for piece, _ in reading(lines, [], look, x, (18, 18)))
    assert tight == "1,001  2.5  NaN"


def test_a_reading_of_a_bucket_says_from_where_to_where():
    line = trace("main", stored(noisy(2000), 8))
    words = [w for w, _ in reading([line], [], Look(cursor=804.0), Range(0, 2048), (90, 90))]
    assert words[0] == "step 800..807"
    low, high = min(noisy(2000).mean[799:807]), max(noisy(2000).mean[799:807])
    said = "".join(words)
    assert f"min {exact(low)}" in said
    assert f"max {exact(high)}" in said


@pytest.mark.parametrize(
    "value, words",
    [(2.3456789, "2.34568"), (1e-5, "1e-5"), (math.inf, "inf"), (187_312.0, "187,312")],
)
def test_exact_values(value, words):
    assert exact(value) == words


def test_several_runs_on_one_chart_keep_their_colours():
    lines = [
        replace(trace(tone, noisy(1000 + 300 * i)), is_noisy=True)
        for i, tone in enumerate(("main", "val"))
    ]
    found = project(lines, Look(), Range(0, 1300), 50)
    assert [line.tone for line in found.lines] == ["main-faint", "val-faint", "main", "val"]


def test_a_window_follows_the_newest_point_that_leaves_it():
    look, whole = Look(window=Range(500, 1000)), Range(0, 2048)
    assert look.following(1000, 1010, whole).window == Range(625, 1125)
    assert look.following(1100, 1110, whole) is look  # somebody looks at the past
    assert look.following(990, 1000, whole) is look


def test_zooming_keeps_the_place_under_the_pointer_and_panning_stays_inside():
    whole = Range(0, 1024)
    look = Look().zoomed(whole, 0.5, 0.25)
    assert look.window == Range(128, 640)
    assert look.zoomed(whole, 2.0, 0.25).window is None
    assert look.panned(whole, -9).window == Range(0, 512)
    assert look.panned(whole, 9).window == Range(512, 1024)


def test_rows_have_their_width_whatever_the_text():
    for words in (
        "plain",
        "\u6ce8\u610f\u529b" * 3,
        "\x1b[31mred",
        "e\u0301" * 20,
        "\u202egnp",
        "",
    ):
        for width in (1, 2, 5, 9, 40):
            row = row_of(width, (words, "label"))
            assert len(row) == width
            assert "\x1b" not in text(row)


def test_the_newest_point_stays_on_the_axis_wherever_the_axis_ends():
    rng = random.Random()
    for _ in range(2000):
        low = rng.choice([0.0, rng.uniform(0, 1e6)])
        axis = Range(low, low + rng.uniform(1, 1e6))
        line = PlotLine("main", (axis.low, axis.high), (0.0, 1.0))
        drawn = snapped(line, axis, Range(0.0, 1.0), rng.randint(10, 300), 10)
        assert all(axis.low <= place <= axis.high for place in drawn.x), (axis, drawn.x)


@given(
    width=st.integers(28, 70),
    kind=st.sampled_from(["step", "tokens", "time"]),
    span=st.floats(8.0, 1e10),
    start=st.floats(0.0, 30.0),
)
def test_wherever_two_labels_have_room_an_axis_has_two(width, kind, span, start):
    x = Range(span * start, span * start + span)
    y = Range(0.0, 4.0)
    frame = measure((width, 10), x, y, axis=kind, is_log=False, has_marks=False)
    assert len(frame.columns) >= 2, frame.columns
    ends = [at + len(label) for at, label in frame.columns]
    assert all(end < at for end, (at, _) in zip(ends, frame.columns[1:], strict=False))
    assert ends[-1] <= frame.canvas_width


@pytest.mark.parametrize("high", [1.0, 8.0, 900.0])
@pytest.mark.parametrize("has_marks", [False, True])
def test_an_axis_of_tokens_says_so_beside_labels_of_any_width(high, has_marks):
    y = Range(0.0, high)
    x = Range(620e3, 990e3)
    frame = measure((38, 8), x, y, axis="tokens", is_log=False, has_marks=has_marks)
    assert "tok" in text(compose(frame, (), Overlay())[-1])


@pytest.mark.parametrize("is_ascii", [False, True])
def test_dashes_can_be_told_apart_at_a_width_of_40_and_cut_no_spike(is_ascii):
    steps = tuple(float(step) for step in range(100))
    values = tuple(9.9 if step == 70 else 3.0 + step / 50 for step in steps)
    pictures = []
    for dash in range(DASHES):
        line = PlotLine("main", steps, values, dash=dash)
        job = PlotJob((line,), 34, 8, Range(0, 99), Range(0, 10), is_ascii)
        rows = ["".join(run.text for run in row) for row in plot.submit(job).result(timeout=30)]
        assert rows[0].strip(), f"dash {dash} hides the spike"
        pictures.append(tuple(rows))
    for one, other in itertools.combinations(pictures, 2):
        unlike = sum(
            a != b for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True)
        )
        assert unlike >= 6
