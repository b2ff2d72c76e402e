"""The budgets of a program that is not our trainer: counted where it is watched."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from albor_core.andon.actions import ACTIONS
from albor_core.andon.alert import Alert
from albor_core.andon.budgets.ledger import BudgetLedger, used_before
from albor_core.andon.budgets.limits import BudgetLimits
from albor_core.andon.health.watch import TOKENS_KEY
from albor_core.run.values.lenient import finite_of
from albor_core.telemetry.machine_ring import MachineSample

_LONGEST_S = 60.0  # between two looks; what is longer was not watched


class ProgramBudgets:
    """The budgets of all attempts of one run. Hours count while the program is alive and
    watched."""

    def __init__(self, monitoring: Mapping[str, Any]) -> None:
        """Limits that cannot be read are left out, as the config of a tracked program may hold
        anything.
        """
        self._limits, self._attempt = _limits(monitoring), 1
        self._ledger = BudgetLedger(self._limits)
        self._hours = 0.0
        self._wall: float | None = None
        self._tokens: float | None = None

    def begin(self, attempt: int) -> None:
        """Another attempt goes on with what was used."""
        before = {**used_before(self._ledger.summary()), "wall_hours": self._hours}
        warned = self._ledger.warned()
        self._ledger = BudgetLedger(self._limits, attempt=attempt, before=before)
        self._ledger.recall(warned)
        self._attempt = attempt

    def take_step(self, values: Mapping[str, float]) -> None:
        self._tokens = values.get(TOKENS_KEY, self._tokens)

    def take_clock(
        self,
        wall: float,
        samples: Iterable[MachineSample],
        own: Collection[int],
        *,
        is_alive: bool,
        step: int,
        num_steps: int | None,
    ) -> tuple[Alert, ...]:
        """New samples, and the GPUs that the program holds; budgets that were just reached."""
        since, self._wall = self._wall, wall
        if not is_alive:
            return ()
        if since is not None:
            self._hours += min(max(0.0, wall - since), _LONGEST_S) / 3600
        self._ledger.take_machine(samples, own)
        return self._ledger.take(
            wall,
            step=step,
            tokens=self._tokens,
            wall_hours=self._hours,
            num_gpus=len(own),
            share=min(1.0, step / num_steps) if num_steps else None,
        )

    def summary(self) -> list[dict[str, Any]]:
        """The summary, as of BudgetLedger.summary."""
        return self._ledger.summary()

    def to_json(self) -> dict[str, Any]:
        used = used_before(self._ledger.summary())
        return {"hours": self._hours, "used": used, "warned": self._ledger.warned(),
                "tokens": self._tokens}  # fmt: skip

    def load(self, saved: Mapping[str, Any]) -> None:
        """Restore the state that `to_json` returned."""
        self._hours, self._tokens = float(saved["hours"]), finite_of(saved.get("tokens"))
        before = {**dict(saved["used"]), "wall_hours": self._hours}
        self._ledger = BudgetLedger(self._limits, attempt=self._attempt, before=before)
        self._ledger.recall(saved["warned"])


def _limits(monitoring: Mapping[str, Any]) -> BudgetLimits:
    """The budget limits of an unchecked config."""
    told = monitoring.get("budgets")
    kept = {} if not isinstance(told, Mapping) else dict(told)
    for name, value in told.items() if isinstance(told, Mapping) else ():
        is_text = name in ("action", "currency")
        known = isinstance(value, str) if is_text else (finite_of(value) or 0.0) > 0
        if not known:
            del kept[name]
    if kept.get("action", "stop") not in ACTIONS:
        del kept["action"]
    return BudgetLimits.from_config({"budgets": kept})
