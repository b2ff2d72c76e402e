"""What has to be said above charts in which runs share an axis that is not one. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from albor_core.run.values.quantity import counted
from albor_tui.look import quantity
from albor_tui.screens.workspace.picture import short_label
from albor_tui.screens.workspace.reading import Curves
from albor_tui.widgets.chart.curves import RULER_KEYS

_UNEVEN = 100  # times as many points as the shortest curve has


def about_x(curves: Curves, shown: Collection[str], names: Mapping[str, str]) -> str:
    """What x counts where runs that are shown differ in it, and how many points they have where
    one has by far more than another; "" where they are alike."""
    units: dict[str, str] = {}
    points: dict[str, int] = {}
    for key, found in curves.items():
        for run, curve in found.items() if key not in RULER_KEYS else ():
            if run in shown:
                units[run] = "step" if "step" in (curve.axis, units.get(run)) else curve.axis
                count = sum(curve.counts) or len(curve.steps)
                points[run] = max(points.get(run, 0), count)
    words = []
    if len(axes := Counter(units.values())) > 1:
        words.append("x differs: " + ", ".join(f"{n} by {unit}" for unit, n in axes.most_common()))
    without = [run for run in shown if run not in units]
    if units and without:
        few = short_label(names.get(without[0]) or without[0])
        who = few if len(without) == 1 else counted(len(without), "run")
        words.append(f"{who} without points here")
    low, high = (min(points.values()), max(points.values())) if points else (0, 0)
    if high > _UNEVEN * low:
        words.append(
            f"from {quantity.count(low)} to {quantity.count(high)} points a run, all drawn"
        )
    return "; ".join(words)
