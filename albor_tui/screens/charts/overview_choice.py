"""What the Overview of a run shows: what its config says (monitoring.terminal), else the house's
own choice. Pure.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import replace

from albor_core.feed.view.run_view import ChartChoice, RunView, TerminalView
from albor_core.run.values.clean import clean
from albor_tui.model.program_charts import HOUSE as HOUSE_KEYS
from albor_tui.model.program_charts import LOSSES
from albor_tui.screens.charts.curves import KEYS, loss_chart
from albor_tui.widgets.chart.curves import Curves, is_measured, single_chart
from albor_tui.widgets.chart.data import ChartData, Trace
from albor_tui.widgets.chart.plot import PlotLine

LOSS = ChartChoice("train/loss", is_loss_curve=True)
HOUSE = tuple(map(ChartChoice, HOUSE_KEYS))
TONES = ("second", "fourth", "third")  # of the small charts
_NAMES = {
    "train/loss": "loss",
    "optim/lr": "learning rate",
    "optim/grad_norm": "gradient norm",
    "perf/tokens_per_s": "tokens/s",
    "perf/samples_per_s": "samples/s",
}


def charts_of(terminal: TerminalView | None) -> tuple[ChartChoice, tuple[ChartChoice, ...]]:
    """The large chart, and up to three small ones."""
    if terminal is None:
        return LOSS, HOUSE
    large = next((chart for chart in terminal.charts if chart.is_loss_curve), LOSS)
    small = [chart for chart in terminal.charts if not chart.is_loss_curve]
    if not small:
        keys = dict.fromkeys(key for key in terminal.metrics if key != large.metric)
        small = [ChartChoice(key) for key in keys]
    return large, tuple(small[: len(TONES)])


def keys_of(terminal: TerminalView | None) -> tuple[str, ...]:
    """The metrics whose curves the Overview asks for."""
    if terminal is None:
        return KEYS
    charts = (chart.metric for chart in terminal.charts)
    return tuple(dict.fromkeys((*KEYS, *terminal.metrics, *charts)))


def shows_losses(chart: ChartChoice) -> bool:
    """Whether the large chart is the one of loss and validation loss."""
    return chart.metric in LOSSES


def title_of(chart: ChartChoice) -> str:
    return _NAMES.get(chart.metric) or clean(chart.metric)


def large_chart(
    view: RunView, chart: ChartChoice, curves: Curves, *, is_loading: bool
) -> ChartData:
    """Loss and validation loss, or the one metric that stands in their place."""
    if not shows_losses(chart):
        data = small_chart(view, chart, curves, "main")
        return replace(data, empty="loading") if is_loading else data
    return averaged(loss_chart(view, curves, is_loading=is_loading), "main", chart.window)


def small_chart(view: RunView, chart: ChartChoice, curves: Curves, tone: str) -> ChartData:
    """A small chart of one metric, by its key."""
    data = single_chart(
        view,
        curves.get(chart.metric),
        tone,
        history=_history(view, chart.metric),
        is_noisy=is_measured(chart.metric),
    )
    return averaged(data, tone, chart.window)


def has_points(view: RunView, chart: ChartChoice, curves: Curves) -> bool:
    """Whether there is anything to draw in a chart."""
    keys = LOSSES if shows_losses(chart) else (chart.metric,)
    return any(key in curves or bool(_history(view, key)) for key in keys)


def _history(view: RunView, key: str) -> tuple[float, ...]:
    """Recent values of a metric from the live state."""
    known = {
        "train/loss": view.loss_history,
        "optim/lr": view.lr_history,
        "optim/grad_norm": view.grad_norm_history,
    }
    return known.get(key, ())


def averaged(data: ChartData, tone: str, window: int) -> ChartData:
    """The line in `tone` as the mean of the last `window` steps, over its own points."""
    if not window:
        return data
    lines: list[Trace | PlotLine] = []
    for line in data.lines:
        if isinstance(line, Trace) and line.tone == tone:
            lines.append(replace(line, tone="raw", is_noisy=False))
            mean = _means(line, window)
            lines.append(
                replace(line, y=mean, low=(), high=(), is_noisy=False, nonfinite=(), last=None)
            )
        else:
            lines.append(line)
    return replace(data, lines=tuple(lines))


def _means(line: Trace, window: int) -> tuple[float, ...]:
    """A moving average: at each point the mean of finite values in the last `window` steps."""
    found, first = [], 0
    for i, step in enumerate(line.x):
        first = bisect_right(line.x, step - window, first, i)
        known = [y for y in line.y[first : i + 1] if math.isfinite(y)]
        found.append(math.fsum(known) / len(known) if known else math.nan)
    return tuple(found)


def latest_of(curves: Curves) -> dict[str, float]:
    """The newest value of each curve."""
    return {key: curve.newest for key, curve in curves.items() if curve.mean}
