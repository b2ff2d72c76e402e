"""The table of runs: one line each, drawn only where it is on the screen and only when it changed.

Ten thousand rows cost as much as thirty. Runs may stand in groups, each under a heading of its own
on which the cursor can stand: a *line* of the table is a heading or a run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import field, replace

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
from albor_tui.widgets.run_columns import (
    COLUMNS,
    GAP,
    GUTTER,
    METRIC,
    ColumnLayout,
    TableColumn,
    TableNeeds,
    layout,
    named,
    needs_of,
)
from albor_tui.widgets.run_list.lines import GroupLine, GroupLines, LineMap

AGES_S = 60.0  # between two looks at how long ago runs ended: each changed cell is bytes
now_wall = time.time  # replaced in tests


def _aged(view: RunView, now: float) -> RunView:
    """A run that is not alive with the age of its last news at `now`, never younger than it came:
    it is not polled any more."""
    if view.is_live or view.last_wall is None:
        return view
    age = max(now - view.last_wall, view.age_s or 0.0)
    return view if age == view.age_s else replace(view, age_s=age)


@dataclass(frozen=True)
class _Picture:
    """All that the lines are drawn of, beside the cursor and the marks."""

    runs: tuple[RunView, ...] = ()
    groups: GroupLines = GroupLines()
    tails: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[TableColumn, ...] = COLUMNS
    needs: TableNeeds = needs_of((), {})
    lines: LineMap = LineMap()
    layout: ColumnLayout = ColumnLayout(())
    width: int = 0  # for which it is laid out

    @property
    def frame(self) -> object:
        """What moves cells of other lines than its own."""
        shown = [(one.key, one.title, one.align, width) for one, width in self.layout.shown]
        sides = (self.layout.left, self.layout.right)
        heads = (self.groups.titles, self.groups.widths if self.groups.lines else ())
        return shown, sides, heads, self.lines.heads, self.tails


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
        Binding("right", "columns(1)", "Right", show=False, tooltip="Columns that do not fit"),
        Binding("left", "columns(-1)", "Left", show=False, tooltip="Columns back to the left"),
    ]
    selection: reactive[RunSelection] = reactive(RunSelection(), init=False, repaint=False)
    sorted_by: reactive[str] = reactive("", init=False)
    is_rising: reactive[bool] = reactive(True, init=False)
    cursor: reactive[int] = reactive(0, init=False, repaint=False)
    """The line that it stands on."""

    @dataclass
    class Highlighted(Message):
        """The cursor stands on this run, or on the heading above it; None when there is none."""

        view: RunView | None

    @dataclass
    class Opened(Message):
        """This run was chosen."""

        view: RunView

    @dataclass
    class HeadClicked(Message):
        """The head of this column was clicked."""

        key: str

    @dataclass
    class GroupToggled(Message):
        """The heading of this group was chosen: it is to fold, or to unfold."""

        label: str

    @dataclass
    class ColumnsScrolled(Message):
        """Other columns are shown."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._by_id: dict[str, RunView] = {}
        self._now = now_wall()  # of which the ages are
        self._first = 0  # of the columns that can be scrolled, the one that is shown first
        self._label = ""  # of the group that the cursor stands on
        self._is_in_view = True  # the cursor, until the user scrolls away from it
        self._is_left_behind = False  # by another order, whose first lines are shown
        self.is_moved = False
        """Whether the user moved the cursor since the runs came."""
        self._is_first = False  # whether the cursor stays on the first line, whichever run is there
        self._shown = _Picture()

    @property
    def runs(self) -> tuple[RunView, ...]:
        """All runs that are listed, those of folded groups too."""
        return self._shown.runs

    @property
    def groups(self) -> GroupLines:
        """The headings."""
        return self._shown.groups

    @property
    def lines(self) -> int:
        """How many lines there are, headings and runs."""
        return self._shown.lines.count

    @property
    def hidden_columns(self) -> tuple[int, int]:
        """How many columns are to the left and to the right of those that fit."""
        if self.groups.is_folded:
            return 0, 0
        if self._width != self._shown.width:
            self._lay_out()
        return self._shown.layout.left, self._shown.layout.right

    def on_mount(self) -> None:
        self.set_interval(AGES_S, self.refresh_ages)

    def show(
        self,
        runs: tuple[RunView, ...],
        groups: GroupLines | None = None,
        tails: Mapping[str, str] | None = None,
        columns: tuple[TableColumn, ...] = COLUMNS,
    ) -> None:
        """These runs under these headings; `tails` by id what stands behind a name that is not
        unique."""
        before, groups, tails = self._shown, groups or GroupLines(), tails or {}
        needs = before.needs
        if runs is not before.runs or tails != before.tails or columns is not before.columns:
            needs = needs_of(runs, tails, columns)
        lines = LineMap.from_groups(groups.lines, len(runs))
        at = 0 if self._is_first else self._line_again(before, runs, lines)
        width = self._width
        laid_out = layout(width, needs, columns, first=self._first, sorted_by=self.sorted_by)
        self._shown = _Picture(runs, groups, tails, columns, needs, lines, laid_out, width)
        if runs is not before.runs:
            self._by_id = {view.id: view for view in runs}
            self.selection = replace(self.selection, listed=tuple(self._by_id))
        self._fit()
        if at != self.cursor or self._shown.frame != before.frame or len(runs) != len(before.runs):
            self.set_reactive(RunTable.cursor, at)
            self.refresh()
        else:
            self._refresh_changed(before)
        self._announce()
        if self._is_in_view and not self._is_left_behind:
            self.reveal()

    def show_first(self, *, is_new: bool = False) -> None:
        """Show the first lines, which another order has brought there. The cursor stays on its run,
        unless the user never moved it, or the list `is_new`."""
        self.is_moved &= not is_new
        self._is_first = not self.is_moved
        self.cursor = 0 if self._is_first else self.cursor
        self.scroll_to(y=0, animate=False)
        self._is_left_behind = self.cursor >= self._page
        self._is_in_view = not self._is_left_behind

    def _line_again(self, before: _Picture, runs: tuple[RunView, ...], lines: LineMap) -> int:
        """The line on which the run or the heading under the cursor stands now."""
        if self._label:
            labels = [group.label for group in lines.groups]
            if self._label in labels:
                return lines.heads[labels.index(self._label)]
        elif self.selection.cursor:
            row = before.lines.row_at(self.cursor)
            if row is not None and row < len(runs) and runs[row].id == self.selection.cursor:
                return lines.line(row)
            for at, view in enumerate(runs):
                if view.id == self.selection.cursor:
                    return lines.line(at)
        return min(self.cursor, max(0, lines.count - 1))

    def _fit(self) -> None:
        self.virtual_size = Size(self._width, self._shown.lines.count + 1)

    @property
    def _width(self) -> int:
        """Cells beside the scrollbar."""
        return self.scrollable_content_region.width

    @property
    def _page(self) -> int:
        """Lines below the header."""
        return max(1, self.content_size.height - 1)

    @property
    def current(self) -> RunView | None:
        """The run under the cursor; None on a heading."""
        row = self._shown.lines.row_at(self.cursor)
        return None if row is None or row >= len(self.runs) else self.runs[row]

    @property
    def heading(self) -> GroupLine | None:
        """The heading under the cursor."""
        at = self._shown.lines.group_at(self.cursor)
        return None if at is None else self._shown.groups.lines[at]

    @property
    def under_cursor(self) -> tuple[RunView, ...]:
        """The run under the cursor, or all those of the group whose heading it stands on."""
        if (group := self.heading) is not None:
            return self.runs[group.start : group.start + group.count]
        return () if self.current is None else (self.current,)

    @property
    def acted_on(self) -> list[RunView]:
        """The marked runs of the list, else the one under the cursor."""
        return [self._by_id[run] for run in self.selection.acted_on]

    @property
    def runs_in_view(self) -> tuple[RunView, ...]:
        """The runs on the screen, and the first of each group whose heading is."""
        top = round(self.scroll_y)
        return self._between(top, top + self._page + 1)

    @property
    def visible_ids(self) -> frozenset[str]:
        """The runs on the screen, and a page around them."""
        page, top = max(1, self.content_size.height), round(self.scroll_y)
        return frozenset(view.id for view in self._between(top - page, top + 2 * page))

    def _between(self, first: int, end: int) -> tuple[RunView, ...]:
        lines, found = self._shown.lines, []
        for line in range(max(0, first), min(end, lines.count)):
            row, at = lines.row_at(line), lines.group_at(line)
            row = lines.groups[at].start if at is not None else row
            if row is not None and row < len(self.runs):
                found.append(self.runs[row])
        return tuple(found)

    def reveal(self) -> None:
        """Scroll as little as brings the cursor into view; a heading right above comes along."""
        if not self._shown.lines.count:
            return
        self._is_in_view, self._is_left_behind = True, False
        top, page = round(self.scroll_y), self._page
        line, wanted = self.cursor, top
        if line <= top:
            is_headed = line > 0 and self._shown.lines.group_at(line - 1) is not None
            wanted = line - 1 if is_headed else line
        elif line >= top + page:
            wanted = line - page + 1
        if wanted != top:
            self.scroll_to(y=wanted, animate=False)

    def watch_selection(self, old: RunSelection, new: RunSelection) -> None:
        if old.marked != new.marked:
            self.refresh()

    def watch_cursor(self, old: int, new: int) -> None:
        self._refresh_lines([old, new])
        self._announce()

    def _announce(self) -> None:
        view, group = self.current, self.heading
        self._label = "" if group is None else group.label
        self.selection = replace(self.selection, cursor=view.id if view else "")
        shown = self.under_cursor[:1]
        self.post_message(self.Highlighted(shown[0] if shown else None))

    def _refresh_changed(self, before: _Picture) -> None:
        """Draw the cells of lines that say something else than they did."""
        width, top = self._width, round(self.scroll_y)
        is_alike = before.columns is self._shown.columns
        regions: list[Region] = []
        for y in range(1, self.content_size.height):
            line = y - 1 + top
            row = self._shown.lines.row_at(line)
            if row is not None and is_alike and before.runs[row] is self.runs[row]:
                continue
            old, new = (self._drawn(picture, line, width) for picture in (before, self._shown))
            if old is not None and new is not None:
                regions += line_regions(old, new, y, width)
        if before.columns is not self._shown.columns:
            regions.append(Region(0, 0, width, 1))
        if regions:
            self.refresh(*regions)

    def refresh_ages(self) -> None:
        """Let the ages of ended runs be of now; only those that read differently are drawn."""
        before, self._now = self._now, now_wall()
        width, top = self._width, round(self.scroll_y)
        regions: list[Region] = []
        for y in range(1, self.content_size.height):
            row = self._shown.lines.row_at(y - 1 + top)
            if row is None or row >= len(self.runs) or self.runs[row].is_live:
                continue
            view, at_cursor = self.runs[row], y - 1 + top == self.cursor
            old, new = (
                self._line(_aged(view, t), width, at_cursor, self._shown)
                for t in (before, self._now)
            )
            regions += line_regions(old, new, y, width)
        if regions:
            self.refresh(*regions)

    def _refresh_lines(self, lines: list[int]) -> None:
        top, height = round(self.scroll_y), self.content_size.height
        regions = [
            Region(0, line - top + 1, self.size.width, 1)
            for line in lines
            if 0 < line - top + 1 < height
        ]
        if regions:
            self.refresh(*regions)

    def action_move(self, by: int) -> None:
        count = self._shown.lines.count
        if not count:
            return
        start = self.cursor
        if self._is_left_behind and abs(by) < count:  # to where the user looks
            top = round(self.scroll_y)
            start = top - 1 if by > 0 else top + self._page
        self.is_moved, self._is_first = True, False
        self.cursor = min(max(0, start + by), count - 1)
        self.reveal()

    def action_columns(self, by: int) -> None:
        """Show other columns, one further to the right or to the left."""
        left, right = self._shown.layout.left, self._shown.layout.right
        if (by > 0 and not right) or (by < 0 and not left):
            return
        self._first = left + by
        self._lay_out()
        self.refresh()
        self.post_message(self.ColumnsScrolled())

    def _lay_out(self) -> None:
        shown, width = self._shown, self._width
        laid_out = layout(
            width, shown.needs, shown.columns, first=self._first, sorted_by=self.sorted_by
        )
        self._first = laid_out.left
        self._shown = replace(shown, layout=laid_out, width=width)

    def on_click(self, event: events.Click) -> None:
        if event.y == self.gutter.top:
            self._click_head(event.x - self.gutter.left)
            return
        line = event.y - self.gutter.top - 1 + round(self.scroll_y)
        if event.y < self.gutter.top or not 0 <= line < self._shown.lines.count:
            return
        is_there, self.is_moved, self._is_first = line == self.cursor, True, False
        self._is_in_view, self._is_left_behind = True, False
        self.cursor = line
        if self.heading is not None:
            if is_there or event.chain > 1:
                self.post_message(self.GroupToggled(self.heading.label))
        elif event.chain > 1 and self.current is not None:
            self.post_message(self.Opened(self.current))

    def _click_head(self, x: int) -> None:
        if self._shown.groups.is_folded:
            return
        end = GUTTER - GAP
        for column, width in self._shown.layout.shown:
            end += width + GAP
            if x < end:
                self.post_message(self.HeadClicked(column.key))
                return

    def on_resize(self) -> None:
        self._fit()
        if self._is_in_view:
            self.reveal()
        self._announce()  # other rows are visible, which want their sparklines
        self.post_message(self.ColumnsScrolled())

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if round(old_value) != round(new_value):
            line = self.cursor - round(new_value)
            self._is_in_view = 0 <= line < self._page
            self._is_left_behind &= not self._is_in_view
            self._announce()

    def render_line(self, y: int) -> Strip:
        width = self._width
        if width != self._shown.width:  # a scroll bar came or went
            self._lay_out()
        if y == 0:
            return self._strip(self._header(width), width, "run-table--header")
        line = y - 1 + round(self.scroll_y)
        drawn = self._drawn(self._shown, line, width)
        if drawn is None:
            return Strip.blank(width, self.rich_style)
        name = "run-table--group" if self._shown.lines.group_at(line) is not None else ""
        name = "run-table--cursor" if line == self.cursor else name or "run-table--row"
        return self._strip(drawn, width, name)

    def _drawn(self, picture: _Picture, line: int, width: int) -> Content | None:
        """A line of a picture; None behind the last."""
        at_cursor = line == self.cursor
        if (at := picture.lines.group_at(line)) is not None:
            return self._heading(picture, at, width, at_cursor)
        row = picture.lines.row_at(line)
        if row is None or row >= len(picture.runs):
            return None
        return self._line(_aged(picture.runs[row], self._now), width, at_cursor, picture)

    def _heading(self, picture: _Picture, at: int, width: int, at_cursor: bool) -> Content:
        group, marked = picture.groups.lines[at], self.selection.marked
        runs = picture.runs[group.start : group.start + group.count] if marked else ()
        is_marked = bool(runs) and all(view.id in marked for view in runs)
        edge = Content.styled(glyphs.current.cursor, "$accent") if at_cursor else Content(" ")
        mark = Content.styled(glyphs.current.selected, "$accent") if is_marked else Content(" ")
        return edge + mark + " " + picture.groups.line(at, width - GUTTER)

    def _header(self, width: int) -> Content:
        shown = self._shown
        if shown.groups.is_folded:
            return Content(" " * GUTTER) + shown.groups.head(width - GUTTER)
        gap = " " * GAP
        parts: list[Content] = [Content(" " * GUTTER)]
        for column, size in shown.layout.shown:
            title = column.title
            if METRIC not in shown.needs.absent or not shown.needs.is_loss_trend:
                title = title.removeprefix("loss ")  # the trend is of another metric
            tone = "$ink-faint" if column.is_absent else ""
            cell = styled.fit_middle(styled.text(title, tone), size)
            if column.key == self.sorted_by:
                g = glyphs.current
                arrow = g.arrow_up if self.is_rising else g.arrow_down
                parts.append(self._sorted_head(parts, column, cell, size, arrow))
            else:
                parts.append(styled.fit(cell, size, column.align))
            parts.append(Content(gap))
        return Content("").join(parts)

    def _sorted_head(
        self, before: list[Content], column: TableColumn, title: Content, size: int, arrow: str
    ) -> Content:
        """A head with its arrow, which takes a cell of the gap where there is no other."""
        head = Content.styled(title.plain, "bold $accent")
        mark = Content.styled(arrow, "bold $accent")
        if column.align == "left":
            return styled.fit(head + mark if head.cell_length < size else head, size)
        if head.cell_length == size:
            before[-1] = before[-1][:-1]
        return styled.fit(mark + head, max(size, head.cell_length + 1), "right")

    def _line(self, view: RunView, width: int, at_cursor: bool, picture: _Picture) -> Content:
        g, gap = glyphs.current, " " * GAP
        mark = Content(" ")
        if view.id in self.selection.marked:
            mark = Content.styled(g.selected, "$accent")
        elif view.is_pinned:
            mark = Content.styled(g.pin, "$secondary")
        edge = Content.styled(g.cursor, "$accent") if at_cursor else Content(" ")
        parts: list[Content | str] = [edge, mark, " " * (GUTTER - 2)]
        for column, size in picture.layout.shown:
            tail = picture.tails.get(view.id, "") if column.key == "name" else ""
            cell = named(view, tail, size) if tail else column.cell(view, size)
            parts += [styled.fit(cell, size, column.align), gap]
        return Content.assemble(*parts)

    def _strip(self, content: Content, width: int, component: str) -> Strip:
        style: Style = self.get_visual_style(component)
        cut = content.truncate(width, pad=True)
        segments = cut.render(style, end="", parse_style=self.app.stylesheet.parse_style)
        line = [Segment(text, (style + span).rich_style) for text, span in segments]
        return Strip(line).adjust_cell_length(width, style.rich_style)
