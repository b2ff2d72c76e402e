"""Draws a line chart as SVG text: no library, no script, no network; the page around it styles it.

Coordinates are computed here and printed as numbers, so no text of a run ever becomes a path.
Non-finite values break the line and leave a mark at the top, at their step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from albor_core.picture.shapes import Shape, svg_text
from albor_core.run.values.quantity import COUNT_UNITS

WIDTH, HEIGHT = 560, 240
LEFT, RIGHT, TOP, BOTTOM = 64, 12, 12, 28
_TICKS = 5  # about so many on an axis
_PLAIN_BELOW = 1e4
_MOST_DECADES = 8  # with a tick each
_HUGE = 1e150  # beyond it differences overflow, and the axis is unreadable
COLOURS = (
    "#c4581a", "#1f7a9c", "#7450b8", "#2f7d3a", "#a3375f",
    "#8a6300", "#3a5bbf", "#00807a", "#b03a2e", "#5d6470",
)  # fmt: skip
DASHES = ("", "7 3", "2 3", "9 3 2 3")  # told apart where the colours begin again
MOST_RUNS = len(COLOURS) * len(DASHES)


@dataclass(frozen=True)
class ReportCurve:
    """One run's curve: per bucket its step, minimum, mean and maximum."""

    label: str
    steps: Sequence[float]
    low: Sequence[float]
    mean: Sequence[float]
    high: Sequence[float]


def curve_style() -> str:
    """The style sheet of curve classes: c0, c1, ... are colours, d1, ... dashes, k0, ... keys
    beside names.
    """
    colours = (
        f".c{i}{{stroke:{c};fill:{c}}}polyline.c{i}{{fill:none}}.band.c{i}{{stroke:none}}"
        f".k{i}{{background:{c}}}"
        for i, c in enumerate(COLOURS)
    )
    dashes = (f".d{i}{{stroke-dasharray:{dash}}}" for i, dash in enumerate(DASHES) if dash)
    return "".join((*colours, *dashes))


def look_of(place: int) -> str:
    """The style classes of the curve at this position in a chart."""
    dash = place // len(COLOURS) % len(DASHES)
    return f"c{place % len(COLOURS)}" + (f" d{dash}" if dash else "")


def svg(title: str, traces: Sequence[ReportCurve]) -> str:
    """The chart as SVG, with a text alternative for screen readers."""
    said = f"{escape(title)}: {escape(', '.join(t.label for t in traces))}"
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img"><title>{said}</title>'
        f"{drawing(traces)}</svg>"
    )


def drawing(traces: Sequence[ReportCurve]) -> str:
    """Axes and curves in WIDTH x HEIGHT."""
    xs = [x for trace in traces for x in trace.steps]
    ys = [y for t in traces for part in (t.low, t.mean, t.high) for y in part if math.isfinite(y)]
    if not xs or not ys:
        return f'<text x="{LEFT}" y="40">nothing finite to draw</text>'
    x_range, y_range = x_span(xs), span(ys)
    shapes = [*axes(x_range, y_range)]
    for index, trace in enumerate(traces):
        shapes += curve_shapes(trace, look_of(index), x_range, y_range)
        lost = (x for x, y in zip(trace.steps, trace.mean, strict=True) if not math.isfinite(y))
        shapes += broken_shapes(lost, x_range)
    return svg_text(shapes)


def x_span(xs: Sequence[float]) -> tuple[float, float]:
    """The x axis of points: from 0 where they begin near it."""
    low, high = span(xs)
    return (0.0, high) if 0 < low <= high / 20 else (low, high)


def span(values: Sequence[float]) -> tuple[float, float]:
    """The lowest and the highest value, apart."""
    low, high = max(min(values), -_HUGE), min(max(values), _HUGE)
    around = max(0.5, abs(low) / 1e3)
    return (low, high) if high > low else (low - around, low + around)


def axes(
    xs: tuple[float, float], ys: tuple[float, float], *, is_log: bool = False
) -> Iterator[Shape]:
    """Grid lines and ticks. `is_log`: `ys` are logarithms to the base ten, the ticks values."""
    for y, words in (log_ticks if is_log else ticks)(*ys):
        at = y_place(y, ys)
        yield Shape("line", "grid", ((LEFT, at), (WIDTH - RIGHT, at)))
        yield Shape("text", "tick", ((LEFT - 6, at + 4),), words, "end")
    for x, words in ticks(*xs):
        at = x_place(x, xs)
        anchor: Literal["end", "middle"] = "end" if at > WIDTH - RIGHT - 20 else "middle"
        yield Shape("text", "tick", ((at, HEIGHT - 8),), words, anchor)


def ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Round values from `low` to `high`, at most ten, with their texts in the unit of the axis."""
    rough = (high - low) / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((power * m for m in (1.0, 2.0, 5.0) if power * m >= rough * 0.999), power * 10)
    first = math.ceil(low / step - 1e-9)
    places = [first + i for i in range(2 * _TICKS) if (first + i) * step <= high + step * 1e-9]
    return [(i * step, _tick(i * step, step, max(abs(low), abs(high)))) for i in places]


def log_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """As `ticks`, for logarithms to the base ten: decades, fractions of them if there are few, and
    round values if there is none.
    """
    decades = range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1)
    if len(decades) > 2 or not -290 < low <= high < 290:
        step = -(-len(decades) // _MOST_DECADES) or 1
        return [(float(power), _power(power)) for power in decades[::step]]
    fine = [
        (power + math.log10(part), part * 10.0**power)
        for power in range(math.floor(low), math.floor(high) + 1)
        for part in (1, 2, 5)
    ]
    inside = [(place, f"{value:g}") for place, value in fine if low <= place <= high]
    if len(inside) > 1:
        return inside
    return [(math.log10(value), words) for value, words in ticks(10**low, 10**high) if value > 0]


def _power(power: int) -> str:
    return f"{10.0**power:g}" if abs(power) < 5 else f"1e{power}"


def _tick(value: float, step: float, largest: float) -> str:
    """The text of a tick: `187.5k`, `0.004`, `3e-05`, with no more digits than `step` needs."""
    if value == 0:
        return "0"
    if not 1e-3 <= largest < 1e15:
        return f"{value:.3g}"
    units = ((u, s) for u, s in COUNT_UNITS if largest >= max(s, _PLAIN_BELOW))
    unit, scale = next(units, ("", 1.0))
    digits = max(0, -math.floor(math.log10(step / scale) + 1e-9))
    text = f"{value / scale:.{digits}f}"
    return f"{text}{unit}" if len(text) < 8 else f"{value:.3g}"


def curve_shapes(
    trace: ReportCurve, looks: str, xs: tuple[float, float], ys: tuple[float, float]
) -> Iterator[Shape]:
    """A band from low to high, and the line of means, in pieces where a mean is not finite."""
    points = list(zip(trace.steps, trace.low, trace.mean, trace.high, strict=True))
    band = [p for p in points if math.isfinite(p[1]) and math.isfinite(p[3])]
    if any(low < high for _, low, _, high in band):
        there = [(x_place(x, xs), y_place(high, ys)) for x, _, _, high in band]
        back = [(x_place(x, xs), y_place(low, ys)) for x, low, _, _ in reversed(band)]
        yield Shape("area", f"band {looks}", (*there, *back))
    for piece in _pieces(points):
        places = tuple((x_place(x, xs), y_place(y, ys)) for x, y in piece)
        yield Shape("dot" if len(piece) == 1 else "line", looks, places)


def broken_shapes(places: Iterable[float], xs: tuple[float, float]) -> Iterator[Shape]:
    """A mark at the top for each place where something was not finite."""
    for x in places:
        yield Shape("text", "broken", ((x_place(x, xs), TOP + 4),), "\u00d7")


def _pieces(points: Sequence[tuple[float, ...]]) -> Iterator[list[tuple[float, float]]]:
    """Stretches of consecutive finite means."""
    piece: list[tuple[float, float]] = []
    for x, _, mean, _ in points:
        if math.isfinite(mean):
            piece.append((x, mean))
        elif piece:
            yield piece
            piece = []
    if piece:
        yield piece


def x_place(x: float, xs: tuple[float, float]) -> float:
    """Where a value of the x axis is drawn."""
    return round(LEFT + (x - xs[0]) / (xs[1] - xs[0]) * (WIDTH - LEFT - RIGHT), 1)


def y_place(y: float, ys: tuple[float, float]) -> float:
    """Where a value of the y axis is drawn; one beyond it at its end."""
    y = min(max(y, ys[0]), ys[1])
    return round(HEIGHT - BOTTOM - (y - ys[0]) / (ys[1] - ys[0]) * (HEIGHT - TOP - BOTTOM), 1)
