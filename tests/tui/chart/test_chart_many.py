"""Charts of many lines, and a y axis that a few points do not press flat."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from settled import settled
from test_chart_keys import chart_alone, lines, press, spiky

from albor_tui.look.run_colours import RunColours
from albor_tui.widgets.chart import lines as lines_module
from albor_tui.widgets.chart import plot
from albor_tui.widgets.chart.chart import ChartData
from albor_tui.widgets.chart.data import Look, Trace
from albor_tui.widgets.chart.lines import project
from albor_tui.widgets.chart.plot import PlotJob
from albor_tui.widgets.chart.ticks import Range

pytestmark = pytest.mark.slow
STEPS = tuple(float(step) for step in range(0, 400, 2))


def many(count: int, *, is_noisy: bool = False) -> ChartData:
    """Lines of so many runs, one over the other; the first of them lies on top."""
    runs = [(f"run-{n}", "sweep") for n in range(count)]
    traces = []
    for n, (name, style) in enumerate(RunColours().styles(runs).items()):
        values = tuple(1 + n / 10 + math.exp(-step / 60) for step in STEPS)
        line = Trace(style.tone, STEPS, values, label=name, is_noisy=is_noisy, dash=style.dash)
        traces.append(line)
    return ChartData(tuple(reversed(traces)), is_growing=False, subject="sweep")


def tones(chart) -> set[str]:
    return {tone for row in chart._rows for _, tone in row}


async def test_a_robust_axis_marks_and_counts_what_it_leaves_out():
    async with chart_alone(spiky()) as (pilot, chart):
        assert chart.frame.y.high > 30
        await press(pilot, "Y")
        assert chart.frame.y.high < 2
        marked = lines(chart)[0].index("\u2191") - chart.frame.gutter
        assert marked == chart.frame.column(1230.0)
        assert "\u2193" in lines(chart)[chart.frame.canvas_height - 1]
        words = chart._scale.plain
        assert words.startswith("p1-p99")
        above, below = (int(words.split(sign)[1].split()[0]) for sign in ("\u2191", "\u2193"))
        shown = chart.frame.y
        values = [y for y in spiky().traces[0].y if y == y]
        assert above == sum(y > shown.high for y in values)
        assert below == sum(y < shown.low for y in values)
        await press(pilot, "y", "Y")
        assert chart._scale.plain == "log"
        await press(pilot, "y")
        assert chart.frame.y.high > 30 and chart._scale.plain == ""


async def test_one_small_value_costs_a_robust_log_axis_no_decades():
    values = [10.0 + n / 100 for n in range(300)]
    values[20] = 0.001
    data = ChartData((Trace("main", tuple(map(float, range(300))), tuple(values)),))
    async with chart_alone(data) as (pilot, chart):
        await press(pilot, "y")
        assert chart.frame.y.low < -2
        await press(pilot, "Y")
        assert chart.frame.y.low > 0.9


@pytest.mark.parametrize("values", [(), (math.nan,), (1.0,), (1.0, math.inf), (5e307, -5e307)])
async def test_a_robust_axis_of_odd_values_is_some_axis(values):
    data = ChartData((Trace("main", tuple(map(float, range(len(values)))), values),))
    async with chart_alone(data) as (pilot, chart):
        await press(pilot, "Y", "y", "e", "b", "v")
        assert "cannot draw" not in "\n".join(lines(chart))


async def test_a_lifted_line_is_bright_and_on_top_of_all_others():
    data = many(20)
    async with chart_alone(data) as (pilot, chart):
        assert not any(tone.endswith("-faint") for tone in tones(chart))
        chart.data = replace(data, lifted="run-3")
        await settled(pilot)
        bright = {tone for tone in tones(chart) if tone in plot_tones()}
        assert bright == {"third"}
        assert "third-faint" in tones(chart)
        chart.data = replace(data, lifted="one that is hidden")
        await settled(pilot)
        assert not any(tone.endswith("-faint") for tone in tones(chart))


def plot_tones() -> set[str]:
    return {trace.tone for trace in many(8).traces}


async def test_the_cursor_reads_each_of_many_lines_from_the_first_and_says_how_many_more():
    data = many(30)
    async with chart_alone(data, size=(60, 16)) as (pilot, chart):
        await press(pilot, "v")
        step = chart.look.cursor
        words = lines(chart)[-1].split()
        assert words[:2] == ["step", f"{step:,.0f}"] and words[-1] == "more"
        shown = [float(word) for word in words[2:-2]]
        expected = [float(f"{1 + n / 10 + math.exp(-step / 60):.4g}") for n in range(len(shown))]
        assert shown == expected and len(shown) > 4
        assert words[-2] == f"+{30 - len(shown)}"
        chart.data = replace(data, lifted="run-25")
        await settled(pilot)
        assert "run-25  3.5" in lines(chart)[-1]


def test_of_many_noisy_lines_only_the_smoothed_ones_are_drawn():
    few, all_of_them = many(5, is_noisy=True), many(20, is_noisy=True)
    assert len(project(few.traces, Look(), Range(0, 400), 60).lines) == 10
    assert len(project(all_of_them.traces, Look(), Range(0, 400), 60).lines) == 20
    assert len(project(all_of_them.traces, Look(smoothing=0), Range(0, 400), 60).lines) == 20


def test_a_line_that_goes_costs_the_others_nothing(monkeypatch):
    """Of a hundred lines none is projected or drawn again when one is hidden and shown."""
    data, x = many(100, is_noisy=True), Range(0, 400)

    def picture(traces: tuple[Trace, ...]) -> plot.Canvas:
        drawn = project(traces, Look(), x, 60)
        return plot.submit(PlotJob(drawn.lines, 40, 10, x, Range(0, 12))).result(timeout=30)

    whole = picture(data.traces)
    made: list[str] = []
    for module, name in ((lines_module, "_drawn"), (plot, "_dots")):
        make = getattr(module, name)

        def counted(first, *rest, make=make):
            made.append(first.label)
            return make(first, *rest)

        monkeypatch.setattr(module, name, counted)
    picture(data.traces[1:])
    assert picture(data.traces) == whole
    assert made == []


async def test_an_extreme_of_any_of_many_lines_is_found():
    data = many(40)
    values = list(data.traces[7].y)
    values[90] = 40.0
    odd = replace(data.traces[7], y=tuple(values))
    data = replace(data, lines=(*data.lines[:7], odd, *data.lines[8:]))
    async with chart_alone(data) as (pilot, chart):
        await press(pilot, "e")
        assert chart.look.cursor == STEPS[90]
