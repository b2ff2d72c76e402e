"""A whole log, of which only what is on the screen is ever held: it says which lines it needs.

Follows the end until the reader goes up. Between the log's lines and the edges of the scroll stand
a line that says how the attempt began and one that says how it ended.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from rich.segment import Segment
from textual.binding import Binding
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from albor_core.feed.archive.log_file import LogName, LogWindow
from albor_core.run.status import LOADING
from albor_core.run.values.clean import clean
from albor_tui.look import glyphs, quantity
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.error_boundary import ErrorBoundary
from albor_tui.widgets.base.synced_scrollbar import SyncedScrollbar
from albor_tui.widgets.run.log_tail import tone_of

_SHIFT = 20  # columns that left and right move by


@dataclass(frozen=True)
class Need:
    """The lines that a view wants: `top` None means the last ones of the newest text."""

    name: LogName | None
    top: int | None
    count: int
    needle: str = ""


class LogView(ErrorBoundary, SyncedScrollbar, ScrollView, can_focus=True):
    """Draws the window it was given; posts `Needs` when it wants another."""

    ALLOW_MAXIMIZE = True
    COMPONENT_CLASSES = {
        "log-tail--line", "log-tail--error", "log-tail--warning", "log-tail--empty",
    }  # fmt: skip
    BINDINGS = [
        Binding("k", "scroll_up", "Up", show=False),
        Binding("j", "scroll_down", "Down", show=False),
        Binding("left", f"shift(-{_SHIFT})", "Left", show=False),
        Binding("right", f"shift({_SHIFT})", "Right", show=False),
        Binding("end", "follow", "End", show=False),
    ]

    @dataclass
    class Needs(Message):
        """Other lines are on the screen now."""

        need: Need

        def can_replace(self, message: Message) -> bool:
            return isinstance(message, LogView.Needs)

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.window = LogWindow()
        self.follows = True
        self.needle = ""
        self.name_wanted: LogName | None = None
        self._edges = ("", "")
        self._shift = 0
        self._seek = False  # go to a match as soon as there is one
        self._match: int | None = None
        self._titled: tuple[object, ...] = ()

    # -- what is known -------------------------------------------------------------------------

    def show(self, window: LogWindow, edges: tuple[str, str]) -> None:
        """Lines have come. `edges` say how the attempt began and, "" while it lives, ended."""
        if window.generation != self.window.generation or window.name != self.window.name:
            self._match = None
        self.window, self._edges = window, edges
        self.virtual_size = Size(max(1, self._room), self._rows)
        if self.follows:
            self.scroll_end(animate=False, immediate=True, force=True)
        if self._seek and window.needle == self.needle and window.matches:
            self._seek = False
            self._go_to(self._nearest())
        self._title()
        self.refresh()
        self._want()

    @property
    def _room(self) -> int:
        return self.scrollable_content_region.width

    @property
    def _rows(self) -> int:
        return 0 if self.window.name is None else self.window.total + 1 + bool(self._edges[1])

    @property
    def need(self) -> Need:
        """The lines that the view needs now."""
        height = max(1, self.content_size.height)
        if self.follows:
            return Need(self.name_wanted, None, height, self.needle)
        first = max(0, round(self.scroll_y) - 1 - height)
        return Need(self.window.name, first, 3 * height, self.needle)

    def _want(self) -> None:
        window, height = self.window, max(1, self.content_size.height)
        first = max(0, round(self.scroll_y) - 1)
        last = min(first + height, window.total)
        held = (window.top, window.top + len(window.lines))
        is_held = held[0] <= first and last <= held[1]
        if window.needle != self.needle or not is_held or not window.names:
            self.post_message(self.Needs(self.need))

    def ask_again(self) -> None:
        """Want what is on the screen, whatever is held."""
        self.post_message(self.Needs(self.need))

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if self.follows and new_value < old_value and new_value < self.max_scroll_y - 0.5:
            self.follows = False
            self.ask_again()
        self._want()
        self._title()

    def on_resize(self) -> None:
        self.virtual_size = Size(max(1, self._room), self._rows)
        if self.follows:
            self.scroll_end(animate=False, immediate=True, force=True)
        self.ask_again()

    # -- what can be done ----------------------------------------------------------------------

    def action_follow(self) -> None:
        self.follows = True
        self.scroll_end(animate=False, immediate=True, force=True)
        self._title()
        self.ask_again()

    def action_shift(self, by: int) -> None:
        widest = max((len(line) for line in self.window.lines), default=0)
        self._shift = min(max(0, self._shift + by), max(0, widest - _SHIFT))
        self.refresh()

    def turn(self, by: int) -> bool:
        """Go to the log before (-1) or after (1) this one; False where there is none."""
        names = self.window.names
        if self.window.name not in names:
            return False
        at = names.index(self.window.name) + by
        if not 0 <= at < len(names):
            return False
        self.name_wanted = None if at == len(names) - 1 else names[at]
        self.follows, self._match = True, None
        self.ask_again()
        return True

    def search(self, needle: str) -> None:
        """Look for other words; the screen goes to the nearest line that holds them."""
        if needle == self.needle:
            return
        self.needle, self._match, self._seek = needle, None, bool(needle)
        self._title()
        self.refresh()
        self.ask_again()

    def next_match(self, by: int) -> bool:
        """The match after (1) or before (-1), round the end; False where there is none."""
        matches = self.window.matches
        if not self.needle or not matches:
            return False
        if self._match is None:
            self._go_to(self._nearest())
            return True
        at = bisect_left(matches, self._match)
        is_on = at < len(matches) and matches[at] == self._match
        at = at + by if is_on else (at if by > 0 else at - 1)
        self._go_to(matches[at % len(matches)])
        return True

    def _nearest(self) -> int:
        """The last match on or above the last line of the screen; where there is none, the next."""
        matches = self.window.matches
        bottom = round(self.scroll_y) - 1 + self.content_size.height
        at = bisect_right(matches, bottom)
        return matches[max(0, at - 1)]

    def _go_to(self, line: int) -> None:
        self._match = line
        height = self.content_size.height
        row, top = line + 1, round(self.scroll_y)
        if not top <= row < top + height:
            if row < self.max_scroll_y:
                self.follows = False
            self.scroll_to(y=max(0, row - height // 2), animate=False, immediate=True, force=True)
        self._title()
        self.refresh()
        self._want()

    # -- how it looks --------------------------------------------------------------------------

    def _title(self) -> None:
        """Only when it says something else: a border costs its whole width on the link."""
        window = self.window
        if window.name is None:
            title, sub = Content("log"), Content("")
        else:
            part = f" part {window.name.part}" if window.name.part else ""
            count = f"{window.total:,}{'+' if window.is_partial else ''}"
            title = Content.assemble(
                ("log ", "bold $ink"),
                (f"attempt {window.name.attempt}{part}", "$ink"),
                (f"   {count} lines   {quantity.byte_size(window.num_bytes)}", "$ink-muted"),
            )
            end = "the end" if self._edges[1] else "following"
            sub = self._found() + Content.styled(
                end if self.follows else "f goes to the end", "$success" if self.follows else ""
            )
        mark = (title.plain, sub.plain)
        if mark != self._titled:
            self._titled = mark
            self.border_title = Content.assemble(title)
            self.border_subtitle = Content.assemble(sub)

    def _found(self) -> Content:
        if not self.needle:
            return Content("")
        window = self.window
        more = "+" if window.is_partial or window.needle != self.needle else ""
        many = len(window.matches) if window.needle == self.needle else 0
        at = ""
        if self._match is not None and many:
            at = f"{bisect_left(window.matches, self._match) + 1:,} of "
        words = clean(self.needle, limit=20)
        tone = "$warning" if many or more else "$error"
        return Content.assemble((f"{words}: {at}{many:,}{more} lines   ", tone))

    def render_line(self, y: int) -> Strip:
        width, row = self._room, y + round(self.scroll_y)
        if self.window.name is None:
            return self._strip(Content(LOADING if y == 0 else ""), "empty", width)
        if row == 0 or (row == self.window.total + 1 and self._edges[1]):
            return self._strip(self._edge(row > 0, width), "empty", width)
        index = row - 1 - self.window.top
        if not 0 <= index < len(self.window.lines) or row > self.window.total:
            return Strip.blank(width, self.rich_style)
        text = self.window.lines[index]
        line = Content(text[self._shift :])
        if self.needle:
            line = marked(line, self.needle)
        strip = self._strip(line, tone_of(text), width)
        return strip

    def _edge(self, is_end: bool, width: int) -> Content:
        words = self._edges[is_end]
        rule = glyphs.current.rule
        text = Content.assemble(
            (f"{rule * 2} ", "$ink-faint"), styled.text(words, "$ink-muted"), " "
        )
        return text + Content.styled(rule * max(0, width - text.cell_length), "$ink-faint")

    def _strip(self, line: Content, name: str, width: int) -> Strip:
        style = self.get_visual_style(f"log-tail--{name}")
        segments = styled.fit(line, width).render(
            style, end="", parse_style=self.app.stylesheet.parse_style
        )
        drawn = [Segment(text, (style + span).rich_style) for text, span in segments]
        return Strip(drawn).adjust_cell_length(width, style.rich_style)


def marked(line: Content, needle: str) -> Content:
    """Every place of the needle in a line, in either case, lit."""
    low, find = line.plain.lower(), needle.lower()
    if not find or len(low) != len(
        line.plain
    ):  # a letter that is longer in lower case would shift the places
        return line
    at = low.find(find)
    while at >= 0:
        line = line.stylize("$background on $warning", at, at + len(find))
        at = low.find(find, at + len(find))
    return line
