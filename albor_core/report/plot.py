"""One metric of many runs as a picture.

A curve is drawn in buckets, the lowest and the highest value of each as a band around its mean, so
that a long series loses no spike. Texts of runs are data: made visible, then escaped.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from albor_core.picture.chart import COLOURS, DASHES, MOST_RUNS, ReportCurve
from albor_core.picture.line_picture import LinePicture, PictureLine, time_unit
from albor_core.run.errors import NotFoundError, UsageError
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
_CHARS = 80


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
            curve, lost = _above_zero(curve)
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


def _above_zero(curve: ReportCurve) -> tuple[ReportCurve, int]:
    """The points of a curve that have a logarithm, or are not finite, and how many others were."""
    points = list(zip(curve.steps, curve.low, curve.mean, curve.high, strict=True))
    kept = [point for point in points if not point[2] <= 0]
    columns = zip(*kept, strict=True) if kept else ((), (), (), ())
    return ReportCurve(curve.label, *columns), len(points) - len(kept)


def plot_picture(plot: Plot) -> LinePicture:
    """The picture of a plot, a colour and dash for each run."""
    lines = tuple(
        PictureLine(
            one.label, COLOURS[place % len(COLOURS)], one.steps, one.mean, one.low, one.high,
            dash=DASHES[place // len(COLOURS) % len(DASHES)],
        )
        for place, one in enumerate(plot.curves)
    )  # fmt: skip
    broken = tuple(
        x
        for one in plot.curves
        for x, y in zip(one.steps, one.mean, strict=True)
        if not math.isfinite(y)
    )
    longest = max((x for one in plot.curves for x in one.steps), default=0.0)
    unit, word = time_unit(longest) if plot.x == "wall" else (1.0, plot.x)
    label = f"{word} since the run began" if plot.x == "wall" else word
    return LinePicture(plot.metric, label, lines, is_log=plot.is_log, broken=broken, x_unit=unit)
