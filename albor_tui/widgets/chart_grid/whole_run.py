"""What charts in a window know of the run beyond it. Pure."""

from __future__ import annotations

from dataclasses import replace

from albor_core.feed.view.run_view import RunView
from albor_core.store.rows.ruler import Ruler
from albor_tui.widgets.chart.curves import Curves, extent, metric_chart, rulers, unit_of
from albor_tui.widgets.chart.data import ChartData

_TONES = {"train": "main", "val": "val", "optim": "second", "perf": "third"}


class WholeRun:
    """The extent of a run and its other measures of the way, by the widest curves that came."""

    def __init__(self) -> None:
        self._extent: tuple[float, float] | None = None
        self._unit = "step"  # of the extent
        self._rulers: dict[str, Ruler] = {}

    @property
    def extent(self) -> tuple[float, float] | None:
        """The first and the last step, or second, that is known of it."""
        return self._extent

    @property
    def rulers(self) -> dict[str, Ruler]:
        """Its other measures of the way."""
        return self._rulers

    def learn(self, view: RunView, curves: Curves) -> None:
        found = extent(view, curves)
        if found is not None:
            unit = unit_of(curves)
            old = (self._extent if unit == self._unit else None) or found
            self._unit, self._extent = unit, (min(old[0], found[0]), max(old[1], found[1]))
        for name, ruler in rulers(view, curves).items():
            known = self._rulers.get(name)
            if known is None or (
                ruler.steps[1] <= known.steps[1] and ruler.steps[-1] >= known.steps[-1]
            ):
                self._rulers = {**self._rulers, name: ruler}

    def chart(self, view: RunView, key: str, curves: Curves) -> ChartData:
        """The chart of one metric."""
        made = metric_chart(view, key, curves, _TONES.get(key.split("/")[0], "fourth"))
        lines = tuple(replace(line, rulers=self._rulers) for line in made.traces)
        return replace(made, lines=lines, extent=self._extent)
