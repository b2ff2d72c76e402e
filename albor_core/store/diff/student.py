"""Student's t distribution, and Holm's correction of many tests. Pure, no numpy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

_TINY, _ENOUGH, _TERMS = 1e-300, 1e-14, 10_000
_HALVINGS = 60  # to the last digit of a float


def two_sided(t: float, freedom: float) -> float:
    """How likely a value of Student's t is that lies as far from 0 as `t`, or farther."""
    if math.isinf(t):
        return 0.0
    return _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def quantile(chance: float, freedom: float) -> float:
    """How far from 0 a value of Student's t lies that is reached with `chance`, 0 < chance < 1."""
    low, high = 0.0, 1.0
    while two_sided(high, freedom) > chance:
        low, high = high, 2 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided(middle, freedom) > chance else (low, middle)
    return high


class HolmTest(NamedTuple):
    """Whether a test rejects chance, and the level that it was held to."""

    is_clear: bool
    level: float


def holm(chances: Sequence[float], level: float) -> list[HolmTest]:
    """Which of several tests reject chance, so that with `level` at most any of them does wrongly,
    from the chance of each alone (Holm 1979, Scandinavian Journal of Statistics 6(2), 65-70). The
    first that does not ends it: the rest is held to the level of that one.
    """
    count, is_clear, own = len(chances), True, level
    found = [HolmTest(False, level)] * count
    for rank, index in enumerate(sorted(range(count), key=chances.__getitem__)):
        if is_clear:
            own = level / (count - rank)
            is_clear = chances[index] <= own
        found[index] = HolmTest(is_clear, own)
    return found


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularized one, by its continued fraction (Lentz), from the side where that is short."""
    if x <= 0.0 or x >= 1.0:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1) / (a + b + 2):
        return 1.0 - _incomplete_beta(b, a, 1.0 - x)
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(front + a * math.log(x) + b * math.log1p(-x)) / a
    c, d = 1.0, 1.0 / _away(1.0 - (a + b) * x / (a + 1))
    found = d
    for m in range(1, _TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d, c = 1.0 / _away(1.0 + term * d), _away(1.0 + term / c)
            found *= d * c
        if abs(d * c - 1.0) < _ENOUGH:
            break
    return front * found


def _away(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
