"""Metrics of a family of layers as one table: a row a layer, a column a stretch of steps. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from albor_core.store.rows.series import Series
from albor_tui.look import quantity
from albor_tui.widgets.chart_grid.sections import Cell
from albor_tui.widgets.distribution.heat_map import HeatData

LABEL_EVERY = 10  # columns between two steps that are named
Window = tuple[float, float]


def layer_table(
    cell: Cell, curves: Sequence[Sequence[Series]], columns: int, window: Window | None
) -> HeatData:
    """The table of a panel; `curves` are those of each of its keys, of all runs that are shown,
    whose mean it is."""
    every = [series for some in curves for series in some if not series.is_empty]
    if not every:
        return HeatData()
    low, high = window or (
        min(series.steps[0] for series in every),
        max(series.steps[-1] for series in every),
    )
    labels = tuple(
        quantity.si(round(low + (high - low) * i / columns)) if i % LABEL_EVERY == 0 else ""
        for i in range(columns)
    )
    rows = tuple(
        _mean_row([sampled(one, low, high, columns) for one in some], columns) for some in curves
    )
    return HeatData(cell.rows, labels, rows, empty="no points in this window")


def sampled(series: Series, low: float, high: float, columns: int) -> list[float | None]:
    """Means of a curve over equal stretches; a stretch between two points has the earlier one's
    value."""
    found: list[float | None] = []
    steps, values, i, held = series.steps, series.mean, 0, None
    span = (high - low) / columns
    end = len(steps)
    for column in range(columns):
        edge = low + span * (column + 1)
        total, count = 0.0, 0
        while i < end and (steps[i] < edge or (column == columns - 1 and steps[i] <= high)):
            held = values[i]
            if steps[i] >= low:
                total, count = total + held, count + 1
            i += 1
        is_over = i >= end and not count and steps[-1] < edge - span
        found.append(total / count if count else None if is_over else held)
    return found


def _mean_row(rows: Sequence[Sequence[float | None]], columns: int) -> tuple[float | None, ...]:
    if len(rows) == 1:
        return tuple(rows[0])
    found: list[float | None] = []
    for i in range(columns):
        known = [value for row in rows if (value := row[i]) is not None]
        found.append(sum(known) / len(known) if known else None)
    return tuple(found)


def highest(cell: Cell, curves: Sequence[Sequence[Series]]) -> tuple[str, float] | None:
    """The row whose newest value is the highest, and that value."""
    newest = [
        (some[0].newest, row)
        for row, some in zip(cell.rows, curves, strict=True)
        if some and math.isfinite(some[0].newest)
    ]
    if not newest:
        return None
    value, row = max(newest)
    return row, value
