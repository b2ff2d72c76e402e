"""The data sets that are known here, one line each."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from textual.content import Content

from albor_core.feed.data.known import DataSetView
from albor_core.feed.data.sheet import DataSheet
from albor_core.run.values.clean import clean
from albor_tui.look import glyphs, quantity
from albor_tui.widgets.base import styled
from albor_tui.widgets.data.columns import CellColumn, ColumnList, number_cell

now_wall = time.time  # replaced in tests
_PLAIN = {"gone": "gone", "damaged": "damaged", "unknown": "no manifest"}


@dataclass(frozen=True)
class Verification:
    """The result of reading every byte of a data set. `wall`: when, None while it is being read."""

    wall: float | None = None
    problems: tuple[str, ...] = ()
    why_not: str = ""  # it could not be done


@dataclass(frozen=True)
class SetRow:
    """A data set, and what was found out about it since the screen was opened."""

    view: DataSetView
    sheet: DataSheet | None = None
    check: Verification | None = None

    @property
    def documents(self) -> int | None:
        return self.view.folder.documents if self.sheet is None else self.sheet.documents

    @property
    def tokens(self) -> int | None:
        return self.view.folder.tokens if self.sheet is None else self.sheet.tokens


def state_of(row: SetRow) -> tuple[str, str]:
    """Whether its bytes are known to be right, in words, and the tone of that."""
    folder, check = row.view.folder, row.check
    if folder.state != "here":
        return _PLAIN.get(folder.state, folder.state), (
            "$warning" if folder.state == "unknown" else "$error"
        )
    if check is None or check.why_not:
        return "not verified", "$ink-muted"
    if check.wall is None:
        return "verifying", "$secondary"
    if check.problems:
        return f"{len(check.problems)} wrong", "$error"
    return f"verified {quantity.age(max(0.0, now_wall() - check.wall))}", "$success"


def _age(wall: float | None) -> Content:
    if wall is None:
        return Content.styled(glyphs.current.missing, "$ink-faint")
    return Content.styled(quantity.age(max(0.0, now_wall() - wall)), "$ink-muted")


def _name(row: SetRow, width: int) -> Content:
    _, tone = state_of(row)
    g = glyphs.current
    mark = g.check if tone == "$success" else g.cross if tone == "$error" else g.dot
    if tone == "$warning" or row.view.changed:
        mark, tone = g.alert, "$warning"
    ink = "$ink-muted" if row.view.folder.state == "gone" else "$ink"
    return Content.assemble(
        (f"{mark} ", tone), styled.fit_middle(styled.text(row.view.name, ink), width - 2)
    )


def _kind(row: SetRow, width: int) -> Content:
    kind = row.view.folder.kind or (row.sheet.kind if row.sheet else "")
    return styled.text(kind or glyphs.current.missing, "$ink-muted" if kind else "$ink-faint")


def _state(row: SetRow, width: int) -> Content:
    return Content.styled(*state_of(row))


def _runs(row: SetRow, width: int) -> Content:
    count = row.view.num_users
    return Content.styled(quantity.count(count), "$ink" if count else "$ink-faint")


def _sources(row: SetRow, width: int) -> Content:
    return number_cell(None if row.sheet is None else len(row.sheet.sources))


def _where(row: SetRow, width: int) -> Content:
    return styled.fit_middle(styled.text(row.view.path, "$ink-faint"), width)


class DataSetList(ColumnList):
    """`rows` are SetRows."""

    def columns(self) -> Sequence[CellColumn]:
        name = max((cell_len(clean(row.view.name)) for row in self.rows), default=0) + 2
        return (
            CellColumn("  data set", 16, 0, _name, "left", grows=2, most=min(name, 40)),
            CellColumn("kind", 7, 4, _kind, "left"),
            CellColumn("documents", 9, 3, lambda row, width: number_cell(row.documents)),
            CellColumn("tokens", 7, 1, lambda row, width: number_cell(row.tokens)),
            CellColumn("sources", 7, 6, _sources),
            CellColumn("state", 13, 2, _state, "left"),
            CellColumn("runs", 4, 5, _runs),
            CellColumn("made", 4, 7, lambda row, width: _age(row.view.made)),
            CellColumn("used", 4, 8, lambda row, width: _age(row.view.last_used)),
            CellColumn("where", 18, 9, _where, "left", grows=1, most=200),
        )

    def key_of(self, row: SetRow) -> object:
        return row.view.path

    @property
    def current(self) -> SetRow | None:
        row = super().current
        return row if isinstance(row, SetRow) else None

    def stand_on(self, path: str) -> bool:
        """Move the cursor to the data set at `path`; False where it is not listed."""
        at = next((i for i, row in enumerate(self.rows) if row.view.path == path), None)
        if at is not None:
            self.cursor = at
        return at is not None


def rows_of(
    views: Sequence[DataSetView],
    sheets: Mapping[str, DataSheet],
    checks: Mapping[str, Verification],
) -> list[SetRow]:
    return [SetRow(one, sheets.get(one.path), checks.get(one.path)) for one in views]
