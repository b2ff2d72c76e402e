"""Dashes: which parts of a drawn line are left out, so that lines of one colour can be told apart.

A pattern repeats along the width, in dots of braille or in cells of ASCII. Only what runs level is
cut: of a steep part both ends stay, so a spike is drawn whatever its line looks like.
"""

from __future__ import annotations

PATTERNS = {  # "#" is drawn; by the number of a dash
    False: ("#", "####..", "#.", "##..", "######..##.."),  # two dots are a cell
    True: ("#", "####..", "#.", "##...", "###.#."),
}
_LEVEL = {False: 4, True: 1}  # dots or cells that a level line is high, at the most
_BRAILLE = 0x2800
_DOTS = (  # the bits of a cell of braille, by column and row
    (0x01, 0x02, 0x04, 0x40),
    (0x08, 0x10, 0x20, 0x80),
)
_BLANK = " "


def dashed(drawn: list[str], dash: int, *, is_ascii: bool) -> list[str]:
    """Rows of cells with the pattern cut out of their line."""
    pattern = PATTERNS[is_ascii][dash % len(PATTERNS[is_ascii])]
    if "." not in pattern:
        return drawn
    width = max(map(len, drawn), default=0)
    rows = [list(row.ljust(width)) for row in drawn]
    for column in range(width):
        if is_ascii:
            if pattern[column % len(pattern)] == ".":
                _cut_cells(rows, column)
            continue
        for side in (0, 1):
            if pattern[(2 * column + side) % len(pattern)] == ".":
                _cut_dots(rows, column, side)
    return ["".join(row) for row in rows]


def _cut_cells(rows: list[list[str]], column: int) -> None:
    here = [i for i, row in enumerate(rows) if row[column] != _BLANK]
    for i in _between(here, _LEVEL[True]):
        rows[i][column] = _BLANK


def _cut_dots(rows: list[list[str]], column: int, side: int) -> None:
    bits = _DOTS[side]
    codes = [max(0, ord(row[column]) - _BRAILLE) for row in rows]
    here = [
        4 * i + k
        for i, code in enumerate(codes)
        if code
        for k, bit in enumerate(bits)
        if code & bit
    ]
    for place in _between(here, _LEVEL[False]):
        codes[place // 4] &= ~bits[place % 4]
    for i in {place // 4 for place in here}:
        rows[i][column] = chr(_BRAILLE + codes[i]) if codes[i] else _BLANK


def _between(here: list[int], level: int) -> list[int]:
    """Which of these places, from top to bottom, are left out."""
    if not here or here[-1] - here[0] < level:
        return here
    return here[1:-1]
