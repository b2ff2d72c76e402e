from __future__ import annotations

import json
import random

import pytest

from albor_core.andon.health.eta import KalmanEta


def walls(rng, steps, *, step_s=1.0, noise=0.05, drift=0.0, eval_every=0, eval_s=0.0, slower=None):
    """(step, wall) of each log interval of ten steps, with pauses."""
    wall, found = 1_000.0, [(0, 1_000.0)]
    for step in range(1, steps + 1):
        mean = (
            step_s * (1 + drift * step / steps) * (slower[1] if slower and step > slower[0] else 1)
        )
        wall += max(0.01, mean * (1 + rng.gauss(0, noise)))
        if eval_every and step % eval_every == 0:
            wall += eval_s * rng.uniform(0.8, 1.2)
        if step % 10 == 0:
            found.append((step, wall))
    return found


def left_at(points, share, steps):
    eta = KalmanEta()
    upto = [p for p in points if p[0] <= share * steps]
    for step, wall in upto:
        eta.take(step, wall)
    return eta.left(steps - upto[-1][0]), points[-1][1] - upto[-1][1]


def test_the_time_left_of_a_steady_run():
    (seconds, low, high), true = left_at(walls(random.Random(0), 2_000), 0.5, 2_000)
    assert seconds == pytest.approx(true, rel=0.02) and low < true < high


def test_evaluations_count_as_pauses_and_come_again():
    points = walls(random.Random(1), 4_000, eval_every=400, eval_s=120)
    (seconds, low, high), true = left_at(points, 0.5, 4_000)
    assert seconds == pytest.approx(true, rel=0.05) and low < true < high
    eta = KalmanEta()
    for step, wall in points:
        eta.take(step, wall)
    assert eta.step_s == pytest.approx(1.0, rel=0.03)  # the pauses are no part of the step time


def test_a_step_that_becomes_slower_is_believed_after_a_few_intervals():
    points = walls(random.Random(2), 2_000, slower=(1_000, 2.0))
    (seconds, *_), true = left_at(points, 0.6, 2_000)
    assert seconds == pytest.approx(true, rel=0.05)


def test_one_long_pause_is_no_step_time():
    eta = KalmanEta()
    for step in range(1, 50):
        eta.take(step, float(step))
    eta.take(50, 5_000.0)
    for step in range(51, 60):
        eta.take(step, 4_950.0 + step)
    assert eta.step_s == pytest.approx(1.0, rel=0.01)


def test_nine_of_ten_intervals_hold_the_truth():
    held = []
    for seed in range(200):
        rng = random.Random(seed)
        steps = rng.choice((1_000, 3_000))
        points = walls(
            rng,
            steps,
            noise=rng.uniform(0.01, 0.3),
            eval_every=rng.choice((0, 100, 250)),
            eval_s=rng.uniform(5, 60),
        )
        (_, low, high), true = left_at(points, rng.uniform(0.2, 0.9), steps)
        held.append(low <= true <= high)
    assert sum(held) >= 170


def test_a_rollback_or_a_new_attempt_begins_a_new_stretch():
    eta = KalmanEta()
    for step in range(1, 40):
        eta.take(step, float(step))
    eta.take(20, 500.0)
    for step in range(21, 40):
        eta.take(step, 480.0 + step)
    assert eta.step_s == pytest.approx(1.0, rel=0.01)


def test_nothing_is_said_before_anything_is_known():
    eta = KalmanEta()
    assert eta.left(10) is None and eta.step_s is None
    eta.take(1, 1.0)
    assert eta.left(10) is None


def test_it_goes_on_from_what_it_saved():
    one, two = KalmanEta(), KalmanEta()
    points = walls(random.Random(3), 1_000, eval_every=100, eval_s=30)
    for step, wall in points[:50]:
        one.take(step, wall)
    two.load(json.loads(json.dumps(one.to_json())))
    for step, wall in points[50:]:
        one.take(step, wall)
        two.take(step, wall)
    assert one.left(500) == two.left(500)
