"""Andon rules played against history: what a run's own rules, or new ones, would have said.

Rules do not depend on each other, so each is replayed over its own figures alone. Where only the
global store remembers a run, its curve is a preview of at most 256 buckets, of which the extremes
are known and not their order: an alert may be off by a bucket.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from albor_core.andon.alert import Alert
from albor_core.andon.explain import explain
from albor_core.andon.rules.columns import replay_columns
from albor_core.andon.rules.condition import SILENCE
from albor_core.andon.rules.engine import STEADY, RuleEngine
from albor_core.andon.rules.grammar import parse_condition
from albor_core.andon.rules.replay import Row, replay
from albor_core.andon.rules.sources import Rule, rules_from
from albor_core.run.home.registry import is_begun_here
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.values.quantity import counted
from albor_core.store.file.paths import global_store, local_store
from albor_core.store.query.names import nearest
from albor_core.store.query.reader import Reader
from albor_core.store.rows.series import Series
from albor_core.store.watch.live_rules import live_rules

_PAGE = 50_000  # points in memory at a time
_PREVIEW = 256


@dataclass(frozen=True)
class RuleReplay:
    """What one rule would have said. `points` values were compared; `is_exact` tells whether they
    are all there were."""

    rule: Rule
    alerts: tuple[Alert, ...]
    clears: tuple[Alert, ...]
    points: int
    is_exact: bool
    kind: str

    def to_json(self) -> dict[str, Any]:
        return {
            **rule_json(self.rule, self.kind),
            "points": self.points,
            "exact": self.is_exact,
            "alerts": [alert.to_json() for alert in self.alerts],
            "clears": [alert.to_json() for alert in self.clears],
        }


def evaluator(rule: Rule, kind: str) -> str:
    """Who evaluates a rule for a run of `kind`: its loop, its index process, or nothing."""
    if kind == "imported":
        return "nothing"
    is_own = rule.source in ("config", "foreign")
    is_loops = kind == "train" and is_own and rule.condition.reads == "steps"
    return "loop" if is_loops else "index"


def rule_json(rule: Rule, kind: str) -> dict[str, Any]:
    """A rule of a run of `kind` as plain data, with its sentence for people."""
    return {
        "id": rule.id,
        "condition": str(rule.condition),
        "metric": rule.condition.metric,
        "action": rule.action,
        "severity": rule.severity,
        "source": rule.source,
        "evaluated_by": evaluator(rule, kind),
        "arm_step": rule.arm_step,
        "sentence": explain((rule,))[0],
    }


def rules_of(run: RunDir) -> tuple[tuple[Rule, ...], tuple[str, ...]]:
    """The rules that watch a run, and what is wrong with those that cannot: of its config and of
    the user's rules.yaml. None watch one that was imported.
    """
    kind = str(run.metadata().get("kind") or "")
    if kind == "imported":
        return (), ()
    # of one that has ended the place that it was launched at, which may bring commands, counts
    is_at_home = is_begun_here(run) or not run.liveness().is_alive
    found = live_rules(run, kind, launched_here=is_at_home)
    return (*found.by_loop, *found.rules), found.problems


def rules_for(
    run: RunDir, conditions: Sequence[str], *, action: str = "notify"
) -> tuple[Rule, ...]:
    """New rules as this run would have had them. Raises ConfigError naming the bad condition."""
    for text in conditions:
        parse_condition(text)
    entries = [{"condition": text, "action": action} for text in conditions]
    return rules_from({"alerts": entries}, warmup_steps=_warmup_of(run))


def rules_like(run: RunDir, monitoring: Mapping[str, Any]) -> tuple[Rule, ...]:
    """The rules of a config's `monitoring` as this run would have had them. Raises ConfigError."""
    return rules_from(monitoring, warmup_steps=_warmup_of(run))


def replay_rules(run: RunDir, rules: Sequence[Rule]) -> tuple[RuleReplay, ...]:
    """Play each rule against everything a store remembers of the run. Raises StoreError,
    NotFoundError where no store knows the run."""
    kind = str(run.metadata().get("kind") or "")
    with _reader(run) as reader:
        keys = reader.keys(run.id)
        return tuple(_replay_rule(reader, run.id, rule, keys, kind) for rule in rules)


def _reader(run: RunDir) -> Reader:
    local = local_store(run)
    return Reader(local if local.is_file() else global_store())


def unexpected(run: RunDir, played: Sequence[RuleReplay], *, fires: bool) -> list[str]:
    """What speaks against all of these rules firing, or with `fires` False against none doing so: a
    rule that could not be tested does, and so does having none.
    """
    if not played:
        return ["no rules were tested"]
    quiet = [one for one in played if one.points and not one.alerts]
    awake = replay_rules(run, [replace(one.rule, warmup_steps=1) for one in quiet])
    slept = {one.rule.id for one in awake if one.alerts and not one.clears}
    found = []
    for one in played:
        condition, steps = str(one.rule.condition), [alert.step for alert in one.alerts]
        if not one.points:
            found.append(f"{condition}: no value to compare was found")
        elif one.rule.id in slept:
            until = f"it sleeps until it is false or step {one.rule.arm_step:,}"
            found.append(f"{condition}: true from the start; {until}")
        elif fires and not steps:
            found.append(f"{condition}: never fired in {counted(one.points, 'value')}")
        elif steps and not fires:
            found.append(f"{condition}: fired at step {steps[0]:,}")
    return found


def untested(run: RunDir, played: Sequence[RuleReplay]) -> dict[str, str]:
    """By condition, why it had no value to compare, for conditions without one."""
    idle = [one.rule.condition for one in played if not one.points]
    if not idle:
        return {}
    with _reader(run) as reader:
        keys = reader.keys(run.id)
    found = {}
    for condition in idle:
        lacks = next((one.key for one in condition.figures if one.key not in keys), None)
        if condition.reads != "steps":
            why = f"no sample of it is kept of {run.id}"
        elif lacks is None:
            why = "its figures have no value at one step"
        else:
            why = f"{run.id} has no metric {lacks!r}{nearest(lacks, keys)}"
        found[str(condition)] = why
    return found


def _replay_rule(
    reader: Reader, run_id: str, rule: Rule, keys: Sequence[str], kind: str
) -> RuleReplay:
    condition = rule.condition
    if condition.reads == "machine":
        found, count = _replay_machine(reader, run_id, rule, keys)
        return _replayed(rule, found, count, True, kind)
    if len(condition.figures) == 1 and (points := list(_points(reader, run_id, condition.metric))):
        steps, values, times = zip(*points, strict=True)
        walls = [float(s) if w is None else w for s, w in zip(steps, times, strict=True)]
        alerts = replay_columns(rule, steps, values, walls)
        if alerts is not None:
            return _replayed(rule, alerts, len(points), True, kind)
    counted = _Counted(_rows(reader, run_id, [figure.key for figure in condition.figures]))
    found = replay((rule,), counted)
    if counted.count or not condition.is_plain:
        return _replayed(rule, found, counted.count, True, kind)
    coarse = reader.series(run_id, condition.metric, max_points=_PREVIEW)
    unfolded = ((step, {condition.metric: value}) for step, value in _unfolded(coarse, rule))
    count = sum(coarse.counts)
    return _replayed(rule, replay((rule,), unfolded), count, not count, kind)


def _replayed(
    rule: Rule, found: Sequence[Alert], count: int, is_exact: bool, kind: str
) -> RuleReplay:
    fired = tuple(alert for alert in found if alert.state == "fired")
    clears = tuple(alert for alert in found if alert.state == "cleared")
    return RuleReplay(rule, fired, clears, count, is_exact, kind)


class _Counted:
    """An iterator that knows how many items it gave."""

    def __init__(self, items: Iterable[Row]) -> None:
        self._items, self.count = items, 0

    def __iter__(self) -> Iterator[Row]:
        for item in self._items:
            self.count += 1
            yield item


def _rows(
    reader: Reader, run_id: str, keys: Sequence[str]
) -> Iterator[tuple[int, Mapping[str, float], float]]:
    """The values of several figures, step by step."""
    series = [
        ((step, key, value, wall) for step, value, wall in _points(reader, run_id, key))
        for key in dict.fromkeys(keys)
    ]
    merged = heapq.merge(*series, key=lambda point: point[0])
    for step, points in itertools.groupby(merged, key=lambda point: point[0]):
        values: dict[str, float] = {}
        when = float(step)
        for _, key, value, wall in points:
            values[key], when = value, when if wall is None else wall
        yield step, values, when


def _points(reader: Reader, run_id: str, key: str) -> Iterator[tuple[int, float, float | None]]:
    low: int | None = None
    while page := reader.points(run_id, key, low, limit=_PAGE):
        yield from page
        low = page[-1][0] + 1


# -- rules on clock and machine, by the series that are kept of them

_SERIES = {
    "temperature": "temperature_c",
    "utilization": "util_percent",
    "memory": "memory_bytes",
    "power": "power_w",
    "disk_free": "host/disk_free_bytes",
    "memory_free": "host/memory_available_bytes",
    "host.cpu": "host/cpu_percent",
}


def _replay_machine(
    reader: Reader, run_id: str, rule: Rule, keys: Sequence[str]
) -> tuple[tuple[Alert, ...], int]:
    """The alerts that the rule would have raised, and the number of samples."""
    names = {
        key: name
        for figure in rule.condition.figures
        for key in keys
        if (name := _figure_of(key, figure.key)) is not None
    }
    engine, found, count = RuleEngine((rule,)), list[Alert](), 0
    history = (
        _silences(reader, run_id, keys)
        if rule.condition.is_silence
        else (
            (step, {names[key]: value for key, value in values.items()}, wall)
            for step, values, wall in _rows(reader, run_id, list(names))
        )
    )
    for step, figures, wall in history:
        engine.step, count = step, count + 1
        found += engine.take_clock(wall, figures)
    return tuple(found), count


def _figure_of(key: str, wanted: str) -> str | None:
    """The figure of rules for a series, if it is the wanted one or that of a GPU."""
    gpu, dot, name = wanted.partition(".")
    if not wanted.startswith("gpu") or not dot:
        return wanted if _SERIES.get(wanted) == key else None
    head, _, tail = key.partition("/")
    is_gpu = head.startswith("gpu") and head[3:].isdecimal() and gpu in ("gpu", head)
    return f"{head}.{name}" if is_gpu and _SERIES.get(name) == tail else None


def _silences(
    reader: Reader, run_id: str, keys: Sequence[str]
) -> Iterator[tuple[int, Mapping[str, float], float]]:
    """How long each step was waited for; of the figure with the most values, such as the loss."""
    ranked = [key for key in ("train/loss", "loss") if key in keys]
    ranked += [key for key in keys if not key.startswith(("gpu", "host/", "program/"))]
    before: float | None = None
    for step, _, wall in _points(reader, run_id, ranked[0]) if ranked else ():
        if wall is None:
            continue
        if before is not None:
            yield step, {SILENCE: max(0.0, wall - before)}, wall
            yield step, {SILENCE: 0.0}, wall
        before = wall


def _unfolded(series: Series, rule: Rule) -> Iterator[tuple[int, float]]:
    """Values that buckets may have held, with as few crossings as their extremes leave: one with
    both sides begins on the side where the one before ended, a run on the bad one.
    """
    condition, ended_bad = rule.condition, True
    buckets = zip(series.steps, series.minimum, series.maximum, series.counts, strict=True)
    for step, low, high, count in buckets:
        if math.isnan(low) or math.isnan(high):
            continue
        ends = (high, low) if condition.op.startswith("<") else (low, high)  # the worst last
        bad = [value for value in ends if condition.is_bad(value)][-1:]
        good = [value for value in ends if not condition.is_bad(value)][:1]
        good *= min(count - len(bad), STEADY)
        values = bad + good if ended_bad else good + bad
        ended_bad = condition.is_bad(values[-1])
        yield from ((int(step), value) for value in values)


def _warmup_of(run: RunDir) -> int:
    training = (read_json(run.config_resolved) or {}).get("training")
    warmup = training.get("warmup_steps") if isinstance(training, dict) else 0
    return warmup if isinstance(warmup, int) else 0
