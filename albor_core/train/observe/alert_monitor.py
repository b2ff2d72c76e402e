"""The Andon cord of a run: rules, budgets and bricks against what was just measured."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Any

from albor_core.andon.alert import Alert, make_alert
from albor_core.andon.bricks.budgets import check_bricks
from albor_core.andon.bricks.names import brick_name, budgets_of, fit_budgets, stands_in
from albor_core.andon.bricks.watch import BrickWatch
from albor_core.andon.health.facts import HealthFacts
from albor_core.andon.health.watch import HealthWatch
from albor_core.andon.rules.engine import RuleEngine
from albor_core.andon.rules.sources import rules_from
from albor_core.run.errors import UsageError
from albor_core.train.observe.run_budgets import RunBudgets


class AlertMonitor:
    """What the rules remember; everything else is pure and lives in `andon`."""

    def __init__(
        self,
        monitoring: Mapping[str, Any],
        *,
        warmup_steps: int,
        attempt: int,
        facts: HealthFacts | None = None,
    ) -> None:
        """Raise ConfigError for a condition that cannot be read."""
        self.health = HealthWatch(facts or HealthFacts(attempt))
        self._has_failed = False
        self.rules = rules_from(monitoring, warmup_steps=warmup_steps)
        self.budgets = RunBudgets(monitoring, attempt)
        bricks = monitoring.get("bricks") or {}
        self._planned_ms = budgets_of(bricks)
        self._overruled: dict[str, float | None] = {}  # None: it never pauses the run
        self._bricks = BrickWatch(attempt, learns=bricks.get("learn", True))
        self.traces = bool(bricks.get("trace", True))
        """Whether an alert of a brick wants a trace of the next steps."""
        self.attempt = attempt
        self.engine = RuleEngine(self.rules, attempt=attempt)

    @property
    def budgets_ms(self) -> dict[str, float]:
        """What each brick may take: as a person said, else as the config does."""
        wanted = fit_budgets(self._planned_ms, {*self._bricks.measured_ms})
        both = {**wanted, **self._overruled}
        return {brick: budget for brick, budget in both.items() if budget is not None}

    @property
    def learned_ms(self) -> dict[str, float]:
        """The budgets that bricks without one have learned."""
        spared = {*self.budgets_ms, *self._overruled}
        learned = self._bricks.learned.budgets_ms
        return {brick: ms for brick, ms in learned.items() if brick not in spared}

    def overrule(self, wanted: Mapping[str, float | str]) -> str:
        """Take other budgets (andon.bricks.read_overrules) and say them. Raises UsageError for one
        to be learned that was not measured yet.
        """
        budgets: dict[str, float | None] = {}
        measured = self._bricks.measured_ms
        for name, word in wanted.items():
            brick = stands_in(name, measured.keys())
            found = measured.get(brick) if word == "learn" else word
            if found is None:
                raise UsageError(f"{brick} has not been measured yet: give its budget in ms")
            budgets[brick] = None if found == "mute" else float(found)
        self._overruled |= budgets
        return ", ".join(
            f"{brick} never pauses it" if ms is None else f"{brick} may take {ms:.4g} ms"
            for brick, ms in budgets.items()
        )

    def excess(self) -> tuple[str, ...]:
        """The bricks that would pause the run again if they took what they took last."""
        found = check_bricks(self.budgets_ms, self._bricks.measured_ms)
        return tuple(brick_name(alert.metric) for alert in found)

    def overruled(self) -> dict[str, Any]:
        """What a person said of budgets, for the journal; with what the config said then, since a
        budget that is edited later counts again.
        """
        planned = {brick: self._planned_for(brick) for brick in self._overruled}
        return {"budgets_ms": dict(self._overruled), "planned_ms": planned}

    def recall(self, said: Mapping[str, Any]) -> None:
        """What `overruled` gave in an earlier attempt."""
        planned = said.get("planned_ms") or {}
        self._overruled = {
            brick: ms
            for brick, ms in (said.get("budgets_ms") or {}).items()
            if planned.get(brick) == self._planned_for(brick)
        }

    def _planned_for(self, brick: str) -> float | None:
        return fit_budgets(self._planned_ms, (brick,)).get(brick)

    def check_values(self, values: Mapping[str, float], step: int) -> tuple[Alert, ...]:
        """Alerts of the rules for newly measured `values` (journal keys)."""
        return self.engine.take_step(step, values, time.time())

    def check_loss(
        self, fault: tuple[float, str] | None, metric: str, step: int
    ) -> tuple[Alert, ...]:
        """What stops a run whose recipe calls a loss unsound: that loss, and why."""
        if fault is None:
            return ()
        (loss, reason), name = fault, metric.partition("/")[0]
        found = make_alert(
            f"{name}-loss-unsound",
            "health",
            "stop",
            metric=metric,
            value=loss,
            threshold=math.nan,
            message=f"{metric} {loss:.6g} is not sound: {reason}",
            step=step,
            attempt=self.attempt,
        )
        return (found,)

    def check_health(
        self, step: int, values: Mapping[str, float], wall: float
    ) -> tuple[Alert, ...]:
        """Alerts of the training's health. Judging must not end what it judges: what fails there is
        told once, and nothing is judged any more.
        """
        if self._has_failed:
            return ()
        try:
            return self.health.take_step(step, values, wall)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            self._has_failed = True
            return (self._failed(step, error),)

    def _failed(self, step: int, error: Exception) -> Alert:
        return make_alert(
            "health-failed",
            "health",
            "notify",
            metric="",
            value=math.nan,
            threshold=math.nan,
            message=f"the health of the training is not judged any more: {error!r:.300}",
            step=step,
            attempt=self.attempt,
        )

    def check_bricks(
        self,
        step: int,
        bricks_ms: Mapping[str, float],
        *,
        steps: int,
        step_ms: float,
        wall: float,
        efficiency: float | None = None,
        disturbed: bool = False,
        crowded: bool = False,
    ) -> tuple[Alert, ...]:
        """What the bricks of an interval of so many steps say: `BrickWatch.take_interval`."""
        return self._bricks.take_interval(
            step,
            bricks_ms,
            steps=steps,
            step_ms=step_ms,
            wall=wall,
            budgets_ms={**self._planned_ms, **self._overruled},
            efficiency=efficiency,
            disturbed=disturbed,
            crowded=crowded,
        )

    def resumed(self) -> None:
        """A person let the run go on: a brick over its budget stops it again, unless it was
        overruled, after one whole interval.
        """
        self._bricks.resumed()

    def to_json(self) -> dict[str, Any]:
        """For a checkpoint. A spent budget is not part of it: a resumed run is still over it."""
        warned, health = self.budgets.warned(), self.health.to_json()
        return {"rules": self.engine.to_json(), "warned": warned, "health": health}

    def on_clock(self, *, num_steps: int, tokens_per_planned_step: int) -> None:
        """The run goes on: `HealthFacts.on_clock`. To be called before `load`."""
        facts = self.health.facts.on_clock(
            num_steps=num_steps, tokens_per_planned_step=tokens_per_planned_step
        )
        self.health = HealthWatch(facts)

    def load(self, saved: Mapping[str, Any]) -> None:
        self.engine.load(saved.get("rules"))
        self.budgets.recall(saved.get("warned") or ())
        self.health = HealthWatch(self.health.facts)
        self.health.load(saved.get("health") or {})
