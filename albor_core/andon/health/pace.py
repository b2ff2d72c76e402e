"""Detects a loss of exactly 0, and training that became much slower than it was. Pure.

Zero     ZEROS values of a loss in a row; at the end END_ZEROS, or all of ALL_ZERO and more: labels
         are all ignored, or something else took the loss away. A loss that falls to nothing is
         small, not 0; that of a learner from rewards says nothing.
Speed    The median of the last 16 rates below SLOW of the median of up to 256 before.
"""

from __future__ import annotations

import statistics
from collections import deque

ZEROS, END_ZEROS, ALL_ZERO, SLOW = 50, 10, 3, 0.4
_RECENT, _PAST, _LEAST_PAST = 16, 256, 64


class ZeroWatch:
    """Counts the values of a loss in one attempt, and its zeros in a row."""

    def __init__(self, count: int = 0, zeros: int = 0) -> None:
        self.count, self.zeros = count, zeros

    def take(self, loss: float) -> bool:
        """Add a value; return whether the loss has been 0 for long."""
        self.count += 1
        self.zeros = self.zeros + 1 if loss == 0 else 0
        return self.zeros >= ZEROS

    def is_at_end(self) -> bool:
        """Whether the run ended with a loss of 0, also one that logs seldom."""
        return self.zeros >= END_ZEROS or self.zeros == self.count >= ALL_ZERO


class SpeedWatch:
    """One rate of one attempt; larger is better."""

    def __init__(self) -> None:
        self._seen: deque[float] = deque(maxlen=_PAST + _RECENT)
        self.newest = self.usual = 0.0
        self.is_slow = False

    def take(self, rate: float) -> bool:
        """Add a value; return whether the rate collapsed."""
        if rate > 0:
            self._seen.append(rate)
        values = list(self._seen)
        if len(values) < _LEAST_PAST + _RECENT:
            return False
        self.newest = statistics.median(values[-_RECENT:])
        self.usual = statistics.median(values[:-_RECENT])
        self.is_slow = self.newest < SLOW * self.usual
        return self.is_slow
