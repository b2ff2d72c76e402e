"""What a run's config says of the terminal (monitoring.terminal) decides its Overview."""

from __future__ import annotations

from dataclasses import fields

import pytest
from fake_feed import training
from settled import until

from albor_core.feed.run.terminal import terminal_of
from albor_core.feed.view.run_view import ChartChoice, TerminalView
from albor_core.store.rows.series import Series
from albor_tui.model.program_charts import own_choice
from albor_tui.screens.charts.overview_choice import (
    averaged,
    charts_of,
    keys_of,
    large_chart,
    shows_losses,
)
from albor_tui.screens.run import RunScreen
from albor_tui.widgets.chart.chart import Chart
from albor_tui.widgets.chart.data import ChartData, Trace
from albor_tui.widgets.run.panels import Vitals

SEED = {
    "training": {"log_interval": 10},
    "monitoring": {
        "terminal": {
            "enabled": True,
            "refresh_rate": 2000,
            "metrics": ["mfu", "loss", "brick/data_ms"],
            "charts": [
                {"type": "loss_curve", "metric": "loss", "window": 100, "show_eta": True},
                {"type": "line", "metric": "mfu", "window": 1, "show_eta": False},
            ],
        }
    },
}


def test_the_config_is_read_with_short_names_as_keys_and_windows_in_steps():
    assert terminal_of(SEED) == TerminalView(
        refresh_ms=2000,
        metrics=("perf/mfu", "train/loss", "brick/data_ms"),
        charts=(
            ChartChoice("train/loss", is_loss_curve=True, window=1000, shows_eta=True),
            ChartChoice("perf/mfu"),
        ),
    )


@pytest.mark.parametrize(
    "terminal", [None, {}, {"enabled": False, "metrics": ["mfu"]}, [], {"enabled": "yes"}]
)
def test_a_config_that_says_nothing_leaves_the_overview_to_the_house(terminal):
    assert terminal_of({"monitoring": {"terminal": terminal}}) is None
    large, small = charts_of(None)
    assert [large.metric, *(chart.metric for chart in small)] == [
        *("train/loss", "optim/lr", "optim/grad_norm", "perf/tokens_per_s")
    ]


def test_charts_are_those_named_else_the_first_three_metrics_besides_loss():
    large, small = charts_of(terminal_of(SEED))
    assert (large.window, [chart.metric for chart in small]) == (1000, ["perf/mfu"])
    plain = TerminalView(metrics=("train/loss", "a/b", "a/c", "a/d", "a/e"))
    assert [chart.metric for chart in charts_of(plain)[1]] == ["a/b", "a/c", "a/d"]
    assert {"a/b", "a/c", "a/d", "a/e"} <= set(keys_of(plain))


def test_one_metric_may_stand_in_the_place_of_the_loss():
    large, small = charts_of(
        own_choice(("episode_reward", "approx_kl", "a/b", "x"), (), is_house=False)
    )
    assert large.metric == "episode_reward" and not shows_losses(large)
    assert [chart.metric for chart in small] == ["approx_kl", "a/b", "x"]
    curve = Series("episode_reward", steps=(1.0, 2.0), mean=(3.0, 4.0))
    drawn = large_chart(training(), large, {curve.key: curve}, is_loading=False)
    assert [line.y for line in drawn.lines] == [(3.0, 4.0)]


def test_a_window_is_the_mean_of_the_steps_in_it_over_their_own_points():
    line = Trace("main", (10.0, 20.0, 30.0, 40.0), (4.0, 2.0, float("nan"), 6.0), is_noisy=True)
    points, mean = averaged(ChartData((line,), False), "main", 20).lines
    assert (points.tone, mean.tone, points.y[:2]) == ("raw", "main", (4.0, 2.0))
    assert mean.y == (4.0, 3.0, 2.0, 6.0)


CHANGED = {
    "refresh_ms": 700,
    "metrics": ("perf/mfu", "brick/data_ms"),
    "charts": (ChartChoice("perf/mfu"),),
}


async def picture(cockpit, source, terminal) -> tuple[object, ...]:
    """What there is to see of an Overview, and how often it is looked at."""
    view = training(terminal=terminal)
    source.show((view,))
    async with cockpit(run=view).run_test(size=(160, 45)) as pilot:
        await until(pilot, lambda: isinstance(pilot.app.screen, RunScreen))
        screen = pilot.app.screen
        await until(pilot, lambda: screen.has_picture())
        charts = [chart for chart in screen.page.query(Chart) if chart.display]
        return (
            screen.period_s,
            tuple(str(chart.border_title) for chart in charts),
            tuple(tuple(line.y for line in chart.data.lines) for chart in charts),
            screen.query_one(Vitals).render_line(0).text,
        )


@pytest.mark.parametrize("name", [field.name for field in fields(TerminalView)])
async def test_everything_the_config_may_say_changes_the_overview(cockpit, source, name):
    assert await picture(cockpit, source, TerminalView()) != await picture(
        cockpit, source, TerminalView(**{name: CHANGED[name]})
    )


CHART = {"metric": "perf/mfu", "is_loss_curve": True, "window": 5000, "shows_eta": True}


@pytest.mark.parametrize("name", [field.name for field in fields(ChartChoice)])
async def test_everything_the_config_may_say_of_a_chart_changes_it(cockpit, source, name):
    base = {"metric": "optim/grad_norm"}
    plain, other = ChartChoice(**base), ChartChoice(**{**base, name: CHART[name]})
    assert await picture(cockpit, source, TerminalView(charts=(plain,))) != await picture(
        cockpit, source, TerminalView(charts=(other,))
    )


async def test_the_figures_named_stand_first_and_a_chart_tells_the_time_left(cockpit, source):
    _, titles, _, figures = await picture(cockpit, source, terminal_of(SEED))
    assert figures.split()[:2] == ["mfu", "loss"]
    assert "eta" in titles[0] and titles[1:] == ("perf/mfu",)
