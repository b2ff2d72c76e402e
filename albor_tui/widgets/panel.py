"""A framed box that draws itself as text from one value.

A panel that fails to draw says so inside its own frame and the cockpit lives on; it redraws only
when what it would show differs, since every redrawn cell travels over the link.
"""

from __future__ import annotations

from textual import log
from textual.content import Content
from textual.widget import Widget

from albor_tui.widgets import meters
from albor_tui.widgets.dirty import changed_regions


class Panel(Widget, can_focus=True):
    """A titled frame round `draw(width, height)`. Subclasses hold their data in reactives made with
    `layout=False, repaint=False` and call `changed` when it moves."""

    ALLOW_MAXIMIZE = True
    HEADING = ""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.border_title = Content(self.HEADING)
        self._shown: Content | None = None

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

    def _attempt(self) -> Content:
        width, height = self.content_size
        if not width or not height:
            return Content("")
        try:
            return self.draw(width, height)
        except Exception as error:  # the barrier: one broken panel must not take the cockpit down
            log.error(f"{type(self).__name__} cannot draw: {error!r}")
            return meters.text(f"cannot draw: {type(error).__name__}: {error}", "$error")
