"""The metrics that stand for runs, as a store tells: run/values/main_metrics.py on its rows.

A pin is an event that a person's word left (`metric.pin`); goals are those of the run's experiment.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from albor_core.run.light_dataclass import dataclass
from albor_core.run.values.defined_metrics import FACT, Defined, defined_by
from albor_core.run.values.directions import Direction
from albor_core.run.values.main_metrics import (
    MOST,
    MOST_KEYS,
    Logged,
    MainMetric,
    main_metrics,
    pinned_after,
)
from albor_core.store.file.goals import goals_of_runs

_KEYS = (
    "SELECT r.run, CAST(k.name AS TEXT), k.last, k.minimum, k.maximum, k.count FROM runs r"
    " JOIN keys k ON k.run_id = r.id WHERE r.run IN (SELECT value FROM json_each(?))"
    " AND k.count > 0 AND k.key_id < ? AND k.name <> '_wall' ORDER BY r.id, k.key_id"
)
_PINS = (
    "SELECT r.run, v.name, v.data FROM runs r JOIN events v ON v.run_id = r.id"
    " AND v.source = 'annotations' WHERE r.run IN (SELECT value FROM json_each(?))"
    " AND v.name IN ('metric.pin', 'metric.unpin') ORDER BY r.id, v.at"
)

_DEFINED = (
    "SELECT run, facts FROM runs WHERE run IN (SELECT value FROM json_each(?))"
    f" AND instr(facts, '\"{FACT}\"')"
)


@dataclass(frozen=True)
class Standing:
    """What a store knows for the choice, and the metric that its experiment is compared by, where a
    person chose one; `chosen` is the choice.
    """

    logged: tuple[Logged, ...] = ()
    pins: tuple[str, ...] = ()
    goals: Mapping[str, Direction] | None = None
    defined: Mapping[str, Defined] | None = None
    lead: str = ""

    def with_live(self, live: Iterable[Logged]) -> Standing:
        """The same with what a state file tells that the store does not have yet."""
        known = {one.name: one for one in self.logged}
        for one in live:
            old = known.get(one.name)
            known[one.name] = one if old is None else old._replace(last=one.last)
        return replace(self, logged=tuple(known.values()))

    def chosen(self, most: int = MOST) -> tuple[MainMetric, ...]:
        return main_metrics(
            self.logged,
            pins=self.pins,
            goals=self.goals,
            defined=self.defined,
            lead=self.lead,
            most=most,
        )


def standings(db: sqlite3.Connection, runs: Collection[str]) -> dict[str, Standing]:
    """The standing of each of these runs that logs anything."""
    ids = json.dumps([*runs])
    pins, goals, defined = _pins(db, ids), goals_of_runs(db, runs), _defined(db, ids)
    found: dict[str, list[Logged]] = {}
    for run, name, last, low, high, points in db.execute(_KEYS, (ids, MOST_KEYS)):
        value = math.nan if last is None else last
        found.setdefault(run, []).append(Logged(name, value, low, high, points))
    return {
        run: Standing(tuple(logged), pins.get(run, ()), goals.get(run), defined.get(run))
        for run, logged in found.items()
    }


def _pins(db: sqlite3.Connection, ids: str) -> dict[str, tuple[str, ...]]:
    said: dict[str, list[tuple[str, str]]] = {}
    for run, kind, data in db.execute(_PINS, (ids,)):
        said.setdefault(run, []).extend((kind, name) for name in _metric_of(data))
    return {run: pinned_after(words) for run, words in said.items()}


def _defined(db: sqlite3.Connection, ids: str) -> dict[str, dict[str, Defined]]:
    rows = db.execute(_DEFINED, (ids,))
    return {run: defined_by(_document(facts).get(FACT)) for run, facts in rows}


def _metric_of(data: str) -> Iterator[str]:
    found = _document(data)
    if isinstance(found.get("metric"), str):
        yield found["metric"]


def _document(data: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
