"""The Andon cord of a run: rules, budgets and bricks against what was just measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from albor_core.andon.alert import Alert
from albor_core.andon.bricks import brick_name, check_bricks
from albor_core.andon.budgets import Budgets, check_budgets
from albor_core.andon.rules import RuleState, evaluate, rules_from
from albor_core.run.errors import UsageError

SETTLE_INTERVALS = 3  # caches, allocators and compilers are slow at first


class AlertMonitor:
    """What the rules remember; everything else is pure and lives in `andon`."""

    def __init__(self, monitoring: Mapping[str, Any], *, warmup_steps: int, attempt: int) -> None:
        """Raises ConfigError for a condition that cannot be read."""
        self.rules = rules_from(monitoring, warmup_steps=warmup_steps)
        self.budgets = Budgets.from_config(monitoring)
        self._planned_ms = {
            key.removesuffix("_ms"): value
            for key, value in (monitoring.get("bricks") or {}).items()
        }
        self._overruled: dict[str, float | None] = {}  # None: it never pauses the run
        self._measured_ms: Mapping[str, float] = {}
        self.attempt = attempt
        self.state = RuleState()
        self._spent: frozenset[str] = frozenset()
        self._calm_intervals = SETTLE_INTERVALS

    @property
    def budgets_ms(self) -> dict[str, float]:
        """What each brick may take: as a person said, else as the config does."""
        wanted = {**self._planned_ms, **self._overruled}
        return {brick: budget for brick, budget in wanted.items() if budget is not None}

    def overrule(self, wanted: Mapping[str, float | str]) -> str:
        """Take other budgets (andon.bricks.read_overrules) and say them. Raises UsageError for one
        to be learned that was not measured yet.
        """
        budgets: dict[str, float | None] = {}
        for brick, word in wanted.items():
            found = self._measured_ms.get(brick) if word == "learn" else word
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
        found = check_bricks(self.budgets_ms, self._measured_ms)
        return tuple(brick_name(alert.metric) for alert in found)

    def overruled(self) -> dict[str, Any]:
        """What a person said of budgets, for the journal; with what the config said then, since a
        budget that is edited later counts again.
        """
        planned = {brick: self._planned_ms.get(brick) for brick in self._overruled}
        return {"budgets_ms": dict(self._overruled), "planned_ms": planned}

    def recall(self, said: Mapping[str, Any]) -> None:
        """What `overruled` gave in an earlier life."""
        planned = said.get("planned_ms") or {}
        self._overruled = {
            brick: ms
            for brick, ms in (said.get("budgets_ms") or {}).items()
            if planned.get(brick) == self._planned_ms.get(brick)
        }

    def check_values(self, values: Mapping[str, float], step: int) -> tuple[Alert, ...]:
        """Alerts of the rules for newly measured `values` (journal keys)."""
        self.state, alerts = evaluate(
            self.rules, self.state, values, step=step, attempt=self.attempt
        )
        return alerts

    def check_budgets(self, step: int, *, tokens: int, wall_hours: float) -> tuple[Alert, ...]:
        """Budgets that were just reached."""
        alerts = check_budgets(
            self.budgets,
            tokens=tokens,
            wall_hours=wall_hours,
            already=self._spent,
            step=step,
            attempt=self.attempt,
        )
        self._spent |= {alert.rule for alert in alerts}
        return alerts

    def check_bricks(
        self, step: int, bricks_ms: Mapping[str, float], *, disturbed: bool
    ) -> tuple[Alert, ...]:
        """Bricks over budget in this interval, unless it says little: the first ones of a life, one
        `disturbed` by evaluation or saving, the one after a pause.
        """
        if self._calm_intervals > 0:
            self._calm_intervals -= 1
            return ()
        if disturbed:
            return ()
        self._measured_ms = bricks_ms
        return check_bricks(self.budgets_ms, bricks_ms, step=step, attempt=self.attempt)

    def resumed(self) -> None:
        """A person let the run go on: a brick over its budget stops it again, unless it was
        overruled, after one whole interval.
        """
        self._calm_intervals = max(self._calm_intervals, 1)

    def to_json(self) -> dict[str, Any]:
        """For a checkpoint. A spent budget is not part of it: a resumed run is still over it."""
        warned = sorted(rule for rule in self._spent if rule.endswith("-90"))
        return {"rules": self.state.to_json(), "warned": warned}

    def load(self, saved: Mapping[str, Any]) -> None:
        self.state = RuleState.from_json(saved.get("rules"))
        self._spent = frozenset(saved.get("warned") or ())
