"""Estimates the time left of a run: a Kalman filter of the step time, with an interval. Pure.

State    (s, v): seconds a step takes, and its drift, seconds per step and observation. The drift
         fades (PHI per observation), as trends of a step time do: caches fill, clocks settle.
             s' = s + v,  v' = PHI v,  each with process noise relative to s
         An observation is the mean time of the steps since the one before, with variance R, which
         is learned from the innovations (of n steps R / n).
Pauses   An observation more than GATE deviations above what was expected says nothing of the step
         time: its excess is a pause (an evaluation, a save, a person). Pauses come again at the
         rate at which they came so far, so the time left holds their share. GATE pauses in a row
         that look alike are not pauses: the step has become slower, and the filter begins anew.
Interval Of the time left for n steps: n^2 Var(s) + n R + the Poisson variance of pauses to come;
         5 % and 95 % of a normal distribution. Not of a cause that was not seen yet.
Units    Steps, wall seconds.
Source   Kalman 1960, J. Basic Eng. 82(1), 35-45; damped trend: Gardner & McKenzie 1985, Management
         Science 31(10), 1237-1246.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

PHI = 0.98
GATE = 5.0
_ROW = 5  # slow observations in a row that are a new step time
_LEVEL_NOISE, _DRIFT_NOISE = 2e-3, 2e-4  # of the step time, each observation
_LEARN = 0.05  # weight of an innovation in the variance of observations
_LEAST_SPREAD = 0.005  # of the step time: clocks and steps are never steadier
_QUANTILE = 1.6448536269514722  # of a normal distribution, 95 %
_SETTLED = 3


@dataclass
class _Pauses:
    """Stretches of time that were not steps."""

    seconds: float = 0.0
    squares: float = 0.0
    steps: float = 0.0
    """Steps that were seen, over which the pauses are spread."""


class KalmanEta:
    """The step time of one attempt; can be stored in a checkpoint."""

    def __init__(self) -> None:
        self._step: float | None = None
        self._wall = 0.0
        self._pauses = _Pauses()
        self._begin()

    def _begin(self) -> None:
        self._s, self._v = 0.0, 0.0
        self._p = [0.0, 0.0, 0.0]  # Var(s), Cov(s, v), Var(v)
        self._r = 0.0
        self._seen = 0
        self._slow: list[tuple[float, float]] = []  # seconds and excess

    @property
    def step_s(self) -> float | None:
        """The current seconds per step; None before the first."""
        return self._s if self._seen else None

    def take(self, step: float, wall: float) -> None:
        """Record that the run had done `step` steps at `wall`. A lower step begins a new stretch (a
        rollback, a new attempt): the time between is not a step time.
        """
        if not (math.isfinite(step) and math.isfinite(wall)):
            return
        before, since = self._step, self._wall
        if before is not None and step == before:
            return
        self._step, self._wall = step, wall
        if before is None or step < before or wall <= since:
            return
        self._observe((wall - since) / (step - before), step - before)

    def _observe(self, seconds: float, steps: float) -> None:
        self._pauses.steps += steps
        if self._seen < _SETTLED:
            self._start(seconds)
            return
        self._predict()
        spread = max(math.sqrt(self._r / steps), _LEAST_SPREAD * self._s)
        deviation = math.sqrt(self._p[0] + spread * spread)
        off = seconds - self._s
        if off > GATE * deviation:
            self._pause(seconds, off * steps)
            return
        self._slow.clear()
        self._update(off, spread * spread)
        weight = max(_LEARN, 1 / self._seen)
        self._r += weight * (steps * min(off * off, (GATE * deviation) ** 2) - self._r)

    def _start(self, seconds: float) -> None:
        """Start from the first observations: their smallest, since the first steps compile and warm
        up."""
        self._s = seconds if self._seen == 0 else min(self._s, seconds)
        self._seen += 1
        self._r = (0.1 * self._s) ** 2
        self._p = [(0.1 * self._s) ** 2, 0.0, (_DRIFT_NOISE * self._s) ** 2]

    def _predict(self) -> None:
        a, b, c = self._p
        self._s, self._v = max(self._s + self._v, 0.1 * self._s), PHI * self._v
        self._p = [
            a + 2 * b + c + (_LEVEL_NOISE * self._s) ** 2,
            PHI * (b + c),
            PHI * PHI * c + (_DRIFT_NOISE * self._s) ** 2,
        ]

    def _update(self, off: float, variance: float) -> None:
        a, b, c = self._p
        gain_s, gain_v = a / (a + variance), b / (a + variance)
        self._s, self._v = self._s + gain_s * off, self._v + gain_v * off
        self._p = [(1 - gain_s) * a, (1 - gain_s) * b, c - gain_v * b]
        self._seen += 1

    def _pause(self, seconds: float, excess: float) -> None:
        self._slow.append((seconds, excess))
        times = [time for time, _ in self._slow]
        if len(times) < _ROW or max(times) >= 1.5 * min(times):
            self._pauses.seconds += excess
            self._pauses.squares += excess * excess
            del self._slow[: -_ROW + 1]
            return
        for _, counted in self._slow[:-1]:  # they were steps after all
            self._pauses.seconds -= counted
            self._pauses.squares -= counted * counted
        self._begin()
        for again in times[-_SETTLED:]:
            self._start(again)

    def left(self, steps_left: float) -> tuple[float, float, float] | None:
        """(seconds, low, high) for that many steps: the expected time, and a 90 % interval. None
        while unknown.
        """
        if not self._seen or steps_left < 0 or not math.isfinite(steps_left):
            return None
        n = steps_left
        share = n / self._pauses.steps if self._pauses.steps else 0.0
        drift = self._v * PHI / (1 - PHI)  # where it ends, if nothing else happens
        level = max(self._s + drift, 0.1 * self._s)
        mean = n * level + share * self._pauses.seconds
        a, b, c = self._p
        fade = PHI / (1 - PHI)
        variance = n * n * (a + 2 * fade * b + fade * fade * c)
        variance += n * self._r + (share + share * share) * self._pauses.squares
        reach = _QUANTILE * math.sqrt(max(0.0, variance))
        return mean, max(0.0, mean - reach), mean + reach

    def to_json(self) -> dict[str, Any]:
        return {
            "step": self._step,
            "wall": self._wall,
            "s": self._s,
            "v": self._v,
            "p": list(self._p),
            "r": self._r,
            "seen": self._seen,
            "slow": list(self._slow),
            "pauses": [getattr(self._pauses, f.name) for f in fields(_Pauses)],
        }

    def load(self, saved: Mapping[str, Any]) -> None:
        """Restore the state that `to_json` returned."""
        self._step, self._wall = saved["step"], float(saved["wall"])
        self._begin()
        self._s, self._v, self._r = float(saved["s"]), float(saved["v"]), float(saved["r"])
        self._p, self._seen = [float(x) for x in saved["p"]], int(saved["seen"])
        self._slow = [(float(a), float(b)) for a, b in saved["slow"]]
        self._pauses = _Pauses(*saved["pauses"])
