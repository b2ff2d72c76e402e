"""A curve of the store and what only the live state knows yet, as one."""

from dataclasses import replace

from albor_core.feed.run.curves import join_curves, state_curve
from albor_core.store.rows.series import Series


def curve(*steps):
    values = tuple(float(step) for step in steps)
    nothing = (0,) * len(steps)
    return Series("val/mse", values, values, values, values, values, (1,) * len(steps), nothing)


def test_a_live_curve_goes_on_behind_one_that_the_store_has_or_has_not():
    live = curve(*range(1, 9))
    assert join_curves(curve(), live, lo=None, hi=None) == live
    assert join_curves(curve(1, 2, 3), live, lo=None, hi=None) == live
    assert join_curves(curve(1, 2, 3), live, lo=None, hi=5) == curve(1, 2, 3, 4, 5)
    by_time = replace(curve(), axis="seconds")
    assert join_curves(by_time, live, lo=None, hi=None) == replace(live, axis="seconds")


def test_a_live_state_without_a_value_of_a_metric_is_not_a_curve_of_nan():
    state = {"history_steps": [1, 2], "loss_history": [None, None]}
    assert state_curve("train/loss", state, 1).is_empty
    assert list(state_curve("train/loss", {**state, "loss_history": [None, 2.0]}, 1).steps) == [
        1,
        2,
    ]
