"""The cockpit: which screen is on top, which theme, and how it leaves. Everything else is a
screen's own business."""

from __future__ import annotations

import gc
import importlib
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeGuard

from textual import actions, constants, on
from textual.actions import ActionParseResult
from textual.app import App, SystemCommand
from textual.await_complete import AwaitComplete
from textual.binding import Binding
from textual.command import Provider
from textual.dom import DOMNode
from textual.driver import Driver
from textual.events import Resize
from textual.filter import ANSIToTruecolor, LineFilter, Monochrome, NoColor
from textual.geometry import Size
from textual.reactive import reactive
from textual.screen import Screen

from albor_core.feed.attention.item import AttentionList
from albor_core.feed.view.run_view import RunView
from albor_core.run.errors import AlborError
from albor_core.run.home.folders import albor_home
from albor_tui.look import glyphs, themes
from albor_tui.look.ascii_look import AsciiOnly
from albor_tui.look.run_colours import FILE as COLOURS_FILE
from albor_tui.look.run_colours import RunColours
from albor_tui.lookout import Lookout
from albor_tui.messages import AttentionChanged
from albor_tui.model import readonly
from albor_tui.model.desk import LiveDesk
from albor_tui.model.launchpad import LiveLaunchpad
from albor_tui.model.source import LiveSource
from albor_tui.model.views import ViewKeeper
from albor_tui.screens.base.polling_screen import PollingScreen
from albor_tui.screens.too_small import TooSmallScreen, is_too_small
from albor_tui.terminal.link import LinkDriver
from albor_tui.terminal.stylesheet import KeptStylesheet
from albor_tui.terminal.textual_private import (
    draw_scroll_bars_with,
    remember_tints,
    write_to_terminal,
)
from albor_tui.widgets.base.error_boundary import ErrorBoundary
from albor_tui.widgets.base.scroll_bar import FittingBar
from albor_tui.widgets.key_bar import key_name

if TYPE_CHECKING:
    from albor_tui.screens.run import RunScreen
    from albor_tui.screens.runs.screen import RunsScreen

_DARK_S = 0.4  # the first frame comes then, with or without what it is to show
_SETTLED_S = 1.5
_AGAIN_S = 0.5  # until a problem is told that there was no line for
_GARBAGE = 50_000  # objects between collections: Python's 700 are met several times a frame
_ASCII_ONLY = AsciiOnly()
_NEXT = (  # what the next keys open
    *("runs.screen", "run", "attention", "diff", "andon", "launch", "data.screen"),
    *(f"dialogs.{name}" for name in ("help", "prompt", "confirm", "alert_choice")),
)
_MOVES = ("move(", "columns(", "page(", "shift(", "turn(", "app.focus_")  # quicker done than found
_TEXTUALS = ("screen.copy_text", "quit", "command_palette", "theme")  # or said otherwise


def _actions_in_palette() -> type[Provider]:
    from albor_tui.palette import ActionsProvider

    return ActionsProvider


def _runs_in_palette() -> type[Provider]:
    from albor_tui.palette import RunsProvider

    return RunsProvider


def _places_in_palette() -> type[Provider]:
    from albor_tui.palette import PlacesProvider

    return PlacesProvider


def _views_in_palette() -> type[Provider]:
    from albor_tui.palette import ViewsProvider

    return ViewsProvider


class AlborApp(App[None]):
    """Shows what `source` knows. Given a run, it starts on that run's screen, on `tab` of it.

    What it does to runs goes through `desk` and `launchpad`; `read_only` ones refuse all of it.
    """

    TITLE = "albor"
    CSS_PATH = "albor.tcss"
    ENABLE_COMMAND_PALETTE = True
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (116, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-short"), (34, "-tall"), (42, "-high")]
    COMMANDS = {
        _actions_in_palette,
        _places_in_palette,
        _views_in_palette,
        _runs_in_palette,
    }  # not Textual's, which reads markup
    BINDINGS = [
        Binding("t", "theme", "Theme", show=False, tooltip="Next theme"),
        Binding("question_mark", "help", "Help", key_display="?", tooltip="This list"),
        Binding(
            "ctrl+z", "suspend_process", "Shell", show=False, tooltip="To the shell; fg comes back"
        ),
        Binding("q", "leave", "Quit", tooltip="Leave; runs go on"),
        Binding(
            "exclamation_mark",
            "attention",
            "Attention",
            key_display="!",
            show=False,
            tooltip="What needs you now",
        ),
        Binding("ctrl+c", "leave", "Quit", show=False, priority=True, system=True),
    ]

    attention: reactive[AttentionList] = reactive(
        AttentionList(is_complete=False), init=False, layout=False, repaint=False
    )
    """What needs a person now, of all runs: what the top bar of every screen shows."""

    def __init__(
        self,
        source: LiveSource,
        *,
        run: RunView | None = None,
        tab: str = "",
        theme: str = "dark",
        desk: LiveDesk | None = None,
        launchpad: LiveLaunchpad | None = None,
        views: ViewKeeper | None = None,
        read_only: bool = False,
    ) -> None:
        super().__init__()
        self.attended: Mapping[str, RunView] = {}  # runs at work, and those of entries
        self.lookout = Lookout(
            self, show=self._bring_attention, write=partial(write_to_terminal, self)
        )
        draw_scroll_bars_with(FittingBar)
        remember_tints()
        self.stylesheet: KeptStylesheet = KeptStylesheet(variables=self.get_css_variables())
        self.source = source
        self.colours = RunColours(albor_home() / COLOURS_FILE)
        self.desk = desk or LiveDesk()
        self.launchpad = launchpad or LiveLaunchpad()
        self.views = views or ViewKeeper()
        self._problem_to_tell = ""
        source.chosen = lambda: self.views.metrics
        self._first_run, self._first_tab = run, tab
        self.is_read_only = read_only
        self.signals_sent: dict[tuple[str, int | None], int] = {}  # see RunActionsScreen
        for look in themes.ALL:
            self.register_theme(look)
        self.theme = themes.NAMES[theme].name

    def get_driver_class(self) -> type[Driver]:
        """A link that never waits for the terminal; in a browser what textual-serve asks for."""
        return super().get_driver_class() if constants.DRIVER else LinkDriver

    def get_line_filters(self) -> Sequence[LineFilter]:
        """NO_COLOR on the terminal's own colours leaves them out. Textual chose greys before it
        knew the theme, and the grey of a default colour is black on black. Other themes name no
        colour of the terminal's, so there is none to translate in each line of each frame."""
        filters = [f for f in super().get_line_filters() if not isinstance(f, ANSIToTruecolor)]
        if glyphs.current.is_ascii:
            filters.append(_ASCII_ONLY)
        if not (self.no_color and self.native_ansi_color):
            return filters
        return [NoColor() if isinstance(one, Monochrome) else one for one in filters]

    def get_key_display(self, binding: Binding) -> str:
        """How a key is written: its name where Textual's sign for it is not in an ASCII look."""
        shown = super().get_key_display(binding)
        return shown if shown.isascii() or not glyphs.current.is_ascii else binding.key

    def get_css_variables(self) -> dict[str, str]:
        self.theme_variables = themes.variables(self.current_theme)
        return self.theme_variables

    def on_mount(self) -> None:
        run = self._first_run
        screen = _home() if run is None else self.run_screen(run, self._first_tab)
        screen.defer_first_frame(_DARK_S)
        self.push_screen(screen)
        self._cover_if_too_small(self.size)
        self.views.on_problem = partial(self.call_from_thread, self._tell_problem)
        if self.views.problem:
            self._tell_problem(self.views.problem)
        self.set_timer(_SETTLED_S, self._load_after_first_frame)

    def _tell_problem(self, problem: str) -> None:
        """Say it on the screen on top, once it is drawn and where it has a line for it."""
        self._problem_to_tell = problem
        self.screen.call_after_refresh(self._tell_on_top)

    def _tell_on_top(self) -> None:
        screen, problem = self.screen, self._problem_to_tell
        if not problem:
            return
        is_drawn = screen.is_mounted
        if is_drawn and isinstance(screen, PollingScreen) and screen.is_free_to_tell:
            screen.show_message(problem, "$warning")
            self._problem_to_tell = ""
        else:  # a dialog, or a terminal that is too small
            self.set_timer(_AGAIN_S, self._tell_on_top)

    def _bring_attention(self) -> None:
        """Open the list of what needs a person over the first screen, and say there what that one
        has just begun to say."""
        below = self.screen
        self.action_attention()
        if isinstance(below, PollingScreen) and below.withdraw_message(self.views.problem):
            self._tell_problem(self.views.problem)

    def on_unmount(self) -> None:
        self.lookout.stop()
        self.views.close()
        self.colours.close()

    @on(AttentionChanged)
    def take_attention(self, message: AttentionChanged) -> None:
        if not self.screen_stack:  # news on the way out
            return
        self.attended = {view.id: view for view in message.views}
        is_same = message.found == self.attention
        self.attention = message.found
        if is_same and isinstance(self.screen, PollingScreen):
            self.screen.runs_changed()
        self.lookout.take(message)

    def refresh_attention(self) -> None:
        """Show a new mark of an entry at once. Any thread."""
        self.lookout.hurry()
        for screen in self.screen_stack:
            if isinstance(screen, PollingScreen):
                screen.poll_now()

    def action_attention(self) -> None:
        """Open the list of what needs a person, or go back to it if it is below."""
        from albor_tui.screens.attention import AttentionScreen

        stack = self.screen_stack
        known = next((i for i, s in enumerate(stack) if isinstance(s, AttentionScreen)), None)
        if known is None:
            self.push_screen(AttentionScreen())
            return
        for _ in stack[known + 1 :]:
            self.pop_screen()

    def on_resize(self, event: Resize) -> None:
        if len(self.screen_stack) > 1:  # else nothing of ours is there yet
            self._cover_if_too_small(event.size)

    def _cover_if_too_small(self, size: Size) -> None:
        """Cover everything while the terminal is too small for it, and uncover it again."""
        is_covered = any(isinstance(screen, TooSmallScreen) for screen in self.screen_stack)
        if is_too_small(size) and not is_covered:
            self.push_screen(TooSmallScreen())
        elif not is_too_small(size) and isinstance(self.screen, TooSmallScreen):
            super().pop_screen()

    def _load_after_first_frame(self) -> None:
        """The first picture is there: load what the next keys need, and collect garbage again."""
        threading.Thread(target=self._load_the_rest, name="load", daemon=True).start()
        if self._first_run is not None:
            self.lookout.look_alone(self.source)

    def _load_the_rest(self) -> None:
        from albor_tui.model.loudness import loudness

        self.lookout.loudness = loudness()
        for name in _NEXT:
            importlib.import_module(f"albor_tui.screens.{name}")
        for look in themes.ALL:
            self.stylesheet.prepare(themes.variables(look))
        if not gc.isenabled():  # see main.py
            gc.freeze()  # what is loaded stays: a collection would only walk over it
            gc.set_threshold(_GARBAGE)
            gc.enable()

    def pop_screen(self) -> AwaitComplete:
        """Back; from the run that the cockpit began on to the list of runs."""
        if len(self.screen_stack) == 2 and self._first_run is not None:
            self._first_run = None
            self.lookout.stop()
            return self.switch_screen(_home())
        return super().pop_screen()

    def permits(self, action: str) -> bool:
        """Whether an action is not one of those that a read-only cockpit refuses."""
        return not (self.is_read_only and action in readonly.ACTING)

    def run_screen(self, view: RunView, tab: str = "") -> RunScreen:
        """The screen of a run, on one of its tabs, to be pushed."""
        from albor_tui.screens.run import RunScreen

        return RunScreen(view, tab or self.views.current.tab)

    def open_view(self, name: str) -> None:
        """Show a named view, on the list of runs or on the screen above it that it is of."""
        try:
            view = self.views.open(name)
        except AlborError as error:  # another cockpit removed it meanwhile
            if isinstance(self.screen, PollingScreen):
                self.screen.show_message(error.message, "$error")
            return
        if view.theme in themes.NAMES:
            self.theme = themes.NAMES[view.theme].name
        while len(self.screen_stack) > 2 and not self._is_home(self.screen):
            self.pop_screen()
        if self._is_home(self.screen):
            self.screen.show_current_view()
        else:  # the cockpit began on a run
            self.pop_screen()

    def _is_home(self, screen: Screen[Any]) -> TypeGuard[RunsScreen]:
        from albor_tui.screens.runs.screen import RunsScreen

        return isinstance(screen, RunsScreen)

    async def run_action(
        self,
        action: str | ActionParseResult,
        default_namespace: DOMNode | None = None,
        namespaces: Mapping[str, DOMNode] | None = None,
    ) -> bool:
        """Run the action of a key. If it fails, the widget that it belongs to shows the error
        (ErrorBoundary)."""
        self.lookout.somebody_acted()
        name = actions.parse(action)[1] if isinstance(action, str) else action[1]
        if not self.permits(name) and isinstance(self.screen, PollingScreen):
            self.screen.show_message(f"{readonly.WHY}: {readonly.HINT}", "$warning")
            return True
        try:
            return await super().run_action(action, default_namespace, namespaces)
        except Exception as error:
            walls = (
                node for node in (default_namespace, self.screen) if isinstance(node, ErrorBoundary)
            )
            owner = next(walls, None)
            if owner is None:
                raise
            owner.failed(action, error)
            return True

    def action_theme(self) -> None:
        names = [look.name for look in themes.ALL]
        at = names.index(self.theme) if self.theme in names else -1
        self._choose_theme(names[(at + 1) % len(names)])

    def _choose_theme(self, name: str) -> None:
        """Show a theme, and begin with it the next time."""
        self.theme = name
        short = next(short for short, look in themes.NAMES.items() if look.name == name)
        self.views.update(theme=short)

    def action_leave(self) -> None:
        self.exit()

    def action_help(self) -> None:
        from albor_tui.screens.dialogs.help import HelpScreen

        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(self.screen))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The palette: every action of the screen on top that does something now, once, in words
        that say what it does, and the themes."""
        told = set()
        for node, binding, enabled, _ in screen.active_bindings.values():
            action = binding.action
            is_ours = _is_command(binding) and action not in told and self.permits(action)
            below = screen if isinstance(screen, PollingScreen) else None
            is_ours = is_ours and (below is None or below.shows_key(action))
            if enabled and binding.description and is_ours:
                told.add(action)
                words = "" if below is None else below.effect_of(action)
                keys = key_name(self, binding)
                title = words or binding.tooltip or binding.description
                yield SystemCommand(title, f"key {keys}", self._runner(node, action))
        for name, look in themes.NAMES.items():
            if look.name == self.theme:
                continue
            yield SystemCommand(f"Theme: {name}", look.name, self._theme_setter(look.name))

    def _runner(self, owner: DOMNode, action: str) -> Any:
        async def run() -> None:
            await self.run_action(action, owner)

        return run

    def _theme_setter(self, name: str) -> Any:
        return partial(self._choose_theme, name)


def _is_command(binding: Binding) -> bool:
    """Whether a key of ours does something that the palette can say; others only move."""
    is_said = bool(binding.show or binding.tooltip) and not binding.action.startswith(_MOVES)
    return is_said and not binding.system and binding.action not in _TEXTUALS


def _home() -> RunsScreen:
    from albor_tui.screens.runs.screen import RunsScreen

    return RunsScreen()
