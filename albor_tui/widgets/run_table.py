"""The table of runs: one line each, drawn only where it is on the screen and only when it changed.

Ten thousand rows cost as much as thirty. Runs may stand in groups, each under a heading of its own:
a *line* of the table is a heading or a run.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import replace

from rich.segment import Segment
from textual import events
from textual.binding import Binding
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.style import Style

from albor_core.feed.view.run_view import RunView
from albor_core.run.light_dataclass import dataclass
from albor_tui.look import glyphs
from albor_tui.model.selection import RunSelection
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.cell_diff import line_regions
from albor_tui.widgets.base.error_boundary import ErrorBoundary
from albor_tui.widgets.run_columns import GAP, GUTTER, METRIC, layout, named, needs_of

AGES_S = 60.0  # between two looks at how long ago runs ended: each changed cell is bytes
now_wall = time.time  # replaced in tests


def _aged(view: RunView, now: float) -> RunView:
    """A run that is not alive with the age of its last news at `now`, never younger than it came:
    it is not polled any more."""
    if view.is_live or view.last_wall is None:
        return view
    age = max(now - view.last_wall, view.age_s or 0.0)
    return view if age == view.age_s else replace(view, age_s=age)


class RunTable(ErrorBoundary, ScrollView, can_focus=True):
    """Draws `runs`, says which row is under the cursor and which one was opened."""

    ALLOW_MAXIMIZE = False
    COMPONENT_CLASSES = {
        "run-table--cursor",
        "run-table--header",
        "run-table--row",
        "run-table--group",
    }
    BINDINGS = [
        Binding("up,k", "move(-1)", "Up", show=False, tooltip="Previous run"),
        Binding("down,j", "move(1)", "Down", show=False, tooltip="Next run"),
        Binding("pageup", "move(-10)", "Page up", show=False),
        Binding("pagedown", "move(10)", "Page down", show=False),
        Binding("home", "move(-1000000)", "First", show=False),
        Binding("end", "move(1000000)", "Last", show=False),
    ]
    runs: reactive[tuple[RunView, ...]] = reactive((), init=False, repaint=False)
    selection: reactive[RunSelection] = reactive(RunSelection(), init=False, repaint=False)
    sorted_by: reactive[str] = reactive("", init=False)
    cursor: reactive[int] = reactive(0, init=False, repaint=False)

    @dataclass
    class Highlighted(Message):
        """The cursor stands on this run; None when there is no row."""

        view: RunView | None

    @dataclass
    class Opened(Message):
        """This run was chosen."""

        view: RunView

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._by_id: dict[str, RunView] = {}
        self._needs = needs_of((), {})
        self._tails: Mapping[str, str] = {}
        self._groups: tuple[tuple[int, str], ...] = ()
        self._starts: list[int] = []  # index of the first run of each group
        self._heads: list[int] = []  # the line of each heading
        self._now = now_wall()  # of which the ages are
        self._is_in_view = True  # the cursor, until the user scrolls away from it

    def on_mount(self) -> None:
        self.set_interval(AGES_S, self.refresh_ages)

    def show(
        self,
        runs: tuple[RunView, ...],
        groups: tuple[tuple[int, str], ...] = (),
        tails: Mapping[str, str] | None = None,
    ) -> None:
        """These runs; `groups` are (index of the first run, title) in order, `tails` by id what
        stands behind a name that is not unique."""
        if (tails or {}) != self._tails:
            self._tails = tails or {}
            self.refresh()
        if groups != self._groups:
            self._groups = groups
            self._starts = [start for start, _ in groups]
            self._heads = [start + index for index, start in enumerate(self._starts)]
            self.refresh()
        self.runs = runs
        self._fit()
        if self._is_in_view:
            self.reveal()

    def _line_of(self, row: int) -> int:
        """The line, counted from the first below the header, on which a run stands."""
        return row + bisect_right(self._starts, row)

    def _row_at(self, line: int) -> int | None:
        """The run on a line; None for a heading."""
        above = bisect_right(self._heads, line)
        if above and self._heads[above - 1] == line:
            return None
        return line - above

    def _fit(self) -> None:
        self.virtual_size = Size(self._width, len(self.runs) + len(self._groups) + 1)

    @property
    def _width(self) -> int:
        """Cells beside the scrollbar."""
        return self.scrollable_content_region.width

    @property
    def current(self) -> RunView | None:
        """The run under the cursor."""
        return self.runs[self.cursor] if 0 <= self.cursor < len(self.runs) else None

    @property
    def acted_on(self) -> list[RunView]:
        """The marked runs of the list, else the one under the cursor."""
        return [self._by_id[run] for run in self.selection.acted_on]

    @property
    def visible_ids(self) -> frozenset[str]:
        """The runs on the screen, and a page around them."""
        page, line = max(1, self.content_size.height), round(self.scroll_y)
        top = line - bisect_right(self._heads, line)
        return frozenset(view.id for view in self.runs[max(0, top - page) : top + 2 * page])

    def watch_runs(self, old: tuple[RunView, ...], new: tuple[RunView, ...]) -> None:
        self._fit()
        needs = needs_of(new, self._tails)
        if needs != self._needs:
            self._needs = needs
            self.refresh()
        self._by_id = {view.id: view for view in new}
        listed = tuple(self._by_id)
        at = self.selection.index_in(listed, self.cursor)
        self.selection = replace(self.selection, listed=listed)
        if len(old) != len(new) or at != self.cursor:
            self.set_reactive(RunTable.cursor, at)
            self.refresh()
        else:
            for row, (before, after) in enumerate(zip(old, new, strict=True)):
                if before is not after and before != after:
                    self._refresh_cells(row, before, after)
        self._announce()

    def reveal(self) -> None:
        """Scroll as little as brings the cursor into view; a heading right above comes along."""
        if not self.runs:
            return
        self._is_in_view = True
        top, page = round(self.scroll_y), max(1, self.content_size.height - 1)
        line, wanted = self._line_of(self.cursor), top
        if line <= top:
            wanted = line - 1 if self._groups and self._row_at(line - 1) is None else line
        elif line >= top + page:
            wanted = line - page + 1
        if wanted != top:
            self.scroll_to(y=wanted, animate=False)

    def watch_selection(self, old: RunSelection, new: RunSelection) -> None:
        if old.marked != new.marked:
            self.refresh()

    def watch_cursor(self, old: int, new: int) -> None:
        self._refresh_rows([old, new])
        self._announce()

    def _announce(self) -> None:
        view = self.current
        self.selection = replace(self.selection, cursor=view.id if view else "")
        self.post_message(self.Highlighted(view))

    def _refresh_cells(self, row: int, before: RunView, after: RunView) -> None:
        width, y = self._width, self._line_of(row) - round(self.scroll_y) + 1
        if not 0 < y < self.content_size.height:
            return
        at_cursor = row == self.cursor
        now = self._now
        old, new = (self._line(_aged(view, now), width, at_cursor) for view in (before, after))
        if regions := line_regions(old, new, y, width):
            self.refresh(*regions)

    def refresh_ages(self) -> None:
        """Let the ages of ended runs be of now; only those that read differently are drawn."""
        before, self._now = self._now, now_wall()
        width, top = self._width, round(self.scroll_y)
        regions: list[Region] = []
        for y in range(1, self.content_size.height):
            row = self._row_at(y - 1 + top)
            if row is None or row >= len(self.runs) or self.runs[row].is_live:
                continue
            view, at_cursor = self.runs[row], row == self.cursor
            old, new = (self._line(_aged(view, t), width, at_cursor) for t in (before, self._now))
            regions += line_regions(old, new, y, width)
        if regions:
            self.refresh(*regions)

    def _refresh_rows(self, rows: list[int]) -> None:
        top, height = round(self.scroll_y), self.content_size.height
        regions = [
            Region(0, line - top + 1, self.size.width, 1)
            for line in map(self._line_of, rows)
            if 0 < line - top + 1 < height
        ]
        if regions:
            self.refresh(*regions)

    def action_move(self, by: int) -> None:
        if not self.runs:
            return
        self.cursor = min(max(0, self.cursor + by), len(self.runs) - 1)
        self.reveal()

    def on_click(self, event: events.Click) -> None:
        row = self._row_at(event.y - self.gutter.top - 1 + round(self.scroll_y))
        if event.y - self.gutter.top < 1 or row is None or not 0 <= row < len(self.runs):
            return
        if event.chain > 1:
            self.post_message(self.Opened(self.runs[row]))
        self.cursor = row

    def on_resize(self) -> None:
        self._fit()
        if self._is_in_view:
            self.reveal()
        self._announce()  # other rows are visible, which want their sparklines

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if round(old_value) != round(new_value):
            line = self._line_of(self.cursor) - round(new_value)
            self._is_in_view = 0 <= line < max(1, self.content_size.height - 1)
            self._announce()

    def render_line(self, y: int) -> Strip:
        width = self._width
        if y == 0:
            return self._strip(self._header(width), width, "run-table--header")
        line = y - 1 + round(self.scroll_y)
        row = self._row_at(line)
        if row is None:
            return self._strip(self._heading(line, width), width, "run-table--group")
        if row >= len(self.runs):
            return Strip.blank(width, self.rich_style)
        at_cursor = row == self.cursor
        drawn = self._line(_aged(self.runs[row], self._now), width, at_cursor)
        name = "run-table--cursor" if at_cursor else "run-table--row"
        return self._strip(drawn, width, name)

    def _heading(self, line: int, width: int) -> Content:
        title = self._groups[bisect_right(self._heads, line) - 1][1]
        return styled.fit(styled.text(f"  {title} ", "bold"), width)

    def _header(self, width: int) -> Content:
        gap = " " * GAP
        parts: list[Content | str] = [" " * GUTTER]
        for column, size in layout(width, self._needs):
            title = column.title
            if METRIC not in self._needs.absent:
                title = title.removeprefix("loss ")  # the trend is of the metric beside it
            cell = Content(title)
            if column.title == self.sorted_by:
                cell = Content.styled(title, "bold $accent")
            parts += [styled.fit(cell, size, column.align), gap]
        return Content.assemble(*parts)

    def _line(self, view: RunView, width: int, at_cursor: bool) -> Content:
        g, gap = glyphs.current, " " * GAP
        mark = Content(" ")
        if view.id in self.selection.marked:
            mark = Content.styled(g.selected, "$accent")
        elif view.is_pinned:
            mark = Content.styled(g.pin, "$secondary")
        edge = Content.styled(g.cursor, "$accent") if at_cursor else Content(" ")
        parts: list[Content | str] = [edge, mark, " " * (GUTTER - 2)]
        for column, size in layout(width, self._needs):
            tail = self._tails.get(view.id, "") if column.title == "run" else ""
            cell = named(view, tail, size) if tail else column.cell(view, size)
            parts += [styled.fit(cell, size, column.align), gap]
        return Content.assemble(*parts)

    def _strip(self, content: Content, width: int, component: str) -> Strip:
        style: Style = self.get_visual_style(component)
        cut = content.truncate(width, pad=True)
        segments = cut.render(style, end="", parse_style=self.app.stylesheet.parse_style)
        line = [Segment(text, (style + span).rich_style) for text, span in segments]
        return Strip(line).adjust_cell_length(width, style.rich_style)
