"""Tests whether the difference of two models on the same items could be chance.

The test uses the difference of each item, not two means: most of the variation of scores comes from
items that are hard for both models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb

import numpy as np

from albor_core.eval.interval import binomial_interval

LEVEL = 0.05
_EXACT = 18  # differences whose signs are all tried: 262,144 ways
_DRAWS = 20_000
_AT_ONCE = 500


Value = tuple[float, float]
"""An item's share of a figure: an amount, and what it is of: 1, or bytes, or tokens."""


@dataclass(frozen=True)
class Paired:
    """The comparison of B with A. `difference` is B minus A, `low` to `high` its 95 % interval:
    None for a single item, and if no item differs where items are more than pass or fail, since
    nothing shows by how much they could.
    """

    n: int
    mean_a: float
    mean_b: float
    difference: float
    low: float | None
    high: float | None
    p: float
    method: str
    """`mcnemar` (exact, of pass and fail), `sign-flip` (exact), `sign-flip sampled`."""
    a_higher: int
    b_higher: int

    @property
    def most_differing(self) -> float | None:
        """If no item differs, the largest share that could still differ, exactly (95 %)."""
        return None if self.a_higher or self.b_higher else binomial_interval(0, self.n)[1]

    @property
    def can_show(self) -> bool:
        """Whether this number of items could show a difference if all favoured one side."""
        return 2.0 ** (1 - self.n) < LEVEL

    def verdict(self, better: str, p: float) -> str:
        """The verdict on B against A, by `p` as adjusted for other figures (`holm`)."""
        return verdict(self.difference if better == "max" else -self.difference, p)


def verdict(gain: float, p: float) -> str:
    """`better`, `worse` or `indistinguishable` at the 5 % level, by the sign of `gain`."""
    if p >= LEVEL or gain == 0:
        return "indistinguishable"
    return "better" if gain > 0 else "worse"


def compare(a: Mapping[str, Value], b: Mapping[str, Value], *, seed: int = 0) -> Paired:
    """Compare the items that both have, at least one; deterministic for one `seed`.

    A figure is a sum of amounts over a sum of sizes, and the sizes are equal for A and B.
    """
    items = sorted(a.keys() & b.keys())
    assert items
    of_a, of_b = (np.array([one[item][0] for item in items]) for one in (a, b))
    size = np.array([a[item][1] for item in items])
    change = of_b - of_a
    a_higher, b_higher = int((change < 0).sum()), int((change > 0).sum())
    if set(np.unique([of_a, of_b])) <= {0.0, 1.0}:
        p, method = mcnemar(a_higher, b_higher), "mcnemar"
    else:
        p, method = sign_flip(change.tolist(), seed)
    low, high = bootstrap(change.tolist(), size.tolist(), seed)
    if not change.any():  # drawn anew they never differ either, which bounds nothing
        most = binomial_interval(0, len(items))[1] if method == "mcnemar" else None
        low, high = (None, None) if most is None else (-most, most)
    total = size.sum()
    return Paired(
        len(items), float(of_a.sum() / total), float(of_b.sum() / total),
        float(change.sum() / total), low, high, p, method, a_higher, b_higher,
    )  # fmt: skip


def mcnemar(only_a: int, only_b: int) -> float:
    """Exact two-sided p: the chance of a split as uneven as this, or more, among the items on which
    the two differ, if each were equally likely to go either way.
    """
    n, fewer = only_a + only_b, min(only_a, only_b)
    tail: int = sum(comb(n, i) for i in range(fewer + 1))
    return float(min(1.0, 2 * tail / 2**n))


def sign_flip(differences: Sequence[float], seed: int = 0) -> tuple[float, str]:
    """(p, method): how often a sum as far from 0 occurs if each difference had a random sign. All
    combinations while there are few, else a sample, which counts itself.
    """
    change = np.array([one for one in differences if one != 0])
    if len(change) == 0:
        return 1.0, "sign-flip"
    bar = abs(change.sum()) * (1 - 1e-12)  # sums of the same numbers in another order
    if len(change) <= _EXACT:
        sums = np.zeros(1)
        for one in change:
            sums = np.concatenate([sums + one, sums - one])
        return float((abs(sums) >= bar).mean()), "sign-flip"
    chance, hits = np.random.default_rng(seed), 1
    for _ in range(_DRAWS // _AT_ONCE):
        signs = chance.integers(0, 2, (_AT_ONCE, len(change)), dtype=np.int8) * 2 - 1
        hits += int((abs(signs @ change) >= bar).sum())
    return hits / (_DRAWS + 1), "sign-flip sampled"


def bootstrap(
    differences: Sequence[float], sizes: Sequence[float], seed: int = 0
) -> tuple[float | None, float | None]:
    """The middle 95 % of the difference over items resampled with replacement; None for a single
    item, which gives no information on the variation of others.
    """
    if len(differences) < 2:
        return None, None
    change, size = np.array(differences), np.array(sizes)
    chance, found = np.random.default_rng(seed), []
    for _ in range(_DRAWS // _AT_ONCE):
        drawn = chance.integers(0, len(change), (_AT_ONCE, len(change)))
        found.append(change[drawn].sum(1) / size[drawn].sum(1))
    low, high = np.quantile(np.concatenate(found), [0.025, 0.975])
    return float(low), float(high)


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's correction: each p adjusted for the number of figures compared."""
    order, found, worst = sorted(range(len(ps)), key=lambda at: ps[at]), [0.0] * len(ps), 0.0
    for rank, at in enumerate(order):
        worst = max(worst, min(1.0, ps[at] * (len(ps) - rank)))
        found[at] = worst
    return found
