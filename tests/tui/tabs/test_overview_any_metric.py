"""A run that logs what it likes is at home: list, glance, preview and Overview show its metrics."""

from __future__ import annotations

import math
from dataclasses import replace

import fake_feed
import pytest
from settled import settled, until
from textual.content import Content

from albor_core.feed.view.run_view import RunView
from albor_core.run.values.main_metrics import MainMetric
from albor_tui.model.program_charts import own_choice
from albor_tui.screens.charts.curves import preview_keys
from albor_tui.screens.run import RunScreen
from albor_tui.screens.tabs.overview import PANELS
from albor_tui.widgets.chart.chart import Chart
from albor_tui.widgets.chart_grid.grid import ChartGrid
from albor_tui.widgets.run.panels import Head, Vitals
from albor_tui.widgets.run.run_preview import RunPreview
from albor_tui.widgets.run_columns import layout, needs_of
from albor_tui.widgets.run_table import RunTable

PPO = RunView(
    **{"id": "ppo-1a2b3c", "name": "ppo", "kind": "track", "experiment": "rl"},
    **{"status": "running", "is_live": True, "age_s": 0.4, "created": fake_feed.WALL - 60},
    **{"step": 40_960, "loss": 9.125, "elapsed_s": 60.0, "attempt": 1, "path": "/runs/ppo"},
    loss_history=(12.0, 9.125),
    trend=(20.0, 213.5),
    metrics=(
        MainMetric("rollout/ep_rew_mean", 213.5, "max"),
        MainMetric("train/loss", 9.125, "min"),
        MainMetric("train/explained_variance", 0.5, "max"),
    ),
)
CLASSIFIER = replace(
    PPO,
    **{"id": "clf-1a2b3c", "name": "clf", "loss": None, "loss_history": (), "trend": (0.5, 0.875)},
    metrics=(MainMetric("accuracy", 0.875, "max"),),
)


@pytest.fixture(autouse=True)
def nothing_printed(source):
    source.log_lines = ()


def drawn(pilot) -> str:
    """The text of the page that is shown."""
    strips = pilot.app.screen._compositor.render_strips()
    return "\n".join(strip.text for strip in strips)


async def text_of(pilot, kind) -> str:
    await settled(pilot)
    widget = pilot.app.screen.query_one(kind)
    return "\n".join(widget.render_line(y).text for y in range(widget.size.height))


# -- the list ----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [(80, 24), (160, 45)], ids=str)
async def test_the_list_shows_what_stands_for_each_run(cockpit, source, size):
    source.show((PPO, CLASSIFIER))
    async with cockpit().run_test(size=size) as pilot:
        table = pilot.app.screen.query_one(RunTable)
        await until(pilot, lambda: len(table.runs) == 2)
        shown = await text_of(pilot, RunTable)
        assert "metric" in shown.splitlines()[0]
        assert "ep_rew_mean" in shown and "213.5" in shown
        assert "accuracy" in shown and "0.875" in shown


def test_a_list_of_runs_with_losses_alone_has_its_columns_as_ever():
    rows = fake_feed.rows()
    plain = [column.title for column, _ in layout(158, needs_of(rows, {})).shown]
    judged = tuple(
        replace(row, metrics=(MainMetric("train/loss", row.loss, "min"),)) for row in rows
    )
    assert [column.title for column, _ in layout(158, needs_of(judged, {})).shown] == plain
    assert "loss trend" in plain and "metric" not in plain


def test_columns_that_no_run_of_the_list_fills_give_way_to_its_metrics():
    titles = {column.title for column, _ in layout(158, needs_of((PPO, CLASSIFIER), {})).shown}
    assert {"metric", "loss trend", "loss"} <= titles
    assert titles.isdisjoint({"ppl", "tok/s"})
    alone = {column.title for column, _ in layout(158, needs_of((CLASSIFIER,), {})).shown}
    assert "loss" not in alone


def test_beside_other_runs_with_losses_no_figure_of_the_house_goes():
    shown = layout(158, needs_of((CLASSIFIER, *fake_feed.rows()), {})).shown
    titles = {c.title for c, _ in shown}
    assert {"metric", "loss", "ppl", "tok/s"} <= titles


async def test_a_validation_loss_alone_is_in_the_list(cockpit, source):
    only = replace(
        CLASSIFIER, val_loss=2.25, metrics=(MainMetric("val/loss", 2.25, "min"),), trend=(3.0, 2.25)
    )
    source.show((only,))
    async with cockpit().run_test(size=(100, 30)) as pilot:
        table = pilot.app.screen.query_one(RunTable)
        await until(pilot, lambda: len(table.runs) == 1)
        assert "val/loss 2.2500" in " ".join((await text_of(pilot, RunTable)).split())


async def test_a_metric_that_is_no_number_says_so_in_the_list(cockpit, source):
    source.show((replace(CLASSIFIER, metrics=(MainMetric("accuracy", math.nan, "max"),)),))
    async with cockpit().run_test(size=(100, 30)) as pilot:
        table = pilot.app.screen.query_one(RunTable)
        await until(pilot, lambda: len(table.runs) == 1)
        assert "NaN" in await text_of(pilot, RunTable)


# -- at a glance ---------------------------------------------------------------------------------


async def test_the_glance_names_what_the_run_logs_and_nothing_that_it_does_not(cockpit, source):
    source.show((PPO,))
    async with cockpit().run_test(size=(160, 45)) as pilot:
        glance = pilot.app.screen.query_one(RunPreview)
        await until(pilot, lambda: glance.view is not None)
        shown = await text_of(pilot, RunPreview)
    lines = {line.split()[0]: line for line in shown.splitlines() if line.strip()}
    assert lines["rollout/ep_rew_mean"].index("213.5") == lines["loss"].index("9.1250")
    for never in ("tokens", "tok/s", "val ", "lr ", "saved", "device", "ema", "yet"):
        assert never not in shown


async def test_the_preview_draws_the_metric_that_stands_for_the_run(cockpit, source):
    source.show((PPO,))
    async with cockpit().run_test(size=(160, 45)) as pilot:
        chart = pilot.app.screen.query_one("#preview-chart", Chart)
        await until(pilot, lambda: bool(chart.data.lines))
        await until(pilot, lambda: "rollout/ep_rew_mean" in str(chart.border_title))


def test_a_preview_asks_for_the_losses_unless_something_else_stands_for_the_run():
    assert preview_keys(()) == preview_keys(("val/loss", "accuracy")) == ("train/loss", "val/loss")
    assert preview_keys(("accuracy", "train/loss")) == ("accuracy",)


# -- the Overview --------------------------------------------------------------------------------


async def opened(pilot) -> RunScreen:
    await until(pilot, lambda: isinstance(pilot.app.screen, RunScreen))
    screen = pilot.app.screen
    await until(pilot, screen.has_picture)
    await settled(pilot)
    return screen


def titles_of(screen) -> list[str]:
    """What the charts say that they show."""
    charts = [chart for chart in screen.page.query(Chart) if chart.display]
    return [Content.from_markup(str(chart.border_title)).plain for chart in charts]


def shown_panels(screen) -> list[str]:
    return [name for name in PANELS if screen.page.query_one(f"#{name}").display]


@pytest.mark.parametrize("size", [(80, 24), (160, 45)], ids=str)
async def test_the_overview_is_made_of_what_the_run_has(cockpit, source, size):
    source.show((PPO,))
    async with cockpit(run=PPO).run_test(size=size) as pilot:
        screen = await opened(pilot)
        await until(pilot, lambda: shown_panels(screen) == ["loss", "lr", "grad", "alerts"])
        await settled(pilot)
        assert titles_of(screen) == ["rollout/ep_rew_mean", "loss", "train/explained_variance"]
        tiles = await text_of(pilot, Vitals)
        assert "rollout/ep_rew_mean" in tiles and "213.5" in tiles
        assert "tok/s" not in tiles and "mfu" not in tiles and "\u2014" not in tiles
        assert "tokens" not in await text_of(pilot, Head)
        assert " yet" not in drawn(pilot)


async def test_the_overview_of_albors_own_training_is_as_ever(cockpit, source):
    view = source.rows[0]
    judged = replace(view, metrics=(MainMetric("train/loss", view.loss, "min"),))
    source.show((judged,))
    async with cockpit(run=judged).run_test(size=(160, 45)) as pilot:
        screen = await opened(pilot)
        assert shown_panels(screen) == [*PANELS]
        words = [title.split()[0] for title in titles_of(screen)]
        assert words == ["loss", "learning", "gradient", "tokens/s"]


async def test_a_panel_comes_when_it_has_something(cockpit, source):
    source.show((PPO,))
    async with cockpit(run=PPO).run_test(size=(120, 36)) as pilot:
        screen = await opened(pilot)
        await until(pilot, lambda: "machine" not in shown_panels(screen))
        source.show((replace(PPO, gpu=(fake_feed.gpu(),), step=40_970),))
        await until(pilot, lambda: "machine" in shown_panels(screen))


async def test_a_program_that_logs_nothing_has_no_chart_until_it_logs(cockpit, source):
    silent = replace(PPO, step=None, loss=None, loss_history=(), trend=(), metrics=())
    source.show((silent,))
    async with cockpit(run=silent).run_test(size=(160, 45)) as pilot:
        screen = await opened(pilot)
        await until(pilot, lambda: shown_panels(screen) == ["alerts"])
        source.show((PPO,))
        await until(pilot, lambda: "loss" in shown_panels(screen))


def test_losses_share_the_large_chart_and_other_metrics_come_before_the_houses():
    found = own_choice(
        ("train/loss", "val/loss", "val/ppl", "val/accuracy"),
        ("optim/lr", "optim/grad_norm", "perf/tokens_per_s"),
        is_house=False,
    )
    assert [chart.metric for chart in found.charts] == [
        *("train/loss", "val/accuracy", "optim/lr", "optim/grad_norm")
    ]


def test_the_house_chooses_for_its_own_training_unless_a_person_pinned_something():
    assert own_choice(("train/loss", "val/loss"), (), is_house=True) is None
    assert own_choice((), (), is_house=False) is None
    pinned = own_choice(("val/hellaswag", "train/loss"), (), is_house=True)
    assert [chart.metric for chart in pinned.charts] == ["val/hellaswag", "train/loss"]


# -- pins ----------------------------------------------------------------------------------------


async def test_p_on_the_overview_pins_the_metric_of_the_chosen_chart(cockpit, source, desk):
    source.show((PPO,))
    async with cockpit(run=PPO).run_test(size=(160, 45)) as pilot:
        screen = await opened(pilot)
        await until(pilot, lambda: shown_panels(screen) == ["loss", "lr", "grad", "alerts"])
        screen.page.query_one("#grad").focus()
        await pilot.press("P")
        await until(pilot, lambda: bool(desk.done))
    assert [deed for deed in desk.done if deed[0] != "look"] == [
        ("metric.pin", "ppo-1a2b3c", "train/explained_variance")
    ]


async def test_p_takes_a_pin_back(cockpit, source, desk):
    first = PPO.metrics[0]._replace(is_pinned=True)
    view = replace(PPO, metrics=(first, *PPO.metrics[1:]))
    source.show((view,))
    async with cockpit(run=view, tab="charts").run_test(size=(160, 45)) as pilot:
        await until(pilot, lambda: isinstance(pilot.app.screen, RunScreen))
        screen = pilot.app.screen
        await until(pilot, lambda: bool(screen.query(ChartGrid)))
        grid = screen.query_one(ChartGrid)
        await until(pilot, lambda: grid.current == "rollout/ep_rew_mean")
        await settled(pilot)
        await pilot.press("P")
        await until(pilot, lambda: bool(desk.done))
    assert desk.done[0] == ("metric.unpin", "ppo-1a2b3c", "rollout/ep_rew_mean")


async def test_a_read_only_cockpit_pins_nothing(cockpit, source, desk):
    source.show((PPO,))
    async with cockpit(run=PPO, read_only=True).run_test(size=(160, 45)) as pilot:
        await opened(pilot)
        await pilot.press("P")
        await settled(pilot)
        assert "read-only" in str(pilot.app.screen.query_one("StatusBar").line)
    assert not desk.done


# -- what never comes ----------------------------------------------------------------------------


async def test_the_head_of_a_loop_without_an_end_promises_none(cockpit, source):
    source.show((PPO,))
    async with cockpit(run=PPO).run_test(size=(120, 36)) as pilot:
        await opened(pilot)
        head = await text_of(pilot, Head)
    assert "step 40,960" in head
    for never in ("eta", "%", "\u2014", "tokens"):
        assert never not in head


async def test_the_head_of_a_loop_with_an_end_tells_how_far_it_is(cockpit, source):
    view = replace(PPO, max_steps=81_920, progress=0.5, eta_s=60.0)
    source.show((view,))
    async with cockpit(run=view).run_test(size=(120, 36)) as pilot:
        await opened(pilot)
        head = await text_of(pilot, Head)
    assert "eta 1m" in head and "50.0%" in head


@pytest.mark.parametrize("tab", ["bricks", "checkpoints", "logs", "charts"])
async def test_no_tab_of_a_run_that_is_over_says_yet(cockpit, source, tab):
    source.logs, source.shelf, source.more_curves = {}, fake_feed.ShelfView(), {}
    over = replace(fake_feed.training(bricks=()), status="completed", is_live=False, step=None)
    source.show((over,))
    async with cockpit(run=over, tab=tab).run_test(size=(100, 30)) as pilot:
        await until(pilot, lambda: isinstance(pilot.app.screen, RunScreen))
        screen = pilot.app.screen
        await until(pilot, lambda: screen.page.id == f"page-{tab}")
        await until(pilot, lambda: "no " in drawn(pilot).lower())
        await settled(pilot)
        assert " yet" not in drawn(pilot)
