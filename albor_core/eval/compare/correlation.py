"""Correlates scores with the loss over the checkpoints of a run, with exact p-values for few
points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, permutations
from math import factorial

import numpy as np
from numpy.typing import NDArray

_EXACT = 8  # points whose orders are all tried: 40,320
_DRAWS = 20_000
_AT_ONCE = 2_000
LEAST = 3


@dataclass(frozen=True)
class Correlation:
    """Correlations of two series, point by point. None if one of them is constant."""

    n: int
    spearman: float | None
    spearman_p: float | None
    pearson: float | None
    pearson_p: float | None
    least_p: float
    """The smallest p that so few points can give: above 0.05 they cannot show anything."""


def correlate(x: Sequence[float], y: Sequence[float], *, seed: int = 0) -> Correlation:
    """Rank and linear correlation, each with the share of permutations of `y` that correlate with
    `x` as closely or more: all permutations of up to 8 points, else 20,000 random ones. No
    normality is assumed.
    """
    n = len(x)
    assert n == len(y) >= LEAST
    rank_x, rank_y = ranks(x), ranks(y)
    rho, rho_p = _with_p(rank_x, rank_y, seed)
    r, r_p = _with_p(np.array(x, float), np.array(y, float), seed)
    least = 2 / factorial(n) if n <= _EXACT else 1 / (_DRAWS + 1)
    return Correlation(n, rho, rho_p, r, r_p, least)


def ranks(values: Sequence[float]) -> NDArray[np.float64]:
    """Ranks from 1; equal values share the mean of their ranks."""
    given = np.array(values, float)
    below = (given[None, :] < given[:, None]).sum(1)
    equal = (given[None, :] == given[:, None]).sum(1)
    shared: NDArray[np.float64] = below + (equal + 1) / 2
    return shared


def _with_p(
    x: NDArray[np.float64], y: NDArray[np.float64], seed: int
) -> tuple[float | None, float | None]:
    x, y = x - x.mean(), y - y.mean()
    size = float(np.sqrt((x @ x) * (y @ y)))
    if size == 0:
        return None, None
    found = float(x @ y) / size
    bar, hits, tried = abs(found) - 1e-9, 0, 0
    for orders in _orders(len(x), seed):
        hits += int((abs(y[orders] @ x) / size >= bar).sum())
        tried += len(orders)
    sampled = len(x) > _EXACT
    return max(-1.0, min(1.0, found)), (hits + sampled) / (tried + sampled)


def _orders(n: int, seed: int) -> list[NDArray[np.int64]]:
    if n <= _EXACT:
        every, listed = permutations(range(n)), []
        while part := list(islice(every, _AT_ONCE)):
            listed.append(np.array(part))
        return listed
    chance = np.random.default_rng(seed)
    return [
        chance.permuted(np.tile(np.arange(n), (_AT_ONCE, 1)), axis=1)
        for _ in range(_DRAWS // _AT_ONCE)
    ]
