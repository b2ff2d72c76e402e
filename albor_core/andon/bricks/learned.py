"""Budgets learned from the time of each brick in the first undisturbed window of an attempt. Pure.

A brick is over its learned budget when its median over a window exceeds FACTOR times the budget,
which is ROOM times what it took at first, where all of these hold:

- it takes longer than at first by LEAST_SHARE of what a step takes now, so that no small brick
  cries wolf, nor one that runs with cold caches behind a slow one;
- the rest of the step did not become slower by as much: then the machine is slow, not the brick;
- between steps, where a disk or another program interferes, by LEAST_MS as well.

Such an excess raises an alert but, unlike a budget that a person set, halts nothing: the times of a
run's beginning are not a guarantee. Each attempt learns anew: it may run on another machine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from albor_core.andon.bricks.budgets import FACTOR
from albor_core.andon.bricks.names import is_of_step
from albor_core.andon.bricks.window import STEP, BrickWindow

ROOM = 1.25
LEAST_SHARE = 0.05
LEAST_MS = 100.0
RARE = ("eval", "checkpoint")
"""Bricks that few intervals have: judged by themselves."""
OCCASIONS = 3
"""How often something rare (an evaluation, a checkpoint) must happen to be known, and to be judged:
the first time in an attempt is not counted, it compiles and allocates.
"""


@dataclass(frozen=True)
class Excess:
    """A brick over its learned budget: its ms now, and its budget."""

    brick: str
    ms: float
    budget_ms: float


@dataclass
class LearnedBudgets:
    """The initial time of each brick, and which bricks take too long now."""

    first_ms: dict[str, float] = field(default_factory=dict)
    """By brick, and of the whole step."""
    _rare: dict[str, deque[float]] = field(default_factory=dict)
    _times: dict[str, int] = field(default_factory=dict)

    @property
    def budgets_ms(self) -> dict[str, float]:
        """Learned budgets by brick, as soon as they are known."""
        return {brick: ROOM * ms for brick, ms in self.first_ms.items() if brick != STEP}

    def take_window(self, window: BrickWindow) -> tuple[Excess, ...]:
        """After a block: learn from the first full window, judge later ones. The worst excess
        first."""
        if not window.is_full:
            return ()
        now = window.typical()
        if STEP not in self.first_ms:
            self.first_ms |= {name: ms for name, ms in now.items() if name not in RARE}
            return ()
        found = [self._excess(brick, now) for brick in now if brick != STEP and brick not in RARE]
        return tuple(sorted(filter(None, found), key=lambda one: one.budget_ms - one.ms))

    def _excess(self, brick: str, now: Mapping[str, float]) -> Excess | None:
        first, ms = self.first_ms.get(brick, 0.0), now[brick]
        step, is_part = self.first_ms[STEP], is_of_step(brick)
        rest, first_rest = (now[STEP] - ms, step - first) if is_part else (now[STEP], step)
        slower = max(1.0, rest / first_rest) if first_rest > 0 else 1.0
        least = LEAST_SHARE * max(step, now[STEP]) if is_part else LEAST_MS
        is_over = ms > slower * FACTOR * ROOM * first and ms - slower * first > least
        return Excess(brick, ms, ROOM * first) if is_over else None

    def take_rare(self, brick: str, ms: float, window: BrickWindow) -> Excess | None:
        """Judge the time of something that does not happen in every interval."""
        self._times[brick] = self._times.get(brick, 0) + 1
        if self._times[brick] == 1:
            return None
        kept = self._rare.setdefault(brick, deque(maxlen=OCCASIONS))
        kept.append(ms)
        if len(kept) < OCCASIONS:
            return None
        first, now = self.first_ms.setdefault(brick, median(kept)), median(kept)
        slower = 1.0
        if self.first_ms.get(STEP) and window.is_full:
            slower = max(1.0, window.typical()[STEP] / self.first_ms[STEP])
        is_over = now > slower * FACTOR * ROOM * first and now - slower * first > LEAST_MS
        return Excess(brick, now, ROOM * first) if is_over else None
