"""Judges gradients: their noise against the batch, their clipping, their norms. Pure.

Noise    B_simple = tr(S) / |G|^2 in tokens, as logged (optim/noise_scale_tokens), over the tokens
         of a step. Below 1/4 a smaller batch would learn as much a token; above 4 steps are mostly
         noise, and a larger batch learns more a step at almost no cost in tokens; above SMALL a
         run sits on the noise. Median of the last 32. McCandlish et al. 2018, arXiv:1812.06162.
ZClip    Share of steps whose gradient was scaled down; a normal distribution has 0.6 % beyond 2.5
         deviations, so 2 % and more in a window are much. Kumar et al. 2025, arXiv:2504.02507.
Norms    Each series optim/grad_norm* against its own past: the logarithm of the median of its last
         16 values beyond that of the 256 before by a factor of FACTOR. `vanishing` is below, and
         anything under 1e-7; `exploding` is above. The loss may fall for a while with both.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

NOISE_KEY, NORM_KEY, ZCLIP_KEY = "optim/noise_scale_tokens", "optim/grad_norm", "optim/zclip_steps"
LARGE, NOISY, SMALL = 0.25, 4.0, 64.0
_NOISE_VALUES = 32
FACTOR = 20.0
_RECENT, _PAST, _LEAST_PAST = 16, 256, 128
_EVERY = 8  # values between two looks
_NOTHING = 1e-7
CLIPPED = 0.02
_CLIP_STEPS = 1000.0


@dataclass(frozen=True)
class NormTrouble:
    """Trouble in one series of norms; `key` is its name in the journal."""

    key: str
    kind: str
    """vanishing or exploding."""
    value: float
    usual: float

    @property
    def words(self) -> str:
        """A description: "optim/grad_norm_mlp exploding: 210, usually 1.2"."""
        return f"{self.key} {self.kind}: {self.value:.3g}, usually {self.usual:.3g}"


class NoiseWatch:
    """The gradient noise scale relative to the batch."""

    def __init__(self, tokens_per_step: float | None) -> None:
        self._tokens = tokens_per_step
        self._values: deque[float] = deque(maxlen=_NOISE_VALUES)

    def take(self, noise_scale: float) -> None:
        if math.isfinite(noise_scale) and noise_scale > 0:
            self._values.append(noise_scale)

    @property
    def ratio(self) -> float | None:
        """Noise scale over the batch; None before enough values are known."""
        if not self._tokens or len(self._values) < _NOISE_VALUES // 2:
            return None
        return statistics.median(self._values) / self._tokens

    @property
    def words(self) -> str:
        ratio = self.ratio
        if ratio is None:
            return ""
        said = f"noise scale {ratio:.2g} batches"
        if ratio < LARGE:
            return f"{said}: a smaller batch would learn as much a token"
        if ratio <= NOISY:
            return f"{said}: the batch suits it"
        if ratio <= SMALL:
            return f"{said}: a larger batch would learn more a step"
        return f"{said}: steps are almost all noise, the batch is too small"


class ClipShare:
    """The share of about the last thousand steps whose gradient ZClip scaled down."""

    def __init__(self) -> None:
        self._recent: deque[tuple[float, float]] = deque()
        self._steps = self._clipped = 0.0

    def take(self, steps: float, clipped: float) -> None:
        """Add an interval: its steps, and how many of them were scaled down."""
        if not (steps > 0 and math.isfinite(clipped)):
            return
        self._recent.append((steps, clipped))
        self._steps, self._clipped = self._steps + steps, self._clipped + clipped
        while len(self._recent) > 1 and self._steps - self._recent[0][0] >= _CLIP_STEPS:
            gone = self._recent.popleft()
            self._steps, self._clipped = self._steps - gone[0], self._clipped - gone[1]

    @property
    def share(self) -> float | None:
        """The share of scaled steps; None before a hundred steps."""
        return self._clipped / self._steps if self._steps >= 100 else None

    @property
    def words(self) -> str:
        share = self.share
        if share is None:
            return ""
        much = ": much, look at the rate and the data" if share >= CLIPPED else ""
        return f"ZClip scaled {100 * share:.2g} % of {self._steps:,.0f} steps{much}"


class NormWatch:
    """The norms of one attempt, each compared with its own past."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[float]] = {}
        self._due = _EVERY

    def take(self, values: Mapping[str, float]) -> None:
        """Add logged values; only norms among them count."""
        for key, value in values.items():
            if key.startswith(NORM_KEY) and math.isfinite(value) and value >= 0:
                self._seen.setdefault(key, deque(maxlen=_PAST + _RECENT)).append(value)

    def look(self) -> tuple[NormTrouble, ...] | None:
        """Present troubles, at each eighth call; None at the others."""
        self._due -= 1
        if self._due > 0:
            return None
        self._due = _EVERY
        judged = (_judge(key, seen) for key, seen in self._seen.items())
        return tuple(one for one in judged if one is not None)

    def to_json(self) -> dict[str, Any]:
        return {key: list(seen) for key, seen in self._seen.items()}

    def load(self, saved: Mapping[str, Any]) -> None:
        """Restore the state that `to_json` returned."""
        self._seen = {key: deque(seen, maxlen=_PAST + _RECENT) for key, seen in saved.items()}


def _judge(key: str, seen: deque[float]) -> NormTrouble | None:
    values = list(seen)
    recent, past = values[-_RECENT:], values[:-_RECENT]
    if len(past) < _LEAST_PAST:
        return None
    value, usual = statistics.median(recent), statistics.median(past)
    if value < _NOTHING or value * FACTOR < usual:
        return NormTrouble(key, "vanishing", value, usual)
    if value > FACTOR * usual:
        return NormTrouble(key, "exploding", value, usual)
    return None
