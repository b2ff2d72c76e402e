"""A scrollbar whose handle is where the view is, also when the bar appears after the scrolling.

Textual tells a scrollbar of scrolling only while it is shown. A log whose first lines fill more
than the screen has scrolled to its end by then, and the handle would stand at the top.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from textual.scroll_view import ScrollView
else:  # no widget of its own: Textual takes a class's styles and type from its first widget base
    ScrollView = object


class SyncedScrollbar(ScrollView):
    """Mix in before the widget class: `class LogTail(SyncedScrollbar, ScrollView)`."""

    def watch_show_vertical_scrollbar(self) -> None:
        self.call_after_refresh(self._place_thumb)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.call_after_refresh(self._place_thumb)

    def _place_thumb(self) -> None:
        if self.show_vertical_scrollbar:
            self.vertical_scrollbar.position = self.scroll_y
