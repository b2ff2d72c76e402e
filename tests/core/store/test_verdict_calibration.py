"""The verdict keeps its word: how often noise alone is called a difference, and a real one found.

Noise is AR(1) with mean 0 and variance 1, as the losses of neighbouring steps are. Bounds are
quantiles of the binomial distribution at the stated rate, so that a verdict that keeps it fails one
time in a million: every call draws pairs nobody saw before.
"""

from __future__ import annotations

import math
import random

import pytest

from albor_core.store.diff.judge import corrected
from albor_core.store.diff.student import holm, quantile, two_sided
from albor_core.store.diff.verdict import (
    _STUDENT,
    CONFIDENCE,
    LEVEL,
    MIN_POINTS,
    OrderedSeries,
    Verdict,
    no_verdict,
    verdict,
)

PAIRS = 500
ONCE_IN_A_MILLION = 1e-6


def noise(chance, count, correlation):
    fresh = math.sqrt(1 - correlation**2)
    value = chance.gauss(0, 1)
    for _ in range(count):
        yield value
        value = correlation * value + fresh * chance.gauss(0, 1)


def curves(chance, count, correlation, *, gap=0.0, apart=0.0):
    """Two curves whose last quarter is `count` points of noise; `apart` moves the second's steps"""
    steps = range(3 * count, 4 * count)
    before = [-0.01 * count]  # so that the window that is compared begins after it
    for offset, shift in ((0.0, 0.0), (gap, apart)):
        values = [offset + value for value in noise(chance, count, correlation)]
        yield OrderedSeries([*before, *(step + shift for step in steps)], [9.0, *values])


def most_by_chance(trials, rate, tail=ONCE_IN_A_MILLION):
    """The smallest k with P(more than k of `trials`) < tail, at `rate` each."""
    above, k = 1.0, -1
    while above >= tail:
        k += 1
        above -= math.comb(trials, k) * rate**k * (1 - rate) ** (trials - k)
    return k


def outcomes(count, correlation, **how):
    seed = random.SystemRandom().getrandbits(64)
    chance = random.Random(seed)
    found = [verdict(*curves(chance, count, correlation, **how)).outcome for _ in range(PAIRS)]
    return found, seed


def test_the_bound_is_the_binomial_one():
    assert most_by_chance(1, 0.5, 0.6) == 0 and most_by_chance(1, 0.5, 0.4) == 1
    assert most_by_chance(500, 0.05) == 51  # 25 expected, 26 more are 5.3 standard deviations


def within(reach, freedom, parts=20_000):
    """P(-reach < T < reach) of Student's T: its density at sqrt(freedom) tan(angle), by Simpson."""
    widest = math.atan(reach / math.sqrt(freedom))
    heights = [math.cos(widest * i / parts) ** (freedom - 1) for i in range(parts + 1)]
    area = heights[0] + heights[-1] + 4 * sum(heights[1:-1:2]) + 2 * sum(heights[2:-1:2])
    scale = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - math.log(math.pi) / 2
    return 2 * math.exp(scale) * area * widest / parts / 3


def test_the_quantiles_are_those_of_the_level_that_the_stated_confidence_asks_for():
    assert within(12.706, 1.0) == pytest.approx(0.95, abs=1e-5)
    assert 0 < LEVEL < 1 - CONFIDENCE
    for freedom, reach in _STUDENT:
        assert 1 - within(reach, freedom) == pytest.approx(LEVEL, rel=0.01), freedom


@pytest.mark.parametrize("apart", [0.0, 0.5], ids=["same steps", "other steps"])
@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("count", [25, 100, 400])
def test_noise_alone_is_called_a_difference_no_more_often_than_stated(count, correlation, apart):
    found, seed = outcomes(count, correlation, apart=apart)
    wrong = sum(outcome in ("better", "worse") for outcome in found)
    assert wrong <= most_by_chance(PAIRS, 1 - CONFIDENCE), f"{wrong} of {PAIRS}, seed {seed}"
    assert wrong + found.count("indistinguishable") == PAIRS


def test_few_points_of_white_noise_keep_the_rate_too():
    found, seed = outcomes(MIN_POINTS, 0.0)
    wrong = sum(outcome in ("better", "worse") for outcome in found)
    assert wrong <= most_by_chance(PAIRS, 1 - CONFIDENCE), f"{wrong} of {PAIRS}, seed {seed}"


@pytest.mark.parametrize(("count", "correlation"), [(25, 0.0), (100, 0.5), (400, 0.9)])
def test_a_clear_difference_is_found(count, correlation):
    """Clear is ten times the standard error that the mean of such noise has."""
    memory = (1 + correlation) / (1 - correlation)
    gap = 10 * math.sqrt(2 * memory / count)
    found, seed = outcomes(count, correlation, gap=gap)
    assert found.count("worse") >= 0.95 * PAIRS, f"{found.count('worse')} of {PAIRS}, seed {seed}"
    assert "better" not in found


@pytest.mark.parametrize("count", [25, 100, 500])
def test_noise_of_a_long_memory_is_called_a_difference_no_more_often_than_stated(count):
    chance, pairs = random.Random(count), 300
    found = [verdict(*curves(chance, count, 0.97)).outcome for _ in range(pairs)]
    wrong = sum(outcome in ("better", "worse") for outcome in found)
    assert wrong <= 0.05 * pairs, f"{wrong} of {pairs}"


FIVE_ERRORS = [(100, 0.0), (100, 0.5), (500, 0.9), (2000, 0.97)]


@pytest.mark.parametrize(("count", "correlation"), FIVE_ERRORS[:3])
def test_five_standard_errors_are_found(count, correlation, pairs=200):
    """The true one of the difference of the means; the window holds 26 memories of the noise."""
    total = count + 2 * sum((count - lag) * correlation**lag for lag in range(1, count))
    gap = 5 * math.sqrt(2 * total) / count
    chance = random.Random(f"{count} {correlation}")
    found = [verdict(*curves(chance, count, correlation, gap=gap)).outcome for _ in range(pairs)]
    assert found.count("worse") >= 0.95 * pairs, f"{found.count('worse')} of {pairs}"


@pytest.mark.sweep
@pytest.mark.parametrize(("count", "correlation"), FIVE_ERRORS)
def test_five_standard_errors_are_found_in_a_thousand_pairs(count, correlation):
    test_five_standard_errors_are_found(count, correlation, pairs=1000)


@pytest.mark.sweep
@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9, 0.97])
@pytest.mark.parametrize("count", [25, 100, 500])
def test_of_a_thousand_equal_pairs_fifty_at_most_are_called_different(count, correlation):
    chance = random.Random(f"{count} {correlation}")
    found = [verdict(*curves(chance, count, correlation)).outcome for _ in range(1000)]
    assert sum(outcome in ("better", "worse") for outcome in found) <= 50


def test_eight_differences_that_drift_on_one_side_of_zero_decide():
    """As of evaluations: one run still gains on the other, with next to no noise."""
    steps = range(100)
    ahead = [0.05 + step / 500 + (step % 2) / 1000 for step in steps]
    few = slice(0, 100, 3)
    found = verdict(
        OrderedSeries([*steps][few], [2.0] * 34),
        OrderedSeries([*steps][few], [2.0 + gap for gap in ahead[few]]),
    )
    assert found.outcome == "worse" and found.detail.startswith("9 paired points")


def test_more_evidence_gives_a_narrower_interval():
    chance = random.Random(1)
    wide, narrow = (verdict(*curves(chance, count, 0.5)).interval for count in (40, 4000))
    # ten times by the square root of the counts; the estimates' own noise is below a factor of two
    assert (wide[1] - wide[0]) > 5 * (narrow[1] - narrow[0])


def falling(count, *, ends=1.0, start=0, spoiled=0, bad=math.nan):
    chance = random.Random(count + start)
    values = [ends + 2 * math.exp(-i / count * 8) + chance.gauss(0, 0.01) for i in range(count)]
    return OrderedSeries(
        range(start, start + count), [*values[: count - spoiled], *[bad] * spoiled]
    )


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_run_that_ended_in_nan_is_worse_whatever_its_finite_points_say(bad):
    healthy, dead = falling(400, ends=2.0), falling(400, ends=1.0, spoiled=60, bad=bad)
    found = verdict(healthy, dead)
    assert (found.outcome, found.interval, found.difference) == ("worse", None, None)
    assert "NaN or Inf" in found.detail
    assert verdict(dead, healthy).outcome == "better"
    assert (verdict(dead, dead).outcome, verdict(dead, dead).reason) == (None, "not_finite")


def test_a_few_points_of_nan_are_left_out_and_counted():
    found = verdict(falling(400, ends=1.0), falling(400, ends=2.0, spoiled=5))
    assert found.outcome == "worse" and "5 of NaN or Inf left out" in found.detail


def test_a_common_slope_does_not_hide_a_gap_at_other_steps():
    """Averaged over the same stretches, a trend that both share takes no part in the interval."""
    found = verdict(
        OrderedSeries(range(0, 1000, 2), [3 - i / 500 for i in range(0, 1000, 2)]),
        OrderedSeries(range(1, 1001, 2), [3.2 - i / 500 for i in range(1, 1001, 2)]),
    )
    assert found.outcome == "worse"
    # one step of the slope is 0.002: so far apart are the points of a stretch
    assert 0.198 - 1e-9 < found.interval[0] <= found.interval[1] < 0.202 + 1e-9


def test_a_gap_that_shrinks_is_found_however_little_noise_there_is():
    """A drift looks like noise that remembers for ever: the line decides."""

    def curve(rate, noise, seed):
        chance = random.Random(seed)
        steps = range(1, 201)
        return OrderedSeries(
            steps, [2 + 3 * math.exp(-s * rate) + chance.gauss(0, noise) for s in steps]
        )

    for noise in (0.0, 0.001, 0.02):
        slow, fast = curve(0.01, noise, 1), curve(0.03, noise, 3)
        found = verdict(slow, fast)
        assert (found.outcome, verdict(fast, slow).outcome) == ("better", "worse"), noise
        assert found.interval[0] < found.difference < found.interval[1] < 0
        # the true gap goes from 0.63 to 0.40 in the window
        assert found.interval[0] > -0.75 and found.interval[1] < -0.3


def test_curves_that_cross_in_the_window_have_no_better_one():
    steps = range(1, 201)
    rising, falling_ = ([2 + sign * (s - 175) / 100 for s in steps] for sign in (1, -1))
    assert (
        verdict(OrderedSeries(steps, rising), OrderedSeries(steps, falling_)).outcome
        == "indistinguishable"
    )


def test_curves_of_steps_that_never_meet_are_not_compared():
    found = verdict(falling(100), falling(100, start=1000))
    assert (found.reason, found.detail) == ("no_common_steps", "the curves share no steps")
    found = verdict(falling(20), falling(20, start=15))
    assert found.reason == "too_few_points" and f"needs {MIN_POINTS}" in found.detail


def test_of_many_runs_that_differ_by_noise_alone_few_sets_have_a_winner():
    chance, sets, runs = random.Random(5), 150, 10
    winners = {"alone": 0, "corrected": 0}
    narrower = []
    for _ in range(sets):
        curves = [
            OrderedSeries(range(160), [chance.gauss(0.0, 1.0) for _ in range(160)])
            for _ in range(runs + 1)
        ]
        alone = [verdict(curves[0], curve) for curve in curves[1:]]
        for name, found in (("alone", alone), ("corrected", corrected(alone))):
            winners[name] += any(one.outcome in ("better", "worse") for one in found)
            agrees = [(one.interval[0] <= 0 <= one.interval[1]) == (one.outcome ==
                      "indistinguishable") for one in found]  # fmt: skip
            assert all(agrees), "an interval says what its verdict does"
        narrower += [
            one.interval[1] - one.interval[0] < pair.interval[1] - pair.interval[0]
            for pair, one in zip(alone, corrected(alone), strict=True)
        ]
    assert not any(narrower)
    assert winners["alone"] > 0.15 * sets
    assert winners["corrected"] < 0.08 * sets


def test_holm_rejects_in_turn_and_stops_at_the_first_that_may_be_chance():
    levels = [(True, 0.05 / 3), (False, 0.025), (False, 0.025), (True, 0.0125)]
    assert holm([0.01, 0.04, 0.03, 0.005], 0.05) == levels
    assert holm([0.01], 0.05) == [(True, 0.05)]
    assert holm([], 0.05) == []
    assert two_sided(2.228139, 10) == pytest.approx(0.05, abs=1e-6)
    assert two_sided(-12.7062, 1) == pytest.approx(0.05, abs=1e-6)
    assert two_sided(1.959964, 1e7) == pytest.approx(0.05, abs=1e-6)
    assert two_sided(0.0, 5) == 1.0
    assert quantile(0.05, 10) == pytest.approx(2.228139, abs=1e-6)
    assert quantile(1e-5, 1) == pytest.approx(63661.977, rel=1e-6)
    assert two_sided(math.inf, 5) == 0.0


def test_a_gap_that_is_clear_stays_among_many_and_one_that_is_not_says_why():
    def one(outcome, chance):
        return Verdict(outcome, (-0.9, -0.1), -0.5, "t", "40 points", chance=chance)

    ends_in_nan = no_verdict("not_finite", "both are NaN")
    alone = [one("better", 1e-5), one("worse", 0.02), one("indistinguishable", 0.4), ends_in_nan]
    found = corrected(alone)
    assert [each.outcome for each in found] == [
        *("better", "indistinguishable", "indistinguishable", None)
    ]
    assert "alone it would be worse" in found[1].detail
    assert found[0].method == "t, Holm's correction of 3 comparisons"
    assert found[0].comparisons == 3 and found[3].comparisons == 1
    assert corrected(alone[1:2]) == (alone[1],), "a single one is as it was"
    assert (
        corrected([one("contradictory", 0.02), one("better", 0.01)])[0].outcome == "contradictory"
    )
