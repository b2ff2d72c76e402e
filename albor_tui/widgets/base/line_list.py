"""A list of lines with a cursor, drawn only where it is on the screen.

What a line looks like and which lines can be stood on is the subclass's business; a thousand lines
cost as much as thirty.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.segment import Segment
from textual import events
from textual.binding import Binding
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from albor_core.run.light_dataclass import dataclass
from albor_tui.look import glyphs
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.error_boundary import ErrorBoundary


class LineList(ErrorBoundary, ScrollView, can_focus=True):
    """Says which line the cursor stands on and which one was chosen."""

    ALLOW_MAXIMIZE = True
    COMPONENT_CLASSES = {"line-list--cursor", "line-list--row"}
    BINDINGS = [
        Binding("up,k", "move(-1)", "Up", show=False, tooltip="Previous line"),
        Binding("down,j", "move(1)", "Down", show=False, tooltip="Next line"),
        Binding("pageup", "move(-10)", "Page up", show=False),
        Binding("pagedown", "move(10)", "Page down", show=False),
        Binding("home", "move(-1000000)", "First", show=False),
        Binding("end", "move(1000000)", "Last", show=False),
    ]
    cursor: reactive[int] = reactive(0, init=False, repaint=False)

    @dataclass
    class Moved(Message):
        """The cursor stands on another line, or the lines changed under it."""

        sender: LineList

    @dataclass
    class Chosen(Message):
        """A line was clicked twice."""

        sender: LineList

    @property
    def _width(self) -> int:
        """Cells beside the scrollbar."""
        return self.scrollable_content_region.width

    def count(self) -> int:
        """How many lines there are."""
        raise NotImplementedError

    def draw_line(self, index: int, width: int) -> Content:
        """Draw the line `index` in at most `width` cells."""
        raise NotImplementedError

    def can_stand(self, index: int) -> bool:
        """Whether the cursor may stand there."""
        return True

    @property
    def shows_cursor(self) -> bool:
        """Whether the line that the cursor stands on is lit."""
        return True

    def lines_changed(self) -> None:
        """Call after the lines moved; the cursor stays where it may."""
        self.virtual_size = Size(self._width, self.count())
        self.set_reactive(LineList.cursor, self._near(self.cursor, 1))
        self.refresh()
        self.post_message(self.Moved(self))

    def redraw(self, indices: Iterable[int]) -> None:
        """Call after lines changed in place."""
        top, height, width = round(self.scroll_y), self.content_size.height, self.size.width
        lines = [Region(0, y - top, width, 1) for y in indices if 0 <= y - top < height]
        if lines:
            self.refresh(*lines)

    def watch_cursor(self, old: int, new: int) -> None:
        self.redraw((old, new))
        self.post_message(self.Moved(self))

    def action_move(self, by: int) -> None:
        if not self.count():
            return
        wanted = min(max(0, self.cursor + by), self.count() - 1)
        self.cursor = self._near(wanted, 1 if by > 0 else -1)
        top, page = round(self.scroll_y), max(1, self.content_size.height)
        if self.cursor <= top:
            above = self.cursor - 1
            shown = above if above >= 0 and not self.can_stand(above) else self.cursor
            self.scroll_to(y=shown, animate=False)
        elif self.cursor >= top + page:
            self.scroll_to(y=self.cursor - page + 1, animate=False)

    def _near(self, index: int, direction: int) -> int:
        """The next line in `direction` that can be stood on, else the next in the other."""
        last = self.count() - 1
        index = min(max(0, index), max(0, last))
        for step in (direction, -direction):
            at = index
            while 0 <= at <= last:
                if self.can_stand(at):
                    return at
                at += step
        return 0

    def on_click(self, event: events.Click) -> None:
        index = event.y - self.gutter.top + round(self.scroll_y)
        if 0 <= index < self.count() and self.can_stand(index):
            self.cursor = index
            if event.chain > 1:
                self.post_message(self.Chosen(self))

    def on_resize(self) -> None:
        self.virtual_size = Size(self._width, self.count())

    def on_focus(self) -> None:
        self.refresh()

    def on_blur(self) -> None:
        self.refresh()

    def render_line(self, y: int) -> Strip:
        width = self._width
        index = y + round(self.scroll_y)
        if index >= self.count() or width < 2:
            return Strip.blank(width, self.rich_style)
        at_cursor = index == self.cursor and self.shows_cursor and self.can_stand(index)
        style = self.get_visual_style("line-list--cursor" if at_cursor else "line-list--row")
        edge = Content.styled(glyphs.current.cursor, "$accent") if at_cursor else Content(" ")
        line = edge + styled.fit(self.draw_line(index, width - 1), width - 1)
        segments = line.render(style, end="", parse_style=self.app.stylesheet.parse_style)
        drawn = [Segment(text, (style + span).rich_style) for text, span in segments]
        return Strip(drawn).adjust_cell_length(width, style.rich_style)
