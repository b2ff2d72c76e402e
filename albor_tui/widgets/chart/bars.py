"""Numbers side by side as bars: a benchmark's contestants, the norms of layers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from textual.reactive import reactive

from albor_tui.look import glyphs, quantity
from albor_tui.widgets.base.cells import Figure, Row, cells_of, row_of, words_in_the_middle

_WIDEST_LABEL = 0.35  # of the width


@dataclass(frozen=True)
class Bar:
    """One number with its name. `words` is its text where not the number itself, `limit` what it is
    held against, `low` and `high` where it may lie; a tone of Bars.TONES."""

    label: str
    value: float | None
    words: str = ""
    limit: float | None = None
    low: float | None = None
    high: float | None = None
    tone: str = "main"


@dataclass(frozen=True)
class BarsData:
    """Bars from the top; all begin at 0 and share a scale that ends at `full` or at the longest."""

    bars: tuple[Bar, ...] = ()
    full: float | None = None
    empty: str = "loading"


class Bars(Figure):
    """Draws `data`; bars that do not fit are counted on the last line."""

    PREFIX = "bars"
    TONES = ("main", "val", "second", "third", "fourth", "over")
    COMPONENT_CLASSES = {f"bars--{tone}" for tone in TONES} | {
        *("bars--label", "bars--value", "bars--track", "bars--limit"),
        *("bars--range", "bars--broken", "bars--empty"),
    }
    data: reactive[BarsData] = reactive(BarsData(), init=False, repaint=False)

    def draw(self, width: int, height: int) -> list[Row]:
        return draw_bars(self.data, width, height)


def draw_bars(data: BarsData, width: int, height: int) -> list[Row]:
    """A line per bar: name, bar, text."""
    if not data.bars or width < 16:
        return words_in_the_middle(data.empty, width, height)
    shown = data.bars if len(data.bars) <= height else data.bars[: height - 1]
    names = min(max(len(cells_of(bar.label, "")) for bar in shown), int(width * _WIDEST_LABEL))
    texts = [bar.words or quantity.ratio(bar.value) for bar in shown]
    numbers = max(len(cells_of(text, "")) for text in texts)
    room = width - names - numbers - 2
    full = data.full or max((_reach(bar) for bar in data.bars), default=0.0) or 1.0
    rows = []
    for bar, text in zip(shown, texts, strict=True):
        value = cells_of(text, _text_tone(bar))
        padding: Row = [(" ", "")] * (numbers - len(value))
        name = row_of(names + 1, (_cut(bar.label, names), "label"))
        rows.append([*name, *_bar(bar, room, full), (" ", ""), *padding, *value][:width])
    if len(shown) < len(data.bars):
        rows.append(row_of(width, (f"and {len(data.bars) - len(shown)} more", "label")))
    return rows


def _reach(bar: Bar) -> float:
    known = (bar.value, bar.limit, bar.high)
    return max((v for v in known if v is not None and math.isfinite(v)), default=0.0)


def _text_tone(bar: Bar) -> str:
    return "value" if bar.value is None or math.isfinite(bar.value) else "broken"


def _cut(label: str, width: int) -> str:
    cells = cells_of(label, "")
    if len(cells) <= width:
        return label
    return "".join(c for c, _ in cells[: max(0, width - 1)]) + glyphs.current.ellipsis


def _bar(bar: Bar, width: int, full: float) -> Row:
    """A track filled to the value in half cells, with the range and the limit marked on it."""
    g = glyphs.current
    value = bar.value if bar.value is not None and math.isfinite(bar.value) else 0.0
    halves = round(min(max(value / full, 0.0), 1.0) * width * 2)
    if value > 0:
        halves = max(1, halves)
    is_over = bar.limit is not None and value > bar.limit
    tone = "over" if is_over else bar.tone
    whole, half = divmod(halves, 2)
    cells: Row = [(g.bar_full, tone)] * whole
    if half:
        cells.append((g.bar_parts or g.bar_full, tone))
    cells = (cells + [(g.bar_empty, "track")] * (width - len(cells)))[:width]
    if bar.low is not None and bar.high is not None:
        first, last = (_place(v, width, full) for v in (bar.low, bar.high))
        for at in range(first, last + 1):
            cells[at] = (cells[at][0], "range")
    if bar.limit is not None and math.isfinite(bar.limit):
        cells[_place(bar.limit, width, full)] = (g.budget, "limit")
    return cells


def _place(value: float, width: int, full: float) -> int:
    return min(max(round(value / full * width), 0), width - 1)
