"""Learning-rate schedules: a warm-up, maybe a stretch at the peak, then one of `DECAYS`. The rate
is a pure function of the step, so a resumed run needs no scheduler state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass


def cosine(peak: float, floor: float, done: float) -> float:
    """Half a cosine from `peak` to `floor`."""
    return floor + (peak - floor) * (0.5 * (1.0 + math.cos(math.pi * done)))


def linear(peak: float, floor: float, done: float) -> float:
    """A straight line from `peak` to `floor`."""
    return floor + (peak - floor) * (1.0 - done)


def sqrt(peak: float, floor: float, done: float) -> float:
    """Fast at first: by the root of what is done (Hagele et al. 2024, arXiv:2405.18392)."""
    return floor + (peak - floor) * (1.0 - math.sqrt(done))


def constant(peak: float, floor: float, done: float) -> float:
    """`peak` to the end."""
    return peak


DECAYS: Mapping[str, Callable[[float, float, float], float]] = {
    "cosine": cosine,
    "linear": linear,
    "sqrt": sqrt,
    "constant": constant,
}
"""The values of training.lr_scheduler (config/choices.py): name -> rate by (peak, floor, done),
where `done` goes from 0 at the end of the peak to 1 at the last step."""


@dataclass(frozen=True)
class Schedule:
    """Linear warm-up, then a decay to `min_lr` at `num_steps`, over its last `decay_steps` (None:
    from the warm-up on). Steps are those of the config (config/clock.py), and may be parts of one.
    """

    lr: float
    min_lr: float
    warmup_steps: int
    num_steps: int
    name: str = "cosine"
    decay_steps: int | None = None

    def lr_at(self, step: float) -> float:
        """The rate of step 1, 2, ...: `lr` at the last step of warm-up, `min_lr` at the end."""
        if step < self.warmup_steps:
            return self.lr * step / self.warmup_steps
        begin = self.warmup_steps
        if self.decay_steps is not None:
            begin = max(begin, self.num_steps - self.decay_steps)
        done = min(1.0, max(0.0, (step - begin) / max(1, self.num_steps - begin)))
        return DECAYS[self.name](self.lr, self.min_lr, done)
