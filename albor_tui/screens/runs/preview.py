"""The highlighted run, below the list: its chart, and what else is known of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message

from albor_core.feed.view.run_view import RunView
from albor_tui.messages import CurvesChanged, RunChanged
from albor_tui.model.source import LiveSource, RunFollower
from albor_tui.screens.charts.curves import MAX_POINTS, loss_chart, preview_chart, preview_keys
from albor_tui.widgets.base import styled
from albor_tui.widgets.chart.chart import Chart, ChartData
from albor_tui.widgets.run.run_preview import RunPreview


class HighlightFollower:
    """Reads the highlighted run and tells what is new of it. Belongs to the thread that made it."""

    def __init__(
        self,
        source: LiveSource,
        *,
        tell: Callable[[Message], object],
        poll_now: Callable[[], None],
    ) -> None:
        self._source, self._tell, self._poll_now = source, tell, poll_now
        self._run: tuple[str, RunFollower] | None = None
        self._shown: tuple[str, int | None, tuple[str, ...]] = ("", None, ())
        self._asked = ""  # the run whose details were asked for last

    def poll(self, view: RunView | None, *, wants_details: bool) -> None:
        """Tell its curves where it has gone on, else its details."""
        if view is None:
            return
        if self._run is None or self._run[0] != view.id:
            self.close()
            self._run = (view.id, self._source.follow(view))
            self._shown = ("", None, ())
        follower = self._run[1]
        mark = (view.id, view.step, tuple(one.name for one in view.metrics[:1]))
        if mark != self._shown:
            self._shown = mark
            keys = preview_keys(follower.main_metrics(view))
            self._tell(CurvesChanged(view.id, follower.curves(keys, MAX_POINTS)))
            self._poll_now()  # its details come after the chart
        elif wants_details and not view.is_active and self._asked != view.id:
            self._asked = view.id
            if (full := follower.poll()) is not None:
                self._tell(RunChanged(full))

    def close(self) -> None:
        if self._run is not None:
            self._run[1].close()
            self._run = None


class Preview(Horizontal):
    """Draws one run of the list; `call` names it."""

    def __init__(self, call: Callable[[RunView], str]) -> None:
        super().__init__(id="preview")
        self._call = call
        self._view: RunView | None = None
        self._full: RunView | None = None  # the run with what the list does not know
        self._has_curves = False

    def compose(self) -> ComposeResult:
        yield Chart("loss", id="preview-chart")
        yield RunPreview(id="glance")

    @property
    def _chart(self) -> Chart:
        return self.query_one(Chart)

    @property
    def is_painted(self) -> bool:
        """Whether a curve is drawn."""
        return self._has_curves and self._chart.is_painted

    def show(self, view: RunView | None) -> bool:
        """Draw a run, or none; whether it is another one, whose curves are to be read."""
        old, self._view = self._view, view
        self._show_glance()
        if view is None:
            self._chart.data = ChartData()
            return False
        if old is not None and old.id == view.id:
            return False
        self._entitle("loss", view)
        self._chart.data = loss_chart(view, {}, is_loading=True)
        return True

    def _show_glance(self) -> None:
        """The list knows less of a run that has ended than its own records do."""
        view, full = self._view, self._full
        if view is not None and full is not None and full.id == view.id and not view.is_active:
            view = replace(
                view,
                lr=full.lr,
                loss_ema=full.loss_ema,
                step_ms=full.step_ms,
                device=full.device,
                checkpoint=full.checkpoint,
                detail=full.detail or view.detail,
                val_step=full.val_step,
            )
        self.query_one(RunPreview).view = view

    @on(RunChanged)
    def show_details(self, message: RunChanged) -> None:
        message.stop()
        if self._view is not None and self._view.id == message.view.id:
            self._full = message.view
            self._show_glance()

    @on(CurvesChanged)
    def show_curves(self, message: CurvesChanged) -> None:
        message.stop()
        view = self._view
        if view is not None and view.id == message.run_id:
            self._has_curves = True
            metric, data = preview_chart(view, message.curves)
            self._entitle(metric, view)
            self._chart.data = data

    def _entitle(self, metric: str, view: RunView) -> None:
        self._chart.entitle(
            Content.assemble(
                styled.text(f"{metric} ", "bold $ink"), styled.text(self._call(view), "$ink-muted")
            )
        )
