"""Every metric of the run, as many charts as fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult

from albor_core.feed.view.run_view import RunView
from albor_core.store.rows.series import Series
from albor_tui.model.cockpit import as_cockpit
from albor_tui.screens.tabs.page import PacedPage
from albor_tui.widgets.chart.curves import RULER_KEYS
from albor_tui.widgets.chart_grid.grid import ChartGrid
from albor_tui.widgets.chart_grid.picture import RunPicture

if TYPE_CHECKING:
    from albor_core.feed.archive.archive import RunArchive


@dataclass(frozen=True)
class CurvesWanted:
    """Curves of some keys in a window of steps, as of `step` of attempt `attempt`."""

    keys: tuple[str, ...] = ()
    lo: int | None = None
    hi: int | None = None
    points: int = 200
    mark: tuple[int | None, int | None] = (None, None)

    PERIOD_S: ClassVar[float | None] = None

    def put(self, archive: RunArchive) -> CurvesFound:
        curves = archive.curves(self.keys, lo=self.lo, hi=self.hi, points=self.points)
        return CurvesFound(archive.keys(), curves)


@dataclass(frozen=True)
class CurvesFound:
    """All keys there are, and the curves that were asked for."""

    keys: tuple[str, ...]
    curves: Mapping[str, Series]


class ChartsPage(PacedPage):
    """Asks for the curves that its grid wants, again when the run has gone on."""

    def __init__(self, name: str, view: RunView) -> None:
        super().__init__(name, view)
        self._wanted = CurvesWanted()
        self._picture = RunPicture(view)

    def compose(self) -> ComposeResult:
        yield ChartGrid(id="chart-grid", classes="-keys")

    def enter(self) -> None:
        super().enter()
        grid = self.query_one(ChartGrid)
        kept = as_cockpit(self.app).views.current
        grid.begin(kept.unfolded, kept.smoothing)
        grid.picture = self._picture
        grid.focus()

    def show_view(self, view: RunView) -> None:
        self._show(self._picture.with_view(view))
        super().show_view(view)

    def metrics(self) -> tuple[str, ...]:
        return self._picture.keys

    def show_metric(self, name: str) -> None:
        self.call_after_refresh(self.query_one(ChartGrid).go_to, name)

    def question_now(self) -> CurvesWanted:
        return replace(self._wanted, mark=(self.view.attempt, self.view.step))

    @on(ChartGrid.Wanted)
    def want(self, message: ChartGrid.Wanted) -> None:
        message.stop()
        keys = (*message.keys, *(key for key in RULER_KEYS if key not in message.keys))
        self._wanted = CurvesWanted(keys, message.lo, message.hi, message.points)
        self.ask_now()

    @on(ChartGrid.SectionsChanged)
    def keep_sections(self, message: ChartGrid.SectionsChanged) -> None:
        message.stop()
        as_cockpit(self.app).views.update(unfolded=message.unfolded)

    @on(ChartGrid.SmoothingChanged)
    def keep_smoothing(self, message: ChartGrid.SmoothingChanged) -> None:
        message.stop()
        as_cockpit(self.app).views.update(smoothing=message.smoothing)

    def show_answer(self, answer: object) -> None:
        assert isinstance(answer, CurvesFound)
        self._show(self._picture.with_curves(self.view, answer.keys, answer.curves))

    def _show(self, picture: RunPicture) -> None:
        if picture is not self._picture:
            self._picture = self.query_one(ChartGrid).picture = picture
