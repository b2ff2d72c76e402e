"""What screens and widgets ask of the app that they are on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from textual.app import App
    from textual.screen import Screen

    from albor_core.feed.attention.item import AttentionList
    from albor_core.feed.view.run_view import RunView
    from albor_tui.look.run_colours import RunColours
    from albor_tui.model.desk import LiveDesk
    from albor_tui.model.launchpad import LiveLaunchpad
    from albor_tui.model.source import LiveSource
    from albor_tui.model.views import ViewKeeper


class Cockpit(Protocol):
    """The app."""

    source: LiveSource
    desk: LiveDesk
    launchpad: LiveLaunchpad
    views: ViewKeeper
    """What is shown, and the views that have a name."""
    attention: AttentionList
    attended: Mapping[str, RunView]
    """The runs at work and those of entries of attention, by id."""
    signals_sent: dict[tuple[str, int | None], int]
    """How many signals each unguarded program was sent, by run and process."""
    colours: RunColours
    """The colour, dash and letter of each run."""
    is_read_only: bool

    def permits(self, action: str) -> bool:
        """Whether an action is not one of those that a read-only cockpit refuses."""

    def refresh_attention(self) -> None:
        """Show a new mark of an attention entry at once. Any thread."""

    def open_view(self, name: str) -> None:
        """Show a named view, on the screen that it is of."""

    def run_screen(self, view: RunView, tab: str = "") -> Screen[Any]:
        """The screen of a run, on one of its tabs, to be pushed."""


def as_cockpit(app: App[Any]) -> Cockpit:
    """The app of a screen, as the cockpit that its screens may use."""
    return cast("Cockpit", app)
