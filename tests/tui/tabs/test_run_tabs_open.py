"""A quick look at each tab of a run: a link opens it, its name fits, empty it says what to do."""

from __future__ import annotations

import pytest
from settled import until

from albor_core.feed.archive.checkpoints import ShelfView
from albor_core.feed.archive.config_sheet import ConfigView
from albor_tui.screens.run import TABS, RunScreen
from albor_tui.widgets.tab_bar import TabBar


def at(source, name="code-125m"):
    return next(view for view in source.rows if view.name == name)


def text_of(screen) -> str:
    return "\n".join(strip.text for strip in screen._compositor.render_strips())


@pytest.mark.parametrize("key", [tab.key for tab in TABS])
async def test_a_deep_link_opens_its_tab(cockpit, source, key):
    async with cockpit(run=at(source), tab=key).run_test(size=(80, 24)) as pilot:
        screen = pilot.app.screen
        assert isinstance(screen, RunScreen)
        await until(pilot, lambda: screen.page.id == f"page-{key}")
        assert screen.query_one(TabBar).current == key
        assert len(screen.query(".page")) == 1  # the others are not even composed


async def test_the_names_fit_eighty_columns_and_less(cockpit, source):
    async with cockpit(run=at(source), tab="events").run_test(size=(80, 24)) as pilot:
        bar = pilot.app.screen.query_one(TabBar)
        for width, wanted in ((80, "7 Ckpt"), (160, "7 Checkpoints"), (60, "7 8 9 Events")):
            await pilot.resize_terminal(width, 24)
            await until(pilot, lambda: wanted in bar.render_line(0).text)  # noqa: B023
            assert len(bar.render_line(0).text.rstrip()) <= width


EMPTY = {
    "bricks": "No timings yet.",
    "system": "no GPU",
    "logs": "No output yet.",
    "config": "This run has no config.",
    "checkpoints": "No checkpoint yet.",
    "samples": "--set 'training.sample_prompts",
    "events": "Nothing has happened yet.",
}


@pytest.mark.parametrize("key", list(EMPTY))
async def test_a_tab_with_nothing_to_show_says_what_to_do(cockpit, source, key):
    source.logs, source.config, source.shelf = {}, ConfigView(), ShelfView()
    source.events, source.samples, source.more_curves = (), (), {}
    queued = at(source, "queued-62m")
    async with cockpit(run=queued, tab=key).run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: EMPTY[key] in text_of(pilot.app.screen))
