"""Means, bands and groups of runs, held against numpy; and values as people write them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from albor_core.feed.workspace.bands import CurveBand, curve_band
from albor_core.feed.workspace.groups import group_label, group_runs
from albor_core.store.rows.series import Series


def curve(points, axis="step"):
    steps, values = tuple(points), tuple(points.values())
    counts, bad = (1,) * len(steps), tuple(int(not math.isfinite(value)) for value in values)
    return Series("m", steps, values, values, values, values, counts, bad, axis=axis)


def numpy_values(points, steps):
    """A run at these steps by numpy: NaN beyond its ends and beside what is not finite."""
    own, values = np.array([*points], float), np.array([*points.values()], float)
    found = np.interp(steps, own, values, left=np.nan, right=np.nan)
    for index, step in enumerate(steps):  # beside a NaN numpy may lose a point itself
        if step in points:
            found[index] = points[step]
    found[~np.isfinite(found)] = np.nan
    return found


@pytest.mark.parametrize("number", range(20))
def test_a_band_is_numpys_mean_and_sample_deviation_at_every_step(number):
    fresh = np.random.SeedSequence()  # others each time; a failure prints it
    random = np.random.default_rng(fresh)
    runs = []
    for _ in range(random.integers(1, 9)):
        steps = np.sort(random.choice(400, random.integers(1, 60), replace=False))
        values = random.normal(random.normal(0, 100), 10 ** random.uniform(-6, 6), len(steps))
        values[random.random(len(values)) < 0.15] = random.choice([np.nan, np.inf, -np.inf])
        runs.append({int(step): float(value) for step, value in zip(steps, values, strict=True)})
    steps = np.unique(np.concatenate([[*run] for run in runs]))
    table = np.array([numpy_values(run, steps) for run in runs])
    n = np.isfinite(table).sum(axis=0)
    band = curve_band([curve(run) for run in runs])
    assert (band.steps, band.n) == (tuple(steps), tuple(n))
    some = n > 0
    mean = np.full(len(steps), np.nan)
    mean[some] = np.nanmean(table[:, some], axis=0)
    deviation = np.zeros(len(steps))
    deviation[n > 1] = np.nanstd(table[:, n > 1], axis=0, ddof=1)
    for found, wanted in (
        (band.mean, mean),
        (band.low, mean - deviation),
        (band.high, mean + deviation),
    ):
        most = np.nanmax(np.abs(table), initial=0.0)
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9 * most, err_msg=str(fresh))


def test_one_run_is_its_own_band_and_no_run_none():
    assert curve_band([]) == curve_band([Series("m")]) == CurveBand()
    alone = curve_band([curve({0: 1.0, 5: 3.0})])
    assert alone.mean == alone.low == alone.high == (1.0, 3.0)
    assert alone.n == (1, 1)


def test_seconds_are_no_steps_and_a_long_band_can_be_thinned():
    steps = [curve({0: 1.0, 10: 1.0}), curve({0: 3.0, 10: 3.0})]
    seconds = curve({5: 100.0}, axis="seconds")
    assert curve_band([seconds, *steps]) == curve_band(steps)
    long = curve_band([curve({step: float(step) for step in range(1000)})], most=11)
    assert len(long.steps) == 11
    assert (long.steps[0], long.steps[-1]) == (0, 999)
    assert long.mean == long.steps


@pytest.mark.parametrize(
    ("values", "label"),
    [
        ((0.001, 1e-3, "1e-3", "0.001", "1E-03", "0.0010"), "0.001"),
        ((1, 1.0, "1", "1.0", "+1"), "1"),
        ((1e-5, "1e-5", "0.00001"), "1e-5"),
        ((2**60 + 1, str(2**60 + 1)), str(2**60 + 1)),
        (([0.9, 0.95], "[0.9,0.95]", (0.9, 0.950)), "[0.9, 0.95]"),
        ((None,), "missing"),
        (("missing",), '"missing"'),
        (("",), '""'),
        (("007",), "007"),
        ((True, "true"), "true"),
        ((math.nan,), "NaN"),
        ((math.inf,), "inf"),
        (("[not json",), "[not json"),
        (("1_000",), "1_000"),
        ((1e15, 10**15, "1e15", "1.0e+15", "1000000000000000"), "1000000000000000"),
        ((1e16, 10**16, "1E16"), "10000000000000000"),
        ((1e23, 10**23, "1e23", "1" + "0" * 23), "1e23"),
        ((2.0**60, 2**60), str(2**60)),
        ((1e300, 10**300, int(1e300)), "1e300"),
        ((10**400,), "1" + "0" * 400),
        ((-1e15, -(10**15)), "-1000000000000000"),
        (([1e16, {"a": 1e23}], [10**16, {"a": 10**23}]), '[10000000000000000, {"a": 1e23}]'),
        (
            ('[1e16, true, null, "1e3"]', [10**16, True, None, "1e3"]),
            '[10000000000000000, true, null, "1e3"]',
        ),
    ],
)
def test_a_value_has_one_group_however_it_was_written(values, label):
    assert {group_label(value) for value in values} == {label}


def test_groups_are_in_order_with_their_figures_and_their_worst_state():
    values = {"a": 0.1, "b": 1e-3, "c": "0.001", "d": 10, "e": "warm", "f": [1, 2]}
    figures = {"a": 1.0, "b": 2.0, "c": 4.0, "d": math.nan, "e": None}
    states = dict.fromkeys("abcdefg", "completed") | {"c": "running", "b": "failed", "g": "lost"}
    found = group_runs("gfedcba", values, figures, states)
    assert [(group.label, "".join(group.runs)) for group in found] == [
        *(("0.001", "cb"), ("0.1", "a"), ("10", "d"), ("[1, 2]", "f"), ("warm", "e")),
        ("missing", "g"),
    ]
    first, second, third, *_ = found
    assert (first.band.n, first.band.mean) == (2, 3.0)
    assert first.band.std == pytest.approx(np.std([2.0, 4.0], ddof=1), rel=1e-9)
    assert (first.state, second.state, found[-1].state) == ("failed", "completed", "lost")
    assert second.band.std is None
    assert (third.band.n, third.band.nonfinite, third.band.mean) == (0, 1, None)


@pytest.mark.parametrize(
    ("words", "worst"),
    [
        (("running", "completed"), "running"),
        (("completed", "lost", "stalled"), "lost"),
        (("completed", "running", "paused", "stopped"), "paused"),
        (("completed", "loading", "running"), "loading"),
        ((), ""),
    ],
)
def test_the_state_of_a_group_is_its_worst(words, worst):
    found = group_runs(range(len(words)), {}, {}, dict(enumerate(words)))
    assert [group.state for group in found] == ([worst] if words else [])
