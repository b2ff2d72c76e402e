"""A widget that is a grid of cells and sends only those that changed.

Every redrawn cell travels over the link, so a subclass says what its cells are and this finds the
difference to what the screen shows.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import log
from textual.content import Content
from textual.geometry import Region
from textual.strip import Strip

from albor_core.run.values.clean import clean
from albor_tui.terminal.textual_private import LazyComponents
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.cell_diff import changed_runs

Cell = tuple[str, str]  # a character one cell wide, a tone: "" is the ground
Row = list[Cell]


def cells_of(text: str, tone: str) -> Row:
    """Data of any origin as cells: harmless, a wide character followed by an empty cell, a
    combining mark in the cell of what it combines with."""
    cells: Row = []
    for character in clean(text):
        width = 1 if character.isascii() else cell_len(character)
        if width == 0 and cells:
            cells[-1] = (cells[-1][0] + character, tone)
        elif width:
            cells += [(character, tone), *[("", tone)] * (width - 1)]
    return cells


def row_of(width: int, *parts: tuple[str, str]) -> Row:
    """Texts with their tones, cut or padded to `width` cells."""
    row = [cell for text, tone in parts for cell in cells_of(text, tone)]
    if len(row) > width and row[width][0] == "":
        row[width - 1] = (" ", "")  # the first half of a wide character
    return row[:width] + [(" ", "")] * (width - len(row))


class CellWidget(LazyComponents):
    """Shows rows of cells; a tone is a component class `<PREFIX>--<tone>`."""

    PREFIX = "cells"

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._rows: list[Row] = []
        self._strips: dict[int, Strip] = {}
        self._ground: Style | None = None  # rich_style walks up the tree: dear for every blank

    def show_rows(self, rows: Sequence[Row]) -> None:
        """Let the widget be these rows, each as wide as its content."""
        old, self._rows = self._rows, list(rows)
        self._strips.clear()
        if [len(row) for row in old] != [len(row) for row in self._rows]:
            self.refresh()
            return
        changed = [
            Region(a, y, b - a, 1)
            for y, (before, after) in enumerate(zip(old, self._rows, strict=True))
            if before != after
            for a, b in changed_runs(before, after)
        ]
        if changed:
            self.refresh(*changed)

    def notify_style_update(self) -> None:
        self._strips.clear()
        self._ground = None
        super().notify_style_update()

    def render_line(self, y: int) -> Strip:
        strip = self._strips.get(y)
        width = self.content_size.width
        if strip is None or strip.cell_length != width:
            strip = self._strips[y] = self._strip(y, width)
        return strip

    def _strip(self, y: int, width: int) -> Strip:
        row = self._rows[y] if y < len(self._rows) else []
        segments: list[Segment] = []
        start = 0
        for i in range(1, len(row) + 1):
            if i == len(row) or row[i][1] != row[start][1]:
                text = "".join(character for character, _ in row[start:i])
                segments.append(Segment(text, self._tone(row[start][1])))
                start = i
        return Strip(segments).adjust_cell_length(width, self._tone(""))

    def _tone(self, tone: str) -> Style:
        name = f"{self.PREFIX}--{tone}"
        if tone and (style := self.component_style(name)) is not None:
            return style
        if self._ground is None:
            self._ground = self.rich_style
        return self._ground


class Figure(CellWidget, can_focus=True):
    """A titled picture of one value: `draw` says what its cells are, here it is kept up to date.

    Subclasses hold their value in a reactive `data` made with `init=False, repaint=False`.
    """

    ALLOW_MAXIMIZE = True

    def __init__(
        self, heading: str = "", *, id: str | None = None, classes: str | None = None
    ) -> None:
        super().__init__(id=id, classes=classes)
        self.border_title = Content(heading)

    def draw(self, width: int, height: int) -> list[Row]:
        """Draw at most `height` rows of exactly `width` cells. Pure: no queries, no I/O."""
        raise NotImplementedError

    def watch_data(self) -> None:
        self.changed()

    def changed(self) -> None:
        """Draw again; only what differs is sent."""
        width, height = self.content_size
        if not width or not height:
            return
        try:
            rows = self.draw(width, height)[:height]
        except Exception as error:  # the barrier: one broken figure must not take the cockpit down
            log.error(f"{type(self).__name__} cannot draw: {error!r}")
            words = f"cannot draw: {type(error).__name__}: {error}"
            rows = [row_of(width, (words, "broken"))]
        self.show_rows([*rows, *(row_of(width) for _ in range(height - len(rows)))])

    def on_resize(self) -> None:
        self.changed()


def words_in_the_middle(words: str, width: int, height: int, tone: str = "empty") -> list[Row]:
    """A picture of nothing but words, wrapped where they are longer than a row."""
    rows = [row_of(width) for _ in range(height)]
    if not rows or not width:
        return rows
    lines = styled.first_lines(Content(clean(words)), width, height)
    blank: Row = [(" ", "")]
    for row, line in enumerate(lines, max(0, (height - len(lines) + 1) // 2)):
        cells = cells_of(line.plain.rstrip(), tone)[:width]
        room = width - len(cells)
        rows[row] = blank * (room // 2) + cells + blank * (room - room // 2)
    return rows
