"""One walk over every screen: each comes by its key, shows something, and goes again."""

from __future__ import annotations

from settled import until

from albor_tui.screens.andon import AndonScreen
from albor_tui.screens.attention import AttentionScreen
from albor_tui.screens.dialogs.help import HelpScreen
from albor_tui.screens.diff import DiffScreen
from albor_tui.screens.launch import LaunchScreen
from albor_tui.screens.run import RunScreen
from albor_tui.screens.runs.screen import RunsScreen
from albor_tui.widgets.run_table import RunTable

WALK = (
    (("enter",), RunScreen, "3.8801"),
    (("question_mark",), HelpScreen, "Open the highlighted run"),
    (("exclamation_mark",), AttentionScreen, "loading"),
    (("A",), AndonScreen, "gradient norm"),
    (("n",), LaunchScreen, "demo.yaml"),
    (("space", "space", "d"), DiffScreen, "val/loss"),
)


def text_of(screen) -> str:
    return "\n".join(strip.text for strip in screen._compositor.render_strips())


async def test_every_screen_comes_by_its_key_and_goes_by_escape(cockpit):
    async with cockpit().run_test(size=(120, 36)) as pilot:
        app = pilot.app
        table = app.screen.query_one(RunTable)
        await until(pilot, lambda: len(table.runs) == 7)
        for keys, screen, words in WALK:
            await pilot.press(*keys)
            await until(pilot, lambda: isinstance(app.screen, screen))  # noqa: B023
            await until(pilot, lambda: words in text_of(app.screen), words)  # noqa: B023
            await pilot.press("escape")
            await until(pilot, lambda: isinstance(app.screen, RunsScreen))
