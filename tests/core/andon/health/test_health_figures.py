"""Drift, plateau, schedule, noise, norms: each figure against a closed form or another library."""

from __future__ import annotations

import math
import random

import pytest

from albor_core.andon.health import tokens
from albor_core.andon.health.drift import (
    DriftWatch,
    compare,
    kolmogorov_smirnov,
    population_stability_index,
    wasserstein,
)
from albor_core.andon.health.gradients import ClipShare, NoiseWatch, NormWatch
from albor_core.andon.health.plateau import trend
from albor_core.andon.health.schedule import Promise, ScheduleWatch


def histogram(rng, bins=40, total=3_000):
    counts = [0] * bins
    for _ in range(total):
        counts[min(bins - 1, int(rng.expovariate(0.15)))] += 1
    return counts


def test_equal_windows_have_no_distance():
    counts = histogram(random.Random(0))
    found = compare(counts, [3 * count for count in counts])
    assert (found.ks, found.wasserstein) == (pytest.approx(0), pytest.approx(0))
    assert found.status == "no drift" and found.severity == "info" and found.ks_p == 1.0


def test_closed_forms_of_two_bins():
    before, now = [800_000, 200_000], [500_000, 500_000]
    psi = (0.5 - 0.8) * math.log(0.5 / 0.8) + (0.5 - 0.2) * math.log(0.5 / 0.2)
    assert population_stability_index(before, now) == pytest.approx(psi, rel=1e-4)
    assert kolmogorov_smirnov(before, now) == pytest.approx(0.3)
    assert wasserstein(before, now) == pytest.approx(0.3)
    assert wasserstein(before, now, [0.0, 7.0]) == pytest.approx(2.1)
    assert compare(before, now).status == "significant"


def test_all_mass_moved_by_so_many_bins_is_that_distance():
    before, now = [0, 10, 0, 0, 0, 0], [0, 0, 0, 0, 10, 0]
    assert wasserstein(before, now) == pytest.approx(3.0)
    assert kolmogorov_smirnov(before, now) == pytest.approx(1.0)
    assert math.isfinite(population_stability_index(before, now))


def by_points(before, now):
    """KS and Wasserstein of the same data as single points, straight from their definitions."""
    a = [x for x, count in enumerate(before) for _ in range(count)]
    b = [x for x, count in enumerate(now) for _ in range(count)]
    places = range(len(before))
    below = [
        abs(sum(x <= place for x in a) / len(a) - sum(x <= place for x in b) / len(b))
        for place in places
    ]
    long_a, long_b = sorted(a * len(b)), sorted(b * len(a))  # couples of equal rank carry W1
    moved = sum(abs(x - y) for x, y in zip(long_a, long_b, strict=True)) / len(long_a)
    return max(below), moved


@pytest.mark.parametrize("seed", range(5))
def test_histograms_give_what_the_points_themselves_do(seed):
    rng = random.Random(seed)
    before, now = histogram(rng, 12, 60), histogram(rng, 12, 45)
    ks, moved = by_points(before, now)
    assert kolmogorov_smirnov(before, now) == pytest.approx(ks, abs=1e-12)
    assert wasserstein(before, now) == pytest.approx(moved, abs=1e-12)
    assert kolmogorov_smirnov(now, before) == pytest.approx(ks, abs=1e-12)


def test_windows_are_held_against_the_first_and_few_tokens_say_nothing():
    watch, usual = DriftWatch(window=20_000), [100] * 256
    assert watch.take(usual) is None  # the first window: what the run began with
    assert watch.take([10] * 256) is None  # not a window yet
    assert watch.take(usual).status == "no drift"
    shifted = [250] * 100 + [5] * 156
    assert watch.take(shifted).status == "significant"


def test_a_noisy_fall_is_no_plateau_and_noise_about_a_level_is_one():
    rng, steps = random.Random(1), list(range(1, 2_001))
    falling = [2 + 3 * t**-0.3 + rng.gauss(0, 0.05) for t in steps]
    level = [2.4 + rng.gauss(0, 0.05) for _ in steps]
    fall, flat = trend(steps[1_000:], falling[1_000:]), trend(steps[1_000:], level[1_000:])
    assert not fall.is_plateau and fall.low > 0
    exact = 3 * (1_000**-0.3 - 2_000**-0.3) / (2 + 3 * 1_000**-0.3)
    assert fall.low < exact < fall.high
    assert flat.is_plateau and flat.low < 0 < flat.high


def test_a_few_spikes_do_not_move_the_trend():
    steps = list(range(480))
    values = [3 - 0.001 * t for t in steps]
    spiked = [50.0 if 100 < t < 140 else y for t, y in zip(steps, values, strict=True)]
    assert trend(steps, spiked).improvement == pytest.approx(
        trend(steps, values).improvement, rel=0.15
    )


def test_noise_that_remembers_makes_the_interval_wider():
    def width(memory, seed):
        rng, drift, values = random.Random(seed), 0.0, []
        for _ in range(960):
            drift = memory * drift + rng.gauss(0, 0.05 * math.sqrt(1 - memory**2))
            values.append(2.5 + drift)
        found = trend(list(range(960)), values)
        return found.high - found.low

    assert sum(width(0.97, s) > 2 * width(0.0, s) for s in range(20)) == 20


@pytest.mark.parametrize("name", ["cosine", "linear", "sqrt", "constant"])
@pytest.mark.parametrize("warmup", [0, 10])
@pytest.mark.parametrize("fall", [None, 25, 400])
def test_the_promise_of_a_config_is_what_the_trainer_does(name, warmup, fall):
    torchless = pytest.importorskip("albor_core.train.optim.schedules")
    ours = Promise(3e-4, 3e-5, warmup, 100, name, fall)
    theirs = torchless.Schedule(3e-4, 3e-5, warmup, 100, name, fall)
    for step in range(1, 101):
        assert ours.at(step) == pytest.approx(theirs.lr_at(step), rel=1e-9)


def test_a_rate_that_stays_at_its_peak_is_named():
    watch = ScheduleWatch(Promise(3e-4, 3e-5, 10, 1_000, "cosine"))
    for step in range(1, 400):
        watch.take(step, 3e-4 * min(1.0, step / 10))
    assert watch.is_off and "cosine; it stays at its peak" in watch.words


def test_a_rate_within_a_step_of_the_schedule_is_as_promised():
    watch = ScheduleWatch(promise := Promise(3e-4, 3e-5, 100, 1_000, "cosine"))
    for step in range(2, 1_000):
        watch.take(step, promise.at(step - 1))
        assert not watch.is_off


def test_noise_is_said_in_batches():
    watch = NoiseWatch(tokens_per_step=4_096)
    for _ in range(20):
        watch.take(400_000.0)
    assert watch.ratio == pytest.approx(97.7, rel=0.01) and "too small" in watch.words
    assert NoiseWatch(None).words == ""


def test_the_share_of_clipped_steps_is_of_the_newest_ones():
    share = ClipShare()
    for _ in range(50):
        share.take(100, 0)
    for _ in range(9):
        share.take(100, 10)
    assert share.share == pytest.approx(0.09) and "much" in share.words


def test_a_layer_that_dies_is_named_while_the_whole_looks_well():
    watch, rng = NormWatch(), random.Random(3)
    found = []
    for step in range(400):
        dead = 1e-4 if step > 300 else 1.0
        watch.take(
            {"optim/grad_norm": rng.uniform(0.9, 1.1), "optim/grad_norm_layer3": dead, "x": 9.0}
        )
        found += [(step, one) for one in watch.look() or ()]
    assert {(one.key, one.kind) for _, one in found} == {("optim/grad_norm_layer3", "vanishing")}
    assert 300 < found[0][0] < 330


@pytest.mark.parametrize(
    ("ratio", "words"), [(2, "fewer than half"), (20, "near"), (200, "beyond")]
)
def test_tokens_a_parameter_are_said_in_words(ratio, words):
    assert words in tokens.words(tokens.tokens_per_parameter(ratio * 1e6, 1e6))
    assert tokens.tokens_per_parameter(None, 1e6) is None
    assert tokens.tokens_per_parameter(1e6, 0) is None


def test_a_loss_that_stands_still_fell_by_nothing_and_not_by_minus_nothing():
    found = trend([float(step) for step in range(96)], [1.0] * 96)
    assert found is not None
    assert found.words.startswith("fell by 0 % (95 % interval 0 to 0 %)")


@pytest.mark.parametrize(
    ("loss", "first", "last", "share"),
    [
        (lambda t: 10 - 9 * t / 299, 0, 299, 0.9),
        (lambda t: 4 / (1 + t / 100), 294, 587, 0.426),
        (lambda t: 5 * math.exp(-t / 100), 0, 299, 0.95),
        (lambda t: 0.1 + 0.9 * t / 299, 0, 299, -9.0),
        (lambda t: 2 + 3 * t**-0.3, 1_000, 2_000, 0.0302),
    ],
)
def test_a_fall_is_a_share_of_what_the_loss_began_with(loss, first, last, share):
    steps = list(range(first, last + 1))
    found = trend(steps, [loss(t) for t in steps])
    assert found.improvement == pytest.approx(share, abs=0.006)
    assert found.low - 1e-9 <= found.improvement <= found.high + 1e-9 and found.high <= 1


def test_a_trend_names_its_interval_and_a_rise_is_a_rise():
    steps = list(range(300))
    fell = trend(steps, [10 - 9 * t / 299 for t in steps]).words
    assert fell == "fell by 90 % (95 % interval 90 to 90 %) over steps 0 to 299"
    rose = trend(steps, [1 + t / 299 for t in steps]).words
    assert rose.startswith("rose by 1")  # 100 %
    assert "(95 % interval 100 to 100 %)" in rose
