"""A cockpit that may only look says so, names no deed, and refuses those whose keys one knows."""

from __future__ import annotations

from settled import until

from albor_tui.screens.dialogs.help import keys_of
from albor_tui.screens.runs.screen import RunsScreen
from albor_tui.widgets.key_bar import KeyBar
from albor_tui.widgets.run_table import RunTable
from albor_tui.widgets.status_bar import StatusBar, TopBar


async def test_it_says_that_it_only_looks_and_names_no_deed(cockpit):
    app = cockpit()
    app.is_read_only = True
    async with app.run_test(size=(200, 40)) as pilot:
        screen = pilot.app.screen
        await until(pilot, lambda: bool(screen.query_one(RunTable).runs))
        assert "read-only" in str(screen.query_one(TopBar).render())
        named = screen.query_one(KeyBar).render_line(0).text
        assert not {"Stop", "Pause", "Save", "Retry", "New", "Tag", "Pin"} & set(named.split())
        assert {"Open", "Select", "Filter"} <= set(named.split())


async def test_help_and_palette_offer_no_deed(cockpit):
    app = cockpit()
    app.is_read_only = True
    async with app.run_test(size=(120, 40)) as pilot:
        screen = pilot.app.screen
        await until(pilot, lambda: bool(screen.query_one(RunTable).runs))
        offered = {command.title for command in app.get_system_commands(screen)}
        explained = str(keys_of(screen))
        sort = "Sort by your metric, then by each column"
        assert sort in offered and sort in explained
        for deed in ("Give a tag", "Launch a run from a config", "Stop after a checkpoint"):
            assert deed not in explained
            assert not [title for title in offered if title.startswith(deed)]


async def test_keys_of_deeds_are_refused_before_anything_is_asked(cockpit, desk, source):
    app = cockpit()
    app.is_read_only = True
    async with app.run_test(size=(120, 40)) as pilot:
        screen = pilot.app.screen
        await until(pilot, lambda: bool(screen.query_one(RunTable).runs))
        for key in "xpcRnTNPEHu":
            await pilot.press(key)
            assert isinstance(pilot.app.screen, RunsScreen), key
            assert "--allow-control" in str(screen.query_one(StatusBar).line), key
            screen.query_one(StatusBar).show_message("")
        assert desk.done == [] and source.commands == []
