"""Figures of merit: smoothed loss, throughput, MFU, and short histories for the live view."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from albor_core.run.state import HISTORY

LOSS_BETA = 0.98  # half-life of 34 log intervals


def flops_utilisation(
    flops_per_token: float, tokens_per_s: float, peak: float | None
) -> float | None:
    """Model FLOPs utilisation, 0..1: training FLOPs per second (config/shape.py) over the peak."""
    return None if peak is None else flops_per_token * tokens_per_s / peak


@dataclass
class Ema:
    """Exponential mean without start-up bias; values that are not finite leave it alone."""

    beta: float
    weighted: float = 0.0
    weight: float = 0.0

    def add(self, value: float) -> None:
        if math.isfinite(value):
            self.weighted = self.beta * self.weighted + (1 - self.beta) * value
            self.weight = self.beta * self.weight + (1 - self.beta)

    @property
    def value(self) -> float | None:
        return self.weighted / self.weight if self.weight else None

    def to_json(self) -> list[float]:
        return [self.weighted, self.weight]

    def load(self, saved: list[float]) -> None:
        self.weighted, self.weight = saved


@dataclass
class Histories:
    """Rows of numbers for the live view: at most HISTORY, evenly thinned as the run grows.

    Row i is step `i * stride` of the appended rows; the newest row is always there.
    """

    names: tuple[str, ...]
    rows: list[list[float | None]] = field(default_factory=list)
    stride: int = 1
    seen: int = 0
    newest: list[float | None] | None = None

    def add(self, *values: float | None) -> None:
        assert len(values) == len(self.names)
        row = [_short(value) for value in values]
        is_kept = self.seen % self.stride == 0
        self.seen += 1
        if is_kept:
            self.rows.append(row)
        if len(self.rows) >= HISTORY:
            is_kept = len(self.rows) % 2 == 1  # whether the thinning below keeps the last row
            self.rows, self.stride = self.rows[::2], self.stride * 2
        self.newest = None if is_kept else row

    def columns(self) -> dict[str, list[float | None]]:
        """Each name with its values, oldest first."""
        rows = self.rows if self.newest is None else [*self.rows, self.newest]
        return {name: [row[i] for row in rows] for i, name in enumerate(self.names)}

    def to_json(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "stride": self.stride,
            "seen": self.seen,
            "newest": self.newest,
        }

    def load(self, saved: dict[str, Any]) -> None:
        self.rows, self.stride = list(saved["rows"]), int(saved["stride"])
        self.seen, self.newest = int(saved["seen"]), saved["newest"]


def _short(value: float | None) -> float | None:
    """Six digits are plenty for a chart, and keep the state file small; steps stay exact."""
    if value is None or isinstance(value, int):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else None


@dataclass(frozen=True)
class Interval:
    """What a log interval cost: wall time of its steps alone."""

    steps: int
    seconds: float

    @property
    def step_ms(self) -> float:
        return 1000 * self.seconds / self.steps

    def per_second(self, amount_per_step: float) -> float | None:
        """Amounts of the whole interval per second; None if the clock did not move."""
        return amount_per_step * self.steps / self.seconds if self.seconds > 0 else None
