"""Screens brought to where they show everything that they are going to, and what they show then."""

from __future__ import annotations

from dataclasses import replace

import fake_feed
import pytest
from settled import settled, until

from albor_tui.screens.andon import AndonScreen
from albor_tui.screens.data.screen import DataScreen
from albor_tui.screens.launch import LaunchScreen
from albor_tui.screens.tabs.page import Page
from albor_tui.widgets.alert_panels import AlertTable, RulesPanel
from albor_tui.widgets.chart.chart import Chart
from albor_tui.widgets.chart_grid.grid import ChartGrid
from albor_tui.widgets.config_form import ConfigForm, ConfigList
from albor_tui.widgets.data.batch import BatchList
from albor_tui.widgets.data.seen_list import SeenList
from albor_tui.widgets.data.source_list import SourceList
from albor_tui.widgets.plan_panel import PlanPanel
from albor_tui.widgets.run.panels import Head
from albor_tui.widgets.run_table import RunTable

RUN = "code-125m"
ASKS = {"bricks": "curves", "system": "curves", "charts": "curves", "logs": "log"}


def at(source, name=RUN):
    return next(view for view in source.rows if view.name == name)


def change(source, **fields):
    """The first run with other values; returns it."""
    old = at(source)
    new = replace(old, **fields)
    source.show(tuple(new if view is old else view for view in source.rows))
    return new


def text_of(screen) -> str:
    return "\n".join(strip.text for strip in screen._compositor.render_strips())


async def runs_ready(pilot) -> None:
    screen = pilot.app.screen
    await until(pilot, lambda: len(screen.query_one(RunTable).runs) == 7)
    chart = screen.query_one("#preview-chart", Chart)
    await until(pilot, lambda: len(chart.data.lines) == 2, "the store's curves never came")
    await settled(pilot)


async def run_ready(pilot) -> None:
    await until(pilot, lambda: "code-125m" in str(pilot.app.screen.query_one(Head).render()))
    log = pilot.app.screen.query_one("#log")
    await until(pilot, lambda: log.virtual_size.height == len(fake_feed.LOG))
    bar = log.vertical_scrollbar
    await until(pilot, lambda: bar.position == bar.validate_position(log.max_scroll_y))
    await until(pilot, lambda: len(pilot.app.screen.page.curves) == 5)
    await settled(pilot)


async def form(pilot) -> None:
    await pilot.app.push_screen(LaunchScreen())
    screen = pilot.app.screen
    await until(pilot, lambda: screen.query_one(ConfigList).count() == 2)
    await pilot.press("enter")
    await until(pilot, lambda: screen.query_one(ConfigForm).count() > 3)
    await pilot.press("down", "down")
    await until(pilot, lambda: not screen.query_one(PlanPanel).is_old)
    await pilot.pause()


async def board(pilot) -> None:
    await pilot.app.push_screen(AndonScreen())
    screen = pilot.app.screen
    await until(pilot, lambda: bool(screen.query_one(AlertTable).alerts))
    await until(pilot, lambda: screen.query_one(RulesPanel).document is not None)
    chart = screen.query_one("#alert-chart", Chart)
    await until(pilot, lambda: not chart.display or chart.data.has_points)
    await settled(pilot)


def ready(source, key):
    async def wait(pilot) -> None:
        screen = pilot.app.screen
        await until(pilot, lambda: "code-125m" in str(screen.query_one(Head).render()))
        await until(pilot, lambda: source.asked[ASKS.get(key, key)] > 0)
        if key == "charts":
            grid = screen.query_one(ChartGrid)
            await until(
                pilot, lambda: bool(grid.shown) and all(map(grid.picture.key_curves, grid.shown))
            )
        await answered(pilot)
        if key == "data":
            await until(pilot, lambda: screen.query_one(SeenList).count() in (6, 7))
            await until(pilot, lambda: screen.query_one(BatchList).count() == 4)
        await settled(pilot)

    return wait


async def data_room(pilot) -> None:
    await pilot.press("D")
    await until(pilot, lambda: isinstance(pilot.app.screen, DataScreen))
    screen = pilot.app.screen
    await until(pilot, lambda: screen.query_one(SourceList).count() == 7)
    await settled(pilot)


async def answered(pilot) -> None:
    """Until the page has taken the answer to its question; one that asks nothing is ready."""
    page = pilot.app.screen.page
    await until(pilot, lambda: page.question is None or page in taken)
    await pilot.pause()


taken: set[Page] = set()


@pytest.fixture(autouse=True)
def counted(monkeypatch):
    """Writes down which pages have been given their answer."""
    taken.clear()
    passed = Page._passed

    def note(page: Page, *kinds: type) -> None:
        if Page.Answered in kinds:
            taken.add(page)
        passed(page, *kinds)

    monkeypatch.setattr(Page, "_passed", note)
