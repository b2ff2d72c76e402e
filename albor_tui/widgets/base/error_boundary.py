"""The wall that keeps one broken widget from taking the cockpit down.

A widget behind it that fails to draw, or fails over a message, shows the error in its own place;
the rest goes on and the error is written down (error_log.py). It tries again with the next message
and the next repaint, so a value that passes leaves no scar.
"""

from __future__ import annotations

from rich.segment import Segment
from textual.content import Content
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip

from albor_core.run.values.clean import clean
from albor_tui.error_log import note
from albor_tui.terminal.textual_private import MessageGate

_CHARS = 300


def words_of(error: Exception) -> str:
    """An error as one harmless line."""
    return clean(f"{type(error).__name__}: {error}", limit=_CHARS)


class ErrorBoundary(MessageGate):
    """Mix in before the widget class: `class Chart(ErrorBoundary, Widget)`."""

    def broke(self, error: Exception) -> None:
        """Show that a message could not be dealt with. A widget with room for it overrides this;
        the least is a word in the frame."""
        self.border_subtitle = Content.styled(words_of(error), "$error")

    def render_lines(self, crop: Region) -> list[Strip]:
        """The widget's cells in `crop`, or the error in place of them."""
        try:
            return super().render_lines(crop)
        except Exception as error:  # the wall: see the module
            note(f"{type(self).__name__} cannot draw", error)
            return _excuse(f"cannot draw: {words_of(error)}", crop, self.outer_size.width)

    async def dispatch(self, message: Message) -> None:
        try:
            await super().dispatch(message)
        except Exception as error:  # the wall: see the module
            self.failed(message, error)

    def failed(self, over: object, error: Exception) -> None:
        """A message or an action could not be dealt with: log it, show it."""
        note(f"{type(self).__name__} failed over {over!r}"[:_CHARS], error)
        try:
            self.broke(error)
        except Exception as second:  # nowhere to show it: the log has it
            note(f"{type(self).__name__} cannot say so", second)


def _excuse(words: str, crop: Region, width: int) -> list[Strip]:
    """`words` on the first line of the widget, cut to the region that is wanted."""
    first = Strip([Segment(Content(words).truncate(width).plain)]).adjust_cell_length(width)
    lines = [first.crop(crop.x, crop.right) if y == 0 else Strip.blank(crop.width)
             for y in range(crop.y, crop.bottom)]  # fmt: skip
    return lines
