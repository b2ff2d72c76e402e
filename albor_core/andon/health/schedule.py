"""Checks whether the logged learning rate is the one of the config. Pure.

Worked out here from the config's words, and not by the trainer's own code, so that a mistake in one
does not hide in the other:

    warm-up   lr t / W for t < W
    cosine    m + (lr - m) (1 + cos(pi d)) / 2
    linear    m + (lr - m) (1 - d)
    sqrt      m + (lr - m) (1 - sqrt d)
    constant  lr

with t the step or one beside it (some programs log the rate of the next one), W warmup_steps, m
min_lr, and d = (t - W) / (N - W) in 0..1 for N steps; with decay_steps D the fall begins at N - D.
A logged rate is off when it differs by more than TOLERANCE of the peak, and by 1 % of what is
promised, in ROW logged values. Units: as the optimizer's lr; steps of the config.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

LR_KEY = "optim/lr"
TOLERANCE, _SHARE = 1e-3, 0.01
ROW = 5


@dataclass(frozen=True)
class Promise:
    """The learning rate schedule of a config."""

    lr: float
    min_lr: float
    warmup_steps: float
    num_steps: float
    name: str
    decay_steps: float | None = None

    @classmethod
    def from_config(cls, config: Mapping[str, Any], num_steps: float | None) -> Self | None:
        """The schedule of a resolved config; None if the config is not one of Albor, or its length
        is unknown."""
        optimizer, training = config.get("optimizer"), config.get("training")
        if not (isinstance(optimizer, Mapping) and isinstance(training, Mapping)) or not num_steps:
            return None
        try:
            lr, name = float(optimizer["lr"]), str(training["lr_scheduler"])
            return cls(
                lr,
                float(optimizer["min_lr"]),
                float(training["warmup_steps"]),
                float(num_steps),
                name,
                None if (fall := training.get("decay_steps")) is None else float(fall),
            )
        except (KeyError, TypeError, ValueError):
            return None

    def at(self, step: float) -> float | None:
        """The rate at a step; None for an unknown schedule."""
        if step < self.warmup_steps:
            return self.lr * step / self.warmup_steps
        fall = self.num_steps - self.warmup_steps
        if self.decay_steps is not None:
            fall = min(fall, self.decay_steps)
        done = 1.0 - (self.num_steps - step) / max(1.0, fall)
        done = min(1.0, max(0.0, done))
        match self.name:
            case "cosine":
                falls = (1 + math.cos(math.pi * done)) / 2
            case "linear":
                falls = 1 - done
            case "sqrt":
                falls = 1 - math.sqrt(done)
            case "constant":
                return self.lr
            case _:
                return None
        return self.min_lr + (self.lr - self.min_lr) * falls


class ScheduleWatch:
    """Compares logged rates with a schedule."""

    def __init__(self, promise: Promise | None) -> None:
        self.promise = promise
        self._off = 0
        self.words = ""
        """Of a mismatch, or that there is none; empty where nothing is promised."""
        self.value = self.promised = 0.0

    def take(self, step: float, lr: float) -> None:
        promised = None if self.promise is None else self.promise.at(step)
        if self.promise is None or promised is None:
            return
        leeway = max(TOLERANCE * self.promise.lr, _SHARE * promised)
        is_off = not abs(lr - promised) <= leeway and not self._fits_beside(step, lr, leeway)
        self._off = self._off + 1 if is_off else 0
        self.value, self.promised = lr, promised
        if not self.is_off:
            self.words = f"as the config says ({self.promise.name})"
            return
        said = f"{lr:.4g} at step {step:,.0f}, the config says {promised:.4g}"
        self.words = f"{said} ({self.promise.name}{self._looks_like(step, lr)})"

    @property
    def is_off(self) -> bool:
        return self._off >= ROW

    def _fits_beside(self, step: float, lr: float, leeway: float) -> bool:
        """Whether the rate lies between those of the steps before and after."""
        assert self.promise is not None
        rates = [rate for t in (step - 1, step + 1) if (rate := self.promise.at(t)) is not None]
        return min(rates) - leeway <= lr <= max(rates) + leeway

    def _looks_like(self, step: float, lr: float) -> str:
        """A mistake that would explain the rate, or ""."""
        assert self.promise is not None
        peak = self.promise.lr
        if step > self.promise.warmup_steps and math.isclose(lr, peak, rel_tol=1e-3):
            return "; it stays at its peak"
        return ""
