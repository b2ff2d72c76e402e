"""The first tab: loss first, then everything that explains it."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.content import Content
from textual.widget import Widget

from albor_core.feed.view.run_view import ChartChoice, RunView
from albor_core.store.rows.series import Series
from albor_tui.look import glyphs, quantity
from albor_tui.messages import CurvesChanged, LogArrived, PinAsked
from albor_tui.model.program_charts import LOSSES
from albor_tui.screens.charts.overview_choice import (
    TONES,
    charts_of,
    has_points,
    large_chart,
    latest_of,
    shows_losses,
    small_chart,
    title_of,
)
from albor_tui.screens.charts.overview_layout import SMALL, Layout, Room, layout_of, panels_of
from albor_tui.screens.tabs.page import Page
from albor_tui.widgets.chart.chart import Chart
from albor_tui.widgets.run.alerts import Alerts
from albor_tui.widgets.run.gpu_panel import GpuPanel
from albor_tui.widgets.run.guard_panel import GuardPanel
from albor_tui.widgets.run.log_tail import LogTail
from albor_tui.widgets.run.panels import OVER, BricksPanel, RunPanel, Vitals

PANELS: dict[str, type[Widget]] = {
    "loss": Chart,
    "machine": GpuPanel,
    "bricks": BricksPanel,
    **dict.fromkeys(SMALL, Chart),
    "log": LogTail,
    "guard": GuardPanel,
    "alerts": Alerts,
}
"""The panels by their ids, in the order of the grid."""


class OverviewPage(Page):
    """The tab with the live state of a run. Its curves and its log come with the run's own
    polls."""

    BINDINGS = [
        Binding("l", "focus_log", "Log", show=False, tooltip="Go to the log's end"),
        Binding(
            "P", "pin", "Pin", show=False, tooltip="Let the chosen chart's metric stand for the run"
        ),
    ]

    def __init__(self, name: str, view: RunView) -> None:
        super().__init__(name, view)
        self.curves: dict[str, Series] = {}
        self._has_curves = self._has_log = False
        self._layout: Layout | None = None

    def compose(self) -> ComposeResult:
        yield Vitals(id="vitals")
        with Container(id="body"):
            for name, panel in PANELS.items():
                yield panel(id=name)

    def enter(self) -> None:
        self._draw()
        self._arrange()
        first = next(iter(self._layout.order if self._layout else ()), "loss")
        self.query_one(f"#{first}").focus()

    def on_resize(self) -> None:
        self.call_later(self._arrange)  # the breakpoint classes are set after this event

    def _arrange(self) -> None:
        """Give the panels that have something their places, where these are others."""
        body, screen = self.query_one("#body", Container), self.screen
        room = Room(
            is_wide=not screen.has_class("-narrow"),
            is_tall=screen.has_class("-tall") or screen.has_class("-high"),
            is_high=screen.has_class("-high"),
            is_alerted=screen.has_class("-alerted"),
            height=body.size.height,
        )
        wanted = layout_of(self._panels(), room)
        if wanted == self._layout:
            return
        self._layout = wanted
        with self.app.batch_update():
            body.styles.grid_size_columns = wanted.columns
            body.styles.grid_rows = " ".join(wanted.rows)
            for name in PANELS:
                panel = self.query_one(f"#{name}")
                panel.display = name in wanted.order
                columns, rows = wanted.spans.get(name, (1, 1))
                panel.styles.column_span, panel.styles.row_span = columns, rows
            rest = [name for name in PANELS if name not in wanted.order]
            order = (*wanted.order, *rest)
            if order != tuple(child.id for child in body.children):
                for name in order:
                    body.move_child(self.query_one(f"#{name}"), after=len(body.children) - 1)

    def _panels(self) -> frozenset[str]:
        view = self.view
        large, small = self._charts()
        found = panels_of(
            view,
            charts=len(small),
            has_curve=not self._has_curves or has_points(view, large, self.curves),
            has_log=self._has_log,
            is_troubled=bool(self.troubles),
            is_loading=not self._has_curves,
        )
        return found or frozenset({"loss"})

    def _charts(self) -> tuple[ChartChoice, tuple[ChartChoice, ...]]:
        """The large chart and the small ones; of a program that is not Albor's own, and of what is
        over, those that have something to draw.
        """
        view = self.view
        large, small = charts_of(view.terminal)
        if view.kind == "train" and (view.status not in OVER or not self._has_curves):
            return large, small
        return large, tuple(one for one in small if has_points(view, one, self.curves))

    def has_picture(self) -> bool:
        return self._has_curves and all(
            chart.is_painted for chart in self.query(Chart) if chart.display
        )

    def metrics(self) -> tuple[str, ...]:
        return tuple(self.curves)

    def show_view(self, view: RunView) -> None:
        self._set_titles()
        for panel in self.query(RunPanel):
            panel.view = view
        self.query_one(Alerts).troubles = self.troubles
        machine = self.query_one(GpuPanel)
        machine.judged = self.troubles
        machine.gpus, machine.host = view.gpu, view.system
        has_run = bool(view.device) and not view.is_active
        device = f"it ran on {view.device}" if has_run else f"device {view.device or 'unknown'}"
        none = "no GPU in use; " if (view.device or "").startswith("cpu") else ""
        machine.why_none = f"{none}{device}" if self._has_curves else "loading"
        yet = " yet" if view.is_active or view.status == "queued" else ""
        self.query_one(LogTail).words = f"no output{yet}" if self._has_curves else "loading"
        self._arrange()

    @on(CurvesChanged)
    def show_curves(self, message: CurvesChanged) -> None:
        message.stop()
        is_first, self._has_curves = not self._has_curves, True
        self.curves = message.curves
        if is_first:  # they come with the first news of the run: what is missing now is not there
            self.query_one(BricksPanel).is_loading = False
            self.show_view(self.view)
        self._draw()

    @on(LogArrived)
    def show_log(self, message: LogArrived) -> None:
        message.stop()
        self.query_one(LogTail).add(message.lines)
        if not self._has_log:
            self._has_log = True
            self._arrange()

    def _set_titles(self) -> None:
        """Only where they change: a new title redraws its whole chart."""
        mark = glyphs.current.legend
        large, small = self._charts()
        names = [Content(title_of(chart)) for chart in small]
        is_validated = self.view.val_loss is not None
        loss = Content.assemble(
            ("loss ", "bold $ink"),
            (f" {mark} raw", "$line-raw"),
            (f"  {mark} smoothed", "$line-main"),
            (f"  {mark} validation" if is_validated else "", "$line-val"),
        )
        if not shows_losses(large):
            loss = Content.styled(title_of(large), "bold $ink")
        for name, chart, title in zip(
            ("loss", *SMALL), (large, *small), (loss, *names), strict=False
        ):
            if chart.shows_eta and self.view.eta_s is not None:
                title += Content.styled(f"  eta {quantity.duration(self.view.eta_s)}", "$ink-muted")
            widget = self.query_one(f"#{name}", Chart)
            if str(widget.border_title) != title.plain:
                widget.border_title = Content.assemble(title)

    def _draw(self) -> None:
        view, curves = self.view, self.curves
        large, small = self._charts()
        self._set_titles()
        self._arrange()
        self.query_one("#loss", Chart).data = large_chart(
            view, large, curves, is_loading=not self._has_curves
        )
        if not self._has_curves:
            return
        self.query_one(Vitals).latest = latest_of(curves)
        for name, chart, tone in zip(SMALL, small, TONES, strict=False):
            self.query_one(f"#{name}", Chart).data = small_chart(view, chart, curves, tone)

    def action_pin(self) -> None:
        """The metric of the chart that has the focus, or what the large one shows."""
        large, small = self._charts()
        shown = dict(zip(("loss", *SMALL), (large, *small), strict=False))
        focused = self.screen.focused
        chart = shown.get((focused and focused.id) or "loss", large)
        keys = LOSSES if shows_losses(chart) else (chart.metric,)
        known = [key for key in keys if key in self.curves]
        if known:
            self.post_message(PinAsked(known[0]))

    def action_focus_log(self) -> None:
        self.query_one(LogTail).focus()
