"""Whether a loss is exactly 0, and whether training became much slower than it was. Pure.

Zero     ZEROS values of the loss in a row, after one that was not 0: labels are all ignored, or
         something else took the loss away. A loss that falls to nothing is small, not 0.
Speed    The median of the last 16 rates below SLOW of the median of up to 256 before.
"""

from __future__ import annotations

import statistics
from collections import deque

ZEROS, SLOW = 50, 0.4
_RECENT, _PAST, _LEAST_PAST = 16, 256, 64


class ZeroWatch:
    """The training loss of one attempt."""

    def __init__(self) -> None:
        self.zeros, self._was_other = 0, False

    def take(self, loss: float) -> bool:
        """Whether it has been 0 for long."""
        self._was_other = self._was_other or loss != 0
        self.zeros = self.zeros + 1 if loss == 0 and self._was_other else 0
        return self.zeros >= ZEROS


class SpeedWatch:
    """One rate of one attempt, larger is better."""

    def __init__(self) -> None:
        self._seen: deque[float] = deque(maxlen=_PAST + _RECENT)
        self.newest = self.usual = 0.0

    def take(self, rate: float) -> bool:
        """Whether it collapsed."""
        if rate > 0:
            self._seen.append(rate)
        values = list(self._seen)
        if len(values) < _LEAST_PAST + _RECENT:
            return False
        self.newest = statistics.median(values[-_RECENT:])
        self.usual = statistics.median(values[:-_RECENT])
        return self.newest < SLOW * self.usual
