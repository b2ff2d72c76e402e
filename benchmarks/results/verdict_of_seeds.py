"""Whether one group of figures lies below another: Welch's t-test, as scipy has it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any


def welch(a: Sequence[float], b: Sequence[float]) -> tuple[float, float, float]:
    """t of mean(a) - mean(b), degrees of freedom, two-sided p. Two figures each at least; where
    neither group varies t is infinite, or 0 for equal ones.
    """
    va, vb = (statistics.variance(one) / len(one) for one in (a, b))
    apart = statistics.fmean(a) - statistics.fmean(b)
    if va + vb == 0:
        return (math.copysign(math.inf, apart), 1.0, 0.0) if apart else (0.0, 1.0, 1.0)
    t = apart / math.sqrt(va + vb)
    freedom = (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1))
    return t, freedom, _beyond(t, freedom)


def _beyond(t: float, freedom: float) -> float:
    """P(|T| > |t|) of Student's T: the regularised incomplete beta function at v / (v + t^2)."""
    return _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """I_x(a, b) by Lentz's continued fraction (Press et al., Numerical Recipes, 6.4)."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    tiny = 1e-300
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    found = d
    for m in range(1, 1000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / ((1 + term * d) or tiny)
            c = (1 + term / c) or tiny
            found *= d * c
        if abs(d * c - 1) < 1e-15:
            break
    return front * found / a


def compare(
    ours: Sequence[float], theirs: Sequence[float], *, margin: float, p_below: float = 0.01
) -> dict[str, Any]:
    """Mean, deviation, difference, test; `holds`: ours is `margin` lower or more, and p is small.
    Without two figures of each there is no test, without three no claim.
    """
    groups = {"ours": ours, "theirs": theirs}
    about: dict[str, Any] = {
        name: {
            "n": len(one),
            "mean": statistics.fmean(one),
            "sd": statistics.stdev(one) if len(one) > 1 else None,
        }
        for name, one in groups.items()
    }
    about["difference"] = about["ours"]["mean"] - about["theirs"]["mean"]
    if min(len(ours), len(theirs)) < 2:
        return about | {"t": None, "p": None, "holds": False}
    t, freedom, p = welch(ours, theirs)
    enough = min(len(ours), len(theirs)) >= 3
    holds = enough and about["difference"] <= -margin and p < p_below
    return about | {"t": t, "freedom": freedom, "p": p, "holds": holds}
