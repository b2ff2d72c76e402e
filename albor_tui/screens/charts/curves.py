"""Which curves the screens ask for, and the chart that matters most. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from albor_core.feed.view.run_view import RunView
from albor_tui.widgets.chart.curves import (
    RULER_KEYS,
    Curves,
    chart_of,
    from_history,
    rulers,
    single_chart,
    trace,
)
from albor_tui.widgets.chart.data import ChartData

__all__ = ["KEYS", "MAX_POINTS", "loss_chart", "preview_chart", "preview_keys", "single_chart"]

MAX_POINTS = 400  # more than the columns of any terminal; the feed keeps every spike
KEYS = (
    "train/loss",
    "val/loss",
    "optim/lr",
    "optim/grad_norm",
    "perf/tokens_per_s",
    *RULER_KEYS,
)
_LOSSES = ("train/loss", "val/loss")


def preview_keys(mains: Sequence[str]) -> tuple[str, ...]:
    """The curves of a preview: of the metric that stands for a run, or of its losses."""
    return _LOSSES if not mains or mains[0] in _LOSSES else (mains[0],)


def preview_chart(view: RunView, curves: Curves) -> tuple[str, ChartData]:
    """The chart that shows a run best, with its name: the loss, or its only curve."""
    own = None if any(key in curves for key in _LOSSES) else next(iter(curves.values()), None)
    if own is None:
        return "loss", loss_chart(view, curves)
    return own.key, single_chart(view, own, "main")


def loss_chart(view: RunView, curves: Curves, *, is_loading: bool = False) -> ChartData:
    """Raw loss under its smoothed line, validation on top. While the curves `is_loading` a chart
    without points says nothing of the run.
    """
    raw = curves.get("train/loss")
    if raw is None or raw.is_empty:
        raw = from_history(view, view.loss_history)
    found = rulers(view, curves)
    lines = [] if raw.is_empty else [trace("main", raw, "loss", is_noisy=True, along=found)]
    val = curves.get("val/loss")
    if val is not None and not val.is_empty:
        lines.append(trace("val", val, "val", along=found))
    chart = chart_of(view, lines, curves)
    return replace(chart, empty="loading") if is_loading else chart
