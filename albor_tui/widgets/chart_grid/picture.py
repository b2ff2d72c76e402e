"""What a grid of charts shows, of one run or of many: its keys, and the chart of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from textual.content import Content

from albor_core.feed.view.run_view import RunView
from albor_core.run.values.quantity import counted
from albor_core.store.rows.series import Series
from albor_tui.widgets.chart.chart import FINE_POINTS, FinerLines
from albor_tui.widgets.chart.curves import RULER_KEYS, Curves
from albor_tui.widgets.chart.data import ChartData, Trace
from albor_tui.widgets.chart.head import chart_head
from albor_tui.widgets.chart_grid.whole_run import WholeRun

if TYPE_CHECKING:
    from albor_core.feed.workspace.overlay import OverlayFeed


class GridPicture(Protocol):
    """One moment of what a grid shows; the screen makes another one when it has news."""

    @property
    def subject(self) -> str:
        """What is shown; another one begins anew: page, extent and pins stay with it."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Every metric there is, in the order of the charts."""

    @property
    def is_read(self) -> bool:
        """Whether it is known which keys there are."""

    @property
    def pins(self) -> tuple[str, ...]:
        """The keys that stand first."""

    def chart(self, key: str) -> ChartData:
        """The chart of a key, also of one whose curve has not come."""

    def key_curves(self, key: str) -> Sequence[Series]:
        """The curves that have come of a key, one of each run that is shown."""

    def finer(self, key: str, lo: int | None, hi: int | None) -> FinerLines:
        """The function that reads the lines of a chart between two steps for a file."""

    def title(self, key: str) -> Content:
        """The head of the chart of a key."""

    def why_empty(self, words: str) -> str:
        """The text in place of charts where there is none; `words` are those of the search."""


@dataclass(frozen=True, eq=False)
class RunPicture:
    """Every metric of one run."""

    view: RunView
    keys: tuple[str, ...] = ()
    curves: Curves = field(default_factory=dict)
    is_read: bool = False
    whole: WholeRun = field(default_factory=WholeRun)

    def with_view(self, view: RunView) -> RunPicture:
        """The picture with other news of the run; the same one where they change nothing but
        figures, which come with the next curves."""
        if view.id != self.view.id:
            return RunPicture(view)
        made = replace(self, view=view)
        is_same = (made.pins, view.status) == (self.pins, self.view.status)
        return self if is_same else made

    def with_curves(self, view: RunView, keys: tuple[str, ...], curves: Curves) -> RunPicture:
        """The picture with other curves, which may be of a window of the run."""
        self.whole.learn(view, curves)
        return replace(self, view=view, keys=keys, curves=curves, is_read=True)

    @property
    def subject(self) -> str:
        return self.view.id

    @property
    def pins(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.view.metrics if one.is_pinned)

    def chart(self, key: str) -> ChartData:
        return self.whole.chart(self.view, key, self.curves)

    def key_curves(self, key: str) -> Sequence[Series]:
        found = self.curves.get(key)
        return () if found is None or found.is_empty else (found,)

    def finer(self, key: str, lo: int | None, hi: int | None) -> FinerLines:
        def read(feed: OverlayFeed) -> tuple[Trace, ...]:
            view = self.view
            keys = (key, *RULER_KEYS)
            found = feed.curves([view], keys, lo=lo, hi=hi, points=FINE_POINTS)
            curves = {one: runs[view.id] for one, runs in found.items() if view.id in runs}
            return self.whole.chart(view, key, curves).traces

        return read

    def title(self, key: str) -> Content:
        return chart_head(self.chart(key), key)

    def why_empty(self, words: str) -> str:
        if not self.is_read:
            return "loading"
        if words:
            return f"none of {counted(len(self.keys), 'metric')} matches {words}"
        comes = self.view.is_active or self.view.status == "queued"
        return "no metrics yet" if comes else "no metrics"
