"""The cockpit: which screen is on top, which theme, and how it leaves. Everything else is a
screen's own business."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from textual.app import App, SystemCommand
from textual.binding import Binding
from textual.screen import Screen

from albor_core.feed.view import RunView
from albor_tui import themes
from albor_tui.screens.help import HelpScreen
from albor_tui.screens.run import RunScreen
from albor_tui.screens.runs import RunsScreen
from albor_tui.source import Source


class AlborApp(App[None]):
    """Shows what `source` knows. Given a run, it starts on that run's screen."""

    TITLE = "albor"
    CSS_PATH = "albor.tcss"
    ENABLE_COMMAND_PALETTE = True
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (116, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (34, "-tall"), (42, "-high")]
    BINDINGS = [
        Binding("t", "theme", "Theme", show=False, tooltip="Next theme"),
        Binding("question_mark", "help", "Help", key_display="?", tooltip="This list"),
        Binding("q", "leave", "Quit", tooltip="Leave; runs go on"),
        Binding("ctrl+c", "leave", "Quit", show=False, priority=True, system=True),
    ]

    def __init__(self, source: Source, *, run: RunView | None = None, theme: str = "dark") -> None:
        super().__init__()
        self.source = source
        self._first_run = run
        for look in themes.ALL:
            self.register_theme(look)
        self.theme = themes.NAMES[theme].name

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return dict(themes.DARK.variables)

    def on_mount(self) -> None:
        self.push_screen(RunsScreen())
        if self._first_run is not None:
            self.push_screen(RunScreen(self._first_run))

    def action_theme(self) -> None:
        names = [look.name for look in themes.ALL]
        at = names.index(self.theme) if self.theme in names else -1
        self.theme = names[(at + 1) % len(names)]

    def action_leave(self) -> None:
        self.exit()

    def action_help(self) -> None:
        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(self.screen))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The palette: every action of the screen on top, and the themes."""
        for _, binding, enabled, _ in screen.active_bindings.values():
            if enabled and binding.description and not binding.system:
                run = self._runner(screen, binding.action)
                yield SystemCommand(binding.description, f"key {binding.key}", run)
        for name, look in themes.NAMES.items():
            yield SystemCommand(f"Theme: {name}", look.name, self._theme_setter(look.name))

    def _runner(self, screen: Screen[Any], action: str) -> Any:
        async def run() -> None:
            await screen.run_action(action)

        return run

    def _theme_setter(self, name: str) -> Any:
        def choose() -> None:
            self.theme = name

        return choose
