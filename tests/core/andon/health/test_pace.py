"""A loss of exactly 0 and a collapse of throughput are told, once, and cleared when over."""

from __future__ import annotations

from albor_core.andon.health import watch as health_watch
from albor_core.andon.health.facts import HealthFacts
from albor_core.andon.health.watch import HealthWatch


def said(key, values):
    watch = HealthWatch(HealthFacts())
    return [
        (one.rule, one.state, step)
        for step, value in enumerate(values, 1)
        for one in watch.take_step(step, {key: value}, float(step))
        if one.rule == "slower" or one.rule.endswith("-is-zero")
    ]


def test_a_loss_that_is_exactly_zero_for_long_is_told():
    curve = [2.0 / step for step in range(1, 41)]
    assert said("train/loss", curve + [0.0] * 60) == [("loss-is-zero", "fired", 90)]
    assert said("train/loss", curve + [0.0] * 20 + curve) == []
    assert said("train/loss", curve + [1e-9] * 60) == []


def test_a_loss_that_never_was_anything_but_zero_is_told():
    assert said("train/loss", [0.0] * 260) == [("loss-is-zero", "fired", 50)]
    for key in ("val/loss", "Loss/train", "train_loss_step", "total_loss", "metrics/eval_loss"):
        assert [one[1:] for one in said(key, [0.0] * 260)] == [("fired", 50)], key
    for key in ("aux_loss", "loss/kl", "G/loss", "reg_loss", "loss_scale", "train/mse"):
        assert said(key, [0.0] * 260) == [], f"{key} may be 0, or is a part"


def at_end(values, **beside):
    watch = HealthWatch(HealthFacts())
    for step, value in enumerate(values, 1):
        assert not watch.take_step(step, {"train/loss": value, **beside}, float(step))
    return [(one.rule, one.severity, one.step) for one in watch.end()]


def test_a_loss_that_is_zero_at_the_end_of_a_run_that_logs_seldom_is_told():
    assert at_end([2.0] + [0.0] * 12) == [("loss-is-zero", "error", 13)]
    assert at_end([0.0] * 3) == [("loss-is-zero", "error", 3)]
    assert at_end([2.0, 1.0, 0.0, 0.0, 0.0]) == at_end([0.0]) == at_end([0.0] * 20 + [1.0]) == []
    assert at_end([0.0] * 40, reward=1.0) == [], "the loss of a learner from rewards may be 0"


def test_a_run_of_zeros_is_counted_through_another_process():
    first, second = HealthWatch(HealthFacts()), HealthWatch(HealthFacts())
    for step in range(1, 30):
        assert not first.take_step(step, {"train/loss": 0.0}, float(step))
    second.load(first.to_json())
    told = [
        (one.rule, one.state)
        for step in range(30, 70)
        for one in second.take_step(step, {"train/loss": 0.0}, float(step))
    ]
    assert told == [("loss-is-zero", "fired")]


def test_a_learner_from_rewards_is_known_through_another_process():
    first, second = HealthWatch(HealthFacts()), HealthWatch(HealthFacts())
    for step in range(1, 13):
        assert not first.take_step(step, {"train/loss": 0.0, "reward": 1.0}, float(step))
    second.load(first.to_json())
    assert not [*second.end()]


def test_a_name_is_judged_once_however_many_there_are(monkeypatch):
    judged, speed = [], health_watch.is_speed
    monkeypatch.setattr(health_watch, "is_speed", lambda key: judged.append(key) or speed(key))
    watch, names = HealthWatch(HealthFacts()), [f"layer_{n}/entropy" for n in range(5000)]
    for step in range(1, 4):
        watch.take_step(step, dict.fromkeys(names, 1.0), float(step))
    assert judged == names


def test_a_collapse_of_whatever_speed_is_logged_is_told_once():
    for key in (
        *("tokens_per_s", "tokens_per_second", "samples_per_second", "it/s", "steps_per_second"),
        *("train/samples_per_second", "time/fps", "throughput", "tokens/s", "examples/sec"),
    ):
        found = said(key, [1000.0] * 100 + [200.0] * 30)
        assert [one[:2] for one in found] == [("slower", "fired")], key
    for key in ("eval/samples_per_second", "learning_rate", "reward_per_second", "s/it", "gpu0/w"):
        assert said(key, [1000.0] * 100 + [200.0] * 30) == [], key


def test_several_speeds_that_collapse_together_are_one_trouble():
    watch, found = HealthWatch(HealthFacts()), []
    for step in range(1, 260):
        rate = 200.0 if 100 < step < 150 else 1000.0
        values = {"it/s": rate / 10, "tokens_per_s": rate}
        found += [(one.metric, one.state) for one in watch.take_step(step, values, float(step))]
    assert found == [("it/s", "fired"), ("it/s", "cleared")]


def test_a_collapse_of_throughput_is_told_and_a_pause_is_not():
    assert said("perf/tokens_per_s", [1000.0] * 100 + [200.0] * 30)[0][:2] == ("slower", "fired")
    assert said("perf/tokens_per_s", [1000.0] * 100 + [200.0] * 5 + [1000.0] * 50) == []
    assert said("perf/tokens_per_s", [1000.0] * 100 + [600.0] * 30) == []
