"""A table of texts: its rows scroll below the names of its columns, columns scroll sideways."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from textual.binding import Binding
from textual.content import Content

from albor_core.feed.archive.media_content import TableSheet
from albor_core.run.values.clean import clean
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.line_list import LineList

_WIDEST = 40  # cells of a column, where there are several
_GAP = 2


@dataclass(frozen=True)
class MeasuredSheet:
    """A table with the width of each column."""

    sheet: TableSheet
    widths: tuple[int, ...]


def measured(sheet: TableSheet) -> MeasuredSheet:
    """Measures every cell: for a thread."""
    most = _WIDEST if len(sheet.columns) > 1 else 10 * _WIDEST
    columns: Sequence[Sequence[str]] = [*zip(*sheet.rows, strict=True)] or [()] * len(sheet.columns)
    return MeasuredSheet(sheet, tuple(
        min(max((cell_len(clean(one)) for one in (name, *cells)), default=1) or 1, most)
        for name, cells in zip(sheet.columns, columns, strict=True)
    ))  # fmt: skip


class SheetList(LineList):
    """The rows of a table; `head` is the line of names above them."""

    BINDINGS = [
        Binding("right,l", "shift(1)", "Right", show=False, tooltip="Columns further right"),
        Binding("left,h", "shift(-1)", "Left", show=False, tooltip="Columns further left"),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._table = MeasuredSheet(TableSheet((), (), ()), ())
        self._first = 0  # column

    def show(self, table: MeasuredSheet) -> None:
        """Replace the table; the cursor and the columns in view stay where they can."""
        if table != self._table:
            self._table = table
            self._first = min(self._first, self._last_first)
            self.lines_changed()

    @property
    def _last_first(self) -> int:
        """The first column of the view that shows the last one."""
        room, widths = self._width - 1, self._table.widths
        first = max(0, len(widths) - 1)
        while first and sum(widths[first - 1 :]) + _GAP * (len(widths) - first) <= room:
            first -= 1
        return first

    @property
    def head(self) -> Content:
        """The names of the columns in view; arrows say that there are more on a side."""
        width = max(0, self._width - 1)
        line = self._line(self._table.sheet.columns, "bold $ink-muted")
        left = f"{self._first} more <" if self._first else ""
        hidden = len(self._table.widths) - self._first - self._in_view(width)
        more = ", ".join(part for part in (left, f"> {hidden} more" if hidden > 0 else "") if part)
        words = Content.styled(f"  {more}" if more else "", "$ink-muted")
        return styled.fit(line, max(0, width - words.cell_length)) + words

    def _in_view(self, width: int) -> int:
        """How many columns have their whole width in view."""
        used = count = 0
        for wide in self._table.widths[self._first :]:
            used += wide + (_GAP if count else 0)
            if used > width:
                break
            count += 1
        return max(1, count)

    def action_shift(self, by: int) -> None:
        first = min(max(0, self._first + by), self._last_first)
        if first != self._first:
            self._first = first
            self.lines_changed()

    def count(self) -> int:
        return len(self._table.sheet.rows)

    def draw_line(self, index: int, width: int) -> Content:
        return self._line(self._table.sheet.rows[index], "$ink")

    def _line(self, cells: Sequence[str], tone: str) -> Content:
        table = self._table
        parts = [
            styled.fit(styled.text(cell, tone), wide, "right" if numeric else "left")
            for cell, wide, numeric in [
                *zip(cells, table.widths, table.sheet.numeric, strict=True)
            ][self._first :]
        ]
        return Content(" " * _GAP).join(parts)
