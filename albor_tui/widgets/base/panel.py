"""A framed box that draws itself as text from one value.

A panel that fails to draw says so inside its own frame and the cockpit lives on; it redraws only
what differs, since every redrawn cell travels over the link and every line costs as much as 50 of
them.
"""

from __future__ import annotations

from textual.content import Content
from textual.strip import Strip
from textual.visual import Visual
from textual.widget import Widget

from albor_tui.error_log import note
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.cell_diff import changed_regions
from albor_tui.widgets.base.error_boundary import ErrorBoundary, words_of


class Panel(ErrorBoundary, Widget, can_focus=True):
    """A titled frame round `draw(width, height)`. Subclasses hold their data in reactives made with
    `layout=False, repaint=False` and call `changed` when it moves."""

    ALLOW_MAXIMIZE = True
    HEADING = ""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.border_title = Content(self.HEADING)
        self._titled = Content(self.HEADING)
        self._shown: Content | None = None
        self._whole: Content | None = None  # what the parts are of
        self._parts: list[Content] = []
        self._lines: dict[int, Content] = {}  # as they were rendered
        self._strips: dict[int, Strip] = {}

    def allow_focus(self) -> bool:
        """Only with a frame, which shows the focus: a click on a strip leaves it where it was."""
        return super().allow_focus() and bool(self.styles.border)

    def entitle(self, title: Content) -> None:
        """Another title, if it is another: it costs the frame."""
        if not title.is_same(self._titled):
            self._titled = title
            self.border_title = Content.assemble(title)

    def draw(self, width: int, height: int) -> Content:
        """The content for this many cells. Pure: no queries, no I/O."""
        raise NotImplementedError

    def changed(self) -> None:
        """Draw again if the result is not what is on the screen."""
        fresh, old = self._attempt(), self._shown
        if old is None or not old.plain:
            self._shown = fresh
            self.refresh()
        elif not fresh.is_same(old):
            self._shown = fresh
            if regions := changed_regions(old, fresh, self.content_size.width):
                self.refresh(*regions)

    def on_resize(self) -> None:
        self._shown = self._attempt()
        self.refresh()

    def render(self) -> Content:
        if self._shown is None:
            self._shown = self._attempt()
        return self._shown

    def notify_style_update(self) -> None:
        self._strips.clear()
        super().notify_style_update()

    def render_line(self, y: int) -> Strip:
        """Render one line; Textual would render all lines for each dirty one."""
        lines, width = self._split(), self.content_size.width
        if any(line.cell_length > width for line in lines) or self.text_selection is not None:
            return super().render_line(y)
        if y >= len(lines):
            return Strip.blank(width, self.visual_style.rich_style)
        strip = self._strips.get(y)
        if strip is None or strip.cell_length != width or not lines[y].is_same(self._lines[y]):
            strip = Visual.to_strips(self, lines[y], width, 1, self.visual_style)[0]
            self._lines[y], self._strips[y] = lines[y], strip
        return strip

    def _split(self) -> list[Content]:
        shown = self.render()
        if self._whole is not shown:
            self._whole, self._parts = shown, shown.split("\n", allow_blank=True)
        return self._parts

    def _attempt(self) -> Content:
        width, height = self.content_size
        if not width or not height:
            return Content("")
        try:
            return self.draw(width, height)
        except Exception as error:  # the barrier: one broken panel must not take the cockpit down
            note(f"{type(self).__name__} cannot draw", error)
            return styled.text(f"cannot draw: {words_of(error)}", "$error")
