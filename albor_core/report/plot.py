"""Draws one metric of many runs as a picture: SVG here, PNG by a library that is installed.

A curve is drawn in buckets, the lowest and the highest value of each as a band around its mean, so
that a long series loses no spike. Texts of runs are data: made visible, then escaped.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

from albor_core.report.chart import (
    BOTTOM,
    COLOURS,
    HEIGHT,
    LEFT,
    MOST_RUNS,
    WIDTH,
    ReportCurve,
    curve_style,
    drawing,
    look_of,
)
from albor_core.run.errors import AlborError, NotFoundError, UsageError
from albor_core.run.headlines import HOUSE_NAMES
from albor_core.run.home.runs import placed
from albor_core.run.values.clean import clean
from albor_core.store.file.axis import SECONDS, WALL_KEY
from albor_core.store.file.paths import local_store
from albor_core.store.query.names import metric_of
from albor_core.store.query.reader import Reader
from albor_core.store.rows.ruler import Ruler
from albor_core.store.rows.run_row import RunRow
from albor_core.store.rows.series import Series

POINTS = 500
_CHARS, _LINE, _TOP, _SIDE = 80, 16, 30, 12
_SPANS = ((120.0, 1.0, "seconds"), (7200.0, 60.0, "minutes"), (172800.0, 3600.0, "hours"))
_DAYS = (86400.0, "days")
_STYLE = (
    "text{font:11px system-ui,sans-serif;fill:#676b75}text.head{font-size:14px;fill:#16181d}"
    "text.name{fill:#16181d}text.broken{fill:#c02b2b;font-size:14px}.grid{stroke:#dfd9cc}"
    "polyline{fill:none;stroke-width:1.6}.band{opacity:.18}"
)


@dataclass(frozen=True)
class Plot:
    """The contents of a plot. `hidden` counts points of 0 and below, which have no logarithm."""

    metric: str
    x: str
    is_log: bool
    curves: tuple[ReportCurve, ...]
    hidden: int = 0


def plot_of(
    rows: Sequence[tuple[Path, RunRow]], metric: str, *, x: str = "step", is_log: bool = False
) -> Plot:
    """The plot of one metric of runs, each with the store that has it. `x` wall is the time since
    each run began.

    Raises UsageError for more runs than can be told apart, NotFoundError for a run without the
    metric or without what x needs, StoreError.
    """
    if len(rows) > MOST_RUNS:
        raise UsageError(
            f"cannot plot {len(rows)} runs: {MOST_RUNS} can be told apart",
            hint="a narrower --filter, or fewer RUN",
        )
    names = [row.name or row.id for _, row in rows]
    curves, key, hidden = [], metric, 0
    for store, row in rows:
        name = row.name or row.id
        label = clean(name if names.count(name) == 1 else f"{name} ({row.id})", limit=_CHARS)
        key, curve = _curve(store, row, metric, x, label)
        if is_log:
            curve, lost = _logarithms(curve)
            hidden += lost
        curves.append(curve)
    return Plot(clean(key, limit=_CHARS), x, is_log, tuple(curves), hidden)


def _curve(store: Path, row: RunRow, metric: str, x: str, label: str) -> tuple[str, ReportCurve]:
    """The metric's key and its curve, from the run's own store if it still exists."""
    own = local_store(placed(row.id, row.path)) if Path(row.path).is_dir() else store
    with Reader(own if own.is_file() else store) as reader:
        stats = reader.summary(row.id)
        key = metric_of(placed(row.id, row.path), metric, stats)
        series = reader.series(row.id, key, max_points=POINTS, is_timed=x == "wall")
        place = _places(reader, row, x, by_second=series.axis == SECONDS)
    low, mean, high = (
        tuple(map(float, part)) for part in (series.minimum, series.mean, series.maximum)
    )
    return key, ReportCurve(label, tuple(map(place, series.steps)), low, mean, high)


def _places(reader: Reader, row: RunRow, x: str, *, by_second: bool) -> Callable[[float], float]:
    """The function from a step, or a second of the run, to its x."""
    if by_second and x != "wall":
        raise UsageError(
            f"cannot plot {row.id} over {x}: it logged no step, and its machine is seen by time",
            hint="--x wall",
        )
    if x == "step" or by_second:
        return float
    key = HOUSE_NAMES["tokens"] if x == "tokens" else WALL_KEY
    series = reader.series(row.id, key, max_points=POINTS)
    ruler = Ruler.of(_measured(series, row))
    if ruler is None:
        what = "tokens were" if x == "tokens" else "times were"
        raise NotFoundError(f"cannot plot {row.id} over {x}: no {what} logged", hint="--x step")
    return ruler.at


def _measured(series: Series, row: RunRow) -> list[tuple[float, float]]:
    if series.key != WALL_KEY:
        return list(zip(series.steps, series.mean, strict=True))
    first = next(iter(series.minimum), 0.0)
    begun = first if row.created is None else min(first, row.created)
    return [(step, wall - begun) for step, wall in zip(series.steps, series.minimum, strict=True)]


def _logarithms(curve: ReportCurve) -> tuple[ReportCurve, int]:
    """The curve with logarithms of its values, and the number of points without one."""
    points = list(zip(curve.steps, curve.low, curve.mean, curve.high, strict=True))
    kept = [point for point in points if not point[2] <= 0]
    log = [
        (x, _log(low if low > 0 else mean), _log(mean), _log(high)) for x, low, mean, high in kept
    ]
    columns = zip(*log, strict=True) if log else ((), (), (), ())
    return ReportCurve(curve.label, *columns), len(points) - len(kept)


def _log(value: float) -> float:
    return math.log10(value) if 0 < value < math.inf else value


def svg_of(plot: Plot) -> bytes:
    """The picture as an SVG file: no script, no link, no font of its own."""
    span, caption = _span_of(plot)
    curves = _scaled(plot.curves, span)
    height = _TOP + HEIGHT + _LINE + _LINE * len(curves) + _SIDE
    names = (
        f'<polyline class="{look_of(i)}" points="{LEFT},{y - 4} {LEFT + 24},{y - 4}"/>'
        f'<text class="name" x="{LEFT + 32}" y="{y}">{escape(curve.label)}</text>'
        for i, curve in enumerate(curves)
        for y in [_TOP + HEIGHT + _LINE * (i + 2)]
    )
    middle = (LEFT + WIDTH) / 2
    page = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH + _SIDE}" height="{height}"'
        f' viewBox="0 0 {WIDTH + _SIDE} {height}" role="img">'
        f"<title>{escape(plot.metric)}</title><style>{_STYLE}{curve_style()}</style>"
        f'<rect width="100%" height="100%" fill="#ffffff"/>'
        f'<text class="head" x="{LEFT}" y="20">{escape(plot.metric)}</text>'
        f'<g transform="translate(0 {_TOP})">{drawing(curves, is_log=plot.is_log)}</g>'
        f'<text x="{middle}" y="{_TOP + HEIGHT + BOTTOM - 16}" text-anchor="middle">{caption}'
        f"</text>{''.join(names)}</svg>\n"
    )
    return page.encode("utf-8", "replace")


def _span_of(plot: Plot) -> tuple[float, str]:
    """The length of a unit of the x axis, and the label of the axis."""
    if plot.x != "wall":
        return 1.0, plot.x
    most = max((x for curve in plot.curves for x in curve.steps), default=0.0)
    found = ((unit, word) for below, unit, word in _SPANS if most < below)
    unit, word = next(found, _DAYS)
    return unit, f"{word} since the run began"


def _scaled(curves: Iterable[ReportCurve], unit: float) -> list[ReportCurve]:
    return [
        ReportCurve(one.label, [x / unit for x in one.steps], one.low, one.mean, one.high)
        for one in curves
    ]


def png_of(plot: Plot) -> bytes:
    """The picture as a PNG file, by cairosvg or matplotlib. Raises AlborError if neither is
    installed.
    """
    for name, draw in _DRAWERS.items():
        try:
            library = import_module(name)
        except (ModuleNotFoundError, OSError):  # cairosvg without the library of the system
            continue
        return draw(library, plot)
    raise AlborError(
        "cannot write PNG: neither cairosvg nor matplotlib is installed",
        hint="pip install matplotlib, or --out x.svg",
    )


def _by_cairosvg(cairosvg: Any, plot: Plot) -> bytes:
    drawn: bytes = cairosvg.svg2png(bytestring=svg_of(plot), scale=2)
    return drawn


def _by_matplotlib(_: Any, plot: Plot) -> bytes:
    span, caption = _span_of(plot)
    figure = import_module("matplotlib.figure").Figure(
        figsize=(7.2, 4.2), dpi=160, layout="constrained"
    )
    axes = figure.subplots()
    for place, one in enumerate(_scaled(plot.curves, span)):
        low, mean, high = (_values(part, plot) for part in (one.low, one.mean, one.high))
        colour = COLOURS[place % len(COLOURS)]
        axes.fill_between(one.steps, low, high, color=colour, alpha=0.18, linewidth=0)
        axes.plot(one.steps, mean, color=colour, linewidth=1.3, label=f" {_words(one.label)}")
    axes.set_title(_words(plot.metric), loc="left")
    axes.set_xlabel(caption)
    axes.set_yscale("log" if plot.is_log else "linear")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    file = BytesIO()
    with warnings.catch_warnings():  # of signs that its font lacks, which are drawn as boxes
        warnings.simplefilter("ignore", UserWarning)
        figure.savefig(file, format="png")
    return file.getvalue()


def _values(part: Sequence[float], plot: Plot) -> list[float]:
    """The values themselves; non-finite ones leave a gap."""
    found = [10.0**value if plot.is_log and math.isfinite(value) else value for value in part]
    return [value if math.isfinite(value) else math.nan for value in found]


def _words(text: str) -> str:
    """A text of a run with dollars escaped, since matplotlib would read formulas between them."""
    return text.replace("$", r"\$")


_DRAWERS: Mapping[str, Callable[[Any, Plot], bytes]] = {
    "cairosvg": _by_cairosvg,
    "matplotlib": _by_matplotlib,
}
