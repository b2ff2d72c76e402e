"""A key means one thing on a screen, whatever part of it has the focus."""

from __future__ import annotations

from collections import defaultdict

import pytest
from settled import settled, until
from textual.screen import Screen
from textual.widgets import Static

from albor_tui.screens.run import TABS
from albor_tui.terminal.textual_private import bindings_of
from albor_tui.widgets.chart.chart import Chart
from albor_tui.widgets.chart_grid.grid import ChartGrid

SIGNS = ("slash", "comma", "full_stop", "space", "plus", "minus")
SAME = {  # one step back; one part large; a line on; a file of what has the focus
    **{"leave": "back", "full": "zoom"},
    **{"scroll_up": "move(-1)", "scroll_down": "move(1)", "picture": "export"},
}


def letters_of(screen: Screen[object]) -> dict[str, set[str]]:
    """The actions of each letter, digit and sign, over all that can have the focus."""
    found = defaultdict[str, set[str]](set)
    for focus in [*screen.focus_chain, screen]:
        for node in focus.ancestors_with_self:
            for binding in bindings_of(node):
                if len(binding.key) == 1 or binding.key in SIGNS:
                    found[binding.key].add(SAME.get(binding.action, binding.action))
    return found


@pytest.mark.parametrize("tab", [None, *(tab.key for tab in TABS)])
async def test_no_key_does_two_things_on_one_screen(cockpit, source, tab):
    begun = {} if tab is None else {"run": source.rows[0], "tab": tab}
    async with cockpit(**begun).run_test(size=(160, 45)) as pilot:
        await settled(pilot)
        await until(pilot, lambda: pilot.app.screen.focused is not None)
        letters = letters_of(pilot.app.screen)
        assert {key: said for key, said in letters.items() if len(said) > 1} == {}
        assert letters["x"] == {"stop"}


async def test_the_help_names_the_keys_that_stop_and_move(cockpit, source):
    async with cockpit(run=source.rows[0], tab="charts").run_test(size=(160, 45)) as pilot:
        grid = pilot.app.screen.query_one(ChartGrid)
        await until(pilot, lambda: grid.query(Chart))
        grid.query(Chart).first().focus()
        await settled(pilot)
        await pilot.press("question_mark")
        lines = str(pilot.app.screen.query(Static).first().content).splitlines()
        keys = {
            words.strip(): key.split()
            for key, _, words in (x.partition("   ") for x in map(str.strip, lines))
        }
        assert keys["Stop; says how and asks first"] == ["x"]
        assert keys["x is step, tokens or time"] == ["X"]
        assert "j" in keys["The chart below"] and "k" in keys["The chart above"]
