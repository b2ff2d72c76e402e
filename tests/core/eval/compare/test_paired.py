"""Paired tests are what trying every case gives; their verdicts know noise."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import product
from math import comb

import pytest

from albor_core.eval.compare.paired import bootstrap, compare, holm, mcnemar, sign_flip


def of(values, size=1.0):
    return {f"{at}": (float(value), size) for at, value in enumerate(values)}


@pytest.mark.parametrize(("only_a", "only_b"), [(0, 0), (1, 0), (1, 9), (5, 5), (3, 12), (0, 6)])
def test_mcnemar_is_the_exact_two_sided_binomial(only_a, only_b):
    n = only_a + only_b
    as_far = [i for i in range(n + 1) if abs(2 * i - n) >= abs(only_a - only_b)]
    exact = sum(Fraction(comb(n, i), 2**n) for i in as_far)
    assert mcnemar(only_a, only_b) == float(exact)


def test_signs_are_all_tried_where_they_are_few():
    chance = random.Random(1)
    for n in range(1, 9):
        change = [chance.gauss(0.3, 1) for _ in range(n)]
        sums = [abs(sum(map(lambda s, c: s * c, signs, change)))
                for signs in product((1, -1), repeat=n)]  # fmt: skip
        expected = sum(one >= abs(sum(change)) - 1e-9 for one in sums) / 2**n
        assert sign_flip([0.0, *change]) == (expected, "sign-flip")


def test_a_sample_of_signs_comes_close_to_all_of_them_and_is_never_zero():
    chance = random.Random(2)
    change = [chance.gauss(0.4, 1) for _ in range(18)]
    exact, _ = sign_flip(change)
    sampled, method = sign_flip([*change, 1e-12, -1e-12])
    assert method == "sign-flip sampled"
    assert abs(sampled - exact) < 4 * (exact * (1 - exact) / 20_000) ** 0.5 + 1e-4
    assert 0 < sign_flip([1.0] * 60)[0] < 1e-4


def test_the_pairing_finds_what_two_means_would_hide():
    chance = random.Random(3)
    hard = [chance.gauss(0, 5) for _ in range(60)]
    a = of(hard)
    b = of([one + 0.3 + chance.gauss(0, 0.2) for one in hard])
    found = compare(a, b)
    assert found.p < 1e-3 and found.low > 0
    assert found.verdict("max", found.p) == "better"
    assert found.verdict("min", found.p) == "worse"


def test_chance_alone_is_indistinguishable_about_as_often_as_it_says():
    chance = random.Random(4)
    ps = []
    for _ in range(400):
        a, b = ([float(chance.random() < 0.5) for _ in range(40)] for _ in range(2))
        ps.append(compare_p(a, b))
    assert sum(p < 0.05 for p in ps) <= 400 * 0.05


def compare_p(a, b):
    only_a = sum(x > y for x, y in zip(a, b, strict=True))
    only_b = sum(x < y for x, y in zip(a, b, strict=True))
    return mcnemar(only_a, only_b)


def test_pass_and_fail_are_counted_and_only_shared_items_are():
    a, b = of([1, 1, 0, 0, 1]), of([1, 0, 1, 1])
    found = compare(a, b)
    assert (found.n, found.method, found.a_higher, found.b_higher) == (4, "mcnemar", 1, 2)
    assert (found.mean_a, found.mean_b, found.difference) == (0.5, 0.75, 0.25)


def test_a_figure_of_bytes_is_total_bits_over_total_bytes():
    a = {"long": (80.0, 100.0), "short": (9.0, 1.0)}
    b = {"long": (70.0, 100.0), "short": (9.0, 1.0)}
    found = compare(a, b)
    assert (found.mean_a, found.mean_b) == (89 / 101, 79 / 101)
    assert found.difference == pytest.approx(-10 / 101)


def test_the_interval_is_that_of_the_mean_and_the_same_every_time():
    chance = random.Random(5)
    change = [chance.gauss(1, 2) for _ in range(400)]
    low, high = bootstrap(change, [1.0] * 400)
    mean = sum(change) / 400
    error = (sum((one - mean) ** 2 for one in change) / 399 / 400) ** 0.5
    assert low == pytest.approx(mean - 1.96 * error, abs=0.1 * error)
    assert high == pytest.approx(mean + 1.96 * error, abs=0.1 * error)
    assert (low, high) == bootstrap(change, [1.0] * 400)


def test_of_many_figures_each_is_read_among_the_others():
    assert holm([0.01]) == [0.01]
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


@pytest.mark.parametrize("n", [1, 2, 5, 50])
def test_where_no_item_differs_the_exact_bound_is_said_and_none_of_other_figures(n):
    same = {str(item): (float(item % 2), 1.0) for item in range(n)}
    found = compare(same, same)
    most = 1 - 0.025 ** (1 / n)  # Clopper and Pearson, of 0 of n
    assert (found.low, found.high) == (pytest.approx(-most), pytest.approx(most))
    assert found.most_differing == pytest.approx(most)
    assert found.can_show == (n > 5)
    wide = {item: (value + 0.5, size) for item, (value, size) in same.items()}
    other = compare(wide, wide)
    assert (other.low, other.high, other.most_differing) == (None, None, pytest.approx(most))
    assert compare(same, {**same, "0": (1.0, 1.0)}).most_differing is None


def test_a_single_item_bounds_nothing():
    found = compare({"one": (2.0, 1.0)}, {"one": (3.0, 1.0)})
    assert (found.low, found.high) == (None, None)
    assert found.verdict("min", found.p) == "indistinguishable"
