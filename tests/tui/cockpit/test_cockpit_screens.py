"""How Launch, Andon, help and questions look, cell by cell, on frozen data."""

from __future__ import annotations

import incident
import pytest
from screen_stage import board, form, run_ready
from settled import settled, until

from albor_tui.screens.attention import AttentionScreen
from albor_tui.screens.launch import LaunchScreen
from albor_tui.screens.run import RunScreen
from albor_tui.widgets.attention_panels import AttentionTable
from albor_tui.widgets.config_form import ConfigList
from albor_tui.widgets.run_table import RunTable

SIZES = [
    pytest.param((80, 24), id="80x24"),
    pytest.param((120, 36), id="120x36", marks=pytest.mark.slow),
    pytest.param((200, 60), id="200x60", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("size", SIZES)
def test_andon(snap_compare, cockpit, size):
    assert snap_compare(cockpit(), terminal_size=size, run_before=board)


@pytest.mark.slow
def test_andon_for_colour_blind_eyes(snap_compare, cockpit):
    app = cockpit(theme="colour-blind")
    assert snap_compare(app, terminal_size=(120, 36), run_before=board)


@pytest.mark.parametrize("size", SIZES)
def test_launch(snap_compare, cockpit, size):
    assert snap_compare(cockpit(), terminal_size=size, run_before=form)


@pytest.mark.slow
def test_launch_with_problems_in_daylight(snap_compare, cockpit, launchpad):
    hint = "albor data pretokenize CORPUS"
    launchpad.problems = (
        {"field": "data.train", "message": "no such directory", "hint": hint, "file": ""},
    )
    assert snap_compare(cockpit(theme="light"), terminal_size=(80, 24), run_before=form)


@pytest.mark.slow
def test_configs_to_choose_from(snap_compare, cockpit):
    async def choose(pilot) -> None:
        await pilot.app.push_screen(LaunchScreen())
        screen = pilot.app.screen
        await until(pilot, lambda: screen.query_one(ConfigList).count() == 2)
        await pilot.pause()

    assert snap_compare(cockpit(), terminal_size=(80, 24), run_before=choose)


async def listed(pilot) -> None:
    table = pilot.app.screen.query_one(RunTable)
    await until(pilot, lambda: len(table.runs) == 7)


def test_keys(snap_compare, cockpit):
    async def ask(pilot) -> None:
        await listed(pilot)
        await pilot.press("question_mark")
        pilot.app.screen.query_one("#dialog").styles.background = "black"

    assert snap_compare(cockpit(theme="ansi"), terminal_size=(80, 50), run_before=ask)


@pytest.mark.parametrize(
    "size", [pytest.param((80, 24), id="80x24"), pytest.param((160, 45), id="160x45")]
)
def test_attention_in_an_incident(snap_compare, cockpit, source, desk, size):
    source.rows, source.gpus = incident.runs(), incident.eight_gpus()
    source.troubles = incident.attention()
    died = f"{source.rows[1].id}/died"
    desk.stands_behind = {died: incident.EVIDENCE}

    async def ready(pilot) -> None:
        await until(pilot, lambda: isinstance(pilot.app.screen, AttentionScreen))
        screen = pilot.app.screen
        await until(pilot, lambda: screen.query(AttentionTable) and screen.current is not None)
        await pilot.press("down", "down")
        await until(pilot, lambda: screen.behind is not None and screen.behind.item.id == died)
        await until(pilot, lambda: screen.behind.curve is not None)
        await settled(pilot)

    assert snap_compare(cockpit(), terminal_size=size, run_before=ready)


@pytest.mark.parametrize(
    "size", [pytest.param((80, 24), id="80x24"), pytest.param((160, 45), id="160x45")]
)
def test_a_run_in_an_incident(snap_compare, cockpit, source, size):
    source.rows, source.gpus = incident.runs(), incident.eight_gpus()
    source.troubles = incident.attention()

    async def ready(pilot) -> None:
        await until(pilot, lambda: isinstance(pilot.app.screen, AttentionScreen))
        await pilot.app.push_screen(RunScreen(source.rows[0]))
        await run_ready(pilot)

    assert snap_compare(cockpit(), terminal_size=size, run_before=ready)
