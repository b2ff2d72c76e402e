"""Which cells differ between two drawings, so that only those travel over the link.

Measured on a run that logs 10 times a second at 160x45: whole panels and rows cost 27 KB/s.
"""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content
from textual.geometry import Region

_GAP = 12  # a cursor jump and a new colour cost about as much as this many cells
Cell = tuple[str, object]


def changed_regions(old: Content, new: Content, width: int) -> list[Region]:
    """Regions, relative to the content's top left, that turn `old` into `new`.

    Both hold whole lines of at most `width` cells.
    """
    before, after = old.split("\n", allow_blank=True), new.split("\n", allow_blank=True)
    regions: list[Region] = []
    for y in range(max(len(before), len(after))):
        if y >= len(before) or y >= len(after):
            regions.append(Region(0, y, width, 1))
        elif not before[y].is_same(after[y]):
            regions += line_regions(before[y], after[y], y, width)
    return regions


def line_regions(old: Content, new: Content, y: int, width: int) -> list[Region]:
    """Regions of row `y` that differ; the whole row where characters are wider than a cell."""
    if old.cell_length != len(old.plain) or new.cell_length != len(new.plain):
        return [Region(0, y, width, 1)]
    return [Region(a, y, b - a, 1) for a, b in changed_runs(cells(old, width), cells(new, width))]


def cells(line: Content, width: int) -> list[Cell]:
    """Each cell of a line as its character and styles."""
    styles: list[tuple[object, ...]] = [()] * len(line.plain)
    for span in line.spans:
        for i in range(span.start, min(span.end, len(styles))):
            styles[i] = (*styles[i], span.style)
    found: list[Cell] = list(zip(line.plain, styles, strict=True))
    return found + [(" ", ())] * (width - len(found))


def changed_runs(old: Sequence[Cell], new: Sequence[Cell]) -> list[tuple[int, int]]:
    """Half-open runs of positions that differ; runs closer than _GAP are one."""
    runs: list[tuple[int, int]] = []
    for i in range(max(len(old), len(new))):
        if i < len(old) and i < len(new) and old[i] == new[i]:
            continue
        if runs and i - runs[-1][1] < _GAP:
            runs[-1] = (runs[-1][0], i + 1)
        else:
            runs.append((i, i + 1))
    return runs
