"""The first tab: loss first, then everything that explains it."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.content import Content

from albor_core.feed.view import RunView
from albor_core.store.rows.series import Series
from albor_tui.look import glyphs, quantity
from albor_tui.messages import CurvesChanged, LogArrived
from albor_tui.screens.overview_choice import (
    TONES,
    charts_of,
    large_chart,
    latest_of,
    shows_losses,
    small_chart,
    title_of,
)
from albor_tui.screens.tabs.logs import records_output
from albor_tui.screens.tabs.page import Page
from albor_tui.widgets.chart.chart import Chart
from albor_tui.widgets.run.gpu_panel import GpuPanel
from albor_tui.widgets.run.log_tail import LogTail
from albor_tui.widgets.run.panels import Alerts, BricksPanel, GuardPanel, Vitals

# the order of panels in the grid: a narrow terminal shows what is alive on its first page
_WIDE = ("loss", "machine", "bricks", "lr", "grad", "speed", "log", "guard", "alerts")
_NARROW = ("loss", "machine", "guard", "log", "bricks", "alerts", "lr", "grad", "speed")


_SMALL = ("lr", "grad", "speed")  # the small charts, by what the house shows there


class OverviewPage(Page):
    """What is alive of a run. Its curves and its log come with the run's own polls."""

    BINDINGS = [Binding("l", "focus_log", "Log", show=False, tooltip="Go to the log's end")]

    def __init__(self, name: str, view: RunView) -> None:
        super().__init__(name, view)
        self.curves: dict[str, Series] = {}
        self._has_curves = False

    def compose(self) -> ComposeResult:
        yield Vitals(id="vitals")
        with Container(id="body"):
            yield Chart(id="loss")
            yield GpuPanel(id="machine")
            yield BricksPanel(id="bricks")
            for name in _SMALL:
                yield Chart(id=name)
            yield LogTail(id="log")
            yield GuardPanel(id="guard")
            yield Alerts(id="alerts")

    def enter(self) -> None:
        self._draw()
        self.query_one("#loss", Chart).focus()

    def on_resize(self) -> None:
        self.call_later(self._arrange)  # the breakpoint classes are set after this event

    def _arrange(self) -> None:
        body = self.query_one("#body", Container)
        wanted = _NARROW if self.screen.has_class("-narrow") else _WIDE
        if wanted != tuple(child.id for child in body.children):
            for name in wanted:
                body.move_child(self.query_one(f"#{name}"), after=len(body.children) - 1)

    def has_picture(self) -> bool:
        return self._has_curves and all(
            chart.is_painted for chart in self.query(Chart) if chart.display
        )

    def show_view(self, view: RunView) -> None:
        self._set_titles()
        for panel in (Vitals, BricksPanel, GuardPanel, Alerts):
            self.query_one(panel).view = view
        machine = self.query_one(GpuPanel)
        machine.gpus, machine.host = view.gpu, view.system
        has_run = bool(view.device) and not view.is_active
        device = f"it ran on {view.device}" if has_run else f"device {view.device or 'unknown'}"
        none = "no GPU in use; " if (view.device or "").startswith("cpu") else ""
        machine.why_none = f"{none}{device}" if self._has_curves else "loading"
        yet = " yet" if view.is_active or view.status == "queued" else ""
        words = f"no output{yet}" if records_output(view) else "not recorded: it has no guard"
        self.query_one(LogTail).words = words if self._has_curves else "loading"

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

    def _set_titles(self) -> None:
        """Only where they change: a new title redraws its whole chart."""
        mark = glyphs.current.legend
        large, small = charts_of(self.view.terminal)
        names = [Content(title_of(chart)) for chart in small]
        loss = Content.assemble(
            ("loss ", "bold $ink"),
            (f" {mark} raw", "$line-raw"),
            (f"  {mark} smoothed", "$line-main"),
            (f"  {mark} validation", "$line-val"),
        )
        if not shows_losses(large):
            loss = Content.styled(title_of(large), "bold $ink")
        for name, chart, title in zip(
            ("loss", *_SMALL), (large, *small), (loss, *names), strict=False
        ):
            if chart.shows_eta and self.view.eta_s is not None:
                title += Content.styled(f"  eta {quantity.duration(self.view.eta_s)}", "$ink-muted")
            widget = self.query_one(f"#{name}", Chart)
            if str(widget.border_title) != title.plain:
                widget.border_title = Content.assemble(title)
        for place, name in enumerate(_SMALL):
            self.query_one(f"#{name}").display = place < len(small)

    def _draw(self) -> None:
        view, curves = self.view, self.curves
        large, small = charts_of(view.terminal)
        self._set_titles()
        self.query_one("#loss", Chart).data = large_chart(
            view, large, curves, is_loading=not self._has_curves
        )
        if not self._has_curves:
            return
        self.query_one(Vitals).latest = latest_of(curves)
        for name, chart, tone in zip(_SMALL, small, TONES, strict=False):
            self.query_one(f"#{name}", Chart).data = small_chart(view, chart, curves, tone)

    def action_focus_log(self) -> None:
        self.query_one(LogTail).focus()


PAGE = OverviewPage
