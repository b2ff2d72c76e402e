"""What a store alone knows of the runs on the screen: which metrics stand for them, and a trend.

Read for visible rows, a few of them per poll, and again when they change.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from albor_core.feed.run.detail import MetricChoices, standing_of
from albor_core.feed.run.store_follower import StoreWatch
from albor_core.feed.runs.listed_metric import with_trend
from albor_core.feed.view.newest import metrics_of_state
from albor_core.feed.view.run_view import RunView
from albor_core.run.errors import AlborError
from albor_core.run.headlines import LOSSES
from albor_core.run.light_dataclass import dataclass
from albor_core.run.rundir import RunDir
from albor_core.run.values.lenient import Document
from albor_core.run.values.main_metrics import MainMetric
from albor_core.store.file.paths import global_store
from albor_core.store.file.standing import Standing
from albor_core.store.query.table import RunList

PER_POLL = 40
SPARK_POINTS = 60
_GAP_S = 1.0  # between two questions about a run that goes on


@dataclass(frozen=True)
class _Known:
    """The store's answer for one run, and the state when it was asked."""

    step: int | None
    row: RunView | None
    lead: str  # the metric that a person chose for its experiment
    news: int  # how often the store had changed
    asked_at: float
    standing: Standing
    trend: tuple[float, ...]

    def is_due(self, view: RunView, row: RunView | None, news: int, now: float) -> bool:
        """Whether it may say something else now: the index may have lagged behind the run, and one
        that had nothing yet may have something now."""
        is_same = self.step == view.step and self.row is row
        if is_same and (self.trend or self.news == news):
            return False
        return not self.standing.logged or now - self.asked_at >= _GAP_S


class VisibleRuns:
    """Completes the views of visible runs. Belongs to the thread that polls."""

    def __init__(
        self,
        store: StoreWatch,
        clock: Callable[[], float] = time.monotonic,
        chosen: MetricChoices = dict,
    ) -> None:
        self._store, self._clock, self._chosen = store, clock, chosen
        self._known: dict[str, _Known] = {}
        self._told: dict[str, tuple[RunView, tuple[MainMetric, ...]]] = {}
        self._left = PER_POLL

    def begin(self) -> None:
        """A poll begins."""
        self._left = PER_POLL

    def completed(self, view: RunView, row: RunView | None, news: int, *, may_ask: bool) -> RunView:
        """`view` with its main metrics and its trend; asked for where they are due and wanted."""
        known, now = self._known.get(view.id), self._clock()
        lead = self._chosen().get(view.experiment, "")
        is_due = known is None or known.lead != lead or known.is_due(view, row, news, now)
        if is_due and may_ask and self._left:
            self._left -= 1
            known = self._ask(view, row, lead, news, now) or known
        if known is None:
            return view
        metrics = standing_of(view, known.standing)
        if with_trend(replace(view, metrics=metrics)) is None:
            return replace(view, metrics=metrics, loss_history=view.loss_history or known.trend)
        return replace(view, metrics=metrics, trend=known.trend)

    def with_metrics(self, views: Sequence[RunView]) -> tuple[RunView, ...]:
        """All of these with their main metrics, for a document; those that moved since the last
        time are asked for, a few hundred at once.
        """
        news = {view.id: view for view in views if self._told.get(view.id, (None,))[0] is not view}
        found = self._store.ask(lambda reader: reader.standings([*news])) if news else {}
        if found is not None:
            self._told |= {
                run_id: (view, standing_of(view, replace(found.get(run_id, Standing()), lead=lead)))
                for run_id, view in news.items()
                for lead in [self._chosen().get(view.experiment, "")]
            }
        return tuple(
            replace(view, metrics=self._told[view.id][1]) if view.id in self._told else view
            for view in views
        )

    def _ask(
        self, view: RunView, row: RunView | None, lead: str, news: int, now: float
    ) -> _Known | None:
        """Facts from the store; None while it cannot answer, so that the last answer stays."""
        found = self._store.ask(lambda reader: reader.standings([view.id]))
        if found is None:
            return None
        standing = replace(found.get(view.id, Standing()), lead=lead)
        metrics = standing_of(view, standing)
        trend: tuple[float, ...] | None = ()
        own = with_trend(replace(view, metrics=metrics))
        if own is not None or not view.loss_history:
            trend = self.trend(view.id, _first_loss(metrics) if own is None else own)
        if trend is None and row is not None:
            return None
        # without a row the store does not know the run yet
        self._known[view.id] = _Known(view.step, row, lead, news, now, standing, trend or ())
        return self._known[view.id]

    def trend(self, run_id: str, metric: str) -> tuple[float, ...] | None:
        """A whole curve in SPARK_POINTS values; None while the store cannot say."""
        found = self._store.ask(
            lambda reader: reader.series(run_id, metric, max_points=SPARK_POINTS)
        )
        return None if found is None else tuple(found.mean)


def _first_loss(metrics: Collection[MainMetric]) -> str:
    """The loss with a trend: the one that is logged most, of training where there is one."""
    names = {one.name for one in metrics}
    return next((one for one in LOSSES if one in names), LOSSES[0])


def mains_of(run: RunDir, state: Document, *, is_live: bool) -> tuple[MainMetric, ...]:
    """The main metrics of a run that is not followed, from the global store and its state file."""
    told = metrics_of_state(state)
    try:
        with RunList(global_store()) as table:
            stored = table.standings([run.id]).get(run.id, Standing())
    except AlborError:
        stored = Standing()
    return (stored.with_live(told) if is_live or not stored.logged else stored).chosen()
