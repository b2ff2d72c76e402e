"""Attention, polled beside the list of runs: reads what the entries need, of few runs.

The list may have ten thousand runs; looked at are those at work, and those that ended lately and
not well. The files of the second do not change but for what people say, so each is read once and
then now and again.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from albor_core.feed.attention.derive import attention, ended_at, is_candidate, since_looked
from albor_core.feed.attention.item import AttentionItem, AttentionList, AttentionMarks, SinceLooked
from albor_core.feed.attention.machine import MachineView, MachineWatch, Reading
from albor_core.feed.attention.marks import MarksFile
from albor_core.feed.run.detail import MetricChoices
from albor_core.feed.run.diagnostic_files import DiagnosticFiles
from albor_core.feed.run.store_follower import StoreWatch
from albor_core.feed.runs.store_lag import LATE_S, is_being_read
from albor_core.feed.view.diagnostics import NO_DIAGNOSTICS, RunDiagnostics
from albor_core.feed.view.run_view import RunsView, RunView
from albor_core.run.home.folders import albor_home
from albor_core.run.home.runs import placed
from albor_core.store.upkeep.home_size import HomeLook, cap_problem
from albor_core.telemetry.host import sample_host
from albor_core.telemetry.machine_ring import read_ring, ring_path

LOOK_S = 1.0  # between two derivations: 10,000 rows take a few milliseconds
READ_S = 0.1  # per look, for runs that have ended
AGAIN_S = 5.0  # until the files of an ended run are looked at again
HOST_S = 5.0
RING_S = 330.0  # of samples, at the first look: five minutes see every trouble of a GPU


class AttentionFeed:
    """Belongs to one thread, the one that polls the list of runs. Raises nothing."""

    def __init__(
        self,
        home: Path | None = None,
        *,
        look_s: float = LOOK_S,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        chosen: MetricChoices = dict,
    ) -> None:
        """`chosen` gives what experiments are judged by, where a person chose it."""
        self._home = home or albor_home()
        self._clock, self._wall, self._look_s = clock, wall, look_s
        self._marks = MarksFile(self._home)
        self._machine = MachineWatch()
        self._files: dict[str, DiagnosticFiles] = {}
        self._diagnostics: dict[str, tuple[float, RunView, RunDiagnostics]] = {}  # when, of what
        self._rows: tuple[RunView, ...] = ()
        self._candidates: tuple[RunView, ...] = ()
        self._chosen = chosen
        self._since: tuple[float | None, Mapping[str, str], SinceLooked] = (
            math.nan, {}, SinceLooked(),
        )  # fmt: skip
        self._at = self._host_at = -math.inf
        self._ring_at: float | None = None
        self._size = HomeLook(self._home)
        self._last = AttentionList(is_complete=False)
        self._late: frozenset[str] | None = None  # runs that were on their way at the last look

    def look(self, view: RunsView, store: StoreWatch | None = None) -> AttentionList:
        """What needs a person, looked at once in `look_s`; the same object if nothing changed.
        `store` tells of alerts that are older than the ends of the files.
        """
        now = self._clock()
        if now - self._at < self._look_s and self._last.is_complete:
            return self._last
        self._at = now
        wall = self._wall()
        marks = self._marks.get(wall)
        self._choose(view, marks, wall)
        rows, is_read = self._with_diagnostics(now, store)
        found = attention(
            rows,
            self._look_at_machine(view, rows, wall, now),
            marks,
            now=wall,
            since=self._since[2],
            being_read=self._being_read(view, wall),
            is_complete=view.is_complete and is_read and self._size.words() is not None,
            problem=view.problem,
        )
        if found != self._last:
            self._last = found
        return self._last

    def _choose(self, view: RunsView, marks: AttentionMarks, wall: float) -> None:
        """Choose the rows to examine; repeated only for another list."""
        is_same = view.rows is self._rows
        if not is_same:
            self._rows = view.rows
            self._candidates = tuple(row for row in view.rows if is_candidate(row, wall))
            kept = {row.id for row in self._candidates}
            self._files = {i: one for i, one in self._files.items() if i in kept}
            self._diagnostics = {i: one for i, one in self._diagnostics.items() if i in kept}
        looked, chosen = marks.looked_wall, self._chosen()
        if not is_same or self._since[:2] != (looked, chosen):
            self._since = (looked, chosen, since_looked(self._rows, looked, chosen))

    def _being_read(self, view: RunsView, wall: float) -> tuple[str, ...]:
        """Runs that ended a moment ago and are, or were before `view` was made, on their way into
        the store; all of the last minute at the first look.
        """
        ended = [
            row for row in view.rows
            if not row.is_active and row.path and wall - (ended_at(row) or 0.0) < LATE_S
        ]  # fmt: skip
        late = frozenset(row.id for row in ended if is_being_read(placed(row.id, row.path)))
        before = frozenset(row.id for row in ended) if self._late is None else self._late
        self._late = late
        return tuple(sorted(late | before))

    def _with_diagnostics(
        self, now: float, store: StoreWatch | None
    ) -> tuple[tuple[RunView, ...], bool]:
        """The candidates with their diagnostics, and whether all were read."""
        stop, is_read, rows = now + READ_S, True, []
        for row in self._candidates:
            at, of, diagnostics = self._diagnostics.get(row.id, (-math.inf, row, NO_DIAGNOSTICS))
            is_due = row.is_active or of is not row or now - at >= AGAIN_S
            if is_due and (row.is_active or self._clock() < stop):
                files = self._files.get(row.id)
                if files is None:
                    files = self._files[row.id] = DiagnosticFiles(placed(row.id, row.path))
                diagnostics = _completed(files.read(row), row, store)
                self._diagnostics[row.id] = (now, row, diagnostics)
            elif at == -math.inf:
                is_read = False
                continue  # not known yet: no entry without its reason
            rows.append(replace(row, diagnostics=diagnostics))
        return tuple(rows), is_read

    def _look_at_machine(
        self, view: RunsView, rows: Sequence[RunView], wall: float, now: float
    ) -> MachineView:
        """The view of the machine, from the host's samples, or from our own if there are none."""
        ring = read_ring(ring_path(), RING_S if self._ring_at is None else 2 * LOOK_S + 1)
        if ring:
            self._ring_at = now
            self._machine.take(ring, ring[-1].system)
        else:
            system = None
            if now - self._host_at >= HOST_S:
                self._host_at, system = now, sample_host(self._home)
            self._machine.take((Reading(wall, view.gpus),) if view.gpus else (), system)
        machine = self._machine.look([row for row in rows if row.is_active], wall)
        host = os.uname().nodename
        homes, caps = self._size.words(), cap_problem()
        return replace(
            machine, homes={host: homes} if homes else {}, caps={host: caps} if caps else {}
        )


def entries_of(view: RunView | None) -> tuple[AttentionItem, ...]:
    """The entries of one run whose diagnostics are read, as RunFeed reads them; of no machine."""
    if view is None:
        return ()
    return attention((view,), MachineView(), AttentionMarks(), now=time.time()).items


def _completed(
    diagnostics: RunDiagnostics, row: RunView, store: StoreWatch | None
) -> RunDiagnostics:
    """Diagnostics with the open alerts of the store, if the ends of the files do not have them
    all."""
    if store is None or row.alerts_open <= len(diagnostics.alerts):
        return diagnostics
    known = diagnostics.settled.union(alert.id for alert in diagnostics.alerts)
    asked = store.ask(lambda reader: reader.alerts(row.id, open_only=True)) or ()
    return replace(
        diagnostics, alerts=(*(a for a in asked if a.id not in known), *diagnostics.alerts)
    )
