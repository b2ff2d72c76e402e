"""A table of numbers as shades: where it is high shows before a number is read.

Density of the character and colour say the same, so it reads in sixteen colours, in none, and in
ASCII. Values that are not finite are marked, unknown ones are left blank.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from textual.reactive import reactive

from albor_tui.look import glyphs
from albor_tui.widgets.base.cells import Figure, Row, cells_of, row_of, words_in_the_middle
from albor_tui.widgets.chart import ticks

# from low to high: place in the table of shades, tone; each step is denser or warmer, none less
LEVELS = (
    *((1, "low"), (2, "low"), (2, "middle"), (3, "middle")),
    *((3, "high"), (4, "high"), (4, "top")),
)
_WIDEST_LABEL = 0.3  # of the width


@dataclass(frozen=True)
class HeatData:
    """Rows of values with their names; None is unknown. Limits default to the lowest and highest
    finite value."""

    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    values: tuple[tuple[float | None, ...], ...] = ()
    low: float | None = None
    high: float | None = None
    empty: str = "loading"


class HeatMap(Figure):
    """Draws `data`; more rows or columns than cells are shown by the mean of neighbours."""

    PREFIX = "heat-map"
    COMPONENT_CLASSES = {f"heat-map--{tone}" for tone in ("low", "middle", "high", "top")} | {
        *("heat-map--label", "heat-map--broken", "heat-map--empty"),
    }
    data: reactive[HeatData] = reactive(HeatData(), init=False, repaint=False)

    def draw(self, width: int, height: int) -> list[Row]:
        return draw_heat(self.data, width, height)


def draw_heat(data: HeatData, width: int, height: int) -> list[Row]:
    """The table, names of rows at the left, names of columns and the scale below."""
    finite = [v for row in data.values for v in row if v is not None and math.isfinite(v)]
    if not finite or height < 2:
        return words_in_the_middle(data.empty, width, height)
    low = min(finite) if data.low is None else data.low
    high = max(finite) if data.high is None else data.high
    gutter = min(
        max((len(cells_of(name, "")) for name in data.rows), default=0) + 1,
        int(width * _WIDEST_LABEL),
    )
    body = height - (2 if height >= 4 and data.columns else 1)
    columns = max(len(row) for row in data.values)
    tall = max(1, body // len(data.values))
    wide = max(1, (width - gutter) // columns)
    pooled = pool(data.values, body // tall, (width - gutter) // wide)
    names = data.rows[:: math.ceil(len(data.values) / max(1, body // tall))]
    drawn: list[Row] = []
    for i, values in enumerate(pooled):
        cells = [_cell(value, low, high) for value in values for _ in range(wide)]
        for k in range(tall):
            name = names[i] if k == 0 and i < len(names) else ""
            drawn.append([*row_of(gutter, (name, "label")), *_padded(cells, width - gutter)])
    if height >= 4 and data.columns:
        drawn.append(_column_names(data.columns, columns, len(pooled[0]) * wide, gutter, width))
    return [*drawn, _scale(low, high, gutter, width)]


def pool(
    values: Sequence[Sequence[float | None]], rows: int, columns: int
) -> list[list[float | None]]:
    """At most `rows` x `columns` means of neighbouring values; a non-finite one makes its group
    non-finite."""
    down = math.ceil(len(values) / max(1, rows))
    across = math.ceil(max(map(len, values)) / max(1, columns))
    found = []
    for i in range(0, len(values), down):
        group = values[i : i + down]
        length = max(map(len, group))
        found.append(
            [
                _mean([v for row in group for v in row[k : k + across]])
                for k in range(0, length, across)
            ]
        )
    return found


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


def _cell(value: float | None, low: float, high: float) -> tuple[str, str]:
    if value is None:
        return " ", ""
    if not math.isfinite(value):
        return glyphs.current.broken, "broken"
    share = (value - low) / (high - low) if high > low else 0.5
    shade, tone = LEVELS[min(max(int(share * len(LEVELS)), 0), len(LEVELS) - 1)]
    return glyphs.current.shades[shade], tone


def _column_names(names: Sequence[str], count: int, drawn: int, gutter: int, width: int) -> Row:
    """Names under their columns, as many as do not touch."""
    row = row_of(width)
    free = gutter
    for i, name in enumerate(names):
        at = gutter + int(i * drawn / count)
        cells = cells_of(name, "label")
        if at >= free and at + len(cells) <= width:
            row[at : at + len(cells)] = cells
            free = at + len(cells) + 1
    return row


def _scale(low: float, high: float, gutter: int, width: int) -> Row:
    first, last = ticks.labels([low, high]) if high > low else ticks.labels([low]) * 2
    shades = [(glyphs.current.shades[shade] * 2, tone) for shade, tone in LEVELS]
    return row_of(width, (" " * gutter, ""), (f"{first} ", "label"), *shades, (f" {last}", "label"))


def _padded(cells: Row, width: int) -> Row:
    return cells[:width] + [(" ", "")] * (width - len(cells))
