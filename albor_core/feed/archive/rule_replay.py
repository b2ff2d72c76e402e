"""Andon rules played against history: what a run's own rules, or new ones, would have said.

Rules do not depend on each other, so each is replayed over its own metric alone. Where only the
global store remembers a run, its curve is a preview of at most 256 buckets, of which the extremes
are known and not their order: an alert may be off by a bucket.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from albor_core.andon.alert import Alert
from albor_core.andon.explain import explain
from albor_core.andon.rules import STEADY, Rule, parse_condition, replay, rules_from
from albor_core.feed.watched import watching_section
from albor_core.run.errors import ConfigError
from albor_core.run.rundir import RunDir, read_json
from albor_core.store.file.paths import global_store, local_store
from albor_core.store.query.reader import Reader
from albor_core.store.rows.series import Series

_PAGE = 50_000  # points in memory at a time
_PREVIEW = 256


@dataclass(frozen=True)
class RuleReplay:
    """What one rule would have said. `points` values were compared; `is_exact` tells whether they
    are all there were."""

    rule: Rule
    alerts: tuple[Alert, ...]
    points: int
    is_exact: bool

    def to_json(self) -> dict[str, Any]:
        return {
            **rule_json(self.rule),
            "points": self.points,
            "exact": self.is_exact,
            "alerts": [alert.to_json() for alert in self.alerts],
        }


def rule_json(rule: Rule) -> dict[str, Any]:
    """A rule as plain data, with its sentence for people."""
    return {
        "id": rule.id,
        "condition": str(rule.condition),
        "metric": rule.condition.metric,
        "action": rule.action,
        "arm_step": rule.arm_step,
        "sentence": explain((rule,))[0],
    }


def rules_of(run: RunDir) -> tuple[Rule, ...]:
    """The rules that watch a run: those of its config where `albor train` runs it, else none."""
    monitoring, warmup = _config_of(run)
    try:
        return rules_from(monitoring, warmup_steps=warmup)
    except ConfigError:
        return ()


def rules_for(run: RunDir, conditions: Sequence[str], *, action: str = "warn") -> tuple[Rule, ...]:
    """New rules as this run would have had them. Raises ConfigError naming the bad condition."""
    for text in conditions:
        parse_condition(text)
    _, warmup = _config_of(run)
    entries = [{"condition": text, "action": action} for text in conditions]
    return rules_from({"alerts": entries}, warmup_steps=warmup)


def replay_rules(run: RunDir, rules: Sequence[Rule]) -> tuple[RuleReplay, ...]:
    """Play each rule against everything a store remembers of the run. Raises StoreError,
    NotFoundError where no store knows the run."""
    local = local_store(run)
    with Reader(local if local.is_file() else global_store()) as reader:
        return tuple(_replay_rule(reader, run.id, rule) for rule in rules)


def _replay_rule(reader: Reader, run_id: str, rule: Rule) -> RuleReplay:
    metric = rule.condition.metric
    counted = _Counted(_points(reader, run_id, metric))
    alerts = replay((rule,), ((step, {metric: value}) for step, value in counted))
    if counted.count:
        return RuleReplay(rule, alerts, counted.count, True)
    coarse = reader.series(run_id, metric, max_points=_PREVIEW)
    alerts = replay((rule,), ((step, {metric: value}) for step, value in _unfolded(coarse, rule)))
    count = sum(coarse.counts)
    return RuleReplay(rule, alerts, count, not count)


class _Counted:
    """An iterator that knows how many items it gave."""

    def __init__(self, items: Iterator[tuple[int, float]]) -> None:
        self._items, self.count = items, 0

    def __iter__(self) -> Iterator[tuple[int, float]]:
        for item in self._items:
            self.count += 1
            yield item


def _points(reader: Reader, run_id: str, key: str) -> Iterator[tuple[int, float]]:
    low: int | None = None
    while page := reader.points(run_id, key, low, limit=_PAGE):
        yield from ((step, value) for step, value, _ in page)
        low = page[-1][0] + 1


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


def _config_of(run: RunDir) -> tuple[Mapping[str, Any], int]:
    """The `monitoring` section that watches it, and its warm-up."""
    resolved = read_json(run.config_resolved) or {}
    training = resolved.get("training")
    warmup = training.get("warmup_steps") if isinstance(training, dict) else 0
    known = watching_section(read_json(run.run_json) or {}, resolved)
    return known, warmup if isinstance(warmup, int) else 0
