"""The lines of a table of runs: a run each, under the headings of their groups. Pure.

A folded group is its heading alone. Ten thousand runs cost no more than their headings.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import field, replace

from rich.cells import cell_len
from textual.content import Content

from albor_core.run.light_dataclass import dataclass
from albor_core.run.values.clean import clean
from albor_tui.look import glyphs
from albor_tui.widgets.base import styled

_GAP = 3
_LABEL_MAX, _LABEL_LEAST = 60, 8


@dataclass(frozen=True)
class GroupLine:
    """A heading: the label of a group, the runs below it by the index of the first, and what it
    says of them, a cell for each title but the first.
    """

    label: str
    start: int
    count: int
    is_folded: bool = False
    cells: tuple[Content, ...] = ()


@dataclass(frozen=True)
class GroupLines:
    """All headings in order, and what their cells are."""

    titles: tuple[str, ...] = ()
    lines: tuple[GroupLine, ...] = ()

    @property
    def is_folded(self) -> bool:
        """Whether there is nothing but headings."""
        return bool(self.lines) and all(line.is_folded for line in self.lines)

    def unfolded(self, labels: frozenset[str]) -> GroupLines:
        """The same with the groups of these labels unfolded, and all others folded."""
        lines = (replace(line, is_folded=line.label not in labels) for line in self.lines)
        return replace(self, lines=tuple(lines))

    @property
    def widths(self) -> tuple[int, ...]:
        """How wide each cell is, the label's first."""
        labels = (cell_len(clean(line.label)) for line in self.lines)
        first = max((*labels, cell_len(clean(self.titles[0])), _LABEL_LEAST))
        columns = zip(*(line.cells for line in self.lines), strict=True)
        rest = (max(cell.cell_length for cell in column) for column in columns)
        heads = map(cell_len, self.titles[1:])
        return min(first, _LABEL_MAX), *(max(pair) for pair in zip(rest, heads, strict=True))

    def head(self, width: int) -> Content:
        """The heads of the cells."""
        cells = [Content(title) for title in self.titles[1:]]
        return self._row(styled.text(self.titles[0]), cells, width)

    def line(self, index: int, width: int) -> Content:
        """A heading in `width` cells."""
        one = self.lines[index]
        mark = glyphs.current.crumb if one.is_folded else glyphs.current.unfolded
        label = Content.styled(f"{mark} ", "$ink-muted") + styled.text(one.label, "bold $ink")
        return self._row(label, one.cells, width, 2)

    def _row(
        self, label: Content, cells: Sequence[Content], width: int, indent: int = 0
    ) -> Content:
        first, *rest = self.widths
        room = max(_LABEL_LEAST, width - sum(rest[:3]) - _GAP * min(3, len(rest)) - 2)
        first = min(first, room) + 2
        if not indent:
            label = Content("  ") + label
        parts = [styled.fit(styled.fit_middle(label, first), first)]
        left = width - first
        for cell, size in zip(cells, rest, strict=True):
            if size + _GAP > left:
                break
            parts += [Content(" " * _GAP), styled.fit(cell, size, "right")]
            left -= size + _GAP
        return Content("").join(parts)


@dataclass(frozen=True)
class LineMap:
    """Which run or heading stands on which line, counted from 0."""

    groups: tuple[GroupLine, ...] = ()
    runs: int = 0
    heads: tuple[int, ...] = field(default=())

    @staticmethod
    def from_groups(groups: tuple[GroupLine, ...], runs: int) -> LineMap:
        heads, line = [], 0
        for group in groups:
            heads.append(line)
            line += 1 + (0 if group.is_folded else group.count)
        return LineMap(groups, runs, tuple(heads))

    @property
    def count(self) -> int:
        if not self.groups:
            return self.runs
        last = self.groups[-1]
        return self.heads[-1] + 1 + (0 if last.is_folded else last.count)

    def group_at(self, line: int) -> int | None:
        """The index of the group whose heading stands on a line."""
        above = bisect_right(self.heads, line) - 1
        return above if above >= 0 and self.heads[above] == line else None

    def row_at(self, line: int) -> int | None:
        """The index of the run on a line; None for a heading, or beyond the last."""
        if not 0 <= line < self.count:
            return None
        above = bisect_right(self.heads, line) - 1
        if above < 0:
            return line
        below = line - self.heads[above] - 1
        return None if below < 0 else self.groups[above].start + below

    def line(self, row: int) -> int:
        """The line of a run, or of the heading that it is folded under."""
        if not self.groups:
            return row
        at = max(0, bisect_right([group.start for group in self.groups], row) - 1)
        group, head = self.groups[at], self.heads[at]
        return head if group.is_folded else head + 1 + row - group.start
