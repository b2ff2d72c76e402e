"""What a run reads of each source: what its mixture asks for against what it has had so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from textual.content import Content

from albor_core.feed.data.of_run import RunData
from albor_core.feed.data.sheet import DataSheet
from albor_core.run.values.clean import clean
from albor_tui.look import glyphs
from albor_tui.widgets.base import styled
from albor_tui.widgets.data.columns import CellColumn, ColumnList, number_cell
from albor_tui.widgets.data.source_list import share_words


@dataclass(frozen=True)
class SeenRow:
    """One source of a run's data. Shares are 0..1; `share` is of what lies in the data set."""

    name: str
    weight: float | None = None
    share: float | None = None
    tokens: int | None = None
    seen: int | None = None  # sequences
    seen_share: float | None = None
    state: str = "here"  # of its folder, where it has one of its own


def rows_of(data: RunData, sheet: DataSheet | None) -> tuple[SeenRow, ...]:
    """The sources of a mixture, else those of the data set, the largest first."""
    whole = sum(data.seen.values())
    if data.mixture:
        rows = [SeenRow(one.name, one.weight, state=one.folder.state) for one in data.mixture]
    else:
        sources = () if sheet is None else sheet.sources
        rows = [SeenRow(one.name, None, one.share, one.tokens) for one in sources]
    known = {row.name for row in rows}
    rows += [SeenRow(name) for name in sorted(data.seen) if name not in known]
    return tuple(_with_seen(row, data.seen, whole) for row in rows)


def _with_seen(row: SeenRow, seen: Mapping[str, int], whole: int) -> SeenRow:
    count = seen.get(row.name, 0 if seen else None)
    share = count / whole if count is not None and whole else None
    return SeenRow(row.name, row.weight, row.share, row.tokens, count, share, row.state)


class SeenList(ColumnList):
    """`rows` are SeenRows."""

    def key_of(self, row: SeenRow) -> object:
        return row.name

    @property
    def shows_cursor(self) -> bool:
        return self.has_focus

    @property
    def _is_seen(self) -> bool:
        return any(row.seen is not None for row in self.rows)

    def columns(self) -> Sequence[CellColumn]:
        name = max((cell_len(clean(row.name)) for row in self.rows), default=0)
        shares = [row.seen_share if self._is_seen else row.share for row in self.rows]
        marks = [row.weight for row in self.rows]
        full = max((v for v in (*shares, *marks) if v is not None), default=1.0) or 1.0

        def bar(row: SeenRow, width: int) -> Content:
            share = row.seen_share if self._is_seen else row.share
            words = Content.styled(share_words(share).rjust(5), "$ink")
            scaled = None if share is None else share / full
            mark = None if row.weight is None else row.weight / full
            return words + " " + styled.bar(scaled, width - 6, "$line-main", mark=mark)

        found = [
            CellColumn("source", 14, 0, _name, "left", grows=2, most=min(name, 32)),
            CellColumn("seen" if self._is_seen else "share", 14, 1, bar, "left", grows=1, most=60),
        ]
        if self._is_seen:
            found.append(CellColumn("rows", 6, 4, lambda row, width: number_cell(row.seen)))
        elif any(row.tokens is not None for row in self.rows):
            found.append(CellColumn("tokens", 6, 4, lambda row, width: number_cell(row.tokens)))
        if any(row.weight is not None for row in self.rows):
            found.append(CellColumn("weight", 6, 2, _weight))
        return found


def _weight(row: SeenRow, width: int) -> Content:
    return Content.styled(share_words(row.weight), "$ink-faint" if row.weight is None else "$ink")


def _name(row: SeenRow, width: int) -> Content:
    if row.state == "here":
        return styled.fit_middle(styled.text(row.name or "(no name)", "$ink"), width)
    mark = Content.styled(f"{glyphs.current.cross} ", "$error")
    return mark + styled.fit_middle(styled.text(row.name, "$ink-muted"), width - 2)
