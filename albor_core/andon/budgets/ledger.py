"""The budgets of an active run: use so far, expected use at the end, and when a budget runs out.
Pure.

The trainer's loop keeps it for `albor train`, the index process for other programs. The use of
earlier attempts is passed as the `used` of an earlier `summary`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from albor_core.andon.alert import Alert
from albor_core.andon.budgets.energy import EnergyMeter, PowerReading
from albor_core.andon.budgets.limits import AMOUNTS, BudgetLimits, Use, check_budgets, use
from albor_core.andon.budgets.projection import Projection, UsePoint, project

_MOST_POINTS = 128


class PowerSample(Protocol):
    """The GPUs of a host at one moment, as in telemetry.machine_ring.MachineSample."""

    @property
    def wall(self) -> float: ...
    @property
    def gpus(self) -> Sequence[PowerReading]: ...


class BudgetLedger:
    """The budgets of one attempt; `before` is the use of earlier attempts, by amount."""

    def __init__(
        self,
        limits: BudgetLimits,
        *,
        attempt: int = 1,
        before: Mapping[str, float | None] | None = None,
    ) -> None:
        self.limits, self.attempt = limits, attempt
        before = before or {}
        self._before_hours = float(before.get("wall_hours") or 0.0)
        self._gpu_hours = float(before.get("gpu_hours") or 0.0)
        self._wall_hours: float | None = None
        self._energy = EnergyMeter(before.get("energy_kwh"))
        self._points: list[tuple[float, float | None, Use]] = []
        self._stride, self._seen = 1, 0
        self._spent: frozenset[str] = frozenset()
        known = ("tokens", "steps", "wall_hours", "gpu_hours", "energy_kwh")
        self.used = use(limits, **{amount: before.get(amount) for amount in known})

    def take_machine(
        self, samples: Iterable[PowerSample], own_gpus: Collection[int] | None = None
    ) -> None:
        """Add samples since the last call, oldest first; samples seen before are ignored."""
        for sample in samples:
            self.take_gpus(sample.wall, sample.gpus, own_gpus)

    def take_gpus(
        self, wall: float, gpus: Sequence[PowerReading], own_gpus: Collection[int] | None = None
    ) -> None:
        """Add one sample of GPUs."""
        self._energy.take(wall, gpus, own_gpus)

    def take(
        self,
        wall: float,
        *,
        step: int = 0,
        tokens: float | None = None,
        wall_hours: float,
        num_gpus: int = 0,
        share: float | None = None,
    ) -> tuple[Alert, ...]:
        """Record the progress of the run and return new alerts: `wall_hours` of all attempts,
        `share` of its planned work.
        """
        since = self._before_hours if self._wall_hours is None else self._wall_hours
        self._gpu_hours += num_gpus * max(0.0, wall_hours - since)
        self._wall_hours = wall_hours
        self.used = use(
            self.limits,
            tokens=tokens,
            steps=step or None,
            wall_hours=wall_hours,
            gpu_hours=self._gpu_hours if num_gpus or self._gpu_hours else None,
            energy_kwh=self._energy.kwh,
        )
        self._remember(wall, share)
        alerts = check_budgets(
            self.limits, self.used, already=self._spent, step=step, attempt=self.attempt
        )
        self._spent |= {alert.rule for alert in alerts}
        return alerts

    def _remember(self, wall: float, share: float | None) -> None:
        """Store a point; points are thinned evenly as the run grows, and the newest is always the
        last."""
        if self._seen % self._stride and self._points:
            self._points[-1] = (wall, share, self.used)
        else:
            self._points.append((wall, share, self.used))
        self._seen += 1
        if len(self._points) >= _MOST_POINTS:
            self._points = [*self._points[:-1:2], self._points[-1]]
            self._stride *= 2

    def project(self, amount: str) -> Projection | None:
        """The projection of a known amount, limited or not."""
        points = [
            UsePoint(wall, value, share)
            for wall, share, used in self._points
            if (value := getattr(used, amount)) is not None
        ]
        return project(getattr(self.limits, amount), points) if points else None

    def summary(self) -> list[dict[str, Any]]:
        """Every amount that is known or limited, as plain data for a state file or watch.json."""
        found = []
        for amount in AMOUNTS:
            limit, used = getattr(self.limits, amount), getattr(self.used, amount)
            if used is None and limit is None:
                continue
            seen = self.project(amount)
            found.append(
                {
                    "amount": amount,
                    "unit": self.limits.unit(amount),
                    "used": used,
                    "limit": limit,
                    "soft": self.limits.soft,
                    "action": self.limits.action,
                    "at_completion": None if seen is None else seen.at_completion,
                    "exhausted_wall": None if seen is None else seen.exhausted_wall,
                }
            )
        return found

    def warned(self) -> list[str]:
        """Rules that have warned, for a checkpoint. Spent budgets are not among them: a resumed run
        is still over them.
        """
        return sorted(self._spent - self.limits.rules())

    def recall(self, warned: Iterable[str]) -> None:
        """Restore the rules that `warned` returned."""
        self._spent = frozenset(warned)


def used_before(summary: Any) -> dict[str, float | None]:
    """The use recorded in a `summary` of a state file; empty for anything else."""
    entries = summary if isinstance(summary, list) else []
    return {
        str(one.get("amount")): one["used"]
        for one in entries
        if isinstance(one, dict) and isinstance(one.get("used"), int | float)
    }
