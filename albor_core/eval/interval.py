"""Exact 95 % intervals of a share of passes (Clopper and Pearson, 1934). If none or all of n items
pass, the standard error is 0, as if nothing were in doubt; this interval is still correct.
"""

from __future__ import annotations

import math

_TAIL = 0.025  # at each side
_HALVINGS = 60


def binomial_interval(passes: int, n: int) -> tuple[float, float]:
    """The range of shares for which neither `passes` or more, nor `passes` or fewer, of n is rarer
    than 2.5 %."""
    low = 0.0 if passes == 0 else _crossing(passes, n)
    high = 1.0 if passes == n else 1.0 - _crossing(n - passes, n)
    return low, high


def _crossing(passes: int, n: int) -> float:
    """The share at which `passes` or more of n have a chance of 2.5 %, which grows with the
    share."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _at_least(passes, n, middle) < _TAIL else (low, middle)
    return (low + high) / 2


def _at_least(passes: int, n: int, share: float) -> float:
    """The chance of `passes` (at least 1) or more of n: the regularized incomplete beta function
    I_share(passes, n - passes + 1), by its continued fraction (Lentz), where it converges fast.
    """
    a, b = float(passes), float(n - passes + 1)
    if share <= 0.0 or share >= 1.0:
        return float(share >= 1.0)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(log_front + a * math.log(share) + b * math.log1p(-share))
    if share < (a + 1) / (a + b + 2):
        return front * _fraction(a, b, share) / a
    return 1.0 - front * _fraction(b, a, 1.0 - share) / b


def _fraction(a: float, b: float, x: float) -> float:
    c, d = 1.0, 1.0 / (1.0 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 10_000):
        for part in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / (1.0 + part * d)
            c = 1.0 + part / c
            value *= c * d
        if abs(c * d - 1.0) < 1e-14:
            break
    return value
