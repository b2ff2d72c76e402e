"""Correlations over a few checkpoints, with the p that so few can give."""

from __future__ import annotations

import random
from itertools import permutations
from math import factorial

import pytest

from albor_core.eval.compare.correlation import correlate, ranks


def plain_rho(x, y):
    """1 - 6 sum d^2 / (n (n^2 - 1)), without ties."""
    n = len(x)
    order = lambda v: [sorted(v).index(one) for one in v]  # noqa: E731
    return 1 - 6 * sum((a - b) ** 2 for a, b in zip(order(x), order(y), strict=True)) / (
        n * (n * n - 1)
    )


def test_spearman_and_its_p_are_what_all_orders_give():
    chance = random.Random(1)
    for n in range(3, 8):
        x, y = ([chance.random() for _ in range(n)] for _ in range(2))
        rho = plain_rho(x, y)
        as_far = sum(abs(plain_rho(x, one)) >= abs(rho) - 1e-9 for one in permutations(y))
        found = correlate(x, y)
        assert found.spearman == pytest.approx(rho, abs=1e-12)
        assert found.spearman_p == pytest.approx(as_far / factorial(n), abs=1e-12)


def test_few_checkpoints_cannot_show_anything_and_it_says_so():
    falling, rising = [3.0, 2.0, 1.5, 1.4], [0.1, 0.2, 0.3, 0.4]
    found = correlate(falling, rising)
    assert found.spearman == pytest.approx(-1.0)
    assert found.spearman_p == found.least_p == 2 / 24 > 0.05
    assert correlate([*falling, 1.3], [*rising, 0.5]).least_p < 0.05


def test_many_checkpoints_are_tested_by_a_sample_that_counts_itself():
    x = [float(one) for one in range(30)]
    found = correlate(x, [one * one for one in x])
    assert found.spearman == pytest.approx(1.0) and 0.9 < found.pearson < 1
    assert found.spearman_p == found.least_p == 1 / 20_001
    chance = random.Random(2)
    noise = correlate(x, [chance.random() for _ in x])
    assert noise.spearman_p > 0.05
    assert noise == correlate(x, replay(2, len(x)))


def replay(seed, n):
    chance = random.Random(seed)
    return [chance.random() for _ in range(n)]


def test_equal_values_share_a_rank_and_what_does_not_move_has_no_correlation():
    assert ranks([3, 1, 3, 2]).tolist() == [3.5, 1.0, 3.5, 2.0]
    found = correlate([1.0, 2.0, 3.0], [5.0, 5.0, 5.0])
    assert (found.spearman, found.pearson, found.spearman_p) == (None, None, None)
