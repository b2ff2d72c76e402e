"""Where W&B's rows lie: over the axis of `define_metric`, and job behind job."""

import pytest

from albor_core.integrations.importers.steps.wandb_axes import (
    Axes,
    Definition,
    LogSpan,
    is_counter,
    is_step,
    offsets,
    whole_step,
)


def axes(named=(), patterns=()):
    made = Axes()
    made.named = {name: Definition(axis) for name, axis in dict(named).items()}
    made.patterns = {name: Definition(axis) for name, axis in dict(patterns).items()}
    return made


def test_a_name_wins_over_a_pattern_and_a_long_pattern_over_a_short_one():
    found = axes({"val/best": ""}, {"*": "step", "val/*": "epoch"})
    assert found.split({"val/best": 1, "val/loss": 2, "loss": 3, "step": 4, "epoch": 5}) == {
        "": {"val/best": 1},
        "epoch": {"val/loss": 2, "epoch": 5},
        "step": {"loss": 3, "step": 4},
    }


def test_a_nested_metric_is_named_with_dots():
    found = axes({"a.b": "epoch"})
    assert found.split({"a": {"b": 1, "c": 2}}) == {"epoch": {"a/b": 1}, "": {"a/c": 2}}


def test_an_axis_keeps_its_newest_value():
    found = axes(patterns={"*": "n.step"})
    assert found.see({"n": {"step": 4}, "loss": 1.0}) == {"n.step"}
    assert found.see({"loss": 1.0}) == set()
    assert found.newest == {"n.step": 4}


@pytest.mark.parametrize("value", [0.5, -1, float("nan"), float("inf"), None, "3", 2**60])
def test_what_is_no_whole_step_is_none(value):
    assert whole_step(value) is None


def test_a_whole_float_is_a_step():
    assert whole_step(30.0) == 30


def test_counters_and_steps_are_told_by_their_names():
    assert all(map(is_counter, ["epoch", "train/global_step", "num_updates", "a.iter", "tokens"]))
    assert not any(map(is_counter, ["loss", "_step", "stepsize", "epoch_time"]))
    assert is_step("trainer/global_step") and not is_step("epoch")


def log(first, count, begun, **counters):
    span = LogSpan()
    for i in range(count):
        values = {key: start + i for key, start in counters.items()}
        span.see(first + i, begun + i, values)
    return span


@pytest.mark.parametrize(
    ("logs", "wanted"),
    [
        ([log(0, 50, 0), log(0, 50, 100)], [0, 50]),  # nothing says where: behind
        ([log(0, 50, 0, epoch=0), log(0, 50, 100, epoch=50)], [0, 50]),
        ([log(0, 50, 0, epoch=0), log(0, 50, 100, epoch=30)], [0, 30]),  # from a checkpoint
        ([log(0, 50, 0, epoch=0), log(0, 50, 100, epoch=0)], [0, 50]),  # counts its own epochs
        ([log(0, 50, 0), log(50, 50, 100)], [0, 0]),  # was told its step
        ([log(0, 50, 0), log(40, 50, 100)], [0, 0]),
        ([log(0, 50, 0), log(0, 50, 20)], [0, 0]),  # two programs at one time
        ([log(0, 9, 0), log(0, 9, 20), log(0, 9, 40)], [0, 9, 18]),
        ([log(0, 0, 0), log(0, 9, 20)], [0, 0]),
        ([log(0, 9, 0, epoch=0), log(0, 9, 20, epoch=9), log(0, 9, 40, epoch=14)], [0, 9, 14]),
    ],
)
def test_a_later_log_goes_on_behind_or_where_its_keys_say(logs, wanted):
    assert offsets(logs) == wanted
