"""Detects drift of a run's tokens by comparing two windows of token counts. Pure, exact on counts.

PSI          sum (p - q) ln(p / q) over bins, each share with half a token added, so that a bin that
             one window lacks counts and stays finite. 0.1 is moderate, 0.25 significant.
KS           max |P - Q|, the largest distance of the cumulative shares in order of the bins, with
             the p-value's leading term 2 exp(-2 D^2 n m / (n + m)). Of millions of tokens every
             difference is significant, so the verdict goes by the distance and not by p.
Wasserstein  sum |P - Q| over neighbouring bins times their distance: how far, in bins, a token has
             to be carried on average (the first Wasserstein distance on the line).
Bins         Of tokens: BINS ranges of token ids of equal size. Byte-level BPE gives out ids in
             order of frequency, so that order means something.
Source       Siddiqi 2006, Credit Risk Scorecards (PSI and its limits); Kolmogorov 1933, Smirnov
             1948; Vallender 1974, Theory Probab. Appl. 18(4), 784-786 (W1 by cumulative shares).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Literal

BINS = 256
MODERATE, SIGNIFICANT = 0.1, 0.25
_LEAST_TOKENS = 50 * BINS  # fewer differ by chance: PSI is about bins * (1/n + 1/m)
DriftStatus = Literal["no drift", "moderate", "significant"]
AnomalySeverity = Literal["info", "warning", "error"]
SEVERITIES: Mapping[str, AnomalySeverity] = {
    "no drift": "info",
    "moderate": "warning",
    "significant": "error",
}


@dataclass(frozen=True)
class Drift:
    """The distances of a newer window of tokens from an older one."""

    psi: float
    ks: float
    ks_p: float
    wasserstein: float
    """In bins."""

    @property
    def status(self) -> DriftStatus:
        if self.psi < MODERATE:
            return "no drift"
        return "moderate" if self.psi < SIGNIFICANT else "significant"

    @property
    def severity(self) -> AnomalySeverity:
        return SEVERITIES[self.status]

    @property
    def words(self) -> str:
        """A description: "moderate: PSI 0.14, KS 0.08, Wasserstein 3.1 bins"."""
        distance = f"Wasserstein {self.wasserstein:.2g} bins"
        return f"{self.status}: PSI {self.psi:.2g}, KS {self.ks:.2g}, {distance}"


def compare(before: Sequence[float], now: Sequence[float]) -> Drift:
    """The drift between two histograms over the same bins, neither of them empty."""
    n, m = sum(before), sum(now)
    assert len(before) == len(now) and n > 0 and m > 0
    return Drift(
        population_stability_index(before, now),
        d := kolmogorov_smirnov(before, now),
        min(1.0, 2 * math.exp(-2 * d * d * n * m / (n + m))),
        wasserstein(before, now),
    )


def population_stability_index(before: Sequence[float], now: Sequence[float]) -> float:
    bins = len(before)
    n, m = sum(before) + bins / 2, sum(now) + bins / 2
    shares = [((a + 0.5) / n, (b + 0.5) / m) for a, b in zip(before, now, strict=True)]
    return sum((q - p) * math.log(q / p) for p, q in shares)


def kolmogorov_smirnov(before: Sequence[float], now: Sequence[float]) -> float:
    return max(_distances(before, now))


def wasserstein(
    before: Sequence[float], now: Sequence[float], places: Sequence[float] | None = None
) -> float:
    """The first Wasserstein distance; `places` of the bins, in order, default 0, 1, 2, ..."""
    gaps = [1.0] * (len(before) - 1)
    if places is not None:
        gaps = [b - a for a, b in pairwise(places)]
    return sum(d * gap for d, gap in zip(_distances(before, now), gaps, strict=False))


def _distances(before: Sequence[float], now: Sequence[float]) -> list[float]:
    """|P - Q| of the cumulative shares at each bin."""
    n, m = sum(before), sum(now)
    pairs = zip(accumulate(before), accumulate(now), strict=True)
    return [abs(a / n - b / m) for a, b in pairs]


class DriftWatch:
    """Compares windows of counted tokens with the first window of the run.

    A window ends with the call of `take` that fills it to `window` tokens.
    """

    def __init__(self, window: int = 1 << 20) -> None:
        self._window = max(window, _LEAST_TOKENS)
        self._first: list[float] | None = None
        self._now: list[float] = []
        self.newest: Drift | None = None

    def take(self, counts: Sequence[float]) -> Drift | None:
        """Add tokens by bin since the last call; return the drift if they complete a window."""
        self._now = [a + b for a, b in zip(self._now or [0.0] * len(counts), counts, strict=True)]
        if sum(self._now) < self._window:
            return None
        if self._first is None or len(self._first) != len(self._now):
            self._first, self._now = self._now, []
            return None
        self.newest, self._now = compare(self._first, self._now), []
        return self.newest

    def to_json(self) -> dict[str, Any]:
        return {"first": self._first, "now": self._now}

    def load(self, saved: Mapping[str, Any]) -> None:
        """Restore the state that `to_json` returned."""
        self._first, self._now = saved["first"], list(saved["now"])
