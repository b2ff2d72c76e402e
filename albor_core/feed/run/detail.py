"""One run in full: the Run screen's and the monitor's source.

History comes from the run's own store. While its index lags or is missing, the end of the curves
comes from the live state (curves.py), and attempts and events from the tails of their files, so a
screen has something to show from the first second and without any database.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from albor_core.andon.severity import CALM, worst
from albor_core.feed.run.curves import RunCurves
from albor_core.feed.run.diagnostic_files import DiagnosticFiles
from albor_core.feed.run.files import RunFiles
from albor_core.feed.run.records import RecordTail, attempts_of, journal_events
from albor_core.feed.run.store_follower import (
    StoreWatch,
    aged,
    known_of,
    merge,
    view_of_row,
    without_files,
)
from albor_core.feed.run.tail import LogFollower
from albor_core.feed.view.run_view import RunView
from albor_core.run.journal import parse_json, parse_line
from albor_core.run.rundir import RunDir
from albor_core.run.values.lenient import text
from albor_core.run.values.main_metrics import Logged, MainMetric
from albor_core.store.file.paths import global_store, local_store
from albor_core.store.file.standing import Standing
from albor_core.store.query.reader import Reader, alert_of
from albor_core.store.rows.rows import AlertRow, AttemptRow, EventRow
from albor_core.store.rows.series import Series

STANDING_S = 1.0
EVENTS = 300  # newest ones kept for the screen
MetricChoices = Callable[[], Mapping[str, str]]
"""Gives the metrics that a person chose, by experiment."""
T = TypeVar("T")


class RunFeed:
    """Everything about one run, polled. Belongs to one thread; raises nothing.

    `store` and `log` are the run's own store and log tail, for the tabs that page through them.
    """

    def __init__(
        self,
        run: RunDir,
        *,
        store: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
        chosen: MetricChoices = dict,
    ) -> None:
        self.run, self._chosen = run, chosen
        self._clock = clock
        self.files = RunFiles(run)
        self._diagnostics = DiagnosticFiles(run)
        self.log = LogFollower(run.logs)
        own = store or local_store(run)
        self.store = StoreWatch(
            own if own.exists() or run.path.is_dir() else global_store(), clock=clock
        )
        self._everybodys = StoreWatch(global_store(), clock=clock)
        self._curves = RunCurves(
            run,
            own=self.store,
            everybodys=self._everybodys,
            state=self.files.state,
            resolved=self.files.resolved,
        )
        self._ledger = RecordTail(run.attempts, parse_json)
        self._journal = RecordTail(run.journal, parse_line)
        self._standing: tuple[float, Standing] = (-math.inf, Standing())  # and when it was asked
        self._ends: tuple[int | None, dict[str, float]] = (None, {})  # a step, and values there

    def close(self) -> None:
        """Let go of the store."""
        self.store.close()
        self._everybodys.close()

    def poll(self) -> RunView | None:
        """The run now, with alerts, attempts and events; None if nothing is left of it."""
        row = self.store.rows().get(self.run.id) or self._row_elsewhere()
        view = self.files.view(*known_of(row))
        if view is None and row is not None:
            if not self.run.path.is_dir():
                row = without_files(row, self.run)
            view = replace(aged(row), detail=row.detail or self._what_is_missing())
        elif view is not None and row is not None:
            view = merge(view, row)
        if view is None:
            return None
        alerts, events = self._alerts(), self._events()
        if not view.is_active:
            view = self._remembered(view, events)
        view = replace(view, metrics=standing_of(view, self.standing_in(view.experiment)))
        waiting = [alert for alert in alerts if alert.is_open]
        return replace(
            view,
            alerts=alerts,
            attempts=self._attempts(),
            events=events,
            alerts_open=len(waiting),
            severity=_worst(waiting, view) if waiting else CALM,
            diagnostics=self._diagnostics.read(view),
        )

    @property
    def problem(self) -> str:
        """Damage of the polled run, its time and the remedy; "" for none."""
        return "; ".join(part for part in (self.files.flaw, self.store.problem) if part)

    def _row_elsewhere(self) -> RunView | None:
        row = self._ask(lambda reader: reader.run(self.run.id))
        return None if row is None else view_of_row(row)

    def _remembered(self, view: RunView, events: Sequence[EventRow]) -> RunView:
        """The view of an ended run completed from its records, if there is no state file."""
        point, device = view.checkpoint, view.device
        for event in reversed(events):
            if event.name == "checkpoint.saved" and point.last_step is None:
                path = text(event.data, "path") or None
                point = replace(point, last_step=event.step, last_wall=event.wall, last_path=path)
            elif event.name == "run.start":
                device = device or text(event.data, "device")
        ends = self._last_values(view)
        return replace(
            view,
            checkpoint=point,
            device=device,
            lr=ends.get("optim/lr") if view.lr is None else view.lr,
            grad_norm=ends.get("optim/grad_norm") if view.grad_norm is None else view.grad_norm,
        )

    def _last_values(self, view: RunView) -> dict[str, float]:
        """The values of the last step, read once if they are wanted."""
        step = view.step
        if step is None or (view.lr is not None and view.grad_norm is not None):
            return {}
        if self._ends[0] != step:
            keys = ("optim/lr", "optim/grad_norm")
            found = self._ask(
                lambda reader: {
                    key: points[-1][1]
                    for key in keys
                    if (points := reader.points(self.run.id, key, step))
                }
            )
            if not found:
                return {}
            self._ends = (step, found)
        return self._ends[1]

    def standing_in(self, experiment: str) -> Standing:
        """The same with the metric that a person chose for the experiment."""
        return replace(self.standing(), lead=self._chosen().get(experiment, ""))

    def standing(self) -> Standing:
        """What the metrics that stand for it are chosen from, as of the last second: all that its
        own store has, and the goals of its experiment, which the store of all runs knows.
        """
        now = self._clock()
        if now - self._standing[0] >= STANDING_S:
            own = self._standing_in(self._ask, self.run.id, self.run.own_id)
            goals = self._standing_in(self._everybodys.ask, self.run.id).goals or own.goals
            self._standing = (now, replace(own, goals=goals))
        return self._standing[1]

    def _standing_in(self, ask: Callable[..., Any], *names: str) -> Standing:
        """The standing of a run in a store, by the first of these names that the store knows."""
        found = ask(lambda reader: reader.standings(names)) or {}
        return next((found[name] for name in names if name in found), Standing())

    def _what_is_missing(self) -> str:
        """Why the store alone has to tell of the run."""
        if self.run.path.is_dir():
            return "its run.json is missing: this is what the store remembers"
        return "its folder is gone: this is what the store remembers"

    def keys(self) -> tuple[str, ...]:
        """Metric keys that can be drawn, the important ones first, those of the machine last."""
        return self._curves.keys()

    def curves(
        self,
        keys: Sequence[str],
        *,
        max_points: int = 600,
        lo: int | None = None,
        hi: int | None = None,
    ) -> dict[str, Series]:
        """Curves over the step window [lo, hi], each with its min/max envelope; see RunCurves."""
        return {key: self._curves.curve(key, max_points, lo, hi) for key in keys}

    def _ask(self, question: Callable[[Reader], T]) -> T | None:
        return self._curves.ask(question)

    def _alerts(self) -> tuple[AlertRow, ...]:
        rows = self._ask(lambda reader: reader.alerts(self.run.id, open_only=False))
        if rows is not None:
            return rows
        return tuple(
            alert_of(event, text(event.data, "id"))
            for event in self._journal_events()
            if event.name == "andon.alert"
        )

    def _attempts(self) -> tuple[AttemptRow, ...]:
        rows = self._ask(lambda reader: reader.attempts(self.run.id))
        return rows or attempts_of(self._ledger.records())

    def _events(self) -> tuple[EventRow, ...]:
        rows = self._ask(lambda reader: reader.events(self.run.id, limit=EVENTS))
        return self._journal_events()[-EVENTS:] if rows is None else rows

    def _journal_events(self) -> tuple[EventRow, ...]:
        return journal_events(self._journal.records(), self.run.id)


def standing_of(view: RunView, standing: Standing) -> tuple[MainMetric, ...]:
    """What stands for a run: chosen from all that a store has, with the values of a run at work
    from its state file.
    """
    if not standing.logged:
        return tuple(sorted(view.metrics, key=lambda one: one.name != standing.lead))
    told = (Logged(one.name, one.last) for one in view.metrics)
    known = standing.with_live(told) if view.is_active else standing
    return known.chosen()


def _worst(alerts: Sequence[AlertRow], view: RunView) -> str:
    return worst(alert.severity for alert in alerts) if alerts else view.severity
