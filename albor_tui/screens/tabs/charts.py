"""Every metric of the run, as many charts as fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult

from albor_core.feed.view.run_view import RunView
from albor_core.store.rows.series import Series
from albor_tui.screens.tabs.page import PacedPage
from albor_tui.widgets.chart_grid.grid import ChartGrid

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

    def compose(self) -> ComposeResult:
        yield ChartGrid(id="chart-grid", classes="-keys")

    def enter(self) -> None:
        super().enter()
        self.query_one(ChartGrid).focus()

    def show_view(self, view: RunView) -> None:
        self.query_one(ChartGrid).view = view
        super().show_view(view)

    def metrics(self) -> tuple[str, ...]:
        return self.query_one(ChartGrid).keys

    def show_metric(self, name: str) -> None:
        self.call_after_refresh(self.query_one(ChartGrid).go_to, name)

    def question_now(self) -> CurvesWanted:
        return replace(self._wanted, mark=(self.view.attempt, self.view.step))

    @on(ChartGrid.Wanted)
    def want(self, message: ChartGrid.Wanted) -> None:
        message.stop()
        keys = tuple(message.keys)
        self._wanted = CurvesWanted(keys, message.lo, message.hi, message.points)
        self.ask_now()

    def show_answer(self, answer: object) -> None:
        assert isinstance(answer, CurvesFound)
        grid = self.query_one(ChartGrid)
        grid.is_read = True
        grid.keys = answer.keys
        grid.curves = answer.curves
