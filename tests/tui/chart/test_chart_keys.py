"""Every key and every gesture on a chart and on the grid of charts."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import chart_stage
import pytest
from chart_stage import KEYS, LAST, Stage
from settled import settled, until
from textual import events
from textual.pilot import Pilot
from textual.widgets import Input

from albor_tui.screens.charts.curves import loss_chart
from albor_tui.widgets.chart import canvas
from albor_tui.widgets.chart.chart import Chart, ChartData
from albor_tui.widgets.chart.data import Look, Mark, Trace
from albor_tui.widgets.chart.extremes import extremes_in
from albor_tui.widgets.chart.lines import bucketed
from albor_tui.widgets.chart.ticks import Range
from albor_tui.widgets.chart_grid.grid import ChartGrid
from albor_tui.widgets.chart_grid.head import ChartHead
from albor_tui.widgets.chart_grid.pages import GridPages

pytestmark = pytest.mark.slow
SIZE = (80, 17)  # what a Run screen leaves of 80x24


@asynccontextmanager
async def grid_stage(size: tuple[int, int] = SIZE, **options: Any):
    """A grid with its first curves drawn."""
    app = Stage(ChartGrid(), **options)
    async with app.run_test(size=size) as pilot:
        await until(pilot, lambda: bool(app.asked) or not app._keys)
        await settled(pilot)
        yield app, pilot, app.query_one(ChartGrid)


def loss_data(**changes: Any) -> ChartData:
    keys = ("train/loss", "val/loss", "optim/lr", "_wall", "train/tokens")
    curves = {key: chart_stage.curve(key, None, None, 400) for key in keys}
    return loss_chart(chart_stage.view(**changes), curves)


@asynccontextmanager
async def chart_alone(data: ChartData | None = None, size: tuple[int, int] = (80, 20)):
    app = Stage(Chart("loss"))
    async with app.run_test(size=size) as pilot:
        chart = app.query_one(Chart)
        chart.styles.height = "1fr"
        chart.data = data or loss_data()
        chart.focus()
        await settled(pilot)
        yield pilot, chart


def lines(chart: Chart) -> list[str]:
    return [chart.render_line(y).text for y in range(chart.content_size.height)]


def heads(app: Stage) -> str:
    return str(app.query_one(ChartHead).render())


async def chosen(pilot: Pilot, key: str) -> None:
    """Until the chart of `key` has the focus."""

    def holds() -> bool:
        widget = pilot.app.focused
        is_named = isinstance(widget, Chart) and key in str(widget.border_title)
        return is_named and pilot.app.query_one(ChartGrid).current == key

    await until(pilot, holds, f"{key} was not chosen")


async def press(pilot: Pilot, *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await settled(pilot)


async def test_y_makes_the_axis_logarithmic_and_back():
    async with chart_alone() as (pilot, chart):
        plain = lines(chart)
        await press(pilot, "y")
        assert chart.look.is_log
        assert any(line.startswith("log") for line in lines(chart))
        assert lines(chart)[:5] != plain[:5]
        await press(pilot, "y")
        assert lines(chart) == plain


async def test_x_goes_through_steps_tokens_and_time():
    async with chart_alone() as (pilot, chart):
        assert "10k" in lines(chart)[-1]
        await press(pilot, "X")
        assert chart.axis == "tokens"
        assert "1.0B" in lines(chart)[-1]
        await press(pilot, "X")
        assert chart.axis == "time"
        assert "1h" in lines(chart)[-1]
        await press(pilot, "X")
        assert chart.axis == "step"


async def test_x_skips_what_is_not_known():
    data = ChartData((Trace("main", (1.0, 2.0, 3.0), (1.0, 2.0, 3.0)),))
    async with chart_alone(data) as (pilot, chart):
        await press(pilot, "X")
        assert chart.axis == "step"


async def test_the_smoothing_slider_moves_and_at_zero_the_points_are_bright():
    async with chart_alone() as (pilot, chart):
        tones = {tone for row in chart._rows for _, tone in row}
        assert {"raw", "main", "val"} <= tones
        before = chart.look.weight
        await press(pilot, "full_stop")
        assert chart.look.weight > before
        await press(pilot, "greater_than_sign", *["full_stop"] * 9)
        assert chart.look.weight < 1
        await press(pilot, *["comma"] * 6, "less_than_sign", "comma", "comma")
        assert chart.look.weight == 0
        tones = {tone for row in chart._rows for _, tone in row}
        assert "main" in tones
        assert "raw" not in tones


async def test_plus_and_minus_zoom_and_zero_is_the_whole_again():
    async with chart_alone() as (pilot, chart):
        whole = chart.whole
        await press(pilot, "plus")
        assert chart.look.window is not None
        assert chart.look.window.high == LAST  # the newest point at the right end
        span = chart.look.window.span
        await press(pilot, "equals_sign")
        assert chart.look.window.span == pytest.approx(span / 2)
        await press(pilot, "minus")
        assert chart.look.window.span == pytest.approx(span)
        await press(pilot, "0")
        assert chart.look.window is None
        assert chart.whole == whole


async def test_arrows_pan_a_window_and_never_beyond_the_run():
    async with chart_alone() as (pilot, chart):
        await press(pilot, "plus", "plus")
        high = chart.look.window.high
        await press(pilot, "left")
        assert chart.look.window.high < high
        await pilot.press(*["left"] * 20)
        assert chart.look.window.low == chart.whole.low
        await pilot.press(*["right"] * 30)
        assert chart.look.window.high == chart.whole.high


async def test_the_cursor_reads_exact_values_and_arrows_move_it():
    async with chart_alone() as (pilot, chart):
        await press(pilot, "v")
        step = chart.look.cursor
        trace = chart.data.traces[0]
        value = trace.y[trace.x.index(step)]
        assert f"step {step:,.0f}  loss  {value:.6g}" in lines(chart)[-1]
        assert any(tone == "hair" for row in chart._rows for _, tone in row)
        await press(pilot, "left")
        assert chart.look.cursor < step
        await press(pilot, "right", "right")
        assert chart.look.cursor > step
        await press(pilot, "v")
        assert chart.look.cursor is None
        assert not any(tone == "hair" for row in chart._rows for _, tone in row)


async def test_the_cursor_goes_to_both_ends_and_takes_the_window_along():
    async with chart_alone(size=(36, 12)) as (pilot, chart):
        await press(pilot, "plus", "plus", "v")
        await pilot.press(*["left"] * 40)
        await settled(pilot)
        x = chart.data.traces[0].x
        assert chart.look.window.low <= chart.look.cursor <= chart.look.window.high
        assert chart.look.cursor < LAST * 0.6
        await pilot.press(*["right"] * 80)
        await settled(pilot)
        assert chart.look.cursor == x[-1]


async def test_the_cursor_tells_what_happened_there():
    async with chart_alone(size=(110, 20)) as (pilot, chart):
        await press(pilot, "v")
        chart.look = Look(cursor=8_800.0, is_pinned=True)
        assert "loss is NaN" in lines(chart)[-1]


async def test_the_wheel_zooms_at_the_pointer():
    async with chart_alone() as (pilot, chart):
        frame = chart.frame
        column = frame.canvas_width // 4
        place = frame.x_of(column)
        at = (chart.gutter.left + frame.gutter + column, 5)
        await wheel(pilot, chart, events.MouseScrollUp, at)
        await settled(pilot)
        window = chart.look.window
        assert window.span < chart.whole.span
        assert window.low + window.span * column / (frame.canvas_width - 1) == pytest.approx(place)
        await wheel(pilot, chart, events.MouseScrollDown, at)
        assert chart.look.window is None


async def test_the_wheel_leaves_a_chart_alone_that_was_not_chosen():
    async with chart_alone() as (pilot, chart):
        chart.blur()
        await wheel(pilot, chart, events.MouseScrollUp, (30, 5))
        assert chart.look.window is None
        await wheel(pilot, chart, events.MouseScrollUp, (30, 5), ctrl=True)
        assert chart.look.window is not None


async def test_dragging_pans():
    async with chart_alone() as (pilot, chart):
        await press(pilot, "plus", "plus")
        window = chart.look.window
        await pilot.mouse_down(chart, offset=(30, 6))
        await pilot.hover(chart, offset=(40, 6))
        await pilot.mouse_up(chart, offset=(40, 6))
        moved = window.low - chart.look.window.low
        assert moved == pytest.approx(window.span * 10 / chart.frame.canvas_width)
        await pilot.hover(chart, offset=(50, 6))  # let go: it moves no more
        assert chart.look.window == Range(window.low - moved, window.high - moved)


async def test_the_pointer_reads_values_and_leaving_ends_it():
    async with chart_alone() as (pilot, chart):
        await pilot.hover(chart, offset=(30, 6))
        await settled(pilot)
        assert lines(chart)[-1].startswith("step")
        first = chart.look.cursor
        await pilot.hover(chart, offset=(40, 6))
        assert chart.look.cursor > first
        chart.post_message(events.Leave(chart))
        await until(pilot, lambda: chart.look.cursor is None)
        await settled(pilot)
        assert not lines(chart)[-1].startswith("step")


async def test_a_pinned_cursor_stays_when_the_pointer_moves():
    async with chart_alone() as (pilot, chart):
        await press(pilot, "v")
        step = chart.look.cursor
        await pilot.hover(chart, offset=(20, 6))
        assert chart.look.cursor == step


async def test_moving_the_cursor_repaints_its_columns_and_its_line_only(monkeypatch):
    async with chart_alone() as (pilot, chart):
        await press(pilot, "v")
        regions: list[Any] = []
        monkeypatch.setattr(chart, "refresh", lambda *found, **_: regions.extend(found))
        await pilot.press("left")
        cells = sum(region.area for region in regions)
        height, width = chart.content_size.height, chart.content_size.width
        assert 0 < cells <= 16 * height + width


async def test_news_are_drawn_at_a_pace_and_keys_at_once(monkeypatch):
    monkeypatch.setattr(canvas, "PACE_S", 3600.0)
    async with chart_alone() as (pilot, chart):
        for step in range(LAST - 900, LAST, 100):
            curve = chart_stage.curve("train/loss", None, step, 400)
            chart.data = loss_chart(chart_stage.view(step=step), {"train/loss": curve})
            await pilot.pause(0.01)
        assert chart._drawings == canvas.BURST
        assert not chart.is_painted
        await pilot.press("y")
        await until(pilot, lambda: any(line.startswith("log") for line in lines(chart)))
        chart.data = ChartData((Trace("main", (1.0, 9.0), (1.0, 9.0)),), subject="another run")
        await until(pilot, lambda: chart._drawings == 1)


async def test_a_picture_does_not_depend_on_how_often_it_was_drawn():
    """Labels of another width than the first drawing thought leave other columns to the lines."""
    x = tuple(float(i) for i in range(288))
    trace = Trace("main", x, tuple(4 + 4 * math.sin(i * i) for i in x))
    async with chart_alone(ChartData((trace,))) as (pilot, chart):
        first = lines(chart)
        chart.on_resize()
        await settled(pilot)
        assert lines(chart) == first


async def test_a_chart_that_cannot_be_drawn_says_so(monkeypatch):
    async with chart_alone() as (pilot, chart):

        def fail(*_: object, **__: object) -> None:
            raise ValueError("bad value")

        monkeypatch.setattr(canvas, "project", fail)
        await pilot.press("y")
        assert "cannot draw: ValueError: bad value" in "\n".join(lines(chart))


async def test_a_log_axis_without_positive_values_says_why():
    data = ChartData((Trace("main", (1.0, 2.0), (0.0, -1.0)),))
    async with chart_alone(data) as (pilot, chart):
        await press(pilot, "y")
        assert "nothing above 0" in "\n".join(lines(chart))


@pytest.mark.parametrize("values", [(1e308, -1e308), (5e-324, 0.0), (1e-300, 2e-300), (7.0, 7.0)])
async def test_odd_values_are_drawn_somehow(values):
    data = ChartData((Trace("main", (1.0, 2.0), values),))
    async with chart_alone(data) as (pilot, chart):
        for key in ("y", "plus", "v", "y", "0"):
            await press(pilot, key)
        assert "cannot draw" not in "\n".join(lines(chart))


async def test_the_grid_shows_and_asks_for_what_fits():
    async with grid_stage() as (app, pilot, grid):
        assert grid.shown == KEYS[:4]
        assert len([chart for chart in grid.query(Chart) if chart.display]) == 4
        assert app.asked[-1].keys == KEYS[:4]
        assert "1-4 of 12" in heads(app)
        await pilot.resize_terminal(160, 38)
        await until(pilot, lambda: grid.shown == KEYS)
        await until(pilot, lambda: app.asked[-1].keys == KEYS)


async def test_paging_and_moving_give_the_charts_other_keys():
    async with grid_stage() as (_, pilot, grid):
        await chosen(pilot, "train/loss")
        await press(pilot, "down")
        await chosen(pilot, "optim/lr")
        await press(pilot, "right")
        await chosen(pilot, "optim/grad_norm")
        await press(pilot, "down")
        assert grid.shown == KEYS[2:6]
        await chosen(pilot, KEYS[5])
        await press(pilot, "pagedown")
        assert grid.shown == KEYS[6:10]
        await press(pilot, "end")
        assert grid.shown == KEYS[8:]
        await chosen(pilot, KEYS[-1])
        await press(pilot, "home")
        assert grid.shown == KEYS[:4]
        await chosen(pilot, KEYS[0])
        await press(pilot, "up", "left")
        await chosen(pilot, KEYS[0])
        await press(pilot, "shift+right")
        await chosen(pilot, KEYS[1])


async def test_charts_made_for_one_page_are_used_for_the_next():
    async with grid_stage() as (_, pilot, grid):
        before = list(grid.query(Chart))
        await press(pilot, "pagedown", "pagedown", "home")
        assert list(grid.query(Chart)) == before


async def test_search_keeps_what_contains_the_words_and_escape_ends_it():
    async with grid_stage() as (app, pilot, grid):
        await press(pilot, "slash")
        assert isinstance(app.focused, Input)
        await press(pilot, *"loss")
        assert [key for key in grid.shown if "loss" not in key] == []
        assert len(grid.shown) == 3
        await press(pilot, "enter")
        await until(pilot, lambda: not grid.has_class("-searching"))
        assert "1-3 of 3 with loss" in heads(app)
        await chosen(pilot, "train/loss")
        await press(pilot, "escape")
        assert grid.shown == KEYS[:4]
        await press(pilot, "slash", "q", "q", "escape")
        assert grid.shown == KEYS[:4]
        await chosen(pilot, "train/loss")


async def test_a_search_that_finds_nothing_says_so():
    async with grid_stage() as (_, pilot, grid):
        await press(pilot, "slash", *"zzz")
        assert "none of 12 metrics matches zzz" in "\n".join(lines(grid.query(Chart).first()))
        await press(pilot, "escape")
        assert grid.shown == KEYS[:4]


async def test_the_way_to_a_metric_that_has_not_come_leaves_the_search_until_it_comes():
    async with grid_stage() as (app, pilot, grid):
        await press(pilot, "slash", *"loss", "enter")
        found = grid.shown
        grid.go_to("eval/later")
        assert grid.shown == found
        app.bring_keys((*KEYS, "eval/more"))
        assert grid.shown == found
        app.bring_keys((*KEYS, "eval/later"))
        assert "eval/later" in grid.shown
        await chosen(pilot, "eval/later")


async def test_a_pinned_metric_stands_first_with_its_mark_and_stays_chosen():
    async with grid_stage() as (_, pilot, grid):
        await press(pilot, "end", "space")
        assert grid.order[0] == KEYS[-1]
        await chosen(pilot, KEYS[-1])
        assert "\u2605" in str(grid.query(Chart).first().border_title)
        await press(pilot, "right", "P")
        assert grid.order[:2] == (KEYS[-1], "train/loss")
        await press(pilot, "home", "space")
        assert grid.order[:2] == ("train/loss", "val/loss")


@pytest.mark.parametrize("key", ["enter", "z"])
async def test_one_metric_takes_the_whole_screen_and_gives_it_back(key):
    async with grid_stage() as (app, pilot, grid):
        await press(pilot, "right", key)
        await until(pilot, lambda: grid.shown == ("val/loss",))
        assert app.screen.maximized is grid
        await settled(pilot)
        await until(pilot, lambda: app.asked[-1].keys[0] == "val/loss")
        assert app.asked[-1].points > app.asked[0].points
        await press(pilot, "down")
        assert grid.shown == ("optim/lr",)
        await press(pilot, "escape")
        await until(pilot, lambda: grid.shown == KEYS[:4])
        assert app.screen.maximized is None
        await chosen(pilot, "optim/lr")


async def test_a_double_click_opens_a_chart():
    async with grid_stage() as (_, pilot, grid):
        await pilot.click(list(grid.query(Chart))[2], times=2, offset=(5, 3))
        await until(pilot, lambda: grid.shown == ("optim/lr",))


async def test_charts_share_window_and_cursor_but_each_has_its_y_and_smoothing():
    async with grid_stage() as (app, pilot, grid):
        await press(pilot, "plus", "v", "full_stop", "y", "X")
        first, *others = [chart.look for chart in grid.query(Chart)]
        assert first == grid.appearance
        assert first.is_log
        assert len(others) == 3
        for look in others:
            assert look == replace(first, is_log=False, smoothing=Look().smoothing)
            assert look.window is not None
            assert look.cursor is not None
        for chart in grid.query(Chart):
            assert any(tone == "hair" for row in chart._rows for _, tone in row)
        said = heads(app)
        assert "tokens" in said
        assert "log" in said
        assert "steps" in said
        await press(pilot, "v", "shift+right")
        assert "log" not in heads(app)
        await press(pilot, "pagedown", "home")
        assert [chart.look.is_log for chart in grid.query(Chart)] == [True, False, False, False]


async def test_zooming_asks_for_the_window_and_half_of_it_on_either_side():
    async with grid_stage() as (app, pilot, _):
        await press(pilot, "plus", "plus")
        asked = app.asked[-1]
        window = app.query(Chart).first().look.window
        assert asked.lo == int(window.low - window.span / 2)
        assert asked.hi >= window.high + window.span / 2 - 1
        await press(pilot, "0")
        assert (app.asked[-1].lo, app.asked[-1].hi) == (None, None)


async def test_a_zoomed_grid_still_knows_the_whole_run():
    async with grid_stage() as (app, pilot, grid):
        chart = grid.query(Chart).first()
        whole = chart.whole
        await press(pilot, *["plus"] * 4)
        assert chart.whole == whole
        await press(pilot, "X", "X")
        low, high = chart.steps_shown
        assert 0.9 * LAST < low < high <= LAST + 1
        await press(pilot, *["minus"] * 5)
        assert grid.appearance.window is None
        assert app.asked[-1].lo is None


async def test_the_wheel_pages_a_grid_whose_chart_was_not_chosen():
    async with grid_stage() as (_, pilot, grid):
        await wheel(pilot, list(grid.query(Chart))[1], events.MouseScrollDown, (9, 3))
        await wheel(pilot, list(grid.query(Chart))[1], events.MouseScrollDown, (9, 3))
        await until(pilot, lambda: grid.shown == KEYS[2:6])


async def test_the_same_wish_is_not_said_twice():
    async with grid_stage() as (app, pilot, _):
        count = len(app.asked)
        for _ in range(3):
            app.bring_keys(KEYS)
            await pilot.pause()
        assert len(app.asked) == count


async def test_new_metrics_appear_and_the_chosen_one_stays():
    async with grid_stage(keys=KEYS[:9]) as (app, pilot, grid):
        await press(pilot, "down")
        app.bring_keys(("a/first", *KEYS[:9]))
        await settled(pilot)
        await chosen(pilot, "optim/lr")
        assert "a/first" in grid.shown


async def test_a_run_without_metrics_says_so():
    async with grid_stage(keys=()) as (_, pilot, grid):
        await until(pilot, lambda: bool(grid.query(Chart)))
        chart = grid.query(Chart).first()
        await until(pilot, lambda: "no metrics yet" in "\n".join(lines(chart)))


@pytest.mark.parametrize(
    "size, count, columns_and_rows",
    [
        ((80, 16), 12, (2, 2)),
        ((120, 28), 12, (3, 3)),
        ((160, 37), 12, (3, 4)),
        ((160, 37), 4, (1, 4)),
        ((500, 140), 12, (1, 12)),
        ((30, 6), 12, (1, 1)),
    ],
)
def test_as_many_charts_as_can_be_read(size, count, columns_and_rows):
    pages = GridPages()
    pages.replace_keys(tuple(f"k{i}" for i in range(count)), ())
    pages.fit(*size)
    assert (pages.columns, pages.end) == columns_and_rows


async def wheel(
    pilot: Pilot,
    chart: Chart,
    kind: Callable[..., events.MouseEvent],
    at: tuple[int, int],
    *,
    ctrl: bool = False,
) -> None:
    x, y = at
    region = chart.region
    event = kind(
        chart, x, y, 0, 0, 0, False, False, ctrl, screen_x=region.x + x, screen_y=region.y + y
    )
    chart.post_message(event)
    await settled(pilot)


def spiky() -> ChartData:
    values = [1.0 + 0.01 * math.sin(n / 7) for n in range(400)]
    values[123], values[300], values[350] = 38.4, -9.0, math.nan
    steps = tuple(10.0 * n for n in range(400))
    bad = tuple(int(value != value) for value in values)
    return ChartData((Trace("main", steps, tuple(values), nonfinite=bad),), is_growing=False)


async def test_keys_go_from_one_extreme_to_the_next_and_back_the_farthest_out_first():
    data = replace(spiky(), marks=(Mark("restart", 2005.0, "attempt 2"), Mark("phase", 9.0, "x")))
    async with chart_alone(data) as (pilot, chart):
        seen = []
        for key in ("e", "e", "e", "e", "e", "b", "b"):
            await press(pilot, key)
            seen.append(chart.look.cursor)
        # NaN, from the first again: the spike, a restart, the dip
        assert seen == [3500.0, 1230.0, 2005.0, 3000.0, 3500.0, 3000.0, 2005.0]
        assert "attempt 2" in lines(chart)[-1]
        await press(pilot, "v", "e", "0")  # no cursor: again at the one that stands out most
        assert chart.look.cursor == 3500.0
        assert "NaN" in lines(chart)[-1]


@pytest.mark.parametrize(
    "loss",
    [
        lambda s: 10 / (1 + s),
        lambda s: 5 - s / 30,
        lambda s: 0.5 + math.exp(-s / 20),
        lambda s: 0.1 * s,
        lambda s: 2.0,
    ],
)
def test_no_point_of_a_line_that_falls_or_rises_all_the_way_is_an_extreme(loss):
    steps = tuple(float(step) for step in range(1, 121))
    line = Trace("main", steps, tuple(loss(step) for step in steps))
    assert extremes_in(line) == ()
    assert extremes_in(bucketed(line, 8)) == ()


def test_a_spike_on_a_falling_line_is_its_one_extreme_also_two_points_wide_or_at_the_end():
    rng = random.Random(2)
    steps = tuple(float(step) for step in range(1, 201))
    for places in ((80,), (80, 81), (199,)):
        values = [4 / step**0.3 + rng.gauss(0, 0.001) for step in steps]
        for place in places:
            values[place] = 7.5 + place / 1000
        found = extremes_in(Trace("main", steps, tuple(values)))
        assert found[0].value == values[places[-1]]


async def test_a_window_round_an_extreme_begins_at_the_first_step():
    values = [1.0 + 0.01 * math.sin(n) for n in range(400)]
    values[5] = 30.0
    steps = tuple(2.0 * n for n in range(400))
    data = ChartData((bucketed(Trace("main", steps, tuple(values)), 8),), is_growing=False)
    async with chart_alone(data) as (pilot, chart):
        chart.brings_finer = True
        await press(pilot, "e")
        assert chart.look.window is not None and chart.look.window.low == 0.0


@pytest.mark.parametrize("forget", ["0", "another subject"])
async def test_finer_data_of_an_extreme_that_was_left_move_no_cursor(forget):
    data = ChartData((bucketed(spiky().traces[0], 8),), is_growing=False, subject="x")
    async with chart_alone(data) as (pilot, chart):
        chart.brings_finer = True
        await press(pilot, "e")
        if forget == "0":
            await press(pilot, "0")
        else:
            data = chart.data = replace(data, subject="y")
        cursor = chart.look.cursor
        chart.data = replace(data, is_growing=True)
        await settled(pilot)
        assert chart.look.cursor == cursor


@pytest.mark.parametrize("value", [38.4, math.nan, math.inf])
async def test_the_extreme_of_a_bucket_is_told_to_its_step_when_finer_data_come(value):
    steps = tuple(float(n) for n in range(300_000))
    values = [1.0 + 0.01 * math.sin(n / 700) for n in range(300_000)]
    values[123_456] = value
    bad = tuple(int(not math.isfinite(value)) for value in values)
    raw = Trace("main", steps, tuple(values), nonfinite=bad)

    def found(window: Range | None) -> ChartData:
        if window is None:
            return ChartData((bucketed(raw, 512),), is_growing=False, subject="x")
        low, high = (int(max(0, edge)) for edge in (window.low, window.high))
        cut = Trace("main", steps[low:high], tuple(values[low:high]), nonfinite=bad[low:high])
        return ChartData((bucketed(cut, 8) if high - low > 200 else cut,), False, subject="x")

    async with chart_alone(found(None)) as (pilot, chart):
        chart.brings_finer = True
        await press(pilot, "e")
        for _ in range(3):  # as the grid brings what a narrower window asks for
            chart.data = found(chart.look.window)
            await pilot.pause()
        assert chart.look.cursor == 123_456.0
