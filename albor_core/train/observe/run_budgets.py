"""The budgets of a run in its loop: fed by log intervals, shown in the state file."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from albor_core.andon.alert import Alert
from albor_core.andon.budgets.ledger import BudgetLedger, used_before
from albor_core.andon.budgets.limits import BudgetLimits
from albor_core.telemetry.sample import GpuSample
from albor_core.telemetry.visible_gpus import visible_gpus

SHOWN_S = 5.0  # a projection costs a millisecond, and says nothing new before that


class RunBudgets:
    """The budgets of one attempt. Used by the main thread."""

    def __init__(self, monitoring: Mapping[str, Any], attempt: int) -> None:
        self._limits, self._attempt = BudgetLimits.from_config(monitoring), attempt
        self._ledger = BudgetLedger(self._limits, attempt=attempt)
        self._num_gpus = 0
        self._own: tuple[int, ...] | None = None
        self._fields: list[dict[str, Any]] = []
        self._shown = -SHOWN_S

    def begin(self, before: Any, *, num_gpus: int) -> None:
        """`before` is what `fields` gave in the attempt before; the run takes that many GPUs."""
        self._num_gpus = num_gpus
        self._ledger = BudgetLedger(self._limits, attempt=self._attempt, before=used_before(before))

    def check(
        self,
        step: int,
        *,
        tokens: float,
        wall_hours: float,
        share: float | None = None,
        gpus: Sequence[GpuSample] = (),
    ) -> tuple[Alert, ...]:
        """Budgets that were just reached; `gpus`: a new sample of the machine, if there is one."""
        wall = time.time()
        if gpus and self._num_gpus:
            if self._own is None:
                self._own = visible_gpus(gpus, os.environ, self._num_gpus)
            self._ledger.take_gpus(wall, gpus, self._own)
        return self._ledger.take(
            wall,
            step=step,
            tokens=tokens,
            wall_hours=wall_hours,
            num_gpus=self._num_gpus,
            share=share,
        )

    def fields(self) -> list[dict[str, Any]]:
        """The budgets as of BudgetLedger.summary, at most SHOWN_S old."""
        now = time.monotonic()
        if now - self._shown >= SHOWN_S:
            self._fields, self._shown = self._ledger.summary(), now
        return self._fields

    def warned(self) -> list[str]:
        """For a checkpoint."""
        return self._ledger.warned()

    def recall(self, warned: Sequence[str]) -> None:
        """What `warned` gave."""
        self._ledger.recall(warned)
