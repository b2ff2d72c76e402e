"""Which metrics a grid of charts shows: their order, the search, the chosen one, the page. Pure."""

from __future__ import annotations

import math

CHART_WIDTH, CHART_HEIGHT = 38, 8  # the least that can be read
MOST_COLUMNS = 5


class GridPages:
    """The keys of a grid, the one that is chosen, and the first one on the screen.

    Pinned keys stand first, then the others in their own order; a search leaves those that contain
    its words.
    """

    def __init__(self) -> None:
        self.keys: tuple[str, ...] = ()
        self.pins: tuple[str, ...] = ()
        self.words = ""
        self.at = self.first = 0  # in `order`
        self.sought = ""  # to be chosen once it is known

    @property
    def order(self) -> tuple[str, ...]:
        """The keys that the search leaves."""
        pinned = [key for key in self.pins if key in self.keys]
        found = (*pinned, *(key for key in self.keys if key not in pinned))
        return tuple(key for key in found if self.words.lower() in key.lower())

    @property
    def current(self) -> str | None:
        """The chosen key."""
        order = self.order
        return order[min(self.at, len(order) - 1)] if order else None

    def shown(self, capacity: int) -> tuple[str, ...]:
        """The keys on the screen."""
        return self.order[self.first : self.first + capacity]

    def replace_keys(self, keys: tuple[str, ...]) -> None:
        """Know other keys; without search and pins the chosen one stays chosen."""
        chosen = self.keys[self.at : self.at + 1]
        self.keys = keys
        if chosen and chosen[0] in keys and not (self.words or self.pins):
            self.at = keys.index(chosen[0])

    def pin(self, pins: tuple[str, ...]) -> None:
        """Know other pins; the chosen key stays chosen."""
        chosen = self.order[self.at : self.at + 1]
        self.pins = pins
        if chosen:
            self.at = self.order.index(chosen[0])

    def search(self, words: str) -> None:
        self.words = words
        self.at = self.first = 0

    def find_sought(self) -> bool:
        """Choose the key that is sought, and end the search, where it is known; whether it is."""
        if self.sought not in self.keys:
            return False
        key, self.sought, self.words = self.sought, "", ""
        self.at = self.order.index(key)
        return True

    def move(self, by: int) -> None:
        self.at = min(max(0, self.at + by), len(self.order) - 1)

    def turn(self, pages: int, columns: int, rows: int) -> None:
        """Turn by `pages` pages; the selected position on the page stays."""
        count = len(self.order)
        self.at = min(max(0, self.at + pages * columns * rows), max(0, count - 1))
        row = self.first // columns + pages * rows
        self.first = min(max(0, row), math.ceil(count / columns)) * columns

    def fit(self, columns: int, rows: int) -> None:
        """Have the chosen key on a screen of so many columns and rows."""
        count = len(self.order)
        self.at = min(max(0, self.at), max(0, count - 1))
        self.first = first_shown(self.at, self.first, columns, rows, count)


def shape(width: int, height: int, count: int) -> tuple[int, int]:
    """Columns and rows for `count` charts: as many as can be read, and no more columns than it
    takes to show them all."""
    most = max(1, min(width // CHART_WIDTH, round(width / 44), MOST_COLUMNS))
    rows = max(1, min(height // CHART_HEIGHT, round(height / 9.5)))
    columns = next((c for c in range(1, most) if c * rows >= count), most)
    return columns, min(rows, max(1, math.ceil(count / columns)))


def first_shown(at: int, first: int, columns: int, rows: int, count: int) -> int:
    """The first key on the screen, at the start of a row: moved as little as shows `at`, and no
    empty row at the end."""
    row, top = at // columns, first // columns
    top = min(max(top, row - rows + 1), row)
    return min(top, max(0, math.ceil(count / columns) - rows)) * columns
