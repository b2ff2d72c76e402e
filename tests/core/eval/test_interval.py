"""Exact intervals of shares, held to tail sums in fractions."""

from fractions import Fraction
from math import comb

import pytest

from albor_core.eval.interval import binomial_interval
from albor_core.eval.result import mean_score


def tail(passes, n, share):
    """P(passes or more of n), exactly."""
    p = Fraction(share)
    return float(sum(comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(passes, n + 1)))


@pytest.mark.parametrize("n", [1, 2, 3, 10, 57])
def test_each_end_leaves_a_tail_of_two_and_a_half_percent(n):
    for passes in range(0, n + 1, max(1, n // 10)):
        low, high = binomial_interval(passes, n)
        assert 0 <= low <= passes / n <= high <= 1
        assert low == 0 if passes == 0 else tail(passes, n, low) == pytest.approx(0.025, rel=1e-9)
        at_most = 1 - tail(passes + 1, n, high)
        assert high == 1 if passes == n else at_most == pytest.approx(0.025, rel=1e-9)


def test_none_of_very_many_is_the_closed_form():
    assert binomial_interval(0, 1_000_000)[1] == pytest.approx(1 - 0.025**1e-6, rel=1e-9)


def test_no_passes_have_an_interval_and_no_standard_error():
    score = mean_score("t/pass@1", [0.0, 0.0])
    assert (score.stderr, score.low) == (None, 0)
    assert score.high == pytest.approx(1 - 0.025**0.5)


def test_a_share_has_both_and_a_mean_of_other_values_has_no_interval():
    share, mean = mean_score("t", [0, 1, 1]), mean_score("t", [0.5, 0.25])
    assert share.stderr == pytest.approx(1 / 3)
    assert (share.low, share.high) == binomial_interval(2, 3)
    assert mean.low is None and mean.high is None and mean.stderr == 0.125
    assert mean_score("t", [True]).low == pytest.approx(0.025)
