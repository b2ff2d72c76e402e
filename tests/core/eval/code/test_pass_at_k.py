"""pass@k is the share of ways to draw k completions of which at least one passes."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import combinations

import pytest

from albor_core.eval.code.pass_at_k import pass_at_k
from albor_core.eval.result import mean_score


def closed_form(n, passed, k):
    """1 - prod (1 - k / i) for i from n - c + 1 to n, in rational numbers; 1 if too few fail."""
    if n - passed < k:
        return Fraction(1)
    left = Fraction(1)
    for i in range(n - passed + 1, n + 1):
        left *= 1 - Fraction(k, i)
    return 1 - left


def test_it_equals_the_closed_form_on_10000_random_tables():
    chance = random.Random(29)
    for _ in range(10_000):
        k = chance.choice((1, 10, 100))
        table = []
        for _ in range(chance.randrange(1, 6)):
            n = chance.randrange(k, 201)
            table.append((n, chance.randrange(n + 1)))
        exact = [closed_form(n, passed, k) for n, passed in table]
        each = [pass_at_k(n, passed, k) for n, passed in table]
        assert each == [float(one) for one in exact]
        mean = mean_score("own/pass@k", each).value
        assert abs(mean - sum(exact) / len(exact)) <= Fraction(1, 2**52)


def test_it_is_what_drawing_all_subsets_gives():
    outcomes = [True, True, False, False, False, True, False]
    for k in range(1, 8):
        drawn = [any(ones) for ones in combinations(outcomes, k)]
        assert pass_at_k(7, 3, k) == sum(drawn) / len(drawn)


@pytest.mark.parametrize(("n", "passed", "k"), [(1, 0, 2), (5, 6, 1), (5, -1, 1), (5, 1, 0)])
def test_what_cannot_be_drawn_is_refused(n, passed, k):
    with pytest.raises(ValueError, match="not defined"):
        pass_at_k(n, passed, k)
