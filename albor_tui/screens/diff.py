"""Two or more runs side by side."""

from __future__ import annotations

from textual.widgets import Footer

from albor_tui.screens.polling import PollingScreen
from albor_tui.widgets.status_bar import StatusBar, TopBar


class DiffScreen(PollingScreen):
    def __init__(self, run_ids, names):
        super().__init__()

    def compose(self):
        yield TopBar("diff")
        yield StatusBar()
        yield Footer(show_command_palette=False)

    def follow(self):
        pass
