"""What an alert is about: its metric over the run so far, the limit, and where it was crossed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from textual.content import Content

from albor_core.feed.view.run_view import RunView
from albor_core.store.rows.rows import AlertRow
from albor_core.store.rows.series import Series
from albor_tui.screens.charts.curves import single_chart
from albor_tui.widgets.alert_panels import limit_words
from albor_tui.widgets.base import styled
from albor_tui.widgets.chart.data import ChartData, Mark
from albor_tui.widgets.chart.plot import PlotLine


def alert_chart(row: AlertRow, view: RunView, curves: Mapping[str, Series]) -> ChartData:
    """The curve of the alert's metric under its limit, with what happened to the run. Pure."""
    metric = row.metric or ""
    data = single_chart(view, curves.get(metric), "main")
    subject = f"{row.run_id}\n{row.id}"
    if not data.lines:
        return ChartData(empty=_nothing(metric), subject=subject)
    (curve,) = data.traces
    lines = data.lines
    if row.threshold is not None and math.isfinite(row.threshold):
        ends = (curve.x[0], curve.x[-1])
        lines = (*lines, PlotLine("fourth", ends, (row.threshold, row.threshold)))
    marks = data.marks
    if row.step is not None and not any(m.step == row.step and m.kind in _KINDS for m in marks):
        kind = "alert" if row.severity in ("error", "critical") else "warning"
        marks = (*marks, Mark(kind, row.step, row.message or row.rule))
    return replace(data, lines=lines, marks=marks, subject=subject)


_KINDS = ("alert", "warning")


def _nothing(metric: str) -> str:
    return "no points of this metric are left" if metric else "this alert names no metric"


def alert_title(row: AlertRow) -> Content:
    """Metric, limit and run."""
    limit = limit_words(row)
    return Content.assemble(
        styled.text(row.metric or "no metric", "bold $ink"),
        (f"   {limit}" if limit else "", "$line-fourth"),
        styled.text(f"   {row.run_name or row.run_id}", "$ink-muted"),
    )
