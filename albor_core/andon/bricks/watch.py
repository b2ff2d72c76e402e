"""The bricks of one attempt as a fold: intervals in, alerts out. Pure.

| rule of an alert | when | does |
| --- | --- | --- |
| brick-NAME | more than FACTOR times a budget that was set, in an interval | pauses the run |
| brick-NAME-learned | the same of a learned budget, over a window (learned.py) | tells |
| brick-coverage | bricks explain too little of a step (coverage.py) | tells |
| brick-NAME-varies, brick-efficiency | what variation.py says | tells |

Alerts that only notify are raised when a trouble begins and when it ends, and again at most once in
GAP_S.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from albor_core.andon.alert import Alert, make_alert
from albor_core.andon.bricks.budgets import FACTOR, check_bricks
from albor_core.andon.bricks.coverage import COVERAGE_KEY, LEAST, uncovered
from albor_core.andon.bricks.learned import RARE, Excess, LearnedBudgets
from albor_core.andon.bricks.names import brick_key, fit_budgets, is_of_step
from albor_core.andon.bricks.variation import (
    LEAST_EFFICIENCY,
    MOST_VARIATION,
    is_wasteful,
    unsteadiest,
)
from albor_core.andon.bricks.window import BrickWindow
from albor_core.run.headlines import EFFICIENCY_KEY

SETTLE_INTERVALS = 3  # caches, allocators and compilers are slow at first
GAP_S = 3600.0
_RARE_RULES = tuple(f"brick-{brick}-learned" for brick in RARE)


@dataclass(frozen=True)
class _Trouble:
    """A trouble that raises an alert and halts nothing; never for a `brick` with a budget of its
    own."""

    rule: str
    metric: str
    value: float
    threshold: float
    message: str
    brick: str = ""
    is_note: bool = False
    """It may be as it should."""


@dataclass
class BrickWatch:
    """Judges the bricks of one attempt. `learns`: whether bricks without a budget get one from
    their initial times."""

    attempt: int
    learns: bool = True
    measured_ms: Mapping[str, float] = field(default_factory=dict)
    """Of the last interval that was not disturbed, and of what last happened between steps."""
    learned: LearnedBudgets = field(default_factory=LearnedBudgets)
    window: BrickWindow = field(default_factory=BrickWindow)
    _calm_intervals: int = SETTLE_INTERVALS
    _open: set[str] = field(default_factory=set)  # rules of troubles that go on
    _told: dict[str, float] = field(default_factory=dict)  # rule -> wall
    _fired: dict[str, Alert] = field(default_factory=dict)  # told, and not over

    def take_interval(
        self,
        step: int,
        bricks_ms: Mapping[str, float],
        *,
        steps: int,
        step_ms: float,
        wall: float,
        budgets_ms: Mapping[str, float | None],
        efficiency: float | None = None,
        disturbed: bool = False,
        crowded: bool = False,
    ) -> tuple[Alert, ...]:
        """Judge a log interval of `steps` steps; a brick whose budget is None is not judged.

        Times within a step are ignored in an attempt's first intervals, in an interval `disturbed`
        by an evaluation or a save, and right after a pause. On a `crowded` machine, where the
        trainer waited for a processor, only budgets that a person set are enforced.
        """
        is_calm = self._calm_intervals <= 0
        self._calm_intervals -= 0 if is_calm else 1
        counts = is_calm and not disturbed
        between = {brick: ms for brick, ms in bricks_ms.items() if not is_of_step(brick)}
        judged = bricks_ms if counts else between if is_calm else {}
        self.measured_ms = {**self.measured_ms, **judged}
        muted = {brick for brick, ms in budgets_ms.items() if ms is None}
        wanted = fit_budgets({k: v for k, v in budgets_ms.items() if v is not None}, {*judged})
        wanted = {brick: ms for brick, ms in wanted.items() if brick not in muted}
        alerts = check_bricks(wanted, judged, step=step, attempt=self.attempt)
        new = self._rare(between)
        if counts and not crowded and self.window.add(bricks_ms, steps=steps, step_ms=step_ms):
            new += self._news([*self._troubles(efficiency)], self._open - {*_RARE_RULES})
        told = [one for one in new if one.brick not in muted | {*wanted}]
        fired = [self._alert(one, step) for one in told if self._may_tell(one, wall)]
        self._fired |= {alert.rule: alert for alert in fired}
        over = [rule for rule in self._fired if rule not in self._open]
        return (
            *alerts,
            *fired,
            *(replace(self._fired.pop(rule), state="cleared", step=step) for rule in over),
        )

    def resumed(self) -> None:
        """Record that a person resumed the run after a pause."""
        self._calm_intervals = max(self._calm_intervals, 1)

    def _rare(self, between: Mapping[str, float]) -> list[_Trouble]:
        """Troubles of work between steps that took too long."""
        new: list[_Trouble] = []
        for brick in between.keys() & {*RARE} if self.learns else ():
            excess = self.learned.take_rare(brick, between[brick], self.window)
            new += self._news([_over(excess)] if excess else [], {f"brick-{brick}-learned"})
        return new

    def _troubles(self, efficiency: float | None) -> Iterator[_Trouble]:
        """Troubles that are present after a block."""
        if self.learns:
            yield from map(_over, self.learned.take_window(self.window))
        if (covered := uncovered(self.window)) is not None:
            message = f"the bricks explain {covered:.0%} of a step's time, less than {LEAST:.0%}"
            yield _Trouble("brick-coverage", COVERAGE_KEY, covered, LEAST, message)
        if (found := unsteadiest(self.window)) is not None:
            brick, by = found
            message = f"{brick} varies by {by:.0%}, more than {MOST_VARIATION:.0%}"
            rule = f"brick-{brick}-varies"
            yield _Trouble(rule, brick_key(brick), by, MOST_VARIATION, message, is_note=True)
        if efficiency is not None and is_wasteful(self.window, efficiency):
            least = LEAST_EFFICIENCY
            message = f"{efficiency:.0%} of the peak of the device is used, less than {least:.0%}"
            rule = "brick-efficiency"
            yield _Trouble(rule, EFFICIENCY_KEY, efficiency, least, message, is_note=True)

    def _news(self, found: list[_Trouble], judged: Collection[str]) -> list[_Trouble]:
        """Troubles that are new; those of `judged` rules that are not in `found` have ended."""
        rules = {one.rule for one in found}
        new = [one for one in found if one.rule not in self._open]
        self._open = {rule for rule in self._open if rule not in judged} | rules
        return new

    def _may_tell(self, one: _Trouble, wall: float) -> bool:
        is_long_ago = wall - self._told.get(one.rule, -math.inf) >= GAP_S
        if is_long_ago:
            self._told[one.rule] = wall
        return is_long_ago

    def _alert(self, one: _Trouble, step: int) -> Alert:
        alert = make_alert(
            one.rule,
            "brick",
            "notify",
            metric=one.metric,
            value=one.value,
            threshold=one.threshold,
            message=one.message,
            step=step,
            attempt=self.attempt,
        )
        return replace(alert, severity="info") if one.is_note else alert


def _over(excess: Excess) -> _Trouble:
    brick, limit = excess.brick, FACTOR * excess.budget_ms
    message = (
        f"{brick} takes {excess.ms:.4g} ms, over {FACTOR:g}x its learned budget of "
        f"{excess.budget_ms:.4g} ms"
    )
    rule = f"brick-{brick}-learned"
    return _Trouble(rule, brick_key(brick), excess.ms, limit, message, brick)
