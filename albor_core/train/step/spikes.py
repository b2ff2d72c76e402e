"""Loss spikes, judged step by step, and by several steps in a row: one batch may be hard.

A step is high when its loss is `times` the running mean and LEAST_NATS above it. High steps are
weighed by their z-score, the deviation of the log-loss from its running mean in running standard
deviations, and add up (Page 1954, Biometrika 41: a cumulative sum test): five in a row of five
deviations each are a spike, of four deviations eight, and an ordinary step takes two of them back.
Where a tenth of the rows are hard the deviation says so: they lie three above the mean.

Mean and deviation are those of DELAY steps ago, and stay while losses are high, up to LONGEST
steps: a spike does not hide itself by raising them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MEAN_BETA = 0.95  # follows a loss that falls as fast as in a run's beginning
VARIANCE_BETA = 0.99
DELAY = 10
LONGEST = 50
SETTLED = 10  # steps before mean and deviation say what is usual
HIGHEST = 5.0  # a z-score counts for no more: one step alone is never a spike
ORDINARY = 2.0  # what every step takes back
IN_A_ROW = 5
LEAST_DEVIATION = 0.05  # log-losses that hardly vary would otherwise never be allowed to rise
LEAST_NATS = 2.0  # a loss of 1 after 0.01 comes back by itself, where a batch is overfitted
LEAST_LOSS = 1e-3  # below it losses differ by rounding, and at 0 they have no logarithm


@dataclass(frozen=True)
class Spike:
    """What was found."""

    steps: int
    """How many steps ago it began, that one included."""
    loss: float
    """Of the last step of it, in nats per token."""
    times: float
    """Of the running mean."""


class SpikeWatch:
    """Statistics of the losses so far, on the host. Part of a checkpoint."""

    def __init__(self, times: float | None) -> None:
        """`times` the running mean is too much; None: nothing is."""
        self.times = times
        self.reset()

    def reset(self) -> None:
        """Reset the statistics to those before the first step."""
        self._mean = self._variance = 0.0
        self._seen = 0
        self._recent: list[float] = []
        self.reset_skip_streak()

    def reset_skip_streak(self) -> None:
        """No step so far is held against the run."""
        self._weight = 0.0
        self.unsure = 0
        """Steps since the loss rose, where they may be the beginning of a spike."""

    def add(self, loss: float) -> Spike | None:
        """The loss of one step; the spike, where it completes one."""
        if not math.isfinite(loss):  # which says nothing about what is usual
            self.unsure += bool(self.unsure)
            return None
        found = self._judge(loss) if self._seen >= SETTLED and self.times is not None else None
        self._recent.append(math.log(max(loss, LEAST_LOSS)))
        while len(self._recent) > (LONGEST if self.unsure else DELAY):
            self._learn(self._recent.pop(0))
        return found

    def _judge(self, loss: float) -> Spike | None:
        assert self.times is not None
        mean, deviation = math.exp(self._mean), max(math.sqrt(self._variance), LEAST_DEVIATION)
        z = (math.log(max(loss, LEAST_LOSS)) - self._mean) / deviation
        is_high = loss > max(self.times * mean, mean + LEAST_NATS)
        self._weight += min(z, HIGHEST if is_high else 0.0) - ORDINARY
        if self._weight <= 0:
            self.reset_skip_streak()
            return None
        self.unsure += 1
        if self._weight < IN_A_ROW * (HIGHEST - ORDINARY):
            return None
        found = Spike(self.unsure, loss, loss / mean)
        self.reset_skip_streak()
        return found

    def _learn(self, value: float) -> None:
        """Exponential mean and variance, plain ones while that is more than has been seen."""
        self._seen += 1
        off = value - self._mean
        if self._seen > 1:
            weight = max(1 - VARIANCE_BETA, 1 / self._seen)
            self._variance += weight * (off * off - self._variance)
        self._mean += max(1 - MEAN_BETA, 1 / self._seen) * off

    def to_json(self) -> dict[str, Any]:
        """Exact: JSON keeps every bit of a float."""
        return {
            "mean": self._mean,
            "variance": self._variance,
            "seen": self._seen,
            "recent": list(self._recent),
            "weight": self._weight,
            "unsure": self.unsure,
        }

    def load(self, saved: Mapping[str, Any] | None) -> None:
        """Restore the state that `to_json` returned; None, as of an older checkpoint, is a new
        beginning."""
        self.reset()
        if saved is None:
            return
        self._mean, self._variance = float(saved["mean"]), float(saved["variance"])
        self._seen, self._recent = int(saved["seen"]), [float(x) for x in saved["recent"]]
        self._weight, self.unsure = float(saved["weight"]), int(saved["unsure"])
