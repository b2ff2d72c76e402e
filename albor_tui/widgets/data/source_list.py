"""The sources of a data set: how much each gives, how often a mix took it, and what it lost."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from textual.content import Content

from albor_core.feed.data.sheet import DataSheet, SourceView
from albor_core.run.values.clean import clean
from albor_core.run.values.quantity import counted
from albor_tui.look import glyphs, quantity
from albor_tui.widgets.base import styled
from albor_tui.widgets.data.columns import CellColumn, ColumnList, number_cell

ORDERS = ("share", "lost", "name")
_MANY = 0.5  # of a source's documents that are lost: worth a look


def share_words(share: float | None) -> str:
    """A share as text: 41%, 4.1%, <0.1%."""
    if share is None:
        return glyphs.current.missing
    if share < 0.001:
        return "<0.1%" if share > 0 else "0%"
    return quantity.percent(share, 0 if share >= 0.0995 else 1)


def _lost(source: SourceView, width: int) -> Content:
    share = source.lost_share
    if share is None:
        return Content.styled(glyphs.current.missing, "$ink-faint")
    tone = "$warning" if share >= _MANY else "$ink-muted" if share == 0 else "$ink"
    return Content.styled(share_words(share), tone)


class SourceList(ColumnList):
    """`rows` are SourceViews."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.order = ORDERS[0]
        self._sheet = DataSheet()
        self._full = 1.0

    def show_sheet(self, sheet: DataSheet) -> None:
        self._sheet = sheet
        shares = [source.share for source in sheet.sources if source.share is not None]
        self._full = max(shares, default=0.0) or 1.0
        self.show(_ordered(sheet.sources, self.order))

    def next_order(self) -> None:
        self.order = ORDERS[(ORDERS.index(self.order) + 1) % len(ORDERS)]
        self.show_sheet(self._sheet)

    @property
    def shows_cursor(self) -> bool:
        return self.has_focus

    @property
    def current(self) -> SourceView | None:
        row = super().current
        return row if isinstance(row, SourceView) else None

    def key_of(self, row: SourceView) -> object:
        return row.name

    def columns(self) -> Sequence[CellColumn]:
        sources = self._sheet.sources
        has_tokens = any(one.tokens is not None for one in sources)
        amount = CellColumn("tokens", 7, 1, lambda one, width: number_cell(one.tokens))
        if not has_tokens:
            amount = CellColumn("bytes", 8, 1, _bytes)
        name = max((cell_len(clean(one.name)) for one in sources), default=0)
        found = [
            CellColumn("source", 16, 0, _name, "left", grows=2, most=min(name, 40)),
            CellColumn("documents", 9, 3, lambda one, width: number_cell(one.documents)),
            amount,
            CellColumn(
                f"share of {self._sheet.measure}", 18, 2, self._share, "left", grows=1, most=60
            ),
        ]
        if self._sheet.is_mixed:
            found.append(CellColumn("times", 5, 4, _times))
        if any(one.lost is not None for one in sources):
            found.append(CellColumn("lost", 5, 5, _lost))
        if any(one.duplicates is not None for one in sources):
            found.append(CellColumn("copies", 6, 6, lambda one, width: number_cell(one.duplicates)))
        return found

    def _share(self, source: SourceView, width: int) -> Content:
        words = Content.styled(share_words(source.share).rjust(5), "$ink")
        scaled = None if source.share is None else source.share / self._full
        return words + " " + styled.bar(scaled, width - 6, "$line-main")


def _name(source: SourceView, width: int) -> Content:
    return styled.fit_middle(styled.text(source.name or "(no name)", "$ink"), width)


def _bytes(source: SourceView, width: int) -> Content:
    tone = "$ink-faint" if source.num_bytes is None else "$ink"
    return Content.styled(quantity.byte_cell(source.num_bytes), tone)


def _times(source: SourceView, width: int) -> Content:
    if source.times is None:
        return Content.styled(glyphs.current.missing, "$ink-faint")
    return Content.styled(f"{source.times:.3g}x", "$ink")


def _ordered(sources: Sequence[SourceView], order: str) -> list[SourceView]:
    if order == "name":
        return sorted(sources, key=lambda one: one.name)
    if order == "lost":
        return sorted(sources, key=lambda one: -(one.lost_share or 0.0))
    return [*sources]


def about_source(source: SourceView) -> Content:
    """About the source under the cursor: its whole name, what came in, and why some of it went."""
    lost = ", ".join(f"{quantity.count(n)} {reason}" for reason, n in source.dropped)
    words = _flow(source.documents_in, source.documents)
    return Content.assemble(
        styled.text(source.name or "(no name)", "bold $ink"),
        styled.text(f"  {words}", "$ink-muted"),
        styled.text(f"; dropped {lost}" if lost else "", "$ink-muted"),
    )


def about_all(sheet: DataSheet) -> Content:
    """About all sources together."""
    if not sheet.sources:
        return Content.styled("no source is recorded", "$warning")
    kept = sheet.documents
    words = counted(len(sheet.sources), "source")
    return styled.text(f"{words}: {_flow(sheet.documents_in, kept)}", "$ink-muted")


def _flow(came: int | None, kept: int | None) -> str:
    if came is None and kept is None:
        return "how many documents came in is not known"
    first = "" if came is None else f"{counted(came, 'document')} came in, "
    last = f"{quantity.count(kept)} kept" if kept is not None else "how many stayed is not known"
    return first + last
