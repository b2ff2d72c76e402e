"""The Andon cord of a run: rules, budgets and bricks against what was just measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from albor_core.andon.alert import Alert
from albor_core.andon.bricks import check_bricks
from albor_core.andon.budgets import Budgets, check_budgets
from albor_core.andon.rules import RuleState, evaluate, rules_from

SETTLE_INTERVALS = 3  # caches, allocators and compilers are slow at first


class Cord:
    """What the rules remember; everything else is pure and lives in `andon`."""

    def __init__(self, monitoring: Mapping[str, Any], *, warmup_steps: int, attempt: int) -> None:
        """Raises ConfigError for a condition that cannot be read."""
        self.rules = rules_from(monitoring, warmup_steps=warmup_steps)
        self.budgets = Budgets.from_config(monitoring)
        self.budgets_ms = {
            key.removesuffix("_ms"): value
            for key, value in (monitoring.get("bricks") or {}).items()
            if value is not None
        }
        self.attempt = attempt
        self.state = RuleState()
        self._spent: frozenset[str] = frozenset()
        self._calm_intervals = SETTLE_INTERVALS

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
        return check_bricks(self.budgets_ms, bricks_ms, step=step, attempt=self.attempt)

    def resumed(self) -> None:
        """A person let the run go on: a brick may stop it again after one whole interval."""
        self._calm_intervals = max(self._calm_intervals, 1)

    def to_json(self) -> dict[str, Any]:
        """For a checkpoint. A spent budget is not part of it: a resumed run is still over it."""
        warned = sorted(rule for rule in self._spent if rule.endswith("-90"))
        return {"rules": self.state.to_json(), "warned": warned}

    def load(self, saved: Mapping[str, Any]) -> None:
        self.state = RuleState.from_json(saved.get("rules"))
        self._spent = frozenset(saved.get("warned") or ())
