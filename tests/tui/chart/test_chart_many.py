"""Charts of many lines, and a y axis that a few points do not press flat."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from settled import settled, until
from test_chart_keys import chart_alone, lines, press, spiky
from textual import events

from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.store.index.indexer import index_now
from albor_tui.app import AlborApp
from albor_tui.look.run_colours import RunColours
from albor_tui.model.source import LiveSource
from albor_tui.screens.diff import DiffScreen
from albor_tui.widgets.chart import lines as lines_module
from albor_tui.widgets.chart import plot
from albor_tui.widgets.chart.chart import Chart, ChartData
from albor_tui.widgets.chart.data import Look, Trace
from albor_tui.widgets.chart.head import chart_head
from albor_tui.widgets.chart.lines import project
from albor_tui.widgets.chart.plot import PlotJob
from albor_tui.widgets.chart.ticks import Range
from albor_tui.widgets.run_table import RunTable

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
    return {tone for row in chart._rows[:-1] for _, tone in row}


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
        shown = [*zip(words[2:-2:2], map(float, words[3:-2:2]), strict=True)]
        assert len(shown) > 1 and shown == [
            (f"run-{n}", float(f"{1 + n / 10 + math.exp(-step / 60):.4g}"))
            for n in range(len(shown))
        ]
        assert words[-2] == f"+{30 - len(shown)}"
        chart.data = replace(data, lifted="run-25")
        await settled(pilot)
        assert "run-25  3.5" in lines(chart)[-1]


def test_of_many_noisy_lines_only_the_smoothed_ones_are_drawn():
    few, all_of_them = many(5, is_noisy=True), many(20, is_noisy=True)
    assert len(project(few.traces, Look(), Range(0, 400), 60).lines) == 10
    assert len(project(all_of_them.traces, Look(), Range(0, 400), 60).lines) == 20
    assert len(project(all_of_them.traces, Look(smoothing=0), Range(0, 400), 60).lines) == 20


@pytest.mark.parametrize("lifted", ["", "run-7", "run-30"])
def test_the_smoothed_lines_of_many_hide_no_spike(lifted):
    """A run of 40 has one point of 9.5: it is drawn, in the colour of that run."""
    data = many(40, is_noisy=True)
    traces = [
        replace(
            line,
            y=tuple(
                9.5 if (line.label, n) == ("run-7", 90) else y + random.Random(n).gauss(0, 0.01)
                for n, y in enumerate(line.y)
            ),
        )
        for line in data.traces
    ]
    found = project(traces, Look(), Range(0, 400), 60, lifted)
    tops = {line.label: line for line in found.lines if 9.5 in (*line.y, *line.high)}
    assert [*tops] == ["run-7"]
    assert tops["run-7"].tone.removesuffix("-faint") == traces[-8].tone
    assert tops["run-7"].x[tops["run-7"].high.index(9.5)] == STEPS[90]
    assert len(found.lines) == (42 if lifted == "run-30" else 41)
    assert len(found.points) == len(found.lines) - (1 if lifted else 0)


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
        assert " ".join(lines(chart)[-1].split()).startswith(f"step 180 {odd.label} 40 ")
        await press(pilot, "right")
        assert f"{odd.label}  40" not in lines(chart)[-1]


def test_a_head_tells_value_and_slope_of_the_only_line_of_the_lifted_or_of_the_best():
    falling = tuple(3 - step / 2000 for step in STEPS)
    noise = tuple(1 + (-1) ** n / 100 for n in range(len(STEPS)))
    one = ChartData((Trace("main", STEPS, falling, label="a"),))
    two = ChartData(
        (Trace("main", STEPS, falling, label="a"), Trace("val", STEPS, noise, label="b"))
    )
    down = "\u2193"
    assert chart_head(one, "val/mse").plain == f"val/mse  2.801  {down}0.5/k"
    assert chart_head(two, "val/mse").plain == "val/mse  best 0.99  ~0/k"
    assert chart_head(two, "accuracy").plain == f"accuracy  best 2.801  {down}0.5/k"
    assert chart_head(two, "beta").plain == "beta"  # nothing says which is better
    assert chart_head(replace(two, lifted="b"), "beta").plain == "beta  0.99  ~0/k"
    window = replace(one, extent=(0.0, 9_000.0))
    assert chart_head(window, "val/mse").plain == f"val/mse  2.801  at 398  {down}0.5/k"
    bad = ChartData((Trace("main", (1.0, 2.0), (1.0, math.nan)),))
    assert chart_head(bad, "[red]x").plain == "[red]x  NaN"
    assert chart_head(ChartData(), "x").plain == "x"


async def test_the_pointer_lifts_the_line_that_it_is_at_and_the_cursor_line_names_it():
    async with chart_alone(many(12)) as (pilot, chart):
        frame = chart.frame
        column = frame.canvas_width // 2
        level = chart.data.traces[11 - 9].y[len(STEPS) // 2]
        row = round((frame.y.high - level) / frame.y.span * (frame.canvas_height - 1))
        at = (chart.gutter.left + frame.gutter + column, chart.gutter.top + row)
        await pilot.hover(chart, offset=at)
        await settled(pilot)
        assert chart.lifted == "run-9"
        assert "run-9  " in lines(chart)[-1]
        assert {tone for tone in tones(chart) if tone in plot_tones()} == {"val"}
        chart.post_message(events.Leave(chart))
        await until(pilot, lambda: chart.lifted == "")
        await settled(pilot)
        assert not any(tone.endswith("-faint") for tone in tones(chart))


def test_a_band_is_shaded_under_all_lines_also_where_its_group_is_lifted():
    low, high = tuple(y - 1 for y in STEPS), tuple(y + 1 for y in STEPS)
    band = Trace("main", STEPS, STEPS, low, high, "1e-3", is_band=True)
    mean, other = Trace("main", STEPS, STEPS, label="1e-3"), Trace("val", STEPS, low, label="3e-4")
    drawn = project((band, mean, other), Look(), Range(0, 400), 60, "1e-3").lines
    assert [(line.is_band, line.tone) for line in drawn] == [
        (True, "main-faint"),
        (False, "val-faint"),
        (False, "main"),
    ]
    job = PlotJob(drawn[:1], 40, 10, Range(0, 400), Range(-50, 450))
    rows = ["".join(run.text for run in row) for row in plot.submit(job).result(timeout=30)]
    shaded = {(x, y) for y, row in enumerate(rows) for x, one in enumerate(row) if one == "\u2591"}
    assert {x for x, _ in shaded} == set(range(40))
    assert len(shaded) < 80  # a narrow band is no more than the cells that it crosses


async def test_in_diff_an_extreme_is_told_to_its_step(tmp_path):
    for name in "ab":
        run = create_run(
            tmp_path / "out", name, experiment="s", name=name, kind="track", argv=["t.py"]
        )
        journal, chance = Journal(run.journal, attempt=1), random.Random(name)
        for step in range(1, 4001):
            spike = 30.0 if (name, step) == ("b", 2718) else 0.0
            journal.metrics(step, {"train/loss": 2 + chance.gauss(0, 0.01) + spike})
        journal.event("run.end", status="completed", reason="completed", code=0)
        journal.close()
        index_now(run)
    async with AlborApp(LiveSource()).run_test(size=(120, 36)) as pilot:
        table = pilot.app.screen.query_one(RunTable)
        await until(pilot, lambda: len(table.runs) == 2)
        await pilot.press("space", "space", "d")
        await until(pilot, lambda: isinstance(pilot.app.screen, DiffScreen))
        chart = pilot.app.screen.query_one("#overlay", Chart)
        await until(pilot, lambda: chart.data.has_points)
        await pilot.press("e")
        await until(pilot, lambda: chart.look.cursor == 2718, "the step was never told")
        assert not any(trace.low for trace in chart.data.traces)
        await pilot.press("0")
        await until(pilot, lambda: chart.data.traces[0].x[-1] > 3900 and chart.data.traces[0].low)
        assert chart.look.window is None and chart.data.extent == (1.0, chart.data.newest)
