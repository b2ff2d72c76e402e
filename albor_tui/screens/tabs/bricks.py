"""The timed parts of a step, over time and against their budgets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Static

from albor_core.feed.view import RunView
from albor_core.store.rows.series import Series
from albor_tui.look import quantity
from albor_tui.model.source import Archive
from albor_tui.screens.curves import single_chart
from albor_tui.screens.tabs.charts import CurvesFound
from albor_tui.screens.tabs.page import PacedPage
from albor_tui.widgets.base import meters
from albor_tui.widgets.base.line_list import LineList
from albor_tui.widgets.chart.chart import Chart
from albor_tui.widgets.chart.plot import PlotLine
from albor_tui.widgets.run.brick_table import BrickTable, brick_rows

POINTS = 400


@dataclass(frozen=True)
class BricksWanted:
    """The curve of every brick, as of `mark`."""

    mark: tuple[int | None, int | None]

    PERIOD_S: ClassVar[float | None] = None

    def put(self, archive: Archive) -> CurvesFound:
        known = archive.keys()
        keys = tuple(key for key in known if key.startswith("brick/"))
        return CurvesFound(keys, archive.curves(keys, points=POINTS))


class BricksPage(PacedPage):
    """A table of all, and the curve of the one under the cursor."""

    def __init__(self, name: str, view: RunView) -> None:
        super().__init__(name, view)
        self._curves: dict[str, Series] = {}
        self._titled: tuple[object, ...] = ()

    def compose(self) -> ComposeResult:
        yield BrickTable(id="brick-table")
        yield Chart(id="brick-chart")
        yield Static(id="no-bricks", classes="empty", markup=False)

    async def on_mount(self) -> None:
        self.watch(self.screen, "maximized", self._size_table, init=False)

    def enter(self) -> None:
        super().enter()
        self.query_one(BrickTable).focus()

    def show_view(self, view: RunView) -> None:
        self._arrange()
        super().show_view(view)

    def show_answer(self, answer: object) -> None:
        assert isinstance(answer, CurvesFound)
        self._curves = dict(answer.curves)
        self._arrange()
        self._draw()

    def question_now(self) -> BricksWanted:
        return BricksWanted((self.view.attempt, self.view.step))

    def _arrange(self) -> None:
        known = [brick for brick in self.view.bricks if brick.measured_ms is not None]
        rows = brick_rows(known, self._curves, self.view.events)
        table, empty = self.query_one(BrickTable), self.query_one("#no-bricks", Static)
        is_empty = not rows
        if empty.display != is_empty or table.display == is_empty:
            empty.display, table.display = is_empty, not is_empty
            self.query_one("#brick-chart").display = not is_empty
            empty.update(_nothing(self.view))
        table.rows = rows
        self._size_table()

    def _size_table(self) -> None:
        """As high as its rows; a zoomed one as high as the stylesheet says."""
        table = self.query_one(BrickTable)
        is_zoomed = self.screen.maximized is table
        table.styles.height = None if is_zoomed else len(table.rows) + 3

    @on(LineList.Moved)
    def _draw(self) -> None:
        row = self.query_one(BrickTable).current
        if row is None:
            return
        chart = self.query_one("#brick-chart", Chart)
        curve = self._curves.get(f"brick/{row.name}_ms")
        data = single_chart(self.view, curve, "second")
        if not self.view.is_active:
            data = replace(data, empty="no points were logged")
        if curve is not None and row.budget_ms and data.lines:
            ends = (float(curve.steps[0]), float(curve.steps[-1]))
            limit = PlotLine("fourth", ends, (row.budget_ms, row.budget_ms))
            data = replace(data, lines=(*data.lines, limit))
        chart.data = data
        title = (row.name, row.budget_ms)
        if title != self._titled:
            self._titled = title
            budget = f"budget {quantity.milliseconds(row.budget_ms)}" if row.budget_ms else ""
            chart.border_title = Content.assemble(
                meters.text(row.name, "bold $ink"),
                (" ms per step", "$ink-muted"),
                (f"   {budget}", "$line-fourth") if budget else ("   no budget", "$ink-faint"),
            )


def _nothing(view: RunView) -> Content:
    if view.kind != "train":
        return meters.rows(
            [
                Content.styled("This run does not time the parts of its steps.", "bold $ink"),
                Content.styled(
                    "Log brick/NAME_ms with albor_core.track to see them.", "$ink-muted"
                ),
            ]
        )
    return meters.rows(
        [
            Content.styled("No timings yet.", "bold $ink"),
            Content.styled("They come with the first log interval.", "$ink-muted"),
            Content.styled("Set budgets in the config: monitoring.bricks.forward_ms", "$ink-muted"),
        ]
    )


PAGE = BricksPage
