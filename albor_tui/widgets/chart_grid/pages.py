"""Which lines of a grid of charts are on the screen: headings and rows of charts. Pure.

Pinned keys stand first, then the sections, of which only those that are open have charts. Few keys
need no sections, nor does a search: they are one block in their own order.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from albor_core.run.values.directions import is_of_machine
from albor_tui.widgets.chart_grid.key_search import KeySearch
from albor_tui.widgets.chart_grid.sections import (
    FEW,
    PINNED,
    Cell,
    ChartSection,
    Folds,
    group_sections,
)

CHART_WIDTH, CHART_HEIGHT = 38, 8  # the least that can be read
MOST_COLUMNS = 5

Item = Cell | ChartSection
Place = tuple[int, int, int, int]  # x, y, width, height


@dataclass(frozen=True)
class Line:
    """A heading, or charts side by side, of which so many would fill the line."""

    items: tuple[Item, ...]
    columns: int = 1

    @property
    def heading(self) -> ChartSection | None:
        first = self.items[0]
        return first if isinstance(first, ChartSection) else None


class GridPages:
    """The keys of a grid, what is chosen, and the lines on the screen."""

    def __init__(self) -> None:
        self.keys: tuple[str, ...] = ()
        self.pins: tuple[str, ...] = ()
        self.folds = Folds()
        self.words = self.problem = ""
        """The search, and why it cannot be understood; the last one that can then holds."""
        self.sought = ""  # to be chosen once it is known
        self.chosen: Item | None = None
        self.lines: tuple[Line, ...] = ()
        self.columns = 1
        self.first = self.end = 0  # lines on the screen
        self.is_solo = False
        self._search: KeySearch | None = None
        self._matching: frozenset[str] = frozenset()
        self._known: tuple[ChartSection, ...] = ()
        self._height, self._column = 1, 0

    @property
    def items(self) -> tuple[Item, ...]:
        """Everything that can be chosen, in order."""
        return tuple(item for line in self.lines for item in line.items)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Charts and panels that are not folded away."""
        return tuple(item for item in self.items if isinstance(item, Cell))

    @property
    def shown(self) -> tuple[Line, ...]:
        """The lines on the screen."""
        return self.lines[self.first : self.end]

    @property
    def opened(self) -> frozenset[str]:
        """Names of the sections and families that are open."""
        return self.folds.opened(self._known)

    def replace_keys(self, keys: tuple[str, ...], pins: tuple[str, ...]) -> None:
        is_same, self.keys, self.pins = keys == self.keys, keys, pins
        self._known = _sections(keys, pins)
        if not is_same:
            self._match()

    @property
    def is_text(self) -> bool:
        """Whether the words are searched as text: as a regular expression they may never end."""
        return self._search is not None and self._search.is_text

    def search(self, words: str) -> None:
        """Leave the keys that match a regular expression, in any case where it has no capital."""
        self.words, self.problem = words, ""
        try:
            found = KeySearch(words) if words else None
        except (re.error, OverflowError, RecursionError) as error:
            self.problem = str(error)
            return
        self._search = found
        self._match()
        self.chosen, self.first = None, 0

    def _match(self) -> None:
        search = self._search
        self._matching = frozenset() if search is None else search.matching(self.keys)

    def find_sought(self) -> bool:
        """Choose the key that is sought, open where it is and end the search, where it is known;
        whether it is."""
        if self.sought not in self.keys:
            return False
        key, self.sought = self.sought, ""
        self.search("")
        for section in self._known:
            if key in section.keys and key not in self.pins:
                self.folds.say(section.name, is_open=True)
                for cell in section.cells:
                    if cell.is_panel and key in cell.keys:
                        self.folds.say(cell.name, is_open=True)
        self.chosen = Cell(key, (key,))
        return True

    def toggle(self, item: Item) -> None:
        """Open or fold a section or a family, and choose what it becomes."""
        self.folds.say(item.name, is_open=item.name not in self.opened)
        self.chosen = item
        if isinstance(item, Cell):
            self.chosen = Cell(item.keys[0], item.keys[:1])
        elif item.is_family:
            self.chosen = Cell(item.name, item.keys)

    def section_at(self, item: Item | None) -> ChartSection | None:
        """The section, or the opened family, in which an item stands."""
        found: ChartSection | None = None
        for line in self.lines:
            found = line.heading or found
            if item in line.items:
                return found
        return None

    def toggle_all(self) -> None:
        """Fold everything that is open, else open every section."""
        opened, around = self.opened - {""}, self.section_at(self.chosen)
        sections = [section for section in self._known if section.name]
        for name in sorted(opened):  # families, too
            self.folds.say(name, is_open=False)
        for section in sections:
            self.folds.say(section.name, is_open=not opened)
        if opened and around is not None:
            same = (one for one in sections if around.keys[0] in one.keys)
            self.chosen = around if not around.is_family else next(same, None)

    def move(self, columns: int, rows: int) -> None:
        """Choose the item so many places on, or in the line so many above or below."""
        at, column = self._where()
        if columns:
            items = self.items
            flat = sum(len(line.items) for line in self.lines[:at]) + column + columns
            self.choose(items[min(max(0, flat), len(items) - 1)] if items else None)
            return
        to = min(max(0, at + rows), len(self.lines) - 1)
        if self.lines and to != at:
            items = self.lines[to].items
            self.chosen = items[min(self._column, len(items) - 1)]

    def turn(self, pages: int) -> None:
        """Turn by so many pages; the chosen place on the page stays."""
        at, column = self._where()
        below = at - self.first
        for _ in range(abs(pages)):
            old = self.first
            if pages > 0:
                self.first = self.end if self.end < len(self.lines) else self.first
            else:
                self.first = self._page_before()
            self.end = self._end(self.first)
            if self.first == old:  # at an end: its first or last item
                items = self.items
                self.choose((items[0] if pages < 0 else items[-1]) if items else None)
                return
        items = self.lines[min(self.first + below, len(self.lines) - 1)].items
        self.chosen = items[min(column, len(items) - 1)]

    def fit(self, width: int, height: int) -> None:
        """Lay the lines out for a screen, with what is chosen on it."""
        old, index = self.items, 0
        if self.chosen in old:
            index = old.index(self.chosen)
        self._height = height
        most = max(1, min(width // CHART_WIDTH, round(width / 44), MOST_COLUMNS))
        for columns in range(1, 2 if self.is_solo else most + 1):
            self.columns, self.lines = columns, tuple(self._lay(columns))
            if self._end(0) >= len(self.lines):
                break
        items = self.items
        if self.chosen not in items:
            charts = self.cells or items
            if self.chosen is None or not old:
                self.chosen = charts[0] if charts else None
            else:
                self.chosen = items[min(index, len(items) - 1)] if items else None
        if self.chosen in items:  # as it is now
            self.chosen = items[items.index(self.chosen)]
        self._column = self._where()[1]
        self._scroll()

    def places(self, width: int, height: int) -> list[tuple[Item, Place]]:
        """Where each item of the page is."""
        rows = sum(line.heading is None for line in self.shown)
        room, found, y, row = height - len(self.shown) + rows, [], 0, 0
        for line in self.shown:
            tall = 1
            if line.heading is None:
                tall = (row + 1) * room // rows - row * room // rows
                row += 1
            for i, item in enumerate(line.items):
                left = i * width // line.columns
                found.append((item, (left, y, (i + 1) * width // line.columns - left, tall)))
            y += tall
        return found

    def choose(self, item: Item | None) -> None:
        self.chosen = item
        self._column = self._where()[1]

    def _where(self) -> tuple[int, int]:
        """Line and column of what is chosen."""
        for i, line in enumerate(self.lines):
            if self.chosen in line.items:
                return i, line.items.index(self.chosen)
        return 0, 0

    def _lay(self, columns: int) -> Iterator[Line]:
        if self._search is not None:
            pinned = [key for key in self.pins if key in self.keys]
            found = (*pinned, *(key for key in self.keys if key not in pinned))
            yield from chart_rows(
                [Cell(key, (key,)) for key in found if key in self._matching], columns
            )
        elif self.is_solo:
            every = [item for line in self._lay_sections(1) for item in line.items]
            yield from chart_rows([item for item in every if isinstance(item, Cell)], 1)
        else:
            yield from self._lay_sections(columns)

    def _lay_sections(self, columns: int) -> Iterator[Line]:
        opened = self.opened
        for section in self._known:
            if section.name == "":
                pinned = [Cell(key, (key,)) for key in self.pins if key in self.keys]
                rest = [cell for cell in section.cells if cell not in pinned]
                yield from chart_rows([*pinned, *rest], columns)
                continue
            yield Line((section,))
            if section.name == PINNED and PINNED in opened:
                yield from chart_rows(section.cells, columns)
            elif section.name in opened:
                yield from self._lay_section(section, opened, columns)

    def _lay_section(
        self, section: ChartSection, opened: frozenset[str], columns: int
    ) -> Iterator[Line]:
        families = [cell for cell in section.cells if cell.is_panel and cell.name in opened]
        cells = [
            cell
            for cell in section.cells
            if cell not in families and (cell.is_panel or cell.name not in self.pins)
        ]
        yield from chart_rows(cells, columns)
        for family in families:
            members = tuple(Cell(key, (key,)) for key in family.keys if key not in self.pins)
            yield Line((ChartSection(family.name, family.keys, members, is_family=True),))
            yield from chart_rows(members, columns)

    def _end(self, first: int) -> int:
        """The line after the last one that fits below `first`."""
        most = (
            1
            if self.is_solo
            else max(1, min(self._height // CHART_HEIGHT, round(self._height / 9.5)))
        )
        rows, room = 0, self._height
        for i in range(first, len(self.lines)):
            is_row = self.lines[i].heading is None
            rows, room = rows + is_row, room - (CHART_HEIGHT if is_row else 1)
            if i > first and (room < 0 or rows > most):
                while i - 1 > first and self._is_orphan(i - 1):
                    i -= 1
                return i
        return len(self.lines)

    def _is_orphan(self, i: int) -> bool:
        """Whether a line is the heading of what stands on the next page."""
        return self.lines[i].heading is not None and self.lines[i + 1].heading is None

    def _page_before(self) -> int:
        first = self.first
        while first > 0 and self._end(first - 1) >= self.first:
            first -= 1
        return first if first < self.first else max(0, self.first - 1)

    def _scroll(self) -> None:
        """Have what is chosen on the screen, its heading above it, and no empty end."""
        at, count = self._where()[0], len(self.lines)
        self.first = min(self.first, max(0, count - 1))
        if at < self.first:
            self.first = at
            if at > 0 and self.lines[at - 1].heading is not None and self._end(at - 1) > at:
                self.first = at - 1
        while self.first < at and self._end(self.first) <= at:
            self.first += 1
        while self.first > 0 and self._end(self.first - 1) >= count:
            self.first -= 1
        self.end = self._end(self.first)


def chart_rows(cells: Sequence[Cell], columns: int) -> Iterator[Line]:
    """Charts in as few rows as so many columns take, and in no more columns than those rows do."""
    rows = math.ceil(len(cells) / columns)
    across = math.ceil(len(cells) / max(1, rows))
    for i in range(0, len(cells), max(1, across)):
        yield Line(tuple(cells[i : i + across]), across)


def _sections(keys: Sequence[str], pins: Sequence[str]) -> tuple[ChartSection, ...]:
    """The sections; a few keys of the run itself are one without a name."""
    own = [key for key in keys if not is_of_machine(key)]
    few = own or list(keys)
    if 0 < len(few) <= FEW:
        lead = ChartSection("", tuple(few), tuple(Cell(key, (key,)) for key in few))
        return (lead, *group_sections(key for key in keys if key not in few))
    pinned = tuple(key for key in pins if key in keys)
    lead = ChartSection(PINNED, pinned, tuple(Cell(key, (key,)) for key in pinned))
    return (*([lead] if pinned else []), *group_sections(keys))
