"""Draws a line chart as SVG text: no library, no script, no network; the page around it styles it.

Coordinates are computed here and printed as numbers, so no text of a run ever becomes a path.
Non-finite values break the line and leave a mark at the top, at their step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

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
_DASHES = ("", "7 3", "2 3", "9 3 2 3")  # told apart where the colours begin again
MOST_RUNS = len(COLOURS) * len(_DASHES)


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
    dashes = (f".d{i}{{stroke-dasharray:{dash}}}" for i, dash in enumerate(_DASHES) if dash)
    return "".join((*colours, *dashes))


def look_of(place: int) -> str:
    """The style classes of the curve at this position in a chart."""
    dash = place // len(COLOURS) % len(_DASHES)
    return f"c{place % len(COLOURS)}" + (f" d{dash}" if dash else "")


def svg(title: str, traces: Sequence[ReportCurve]) -> str:
    """The chart as SVG, with a text alternative for screen readers."""
    said = f"{escape(title)}: {escape(', '.join(t.label for t in traces))}"
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img"><title>{said}</title>'
        f"{drawing(traces)}</svg>"
    )


def drawing(traces: Sequence[ReportCurve], *, is_log: bool = False) -> str:
    """Axes and curves in WIDTH x HEIGHT. `is_log`: values are logarithms to the base ten, and the
    axis names the values.
    """
    xs = [x for trace in traces for x in trace.steps]
    ys = [y for t in traces for part in (t.low, t.mean, t.high) for y in part if math.isfinite(y)]
    if not xs or not ys:
        return f'<text x="{LEFT}" y="40">nothing finite to draw</text>'
    x_range, y_range = _span(xs), _span(ys)
    if 0 < x_range[0] <= x_range[1] / 20:
        x_range = (0.0, x_range[1])
    parts = [*_axes(x_range, y_range, log_ticks if is_log else ticks)]
    for index, trace in enumerate(traces):
        parts += _trace(trace, look_of(index), x_range, y_range)
    return "".join(parts)


def _span(values: Sequence[float]) -> tuple[float, float]:
    low, high = max(min(values), -_HUGE), min(max(values), _HUGE)
    around = max(0.5, abs(low) / 1e3)
    return (low, high) if high > low else (low - around, low + around)


def _axes(
    xs: tuple[float, float],
    ys: tuple[float, float],
    y_ticks: Callable[[float, float], list[tuple[float, str]]],
) -> Iterator[str]:
    for y, words in y_ticks(*ys):
        at = _y(y, ys)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}"/>'
        yield f'<text class="tick" x="{LEFT - 6}" y="{at + 4}" text-anchor="end">{words}</text>'
    for x, words in ticks(*xs):
        at = _x(x, xs)
        anchor = "end" if at > WIDTH - RIGHT - 20 else "middle"
        yield f'<text class="tick" x="{at}" y="{HEIGHT - 8}" text-anchor="{anchor}">{words}</text>'


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


def _trace(
    trace: ReportCurve, name: str, xs: tuple[float, float], ys: tuple[float, float]
) -> Iterator[str]:
    points = list(zip(trace.steps, trace.low, trace.mean, trace.high, strict=True))
    band = [p for p in points if math.isfinite(p[1]) and math.isfinite(p[3])]
    if any(low < high for _, low, _, high in band):
        there = [f"{_x(x, xs)},{_y(high, ys)}" for x, _, _, high in band]
        back = [f"{_x(x, xs)},{_y(low, ys)}" for x, low, _, _ in reversed(band)]
        yield f'<polygon class="band {name}" points="{" ".join([*there, *back])}"/>'
    for piece in _pieces(points):
        if len(piece) == 1:
            x, y = piece[0]
            yield f'<circle class="{name}" cx="{_x(x, xs)}" cy="{_y(y, ys)}" r="2"/>'
        else:
            line = " ".join(f"{_x(x, xs)},{_y(y, ys)}" for x, y in piece)
            yield f'<polyline class="{name}" points="{line}"/>'
    for x, _, mean, _ in points:
        if not math.isfinite(mean):
            yield f'<text class="broken" x="{_x(x, xs)}" y="{TOP + 4}">&#215;</text>'


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


def _x(x: float, xs: tuple[float, float]) -> float:
    return round(LEFT + (x - xs[0]) / (xs[1] - xs[0]) * (WIDTH - LEFT - RIGHT), 1)


def _y(y: float, ys: tuple[float, float]) -> float:
    y = min(max(y, ys[0]), ys[1])
    return round(HEIGHT - BOTTOM - (y - ys[0]) / (ys[1] - ys[0]) * (HEIGHT - TOP - BOTTOM), 1)
