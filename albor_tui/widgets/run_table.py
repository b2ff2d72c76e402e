"""The table of runs: one line each, drawn only where it is on the screen and only when it changed.

Columns have priorities: as many as fit are shown, and the name takes the rest. Ten thousand rows
cost as much as thirty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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
from albor_tui import glyphs, quantity
from albor_tui.widgets import meters
from albor_tui.widgets.dirty import line_regions

_NAME_MIN, _NAME_MAX, _GAP = 14, 48, 2
_BAR_MAX, _TREND_MAX = 24, 32


@dataclass(frozen=True)
class Column:
    """How one fact of a run is shown. A lower `rank` gives way later; width excludes the gap."""

    title: str
    width: int
    rank: int
    cell: Callable[[RunView, int], Content]
    align: str = "right"


def _number(value: str, view: RunView) -> Content:
    unknown = value == glyphs.current.missing
    odd = value in ("NaN", "inf", "-inf")
    tone = (
        "$error" if odd else "$ink-faint" if unknown else "$ink" if view.is_live else "$ink-muted"
    )
    return Content.styled(value, tone)


def _progress(view: RunView, width: int) -> Content:
    if view.progress is None:
        done = glyphs.current.missing if view.step is None else quantity.si(view.step)
        return Content.styled((f"step {done}" if width >= 10 else done).rjust(width), "$ink-muted")
    tone = meters.STATE_TONE.get(view.status, "$ink-muted")
    share = Content.styled(quantity.percent(view.progress).rjust(5), "$ink-muted")
    return meters.bar(view.progress, width - 5, tone) + share if width >= 10 else share


def _alerts(view: RunView, width: int) -> Content:
    if not view.alerts_open:
        return Content.styled(glyphs.current.dot, "$ink-faint")
    tone = meters.SEVERITY_TONE.get(view.severity, "$warning")
    return Content.styled(f"{glyphs.current.alert} {min(view.alerts_open, 99)}", tone)


def _loss_line(view: RunView, width: int) -> Content:
    tone = "$line-main" if view.is_live else "$ink-faint"
    return meters.spark(view.loss_history, width, tone)


COLUMNS = (
    Column("state", 12, 0, lambda v, w: meters.state(v.status, v.phase), "left"),
    Column("run", _NAME_MIN, 0, lambda v, w: meters.text(v.name or v.id, "$ink"), "left"),
    Column("experiment", 12, 9, lambda v, w: meters.text(v.experiment, "$ink-muted"), "left"),
    Column("done", 5, 3, _progress),
    Column("loss trend", 16, 8, _loss_line, "left"),
    Column("loss", 7, 1, lambda v, w: _number(quantity.loss(v.loss), v)),
    Column("val ppl", 7, 4, lambda v, w: _number(quantity.ratio(v.val_ppl), v)),
    Column("tok/s", 5, 5, lambda v, w: _number(quantity.si(v.tokens_per_s), v)),
    Column("mfu", 5, 6, lambda v, w: _number(quantity.percent(v.mfu, 1), v)),
    Column("eta", 7, 2, lambda v, w: meters.eta(v)),
    Column("alrt", 4, 1, _alerts),
)


def layout(width: int, longest_name: int = _NAME_MAX) -> list[tuple[Column, int]]:
    """The columns that fit into `width` cells, in order, each with its width.

    What is left over goes to the name as far as names are long, then to bar and trend.
    """
    chosen = [c for c in COLUMNS if c.rank == 0]
    used = 2 - _GAP + sum(c.width + _GAP for c in chosen)  # no gap after the last column
    for column in sorted((c for c in COLUMNS if c.rank), key=lambda c: c.rank):
        if used + column.width + _GAP <= width:
            chosen.append(column)
            used += column.width + _GAP
    spare = max(0, width - used)
    widths = {column.title: column.width for column in chosen}
    for title, most in (
        ("run", min(longest_name, _NAME_MAX)),
        ("done", _BAR_MAX),
        ("loss trend", _TREND_MAX),
        ("run", _NAME_MAX),
    ):
        if title in widths and most > widths[title]:
            more = min(spare, most - widths[title])
            widths[title] += more
            spare -= more
    return [(c, widths[c.title]) for c in COLUMNS if c in chosen]


class RunTable(ScrollView, can_focus=True):
    """Draws `runs`, says which row is under the cursor and which one was opened."""

    ALLOW_MAXIMIZE = False
    COMPONENT_CLASSES = {"run-table--cursor", "run-table--header", "run-table--row"}
    BINDINGS = [
        Binding("up", "move(-1)", "Up", show=False, tooltip="Previous run"),
        Binding("down", "move(1)", "Down", show=False, tooltip="Next run"),
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
        self._longest = _NAME_MIN

    @property
    def current(self) -> RunView | None:
        """The run under the cursor."""
        return self.runs[self.cursor] if 0 <= self.cursor < len(self.runs) else None

    @property
    def visible_ids(self) -> frozenset[str]:
        """The runs on the screen, and a page around them."""
        top, page = round(self.scroll_y), max(1, self.content_size.height)
        return frozenset(view.id for view in self.runs[max(0, top - page) : top + 2 * page])

    def watch_runs(self, old: tuple[RunView, ...], new: tuple[RunView, ...]) -> None:
        self.virtual_size = Size(self.content_size.width, len(new) + 1)
        longest = max((len(view.name or view.id) for view in new), default=_NAME_MIN)
        if longest != self._longest:
            self._longest = longest
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

    def watch_cursor(self, old: int, new: int) -> None:
        self._refresh_rows([old, new])
        self._announce()

    def _announce(self) -> None:
        view = self.current
        self._cursor_id = view.id if view else ""
        self.post_message(self.Highlighted(view))

    def _refresh_cells(self, row: int, before: RunView, after: RunView) -> None:
        width, y = self.content_size.width, row - round(self.scroll_y) + 1
        if not 0 < y < self.content_size.height:
            return
        at_cursor = row == self.cursor
        old, new = (self._line(view, width, at_cursor) for view in (before, after))
        if regions := line_regions(old, new, y, width):
            self.refresh(*regions)

    def _refresh_rows(self, rows: list[int]) -> None:
        top, height = round(self.scroll_y), self.content_size.height
        regions = [
            Region(0, row - top + 1, self.size.width, 1)
            for row in rows
            if 0 < row - top + 1 < height
        ]
        if regions:
            self.refresh(*regions)

    def action_move(self, by: int) -> None:
        if not self.runs:
            return
        self.cursor = min(max(0, self.cursor + by), len(self.runs) - 1)
        top, page = round(self.scroll_y), max(1, self.content_size.height - 1)
        if self.cursor < top:
            self.scroll_to(y=self.cursor, animate=False)
        elif self.cursor >= top + page:
            self.scroll_to(y=self.cursor - page + 1, animate=False)

    def on_click(self, event: events.Click) -> None:
        row = event.y - self.gutter.top - 1 + round(self.scroll_y)
        if event.y - self.gutter.top < 1 or not 0 <= row < len(self.runs):
            return
        if event.chain > 1:
            self.post_message(self.Opened(self.runs[row]))
        self.cursor = row

    def on_resize(self) -> None:
        self.virtual_size = Size(self.content_size.width, len(self.runs) + 1)

    def render_line(self, y: int) -> Strip:
        width = self.content_size.width
        if y == 0:
            return self._strip(self._header(width), width, "run-table--header")
        row = y - 1 + round(self.scroll_y)
        if row >= len(self.runs):
            return Strip.blank(width, self.rich_style)
        at_cursor = row == self.cursor
        line = self._line(self.runs[row], width, at_cursor)
        name = "run-table--cursor" if at_cursor else "run-table--row"
        return self._strip(line, width, name)

    def _header(self, width: int) -> Content:
        gap = " " * _GAP
        parts: list[Content | str] = ["  "]
        for column, size in layout(width, self._longest):
            title = column.title
            cell = Content(title)
            if column.title == self.sorted_by:
                cell = Content.styled(title, "bold $accent")
            parts += [meters.fit(cell, size, column.align), gap]
        return Content.assemble(*parts)

    def _line(self, view: RunView, width: int, at_cursor: bool) -> Content:
        g, gap = glyphs.current, " " * _GAP
        mark = Content.styled(g.selected, "$accent") if view.id in self.selected else Content(" ")
        edge = Content.styled(g.cursor, "$accent") if at_cursor else Content(" ")
        parts: list[Content | str] = [edge, mark]
        for column, size in layout(width, self._longest):
            parts += [meters.fit(column.cell(view, size), size, column.align), gap]
        return Content.assemble(*parts)

    def _strip(self, content: Content, width: int, component: str) -> Strip:
        style: Style = self.get_visual_style(component)
        cut = content.truncate(width, pad=True)
        segments = cut.render(style, end="", parse_style=self.app.stylesheet.parse_style)
        line = [Segment(text, (style + span).rich_style) for text, span in segments]
        return Strip(line).adjust_cell_length(width, style.rich_style)
