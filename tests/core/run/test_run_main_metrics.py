"""Which metrics stand for a run: the order that a person would choose, the same everywhere."""

from __future__ import annotations

import pytest

from albor_core.run.values.main_metrics import (
    Logged,
    beside_columns,
    main_metrics,
    pinned_after,
)


def logged(*names, **moved):
    """Metrics that go from 0.5 to 1, or as far as they are told."""
    return [Logged(name, 1.0, 1.0 - moved.get(name, 0.5), 1.0) for name in names]


def names(found):
    return [one.name for one in found]


PPO = logged(
    *("rollout/ep_len_mean", "time/fps", "time/iterations", "time/total_timesteps"),
    *("train/loss", "train/learning_rate", "rollout/ep_rew_mean", "train/clip_range"),
)


def test_what_an_evaluation_found_of_a_run_does_not_stand_before_its_loss():
    scores = logged("train/loss", "val/loss", "eval/fim/exact_match")
    goals = {"eval/fim/exact_match": "max"}
    losses = names(main_metrics(logged("train/loss", "val/loss")))
    assert names(main_metrics(scores, goals=goals))[:2] == losses
    assert names(main_metrics(logged("f1", "eval/fim/exact_match"), goals=goals))[0] == (
        "eval/fim/exact_match"
    )


def test_a_pinned_metric_comes_first_then_those_with_a_goal_then_validation_then_training():
    found = main_metrics(
        logged("accuracy", "train/loss", "wer", "val_accuracy", "zorp"),
        pins=["zorp"],
        goals={"wer": "min"},
    )
    assert names(found) == ["zorp", "wer", "val_accuracy", "train/loss"]
    assert [one.better for one in found] == [None, "min", "max", "min"]


def test_losses_of_the_house_come_in_its_order_whatever_was_logged_first():
    found = main_metrics(logged("val/ppl", "val/loss", "optim/lr", "train/loss"))
    assert names(found) == ["val/loss", "val/ppl", "train/loss"]


def test_a_learner_from_rewards_is_judged_by_them_and_not_by_its_loss():
    assert names(main_metrics(PPO))[:2] == ["rollout/ep_rew_mean", "train/loss"]
    with_validation = main_metrics([*PPO, Logged("val/loss", 1.0, 0.5, 1.0)])
    assert names(with_validation)[0] == "val/loss"


def test_clocks_counters_and_settings_stand_for_a_run_only_where_there_is_nothing_else():
    assert "time/fps" not in names(main_metrics(PPO))
    assert names(main_metrics(logged("epoch", "lr"))) == ["epoch", "lr"]


def test_of_equals_what_moves_most_comes_first_and_what_was_logged_first_before_its_like():
    found = main_metrics(logged("still", "f1", "accuracy", "auc", still=0.0, auc=0.9))
    assert names(found) == ["auc", "f1", "accuracy", "still"]


def test_a_little_more_movement_does_not_change_the_order_of_a_run_at_work():
    a = main_metrics(logged("f1", "accuracy", f1=0.50, accuracy=0.51))
    b = main_metrics(logged("f1", "accuracy", f1=0.52, accuracy=0.51))
    assert names(a) == names(b) == ["f1", "accuracy"]


@pytest.mark.parametrize("low, high", [(None, None), (0.0, 0.0), (-1e308, 1e308), (5.0, 5.0)])
def test_ranges_that_say_nothing_are_no_movement(low, high):
    found = main_metrics([Logged("x", 1.0, low, high), Logged("y", 1.0, 0.5, 1.0)])
    assert names(found) == ["y", "x"]


def test_all_pinned_metrics_stand_for_a_run_and_say_that_somebody_chose_them():
    found = main_metrics(logged(*"abcdef", "train/loss"), pins=[*"fedcba"])
    assert names(found) == [*"fedcba"]
    assert all(one.is_pinned for one in found)
    assert not main_metrics(logged("train/loss"))[0].is_pinned


def test_a_pinned_metric_comes_before_what_a_column_of_losses_leaves():
    found = main_metrics(
        logged("train/aux_loss", "train/loss", "accuracy"), pins=["train/aux_loss"]
    )
    assert beside_columns(found, ["train/loss"]).name == "train/aux_loss"


def test_pins_of_what_is_not_logged_are_left_out():
    assert names(main_metrics(logged("x"), pins=["gone"], goals={"never": "max"})) == ["x"]


def test_five_hundred_keys_give_four():
    wide = logged(*(f"layer{i:02d}/grad_norm" for i in range(500)), "val/accuracy")
    assert names(main_metrics(wide))[0] == "val/accuracy"
    assert len(main_metrics(wide)) == 4


def used(**points):
    """Metrics that move alike, each with so many values."""
    return [Logged(name.replace("__", "/"), 1.0, 0.5, 1.0, count) for name, count in points.items()]


def test_what_a_run_logs_stands_for_it_whatever_a_word_says():
    found = main_metrics(used(train__loss=3, zorp=900, accuracy=2))
    assert names(found) == ["zorp", "train/loss", "accuracy"]
    assert names(main_metrics(used(val__loss=2, val__mse=400, train__loss=2)))[0] == "val/mse"
    assert names(main_metrics(used(eval_loss=40, wobble=4000)))[0] == "eval_loss"
    assert names(main_metrics(used(val__wobble=40, accuracy=4000)))[0] == "val/wobble"
    assert names(main_metrics(used(lr=4000, zorp=10)))[0] == "zorp"


def test_of_what_is_logged_as_often_the_house_and_what_is_known_come_first():
    found = main_metrics(used(zorp=900, accuracy=900, train__loss=880))
    assert names(found) == ["train/loss", "accuracy", "zorp"]


def test_what_was_measured_once_at_the_end_does_not_stand_for_a_training():
    assert names(main_metrics(used(test__accuracy=1, zorp=500)))[0] == "zorp"
    assert names(main_metrics(used(test__accuracy=1, zorp=3)))[0] == "test/accuracy"


def test_the_order_of_a_run_at_work_stays_while_it_logs_more():
    orders = {
        tuple(names(main_metrics(used(a=n, accuracy=n - 1, val_acc=max(2, n // 50), loss=n // 2))))
        for n in range(8, 3000, 37)
    }
    assert orders == {("val_acc", "accuracy", "loss", "a")}


def test_a_column_beside_a_loss_tells_what_no_loss_does():
    found = main_metrics(logged("train/loss", "val/loss", "Loss/test", "Accuracy/test"))
    assert beside_columns(found, ["train/loss"]).name == "Accuracy/test"
    assert beside_columns(found, ()).name == "val/loss"
    assert beside_columns(found[::3], ["train/loss"]) is None


def test_the_last_word_about_a_pin_counts():
    said = [("metric.pin", "a"), ("metric.pin", "b"), ("metric.unpin", "a"), ("metric.pin", "a")]
    assert pinned_after(said) == ("b", "a")
    assert pinned_after([*said, ("metric.unpin", "b")]) == ("a",)


MACHINE = logged(
    *("host/memory_available_bytes", "gpu0/power_w", "brick/data_ms", "program/rss_bytes")
)


def test_figures_of_the_machine_never_stand_for_a_run_unless_somebody_chose_them():
    assert main_metrics(MACHINE) == ()
    assert names(main_metrics([*MACHINE, *logged("epoch")])) == ["epoch"]
    assert names(main_metrics(MACHINE, pins=["gpu0/power_w"])) == ["gpu0/power_w"]
    assert names(main_metrics(MACHINE, goals={"brick/data_ms": "min"})) == ["brick/data_ms"]
