"""The timed parts of a step, over time and against their budgets; under each of them the kernels
that it launches, by the newest profiler trace of the run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, cast

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.widgets import Static

from albor_core.andon.bricks.coverage import LEAST
from albor_core.andon.bricks.names import is_of_step
from albor_core.feed.archive.traced import TracedBricks
from albor_core.feed.view.run_view import RunView
from albor_core.run.values.lenient import text
from albor_core.store.rows.series import Series
from albor_tui.look import quantity
from albor_tui.model.desk import reference
from albor_tui.screens.charts.curves import single_chart
from albor_tui.screens.tabs.charts import CurvesFound
from albor_tui.screens.tabs.page import PacedPage
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.line_list import LineList
from albor_tui.widgets.chart.chart import Chart
from albor_tui.widgets.chart.plot import PlotLine
from albor_tui.widgets.run.brick_kernels import kernel_lines
from albor_tui.widgets.run.brick_table import BrickTable, brick_rows
from albor_tui.widgets.run.panels import yet

if TYPE_CHECKING:
    from albor_core.feed.archive.archive import RunArchive
    from albor_tui.screens.base.run_actions import RunActionsScreen

POINTS = 400


@dataclass(frozen=True)
class BricksFound(CurvesFound):
    """The curves of all bricks, and what a trace says of them, if that was asked."""

    traced: TracedBricks | None = None


@dataclass(frozen=True)
class BricksWanted:
    """The curve of every brick, as of `mark`."""

    mark: tuple[int | None, int | None]
    wants_trace: bool = False

    PERIOD_S: ClassVar[float | None] = None

    def put(self, archive: RunArchive) -> BricksFound:
        known = archive.keys()
        keys = tuple(key for key in known if key.startswith("brick/"))
        curves = archive.curves(keys, points=POINTS)
        return BricksFound(keys, curves, archive.traced() if self.wants_trace else None)


class BricksPage(PacedPage):
    """A table of all, and the curve of the one under the cursor, or its kernels."""

    BINDINGS = [
        Binding(
            "enter",
            "unfold",
            "Kernels",
            tooltip="Kernels of this part of a step, by the newest trace; enter again goes back",
        ),
        Binding(
            "o",
            "ops",
            "Ops",  # the palette finds it by the words of its tooltip
            tooltip="Kernels: what runs each op and why; parity of the whole model",
        ),
    ]

    def __init__(self, name: str, view: RunView) -> None:
        super().__init__(name, view)
        self._curves: dict[str, Series] = {}
        self._titled: tuple[object, ...] = ()
        self._about = ""
        self._is_unfolded = self._has_rows = False
        self._traced: TracedBricks | None = None

    def compose(self) -> ComposeResult:
        yield BrickTable(id="brick-table")
        yield Static(id="brick-about", markup=False)
        yield Chart(id="brick-chart")
        yield Static(id="brick-kernels", classes="frame", markup=False)
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
        assert isinstance(answer, BricksFound)
        self._curves = dict(answer.curves)
        self._traced = answer.traced or self._traced
        self._arrange()
        self._draw()

    def question_now(self) -> BricksWanted:
        return BricksWanted((self.view.attempt, self.view.step), self._is_unfolded)

    def key_word(self, action: str) -> str:
        return "Curve" if action == "unfold" and self._is_unfolded else ""

    def action_unfold(self) -> None:
        """Kernels instead of the curve, or the curve again."""
        self._is_unfolded = not self._is_unfolded
        if self._is_unfolded:
            self.ask_now()
        self._arrange()
        self._draw()
        self.refresh_bindings()

    def action_ops(self) -> None:
        from albor_tui.screens.dialogs.kernels import KernelsScreen  # loaded when it is wanted

        read = cast("RunActionsScreen", self.screen).desk.kernels
        self.app.push_screen(KernelsScreen(reference(self.view), self.view.name, read))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "ops":
            return self.view.kind == "train"
        if action == "unfold":
            return self._has_rows
        return super().check_action(action, parameters)

    def _arrange(self) -> None:
        known = [brick for brick in self.view.bricks if brick.measured_ms is not None]
        rows = brick_rows(known, self._curves, self.view.events)
        table, empty = self.query_one(BrickTable), self.query_one("#no-bricks", Static)
        is_empty = not rows
        if empty.display != is_empty or table.display == is_empty:
            empty.display, table.display = is_empty, not is_empty
        if is_empty:
            self.say_empty(empty, lambda: _nothing(self.view))
        if self._has_rows == is_empty:
            self._has_rows = not is_empty
            self.refresh_bindings()
        self.query_one("#brick-chart").display = not (is_empty or self._is_unfolded)
        self.query_one("#brick-kernels").display = not is_empty and self._is_unfolded
        is_first, table.rows = not table.rows, rows
        over = next((place for place, row in enumerate(rows) if row.is_over), None)
        if is_first and over is not None:  # what needs a look is looked at
            table.cursor = over + 1
        about = about_bricks(self.view)
        line = self.query_one("#brick-about", Static)
        line.display = not is_empty and bool(about.plain)
        if about.plain != self._about:
            self._about = about.plain
            line.update(about)
        self._size_table()

    def _size_table(self) -> None:
        """Make the table as high as its rows; a zoomed one as high as the stylesheet says."""
        table = self.query_one(BrickTable)
        is_zoomed = self.screen.maximized is table
        table.styles.height = None if is_zoomed else len(table.rows) + 3

    @on(LineList.Moved)
    def _draw(self) -> None:
        row = self.query_one(BrickTable).current
        if row is None:
            return
        if self._is_unfolded:
            self._draw_kernels(row.name)
            return
        chart = self.query_one("#brick-chart", Chart)
        curve = self._curves.get(f"brick/{row.name}_ms")
        data = single_chart(self.view, curve, "second")
        if self.is_loading:
            data = replace(data, empty="loading")
        elif not self.view.is_active:
            data = replace(data, empty="no points were logged")
        if curve is not None and row.limit_ms and data.lines:
            ends = (float(curve.steps[0]), float(curve.steps[-1]))
            limit = PlotLine("fourth", ends, (row.limit_ms, row.limit_ms))
            data = replace(data, lines=(*data.lines, limit))
        chart.data = data
        title = (row.name, row.budget_ms, row.learned_ms)
        if title != self._titled:
            self._titled = title
            kind = "budget" if row.budget_ms else "learned"
            budget = f"{kind} {quantity.milliseconds(row.limit_ms)}" if row.limit_ms else ""
            per = " ms per step" if is_of_step(row.name) else " ms per log interval"
            chart.border_title = Content.assemble(
                styled.text(row.name, "bold $ink"),
                (per, "$ink-muted"),
                (f"   {budget}", "$line-fourth") if budget else ("   no budget", "$ink-faint"),
            )

    def _draw_kernels(self, brick: str) -> None:
        panel = self.query_one("#brick-kernels", Static)
        size = panel.content_size
        panel.update(kernel_lines(self._traced, brick, self.view.id, size.width, size.height))
        name = "" if self._traced is None else self._traced.name
        panel.border_title = Content.assemble(
            styled.text(brick, "bold $ink"),
            (" kernels a step", "$ink-muted"),
            styled.text(f"   {name}" if name else "", "$ink-muted"),
        )

    def on_resize(self) -> None:
        self.call_after_refresh(self._draw)


def about_bricks(view: RunView) -> Content:
    """How much of a step the table explains, what a ~ means, and the traces that were kept."""
    parts = []
    if (covered := view.brick_coverage) is not None:
        tone = "$success" if covered >= LEAST else "$warning"
        parts.append(Content.styled(f"{quantity.percent(covered, 1)} of a step is named", tone))
    if any(b.budget_ms is None and b.learned_ms is not None for b in view.bricks):
        parts.append(Content.styled("~ learned from its first steps", "$ink-muted"))
    traces = [event for event in view.events if event.name == "brick.traced"]
    if traces:
        newest = traces[-1]
        more = f" and {len(traces) - 1} before" if len(traces) > 1 else ""
        where = text(newest.data, "path")
        words = f"trace of step {quantity.count(newest.step)}{more}: {where}"
        parts.append(styled.text(words, "$ink"))
    return Content("   ").join(parts)


def _nothing(view: RunView) -> Content:
    if view.kind != "train":
        return styled.rows(
            [
                Content.styled("This run does not time the parts of its steps.", "bold $ink"),
                Content.styled(
                    "Log brick/NAME_ms with albor_core.track to see them.", "$ink-muted"
                ),
            ]
        )
    lines = [Content.styled(f"No timings{yet(view)}.", "bold $ink")]
    if yet(view):
        lines += [
            Content.styled("They come with the first log interval.", "$ink-muted"),
            Content.styled("Set budgets in the config: monitoring.bricks.forward_ms", "$ink-muted"),
        ]
    return styled.rows(lines)
