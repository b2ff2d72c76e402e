"""How often which value occurs: columns over a line, in eighths of a cell."""

from __future__ import annotations

import math
from dataclasses import dataclass

from textual.reactive import reactive

from albor_tui.look import glyphs, quantity
from albor_tui.widgets.base.cells import Figure, Row, row_of, words_in_the_middle
from albor_tui.widgets.chart import ticks
from albor_tui.widgets.chart.ticks import Range


@dataclass(frozen=True)
class HistogramData:
    """Counts between neighbouring edges, one edge more than counts; `nonfinite` values stand
    beside them. With `is_log` a column's height is the logarithm of its count; with `is_doubling`
    the axis is by the logarithm, so that bins of powers of two are equally wide."""

    edges: tuple[float, ...] = ()
    counts: tuple[float, ...] = ()
    nonfinite: int = 0
    is_log: bool = False
    is_doubling: bool = False
    empty: str = "loading"


class Histogram(Figure):
    """Draws `data`; more bins than columns are added up."""

    PREFIX = "histogram"
    COMPONENT_CLASSES = {
        *("histogram--bar", "histogram--axis", "histogram--label"),
        *("histogram--broken", "histogram--empty"),
    }
    data: reactive[HistogramData] = reactive(HistogramData(), init=False, repaint=False)

    def draw(self, width: int, height: int) -> list[Row]:
        return draw_histogram(self.data, width, height)


def draw_histogram(data: HistogramData, width: int, height: int) -> list[Row]:
    """Columns, a line, values below it, the highest count at the left."""
    if not any(data.counts) or height < 4 or width < 12:
        return words_in_the_middle(data.empty, width, height)
    g = glyphs.current
    top = quantity.si(max(data.counts))
    gutter = max(len(top), 3) + 1
    columns = spread(data, width - gutter)
    peak = max(columns)
    body = height - 2
    steps = len(g.columns) - 1
    heights = [_height(count, peak, body * steps, is_log=data.is_log) for count in columns]
    rows: list[Row] = []
    for y in range(body):
        below = (body - 1 - y) * steps
        head = top if y == 0 else "log" if y == 1 and data.is_log else ""
        cells = [(g.columns[min(max(h - below, 0), steps)], "bar") for h in heights]
        edge = g.axis_tick if y == 0 else g.axis
        rows.append(
            [*row_of(gutter - 1, (head.rjust(gutter - 1), "label")), (edge, "axis"), *cells]
        )
    line = g.axis_corner + g.axis_line * (width - gutter)
    rows.append(row_of(width, (" " * (gutter - 1), ""), (line, "axis")))
    return [*rows, _labels(data, gutter, width)]


def spread(data: HistogramData, width: int) -> list[float]:
    """A count for each of `width` columns: each bin covers its share of the axis, in whole columns;
    bins that share a column add up."""
    columns = [0.0] * width
    edges = places(data)
    low, span = edges[0], (edges[-1] - edges[0]) or 1.0
    for i, count in enumerate(data.counts):
        first = int((edges[i] - low) / span * width + 1e-9)
        end = int((edges[i + 1] - low) / span * width + 1e-9)
        first = min(first, width - 1)
        for column in range(first, max(first + 1, min(end, width))):
            columns[column] += count
    return columns


def places(data: HistogramData) -> list[float]:
    """The positions of the edges on the axis; 0 is one doubling below the next edge."""
    if not data.is_doubling:
        return [*data.edges]
    floor = next((edge for edge in data.edges if edge > 0), 1.0) / 2
    return [math.log2(max(edge, floor)) for edge in data.edges]


def _height(count: float, peak: float, most: int, *, is_log: bool) -> int:
    """Eighths; what occurs at all is never nothing."""
    if count <= 0:
        return 0
    share = math.log1p(count) / math.log1p(peak) if is_log else count / peak
    return max(1, round(share * most))


def _labels(data: HistogramData, gutter: int, width: int) -> Row:
    if data.is_doubling:
        return _edge_labels(data, gutter, width)
    limits = Range(
        data.edges[0], data.edges[-1] if data.edges[-1] > data.edges[0] else data.edges[0] + 1
    )
    row = row_of(width)
    room, free = width - gutter, 0
    lost = f" {data.nonfinite} not finite" if data.nonfinite else ""
    positions = ticks.ticks(limits, max(2, room // 12))
    for position, text in zip(positions, ticks.labels(positions), strict=True):
        centre = round((position - limits.low) / limits.span * (room - 1))
        at = min(max(0, centre - len(text) // 2), room - len(text))
        if at >= free and at + len(text) <= room - len(lost):
            row[gutter + at : gutter + at + len(text)] = row_of(len(text), (text, "label"))
            free = at + len(text) + 2
    if lost and len(lost) <= room:
        row[width - len(lost) :] = row_of(len(lost), (lost, "broken"))
    return row


def _edge_labels(data: HistogramData, gutter: int, width: int) -> Row:
    """The edges themselves, every so many of them that all have room."""
    row, room, edges, free = row_of(width), width - gutter, places(data), 0
    texts = [quantity.count(edge) for edge in data.edges]
    span, columns = edges[-1] - edges[0] or 1.0, room / max(1, len(data.counts))
    every = math.ceil((max(map(len, texts)) + 2) / max(columns, 0.1))
    for text, edge in [*zip(texts, edges, strict=True)][::every]:
        centre = round((edge - edges[0]) / span * room)
        at = min(max(0, centre - len(text) // 2), room - len(text))
        if at >= free:
            free = at + len(text) + 1
            row[gutter + at : gutter + at + len(text)] = row_of(len(text), (text, "label"))
    return row
