from __future__ import annotations

import importlib.util
import json
import math
import random
from pathlib import Path

import pytest

from albor_core.andon.health.curve import Curve
from albor_core.andon.health.expected_loss import (
    ABOVE,
    BELOW,
    ON_TRACK,
    ExpectedLoss,
    fit_power_law,
)

SCRIPT = Path(__file__).resolve().parents[4] / "benchmarks" / "watching" / "expected_loss.py"


def benchmark():
    spec = importlib.util.spec_from_file_location("expected_loss_benchmark", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_a_tenth_of_the_rate_is_seen_early_and_equal_runs_are_left_alone():
    found = benchmark().measure(100, seed=0)
    assert found["tenth_rate_above_within_15_percent"] >= 90
    assert found["equal_runs_spoken_of"] <= 5
    assert found["equal_runs_spoken_of_by_their_own_curve"] <= 5


def curve(steps=1_000, scale=1.0, seed=0):
    rng = random.Random(seed)
    return Curve(
        list(range(1, steps + 1)),
        [scale * (2 + 5 * t**-0.4) * math.exp(rng.gauss(0, 0.01)) for t in range(1, steps + 1)],
    )


def last(judge, points):
    for step, value in zip(*points, strict=True):
        judge.take(step, value)
    return judge.newest


@pytest.mark.parametrize(
    ("scale", "word"), [(1.0, ON_TRACK), (1.01, ON_TRACK), (1.2, ABOVE), (0.8, BELOW)]
)
def test_the_word_and_the_bounds_at_the_step(scale, word):
    found = last(ExpectedLoss([curve(seed=1)], num_steps=1_000), curve(scale=scale))
    assert found.word == word and found.source == "1 earlier run"
    assert found.low < 2 + 5 * found.step**-0.4 < found.high
    assert found.words.startswith(f"{word}: ") and f"at step {found.step:,.0f}" in found.words


def test_beyond_the_end_of_every_earlier_run_nothing_is_said():
    judge = ExpectedLoss([curve(steps=400, seed=1)], num_steps=1_000)
    found = last(judge, curve(scale=3.0))
    assert found.step < 420


def test_a_run_alone_is_held_against_its_own_power_law():
    steps = list(range(1, 2_001))
    rng = random.Random(2)
    values = [
        (2 + 5 * t**-0.4 + (1.0 if t > 1_500 else 0.0)) * math.exp(rng.gauss(0, 0.01))
        for t in steps
    ]
    judge = ExpectedLoss(num_steps=2_000)
    last(judge, Curve(steps[:1_500], values[:1_500]))
    assert judge.newest.word == ON_TRACK and judge.newest.source == "its own curve"
    assert last(judge, Curve(steps[1_500:], values[1_500:])).word == ABOVE
    assert "expected at most" in judge.newest.words


def test_a_power_law_is_found_again():
    law = fit_power_law((t, 1.8 + 6 * t**-0.35) for t in range(10, 5_000, 50))
    assert (law.a, law.b, law.c) == pytest.approx((1.8, 6.0, 0.35), rel=1e-6)
    assert fit_power_law([(1, 2.0), (2, 2.0)]) is None
    assert fit_power_law((t, 1.0 + t) for t in range(1, 50)) is None


def test_a_rollback_takes_its_path_back():
    judge = ExpectedLoss([curve(seed=1)], num_steps=1_000)
    last(judge, Curve(range(1, 401), [9.0] * 400))
    assert judge.newest.word == ABOVE
    again = curve()
    assert last(judge, Curve(again.steps[100:], again.values[100:])).word == ON_TRACK


def test_odd_losses_are_left_out():
    judge = ExpectedLoss([curve(seed=1)], num_steps=1_000)
    odd = [math.nan if t % 7 == 0 else math.inf if t % 11 == 0 else 0.0 if t % 13 == 0 else v
           for t, v in zip(*curve(), strict=True)]  # fmt: skip
    assert last(judge, Curve(range(1, 1_001), odd)).word == ON_TRACK


def test_a_judge_goes_on_from_what_it_saved():
    one, two = (ExpectedLoss([curve(seed=1)], num_steps=1_000) for _ in range(2))
    own = curve(scale=1.1)
    last(one, Curve(own.steps[:500], own.values[:500]))
    two.load(json.loads(json.dumps(one.to_json())))
    rest = Curve(own.steps[500:], own.values[500:])
    assert last(one, rest) == last(two, rest)


def test_a_loss_that_nears_zero_is_judged_without_an_overflow():
    found = ExpectedLoss(num_steps=2000)
    for step in range(1, 2001):
        found.take(step, 4.0 * math.exp(-step / 8) + 1e-300)
    assert found.newest is None or not math.isnan(found.newest.high)
