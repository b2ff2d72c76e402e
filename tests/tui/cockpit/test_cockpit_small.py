"""Small terminals: what has no room gives way, and below 60 x 16 the cockpit says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import fake_feed
import pytest
from settled import until
from textual.widgets import Static

from albor_tui.model.launchpad import ConfigFile
from albor_tui.screens.andon import AndonScreen
from albor_tui.screens.data.screen import DataScreen
from albor_tui.screens.dialogs.confirm import ConfirmScreen
from albor_tui.screens.dialogs.help import HelpScreen
from albor_tui.screens.diff import DiffScreen
from albor_tui.screens.launch import LaunchScreen
from albor_tui.screens.run import RunScreen
from albor_tui.screens.runs.screen import RunsScreen
from albor_tui.screens.too_small import TooSmallScreen
from albor_tui.widgets.config_form import ConfigList
from albor_tui.widgets.run.gpu_panel import GpuStrip
from albor_tui.widgets.run_table import RunTable


def words(pilot) -> str:
    return str(pilot.app.screen.query_one("#too-small", Static).content)


async def covered(pilot) -> None:
    await until(pilot, lambda: isinstance(pilot.app.screen, TooSmallScreen))


async def test_a_terminal_that_is_too_small_from_the_start_says_so_and_comes_back(cockpit):
    async with cockpit().run_test(size=(40, 10)) as pilot:
        await covered(pilot)
        assert words(pilot) == "terminal too small: 40 x 10,\nat least 60 x 16"
        await pilot.resize_terminal(59, 40)
        await until(pilot, lambda: "59 x 40" in words(pilot))
        await pilot.resize_terminal(60, 16)
        await until(pilot, lambda: isinstance(pilot.app.screen, RunsScreen))
        table = pilot.app.screen.query_one(RunTable)
        await until(pilot, lambda: len(table.runs) == 7)


@pytest.mark.parametrize("make", [
    lambda source: RunScreen(source.rows[0]),
    lambda source: DiffScreen(("a", "b"), {}),
    lambda source: LaunchScreen(),
    lambda source: ConfirmScreen("really?", "so it is"),
], ids=["run", "diff", "launch", "question"])  # fmt: skip
@pytest.mark.slow
async def test_every_screen_gives_way_and_is_there_again_when_it_grows(cockpit, source, make):
    async with cockpit().run_test(size=(100, 30)) as pilot:
        screen = make(source)
        await pilot.app.push_screen(screen)
        await pilot.resize_terminal(100, 15)
        await covered(pilot)
        await pilot.press("x", "escape", "question_mark")  # nothing is done that nobody sees
        assert isinstance(pilot.app.screen, TooSmallScreen)
        await pilot.resize_terminal(100, 30)
        await until(pilot, lambda: pilot.app.screen is screen)
        assert not source.commands


async def test_configs_of_one_folder_are_told_apart_where_their_paths_have_no_room(cockpit):
    names = ("pretrain-350m.yaml", "pretrain-350m-muon.yaml")
    async with cockpit().run_test(size=(80, 24)) as pilot:
        await pilot.app.push_screen(LaunchScreen())
        configs = pilot.app.screen.query_one(ConfigList)
        configs.configs = tuple(ConfigFile(Path("/a/" + "deep/" * 9) / one, "x") for one in names)
        lines = [configs.draw_line(row, 76).plain for row in (0, 1)]
    assert [name in line for name, line in zip(names, lines, strict=True)] == [True, False]
    assert "350m-muon.yaml" in lines[1]


@pytest.mark.slow
async def test_a_run_opened_directly_leads_back_to_the_list_after_it_was_covered(cockpit, source):
    async with cockpit(run=source.rows[0]).run_test(size=(50, 20)) as pilot:
        await covered(pilot)
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: isinstance(pilot.app.screen, RunScreen))
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunsScreen))


async def test_q_leaves_a_terminal_that_is_too_small(cockpit):
    app = cockpit()
    async with app.run_test(size=(30, 5)) as pilot:
        await covered(pilot)
        await pilot.press("q")
    assert app.return_code == 0


@pytest.mark.slow
async def test_a_screen_that_came_while_it_was_covered_is_covered_at_last(cockpit, source):
    async with cockpit().run_test(size=(50, 12)) as pilot:
        await covered(pilot)
        await pilot.app.push_screen(RunScreen(source.rows[0]))
        await pilot.resize_terminal(100, 30)
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, RunsScreen))


async def test_no_gpu_costs_a_short_screen_one_line(cockpit, source):
    source.gpus = ()
    async with cockpit().run_test(size=(80, 24)) as pilot:
        strip = pilot.app.screen.query_one(GpuStrip)
        await until(pilot, lambda: "no GPU" in str(strip.render()))
        await until(pilot, lambda: strip.outer_size.height == 1)
        table = pilot.app.screen.query_one(RunTable)
        assert table.size.height - 1 >= 8, "rows for runs below the header"
        await pilot.resize_terminal(120, 40)
        await until(pilot, lambda: strip.outer_size.height == 3)


@pytest.mark.parametrize("size", [(80, 24), (160, 45)])
@pytest.mark.slow
async def test_gpus_that_come_and_go_get_and_give_back_their_lines(cockpit, source, size):
    source.gpus = ()
    none = 1 if size == (80, 24) else 3
    async with cockpit().run_test(size=size) as pilot:
        strip = pilot.app.screen.query_one(GpuStrip)
        await until(pilot, lambda: strip.outer_size.height == none)
        source.gpus = tuple(replace(fake_feed.gpu(i)) for i in range(3))
        source.show(source.rows)
        await until(pilot, lambda: "H200" in str(strip.render()))
        lines = 3 if size == (80, 24) else 2
        await until(pilot, lambda: strip.outer_size.height == 2 + lines)
        source.gpus = ()
        source.show(source.rows)
        await until(pilot, lambda: strip.outer_size.height == none)


@pytest.mark.parametrize(("height", "says_more"), [(24, True), (60, False)])
async def test_keys_that_do_not_fit_are_said_to_go_on(cockpit, source, height, says_more):
    async with cockpit(run=source.rows[0]).run_test(size=(80, height)) as pilot:
        await until(pilot, lambda: isinstance(pilot.app.screen, RunScreen))
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(pilot.app.screen, HelpScreen))
        dialog = pilot.app.screen.query_one("#dialog")
        await until(pilot, lambda: "esc closes" in str(dialog.border_subtitle))
        assert ("for more" in str(dialog.border_subtitle)) is says_more


@pytest.mark.parametrize(
    "place", ["runs", "run", "charts", "logs", "andon", "launch", "diff", "room"]
)
@pytest.mark.slow
async def test_every_key_is_explained_on_one_line(cockpit, source, place):
    opened = {
        "andon": AndonScreen,
        "launch": LaunchScreen,
        "room": DataScreen,
        "diff": lambda: DiffScreen(("a", "b"), {"a": "a", "b": "b"}),
    }
    tab = {"run": "overview", "charts": "charts", "logs": "logs"}.get(place)
    options = {"run": source.rows[0], "tab": tab} if tab else {}
    async with cockpit(**options).run_test(size=(80, 24)) as pilot:
        if place in opened:
            await pilot.app.push_screen(opened[place]())
        await pilot.pause()
        await pilot.press("question_mark")
        await until(pilot, lambda: isinstance(pilot.app.screen, HelpScreen))
        dialog = pilot.app.screen.query_one("#dialog")
        room = dialog.scrollable_content_region.width
        lines = [
            line for static in dialog.query(Static) for line in str(static.content).split("\n")
        ]
        assert len(lines) > 8
        assert [line for line in lines if len(line) > room] == []
