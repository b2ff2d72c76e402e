"""A loss of exactly 0 and a collapse of throughput are told, once, and cleared when over."""

from __future__ import annotations

from albor_core.andon.health.facts import HealthFacts
from albor_core.andon.health.watch import HealthWatch


def said(key, values):
    watch = HealthWatch(HealthFacts())
    return [
        (one.rule, one.state, step)
        for step, value in enumerate(values, 1)
        for one in watch.take_step(step, {key: value}, float(step))
        if one.rule in ("loss-is-zero", "slower")
    ]


def test_a_loss_that_is_exactly_zero_for_long_is_told():
    curve = [2.0 / step for step in range(1, 41)]
    assert said("train/loss", curve + [0.0] * 60) == [("loss-is-zero", "fired", 90)]
    assert said("train/loss", curve + [0.0] * 20 + curve) == []
    assert said("train/loss", curve + [1e-9] * 60) == []
    assert said("train/loss", [0.0] * 99) == [], "it never was anything else"


def test_a_collapse_of_throughput_is_told_and_a_pause_is_not():
    assert said("perf/tokens_per_s", [1000.0] * 100 + [200.0] * 30)[0][:2] == ("slower", "fired")
    assert said("perf/tokens_per_s", [1000.0] * 100 + [200.0] * 5 + [1000.0] * 50) == []
    assert said("perf/tokens_per_s", [1000.0] * 100 + [600.0] * 30) == []
