"""The last log intervals, grouped into blocks that are long enough to judge. Pure.

Steps of a small model take a millisecond, so a single interruption of a busy machine outweighs a
hundred of them. Intervals are therefore added up to blocks of at least BLOCK_S, usually one
interval each, and the time of a brick is its median over the last WINDOW blocks, so that one
disturbed block has no effect. Four windows are kept, for figures that need many blocks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median

from albor_core.andon.bricks.names import is_of_step

WINDOW = 8
MANY = 4 * WINDOW
BLOCK_S = 0.25
STEP = "step"
"""What a block calls the wall time of a whole step."""


@dataclass
class BrickWindow:
    """The blocks so far; `step` among their bricks is the whole step."""

    blocks: deque[dict[str, float]] = field(default_factory=lambda: deque(maxlen=MANY))
    """Of each block ms per step, or per interval for bricks outside of a step."""
    seconds: float = 0.0
    """Of all the steps that were ever added."""
    _sums: dict[str, float] = field(default_factory=dict)
    _ms: float = 0.0  # of the block, with what lay between its steps
    _steps: int = 0
    _intervals: int = 0

    def add(self, bricks_ms: Mapping[str, float], *, steps: int, step_ms: float) -> bool:
        """Add an interval of `steps` steps; return whether it completes a block."""
        self._steps, self._intervals = self._steps + steps, self._intervals + 1
        self.seconds += steps * step_ms / 1000
        for brick, ms in {**bricks_ms, STEP: step_ms}.items():
            weight = steps if brick == STEP or is_of_step(brick) else 1
            self._sums[brick] = self._sums.get(brick, 0.0) + weight * ms
            self._ms += weight * ms if brick == STEP or not is_of_step(brick) else 0.0
        if self._ms < 1000 * BLOCK_S:
            return False
        self.blocks.append(
            {
                brick: ms / (self._steps if brick == STEP or is_of_step(brick) else self._intervals)
                for brick, ms in self._sums.items()
            }
        )
        self._sums, self._ms, self._steps, self._intervals = {}, 0.0, 0, 0
        return True

    @property
    def is_full(self) -> bool:
        return len(self.blocks) >= WINDOW

    def typical(self) -> dict[str, float]:
        """The median of each brick over the last WINDOW blocks; a brick missing from a block counts
        as 0."""
        last = list(self.blocks)[-WINDOW:]
        names = {brick for block in last for brick in block}
        return {name: median(block.get(name, 0.0) for block in last) for name in names}

    def past(self, brick: str) -> list[float]:
        """The times of a brick in each kept block, oldest first."""
        return [block.get(brick, 0.0) for block in self.blocks]
