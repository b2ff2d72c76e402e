"""Columns of a list: as many as fit, the important ones first; their titles stand above it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from textual.app import ComposeResult
from textual.containers import Container
from textual.content import Content
from textual.widgets import Static

from albor_tui.look import quantity
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.line_list import LineList

_GAP = 2


@dataclass(frozen=True)
class CellColumn:
    """One fact of each row. A lower `rank` gives way later; what room is left goes to those with
    the highest `grows` first, up to `most` cells.
    """

    title: str
    width: int
    rank: int
    cell: Callable[[Any, int], Content]
    align: str = "right"
    grows: int = 0
    most: int = 0


def fitting(columns: Sequence[CellColumn], room: int) -> list[tuple[CellColumn, int]]:
    """The columns that have a place in `room` cells, in their order, and how wide each is."""
    chosen: list[CellColumn] = []
    used = -_GAP
    for column in sorted(columns, key=lambda one: one.rank):
        if used + column.width + _GAP <= room:
            used += column.width + _GAP
            chosen.append(column)
    kept = [column for column in columns if column in chosen]
    widths = {column.title: column.width for column in kept}
    spare = room - used
    for column in sorted(kept, key=lambda one: -one.grows):
        if column.grows:
            more = max(0, min(spare, column.most - column.width))
            widths[column.title] += more
            spare -= more
    return [(column, widths[column.title]) for column in kept]


def number_cell(value: float | None) -> Content:
    """A count in at most six cells; faint where it is not known."""
    return Content.styled(quantity.si(value), "$ink-faint" if value is None else "$ink")


class ColumnList(LineList):
    """A row for each of `rows`, drawn in columns. Subclasses say which there are."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.rows: tuple[Any, ...] = ()
        self._fitted: tuple[int, list[tuple[CellColumn, int]]] = (-1, [])

    def columns(self) -> Sequence[CellColumn]:
        """All columns that these rows have something for."""
        raise NotImplementedError

    def key_of(self, row: Any) -> object:
        """The identity of a row, which stays when the row changes: its `key`, where it has one."""
        return getattr(row, "key", row)

    @property
    def current(self) -> Any | None:
        """The row that the cursor stands on."""
        return self.rows[self.cursor] if self.cursor < len(self.rows) else None

    def show(self, rows: Sequence[Any]) -> None:
        """The cursor stays on its row, wherever that went."""
        old, self.rows = self.rows, tuple(rows)
        self._fitted = (-1, [])
        if [self.key_of(row) for row in old] == [self.key_of(row) for row in self.rows]:
            if old != self.rows:
                self.refresh()
                self.post_message(self.Moved(self))
            return
        if self.cursor < len(old):
            known = self.key_of(old[self.cursor])
            keys = [self.key_of(row) for row in self.rows]
            self.set_reactive(LineList.cursor, keys.index(known) if known in keys else 0)
        self.lines_changed()

    def count(self) -> int:
        return len(self.rows)

    def fitted(self, width: int) -> list[tuple[CellColumn, int]]:
        if self._fitted[0] != width:
            self._fitted = (width, fitting(self.columns(), width))
        return self._fitted[1]

    def draw_line(self, index: int, width: int) -> Content:
        row = self.rows[index]
        cells = [
            styled.fit(column.cell(row, wide), wide, column.align)
            for column, wide in self.fitted(width)
        ]
        return Content(" " * _GAP).join(cells)

    def heads(self) -> Content:
        """The titles of the columns, as the list is now."""
        width = self.scrollable_content_region.width
        titles = [
            styled.fit(Content.styled(column.title, "$ink-muted"), wide, column.align)
            for column, wide in self.fitted(max(1, width - 1))
        ]
        return Content(" ") + Content(" " * _GAP).join(titles)


class Headed(Container):
    """A framed list below the titles of its columns."""

    def __init__(self, listing: ColumnList, *, id: str) -> None:
        super().__init__(id=id, classes="frame headed")
        self.listing = listing
        self._heads = Static(classes="heads", markup=False)
        self._told: Content | None = None

    def compose(self) -> ComposeResult:
        yield self._heads
        yield self.listing

    def on_resize(self) -> None:
        self.call_after_refresh(self.tell_heads)

    def tell_heads(self) -> None:
        """Titles for the columns that there are now."""
        heads = self.listing.heads() if self.listing.rows else Content("")
        if self._told is None or not heads.is_same(self._told):
            self._told = heads
            self._heads.update(heads)
