"""The end of a log: bounded, virtual, following until the reader scrolls up."""

from __future__ import annotations

import math
from collections import deque

from rich.segment import Segment
from textual.binding import Binding
from textual.content import Content
from textual.geometry import Size
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.scrollbar import ScrollBar
from textual.strip import Strip

from albor_core.run.values.clean import clean
from albor_tui.look import glyphs
from albor_tui.widgets.base.error_boundary import ErrorBoundary
from albor_tui.widgets.base.synced_scrollbar import SyncedScrollbar

KEPT_LINES = 2000
KEPT_STRIPS = 200  # what a screen shows, and some more
_CUT_COLUMNS = 1000  # text further right is not read, and a 16 KiB line would cost its full width

_ERROR_WORDS = ("error", "traceback", "exception", "fatal", "nan")
_WARNING_WORDS = ("warning", "warn", "skipped", "restart")


class LogTail(ErrorBoundary, SyncedScrollbar, ScrollView, can_focus=True):
    """Shows lines given to `add`. Raw text is made harmless here, whoever read it."""

    ALLOW_MAXIMIZE = True
    COMPONENT_CLASSES = {
        "log-tail--line",
        "log-tail--error",
        "log-tail--warning",
        "log-tail--empty",
    }
    BINDINGS = [
        Binding("k", "scroll_up", "Up", show=False),
        Binding("j", "scroll_down", "Down", show=False),
        Binding("end", "follow", "Follow", show=False, tooltip="Follow the log"),
    ]

    words: reactive[str] = reactive("loading", init=False)
    """What stands in place of lines."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.border_title = Content("log")
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._follows = True
        self._handle = 0  # of the scrollbar, in eighths of a cell
        self._strips: dict[tuple[str, str, int], Strip] = {}  # each line scrolls through all rows

    def add(self, lines: tuple[str, ...]) -> None:
        """Append lines; the oldest beyond KEPT_LINES go."""
        self._lines.extend(clean(line)[:_CUT_COLUMNS] for line in lines)
        self._grow(Size(max(1, self.content_size.width), len(self._lines)))
        if self._follows:
            self.scroll_end(animate=False, immediate=True, force=True)
        self.refresh()

    def _grow(self, size: Size) -> None:
        """Another number of lines. Only the scrollbar's arrival moves anything on the screen; a new
        layout for each line would be a third of what watching a run costs."""
        if not self.show_vertical_scrollbar:
            self.virtual_size = size
            return
        bar, page = self.vertical_scrollbar, self.content_size.height
        stays = self._follows and bar.position >= bar.validate_position(self.max_scroll_y)
        self.set_reactive(LogTail.virtual_size, size)
        bar.set_reactive(ScrollBar.window_virtual_size, size.height)
        if stays:  # its handle is at the end and looks the same until it is shorter
            bar.set_reactive(ScrollBar.position, bar.validate_position(self.max_scroll_y))
        handle = max(8, math.ceil(8 * page * page / max(1, size.height)))  # as Textual draws it
        if handle != self._handle or not stays:
            self._handle = handle
            bar.refresh()

    def action_follow(self) -> None:
        self._follows = True
        self.scroll_end(animate=False, force=True)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self._follows = new_value >= self.max_scroll_y - 1
        self.border_subtitle = None if self._follows else Content("end to follow")

    def on_resize(self) -> None:
        self.virtual_size = Size(max(1, self.content_size.width), len(self._lines))
        if self._follows:
            self.scroll_end(animate=False, force=True)

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width  # beside the bar, which would hide the mark
        row = y + round(self.scroll_y)
        if not self._lines and y == 0:
            return self._strip(self.words, "empty", width)
        if row >= len(self._lines):
            return Strip.blank(width, self.rich_style)
        line = self._lines[row]
        return self._strip(line, tone_of(line), width)

    def notify_style_update(self) -> None:
        self._strips.clear()
        super().notify_style_update()

    def _strip(self, line: str, name: str, width: int) -> Strip:
        strip = self._strips.get((line, name, width))
        if strip is None:
            if len(self._strips) >= KEPT_STRIPS:
                self._strips.clear()
            strip = self._strips[line, name, width] = self._drawn(line, name, width)
        return strip

    def _drawn(self, line: str, name: str, width: int) -> Strip:
        style = self.get_component_rich_style(f"log-tail--{name}")
        shown = Content(line)
        if shown.cell_length > width:
            shown = shown.truncate(max(0, width - 1)) + glyphs.current.ellipsis
        return Strip([Segment(shown.plain, style)]).adjust_cell_length(width, style)


def tone_of(line: str) -> str:
    """The kind of a line by its words: error, warning or line."""
    words = line[:200].lower()
    if any(word in words for word in _ERROR_WORDS):
        return "error"
    return "warning" if any(word in words for word in _WARNING_WORDS) else "line"
