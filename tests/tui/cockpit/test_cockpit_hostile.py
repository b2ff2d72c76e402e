"""Names and messages that are not what they seem, on the screens that list alerts and runs."""

from __future__ import annotations

from dataclasses import replace

import fake_desk
import fake_feed
import pytest
from hostile import HOSTILE, check_cells
from settled import until
from textual.command import CommandList

from albor_tui.screens.andon import AndonScreen
from albor_tui.widgets.alert_panels import AlertTable, RulesPanel
from albor_tui.widgets.run_table import RunTable


@pytest.mark.slow
async def test_no_alert_or_rule_reaches_the_terminal_as_anything_but_text(cockpit, desk):
    for text in HOSTILE:
        desk.alerts = (fake_desk.alert(1, message=text, run_name=text, rule=text, metric=text),)
        desk.version += 1
        played = {**fake_desk.REHEARSAL["rules"][0], "condition": text, "metric": text}
        desk.replay_rules = lambda run, conditions, rule=played: {"rules": [rule]}
        app = cockpit()
        async with app.run_test(size=(100, 30)) as pilot:
            await app.push_screen(AndonScreen())
            screen = app.screen
            await until(pilot, lambda s=screen: bool(s.query_one(AlertTable).alerts))
            await until(pilot, lambda s=screen: s.query_one(RulesPanel).document is not None)
            await pilot.pause()
            check_cells(app)
            await pilot.press("e")
            await pilot.pause()
            check_cells(app)
            assert app.is_running


@pytest.mark.slow
async def test_groups_questions_and_the_palette_show_hostile_names_as_text(cockpit, source):
    for text in HOSTILE:
        view = replace(fake_feed.training(), name=text, experiment=text, tags=(text,), host=text)
        source.show((view,))
        app = cockpit()
        async with app.run_test(size=(100, 30)) as pilot:
            table = app.screen.query_one(RunTable)
            await until(pilot, lambda t=table: len(t.runs) == 1)
            steps = (("g",), ("T",), ("escape", "x"), ("n", "ctrl+p"), tuple("checkpoint"))
            for keys in (*steps, ("escape", "escape", "ctrl+p"), ("o", "p")):
                await pilot.press(*keys)
                await pilot.pause(0.1)
                check_cells(app)
            assert app.is_running


@pytest.mark.parametrize("text", ["[/", "[b]bold[/b]", "[@click=app.quit]press[/]", "key [", "[["])
async def test_the_palette_shows_a_name_in_brackets_as_it_is_listed_and_found(
    cockpit, source, text
):
    view = replace(fake_feed.training(), name=text, experiment=text)
    source.show((view,))
    app = cockpit()
    async with app.run_test(size=(100, 40)) as pilot:
        await until(pilot, lambda: len(app.screen.query_one(RunTable).runs) == 1)
        await pilot.press("ctrl+p")
        await until(pilot, lambda: f"Checkpoint {text}: it writes" in prompts(app))
        assert f"Open {text}\n" in prompts(app)
        await pilot.press(*"writes")
        await until(pilot, lambda: f"Open {text}\n" not in prompts(app))
        await until(pilot, lambda: f"Checkpoint {text}: it writes" in prompts(app))
        assert app.is_running


def prompts(app) -> str:
    """All that the palette lists, one prompt below the other."""
    options = app.screen.query_one(CommandList).options
    return "".join(f"{option.prompt}\n" for option in options)
