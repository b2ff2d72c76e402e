"""Lines of text that scroll, drawn only where they changed."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from textual.binding import Binding
from textual.content import Content
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from albor_tui.widgets.base import styled
from albor_tui.widgets.base.cell_diff import line_regions
from albor_tui.widgets.base.error_boundary import ErrorBoundary


class ScrolledLines(ErrorBoundary, ScrollView, can_focus=True):
    """Shows what `show` was given; a line wider than the widget is cut. Subclasses that draw for a
    width override `resized`."""

    ALLOW_MAXIMIZE = True
    COMPONENT_CLASSES = {"scrolled-lines--line"}
    BINDINGS = [
        Binding("up,k", "scroll_up", "Up", show=False),
        Binding("down,j", "scroll_down", "Down", show=False),
    ]

    def __init__(self, heading: str = "", *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.border_title = Content(heading)
        self._lines: list[Content] = []
        self._drawn_width = 0

    @property
    def text(self) -> str:
        """The shown lines as plain text."""
        return "\n".join(line.plain.rstrip() for line in self._lines)

    @property
    def room(self) -> int:
        """Cells in a line."""
        return self.scrollable_content_region.width

    def show(self, lines: Sequence[Content]) -> None:
        """Replace the lines; those that look the same are not drawn again."""
        old, self._lines = self._lines, list(lines)
        width, top = self.room, round(self.scroll_y)
        if len(old) != len(self._lines):
            self.virtual_size = Size(width, len(self._lines))
            self.refresh()
            return
        for y, (before, after) in enumerate(zip(old, self._lines, strict=True)):
            at = y - top
            if 0 <= at < self.content_size.height and not before.is_same(after):
                pair = styled.fit(before, width), styled.fit(after, width)
                if regions := line_regions(*pair, at, width):
                    self.refresh(*regions)

    def resized(self, width: int) -> None:
        """The widget is `width` cells wide now: `show` what fits."""

    def on_resize(self) -> None:
        if self.room != self._drawn_width:
            self._drawn_width = self.room
            self.resized(self.room)
        self.virtual_size = Size(self.room, len(self._lines))

    def render_line(self, y: int) -> Strip:
        width, index = self.room, y + round(self.scroll_y)
        style = self.get_visual_style("scrolled-lines--line")
        if index >= len(self._lines) or width < 1:
            return Strip.blank(width, style.rich_style)
        line = styled.fit(self._lines[index], width)
        segments = line.render(style, end="", parse_style=self.app.stylesheet.parse_style)
        drawn = [Segment(text, (style + span).rich_style) for text, span in segments]
        return Strip(drawn).adjust_cell_length(width, style.rich_style)
