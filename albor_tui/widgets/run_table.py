"""The table of runs: one line each, drawn only where it is on the screen and only when it changed.

Columns have priorities: as many as fit are shown, and the name takes the rest. Ten thousand rows
cost as much as thirty. Runs may stand in groups, each under a heading of its own: a *line* of the
table is a heading or a run.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

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

from albor_core.feed.view import RunView
from albor_core.run.headlines import HEADLINES, Headline
from albor_tui.look import figures, glyphs, quantity
from albor_tui.look.naming import name_of
from albor_tui.widgets.base import meters
from albor_tui.widgets.base.cell_diff import line_regions
from albor_tui.widgets.base.error_boundary import ErrorBoundary

_NAME_MIN, _NAME_MAX, _NAME_LIMIT, _GAP = 14, 48, 100, 2
_NAME_FIRST, _LUXURY = 28, 8  # so long a name comes before columns of such a rank
_BAR_MIN, _BAR_MAX, _TREND_MAX, _TREND_LIMIT = 10, 24, 32, 160
_GUTTER = 3  # cursor, mark, air
_MOST_NAMES = 0.9  # so many of the names are shown whole before bars get wider
AGES_S = 60.0  # between two looks at how long ago runs ended: each changed cell is bytes
now_wall = time.time  # replaced in tests


@dataclass(frozen=True)
class TableColumn:
    """How one fact of a run is shown. A lower `rank` gives way later; width excludes the gap."""

    title: str
    width: int
    rank: int
    cell: Callable[[RunView, int], Content]
    align: str = "right"


def _figure(value: str, view: RunView) -> Content:
    unknown = value == glyphs.current.missing
    odd = value in ("NaN", "inf", "-inf")
    tone = (
        "$error" if odd else "$ink-faint" if unknown else "$ink" if view.is_live else "$ink-muted"
    )
    return Content.styled(value, tone)


def _name(view: RunView, width: int) -> Content:
    return meters.fit_middle(meters.text(view.name or view.id, "$ink"), width)


def _named(view: RunView, tail: str, width: int) -> Content:
    """A name that others have too, and what tells it apart: the name gives way."""
    end = meters.text(f" {tail}", "$ink-muted")
    name = meters.text(view.name or view.id, "$ink")
    room = max(1, width - end.cell_length)
    return meters.fit_middle(name, room) + end


def _aged(view: RunView, now: float) -> RunView:
    """A run that is not alive with the age of its last news at `now`, never younger than it came:
    nobody polls it any more."""
    if view.is_live or view.last_wall is None:
        return view
    age = max(now - view.last_wall, view.age_s or 0.0)
    return view if age == view.age_s else replace(view, age_s=age)


def _progress(view: RunView, width: int) -> Content:
    if view.progress is None:
        done = glyphs.current.missing if view.step is None else _steps(view.step, width)
        return Content.styled((f"step {done}" if width >= 10 else done).rjust(width), "$ink-muted")
    tone = meters.STATE_TONE.get(view.status, "$ink-muted")
    share = Content.styled(quantity.percent(view.progress).rjust(4), "$ink-muted")
    bar = meters.bar(view.progress, width - 5, tone) if width >= _BAR_MIN else Content("")
    return Content(" ").join([bar, share]) if width >= _BAR_MIN else share


def _steps(step: int, width: int) -> str:
    """So many digits as fit: 1.23k, 1.2k."""
    done = quantity.si(step)
    if len(done) <= width or "." not in done:
        return done
    return f"{done[: width - 1].rstrip('.')}{done[-1]}"


def _alerts(view: RunView, width: int) -> Content:
    if not view.alerts_open:
        return Content.styled(glyphs.current.dot, "$ink-faint")
    tone = meters.SEVERITY_TONE.get(view.severity, "$warning")
    return Content.styled(f"{glyphs.current.alert} {min(view.alerts_open, 99)}", tone)


def _loss_line(view: RunView, width: int) -> Content:
    tone = "$line-main" if view.is_live else "$ink-faint"
    return meters.spark(view.loss_history, width, tone)


def _headline(one: Headline, rank: int) -> TableColumn:
    def cell(view: RunView, width: int) -> Content:
        return _figure(figures.text_of(one.unit, getattr(view, one.name)), view)

    title = one.title.removeprefix("val ")
    return TableColumn(title, figures.WIDTHS[one.unit], 1 if one.name == "loss" else rank, cell)


_LISTED = tuple(one for one in HEADLINES if one.is_listed)
COLUMNS = (
    TableColumn("state", 12, 0, lambda v, w: meters.state_of(v), "left"),
    TableColumn("run", _NAME_MIN, 0, _name, "left"),
    TableColumn("experiment", 11, 9, lambda v, w: meters.text(v.experiment, "$ink-muted"), "left"),
    TableColumn("done", 4, 3, _progress),
    TableColumn("loss trend", 16, 8, _loss_line, "left"),
    *(_headline(one, rank) for rank, one in enumerate(_LISTED, 3)),
    TableColumn("ends", 7, 2, meters.ends),
    TableColumn("alert", 5, 1, _alerts),
)


def layout(
    width: int, most_names: int = _NAME_MAX, longest_name: int = _NAME_MAX
) -> list[tuple[TableColumn, int]]:
    """The columns that fit into `width` cells, in order, each with its width.

    What is left over goes to the name as far as most names are long, then to a bar that is worth
    drawing, the trend, and longer names.
    """
    chosen = [c for c in COLUMNS if c.rank == 0]
    used = _GUTTER - _GAP + sum(c.width + _GAP for c in chosen)  # no gap after the last column
    name = max(0, min(most_names, _NAME_FIRST) - _NAME_MIN)
    for column in sorted((c for c in COLUMNS if c.rank), key=lambda c: c.rank):
        if used + column.width + _GAP + (name if column.rank >= _LUXURY else 0) <= width:
            chosen.append(column)
            used += column.width + _GAP
    spare = max(0, width - used)
    widths = {column.title: column.width for column in chosen}
    for title, most in (
        ("run", min(most_names, _NAME_MAX)),
        ("done", _BAR_MAX),
        ("loss trend", _TREND_MAX),
        ("run", min(longest_name, _NAME_LIMIT)),
        ("loss trend", _TREND_LIMIT),
    ):
        if title in widths and most > widths[title]:
            more = min(spare, most - widths[title])
            if title == "done" and widths[title] + more < _BAR_MIN:
                continue
            widths[title] += more
            spare -= more
    return [(c, widths[c.title]) for c in COLUMNS if c in chosen]


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
    selected: reactive[frozenset[str]] = reactive(frozenset(), init=False)
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
        self._cursor_id = ""
        self._most = self._longest = _NAME_MIN  # so long are most names, and the longest one
        self._tails: Mapping[str, str] = {}
        self._groups: tuple[tuple[int, str], ...] = ()
        self._starts: list[int] = []  # index of the first run of each group
        self._heads: list[int] = []  # the line of each heading
        self._now = now_wall()  # of which the ages are
        self._is_in_view = True  # the cursor, until somebody scrolls away from it

    def on_mount(self) -> None:
        self.set_interval(AGES_S, self.tell_ages)

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
    def visible_ids(self) -> frozenset[str]:
        """The runs on the screen, and a page around them."""
        page, line = max(1, self.content_size.height), round(self.scroll_y)
        top = line - bisect_right(self._heads, line)
        return frozenset(view.id for view in self.runs[max(0, top - page) : top + 2 * page])

    def watch_runs(self, old: tuple[RunView, ...], new: tuple[RunView, ...]) -> None:
        self._fit()
        lengths = sorted(len(name_of(view, self._tails)) for view in new) or [_NAME_MIN]
        most = lengths[int((len(lengths) - 1) * _MOST_NAMES)]
        if (most, lengths[-1]) != (self._most, self._longest):
            self._most, self._longest = most, lengths[-1]
            self.refresh()
        where = {view.id: i for i, view in enumerate(new)}
        at = where.get(self._cursor_id, min(self.cursor, max(0, len(new) - 1)))
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

    def watch_cursor(self, old: int, new: int) -> None:
        self._refresh_rows([old, new])
        self._announce()

    def _announce(self) -> None:
        view = self.current
        self._cursor_id = view.id if view else ""
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

    def tell_ages(self) -> None:
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
        return meters.fit(meters.text(f"  {title} ", "bold"), width)

    def _header(self, width: int) -> Content:
        gap = " " * _GAP
        parts: list[Content | str] = [" " * _GUTTER]
        for column, size in layout(width, self._most, self._longest):
            title = column.title
            cell = Content(title)
            if column.title == self.sorted_by:
                cell = Content.styled(title, "bold $accent")
            parts += [meters.fit(cell, size, column.align), gap]
        return Content.assemble(*parts)

    def _line(self, view: RunView, width: int, at_cursor: bool) -> Content:
        g, gap = glyphs.current, " " * _GAP
        mark = Content(" ")
        if view.id in self.selected:
            mark = Content.styled(g.selected, "$accent")
        elif view.is_pinned:
            mark = Content.styled(g.pin, "$secondary")
        edge = Content.styled(g.cursor, "$accent") if at_cursor else Content(" ")
        parts: list[Content | str] = [edge, mark, " " * (_GUTTER - 2)]
        for column, size in layout(width, self._most, self._longest):
            tail = self._tails.get(view.id, "") if column.title == "run" else ""
            cell = _named(view, tail, size) if tail else column.cell(view, size)
            parts += [meters.fit(cell, size, column.align), gap]
        return Content.assemble(*parts)

    def _strip(self, content: Content, width: int, component: str) -> Strip:
        style: Style = self.get_visual_style(component)
        cut = content.truncate(width, pad=True)
        segments = cut.render(style, end="", parse_style=self.app.stylesheet.parse_style)
        line = [Segment(text, (style + span).rich_style) for text, span in segments]
        return Strip(line).adjust_cell_length(width, style.rich_style)
