"""The sequences of one step: a line each, and the one under the cursor as text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.cells import cell_len
from textual.content import Content

from albor_core.feed.data.batch import BatchRow, StepRows
from albor_core.run.values.clean import clean
from albor_core.run.values.quantity import counted
from albor_tui.look import glyphs, quantity
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.scrolled_lines import ScrolledLines
from albor_tui.widgets.data.columns import CellColumn, ColumnList

_CHARS = 200_000  # of a row: more than any sequence that trains today has
_SPECIAL = re.compile(r"<\|[^|<>\s]{1,40}\|>|<s>|</s>|<pad>|<unk>")


class BatchList(ColumnList):
    """`rows` are BatchRows."""

    def columns(self) -> Sequence[CellColumn]:
        found = [
            CellColumn("row", 9, 1, _row),
            CellColumn("docs", 4, 4, lambda row, width: _number(len(row.documents) or None)),
            CellColumn("text", 12, 0, _begin, "left", grows=1, most=400),
        ]
        if any(row.source for row in self.rows):
            name = max(cell_len(clean(row.source)) for row in self.rows)
            found.insert(
                1, CellColumn("source", 14, 2, _source, "left", grows=2, most=min(name, 24))
            )
        if any(row.is_fim for row in self.rows):
            found.insert(-1, CellColumn("fim", 3, 3, _fim, "left"))
        return found

    def key_of(self, row: BatchRow) -> object:
        return row

    @property
    def current(self) -> BatchRow | None:
        row = super().current
        return row if isinstance(row, BatchRow) else None


def _number(value: float | None) -> Content:
    return Content.styled(quantity.count(value), "$ink-faint" if value is None else "$ink-muted")


def _row(row: BatchRow, width: int) -> Content:
    return Content.styled(quantity.count(row.row), "bold $ink")


def _source(row: BatchRow, width: int) -> Content:
    if not row.source:
        return Content.styled(glyphs.current.missing, "$ink-faint")
    return styled.fit_middle(styled.text(row.source, "$secondary"), width)


def _fim(row: BatchRow, width: int) -> Content:
    return Content.styled("fim" if row.is_fim else "", "$line-second")


def _begin(row: BatchRow, width: int) -> Content:
    if row.text is None:
        return Content.styled(glyphs.current.missing, "$ink-faint")
    return styled.text(clean(" ".join(row.text[:600].split()), limit=400), "$ink")


class RowSheet(ScrolledLines):
    """One sequence in full, its lines folded to the width, its special tokens lit."""

    def __init__(self, *, id: str) -> None:
        super().__init__("row", id=id)
        self._row: BatchRow | None = None
        self._excuse = Content("")

    def tell(self, batch: StepRows, row: BatchRow | None, excuse: Content) -> None:
        """Show a row of a batch; where there is none, why."""
        if row != self._row and self.is_attached:
            self.scroll_home(animate=False, immediate=True)
        self._row, self._excuse = row, excuse
        title = Content.styled("row", "bold $ink")
        if row is not None:
            title = Content.assemble(
                ("row ", "bold $ink"),
                (quantity.count(row.row), "bold $ink"),
                (f" of step {quantity.count(batch.step)}", "$ink-muted"),
                styled.text(f"   {row.source}" if row.source else "", "$secondary"),
                ("   filled in the middle" if row.is_fim else "", "$line-second"),
            )
        self.border_title = Content.assemble(title)
        about = [] if row is None else _amounts(row)
        self.border_subtitle = Content.styled("   ".join(about), "$ink-muted")
        self.resized(self.room)

    def resized(self, width: int) -> None:
        if self._row is None or width < 8:
            self.show(self._excuse.split("\n", allow_blank=True))
        elif self._row.text is None:
            self.show(
                [Content.styled("its config names no data.tokenizer to read it with", "$warning")]
            )
        else:
            self.show(_folded(self._row.text, width))


def _amounts(row: BatchRow) -> list[str]:
    found = [] if row.tokens is None else [counted(row.tokens, "token")]
    return [*found, counted(len(row.documents), "document")] if row.documents else found


def _folded(text: str, width: int) -> list[Content]:
    """Text as lines of `width` cells; its own line breaks are kept and marked by a bar."""
    edge = Content.styled(f"{glyphs.current.axis} ", "$line-main")
    fold = Content.styled(f"{glyphs.current.axis} ", "$track")
    lines: list[Content] = []
    for line in text[:_CHARS].expandtabs(4).split("\n"):
        parts = _lit(clean(line)).wrap(width - 2) if line else [Content("")]
        lines += [(edge if i == 0 else fold) + part for i, part in enumerate(parts)]
    if len(text) > _CHARS:
        lines.append(styled.left_out(len(text) - _CHARS, "character"))
    return lines


def _lit(line: str) -> Content:
    """A line in which special tokens are told from text."""
    content = Content.styled(line, "$ink")
    for found in _SPECIAL.finditer(line):
        content = content.stylize("bold $accent", found.start(), found.end())
    return content
