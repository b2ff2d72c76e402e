from __future__ import annotations

import json

import pytest
from simulated_run import LOG_S, PARAMETERS, SimulatedRun, config

from albor_core.andon.actions import ACTIONS
from albor_core.andon.health.curve import Curve
from albor_core.andon.health.facts import HealthFacts
from albor_core.andon.health.watch import HealthWatch
from albor_core.train.alert_actions import RESPONSES


def facts(run, **more):
    return HealthFacts.from_config(
        config(run.num_steps), own_gpus=range(run.gpus), parameters=PARAMETERS, **more
    )


def watched(run, watch=None, upto=None):
    """All alerts of a run: (share of it, alert)."""
    watch = watch or HealthWatch(facts(run))
    said, share = [], 0.0
    for kind, wall, *rest in run.moments():
        if kind == "clock":
            alerts = watch.take_clock(wall, *rest)
        else:
            step, values = rest
            share = step / run.num_steps
            alerts = watch.take_step(step, values, wall)
        said += [(share, alert) for alert in alerts]
        if upto is not None and share >= upto:
            break
    return said


def losses(run):
    rows = [(rest[0], rest[1]["train/loss"]) for kind, _, *rest in run.moments() if kind == "step"]
    return Curve([float(step) for step, _ in rows], [value for _, value in rows])


@pytest.mark.slow
def test_twenty_healthy_runs_of_eight_hours_raise_nothing():
    said = {seed: watched(SimulatedRun(seed)) for seed in range(20)}
    assert {seed: [a.message for _, a in found] for seed, found in said.items() if found} == {}


@pytest.mark.parametrize("seed", [100, 101])
def test_a_healthy_run_raises_nothing_beside_an_equal_one(seed):
    run, other = SimulatedRun(seed, planted="other seed"), SimulatedRun(seed)
    watch = HealthWatch(facts(run, earlier=[losses(other)]))
    assert watched(run, watch) == []
    assert watch.words()["expected loss"].startswith("on track")


TROUBLES = {
    "hot": "gpu3-hot",
    "throttled": "gpu3-throttled",
    "straggling": "gpu3-straggling",
    "idle": "gpu0-idle",
    "ecc": "gpu3-ecc",
    "xid": "gpu3-xid",
    "plateau": "plateau",
    "flat rate": "lr-schedule",
    "exploding": "exploding-grad_norm",
    "vanishing": "vanishing-grad_norm_mlp",
    "small batch": "noise-scale",
    "drift": "token-drift",
}


@pytest.mark.slow
@pytest.mark.parametrize(("planted", "rule"), TROUBLES.items(), ids=TROUBLES)
def test_each_planted_trouble_is_found_and_nothing_before_it(planted, rule):
    run = SimulatedRun(7, planted=planted, num_steps=1_500)
    said = watched(run)
    assert rule in {alert.rule for _, alert in said}
    assert [alert.rule for share, alert in said if share < 0.15] == []
    begun = min(share for share, _ in said)
    assert begun >= (run.from_share - 1.5 / run.num_steps if planted != "plateau" else 0.15)
    others = {alert.rule for _, alert in said} - {rule}
    assert all(other.startswith(("gpu", "exploding")) for other in others), others


def test_a_tenth_of_the_rate_is_above_what_an_earlier_run_did():
    run = SimulatedRun(3, planted="tenth", num_steps=1_500)
    watch = HealthWatch(facts(run, earlier=[losses(SimulatedRun(3, num_steps=1_500))]))
    (share, alert), *_ = watched(run, watch, upto=0.15)
    assert (alert.rule, alert.kind, alert.severity) == ("expected-loss", "health", "warning")
    assert "expected" in alert.message and "1 earlier run" in alert.message and share <= 0.15


def test_every_alert_of_health_only_tells():
    said = watched(SimulatedRun(7, planted="hot", num_steps=800))
    said += watched(SimulatedRun(7, planted="flat rate", num_steps=800))
    assert {alert.action for _, alert in said} == {next(iter(ACTIONS))} <= set(RESPONSES)


def test_what_is_ignored_gives_words_and_no_alert():
    run = SimulatedRun(7, planted="flat rate", num_steps=800)
    watch = HealthWatch(
        HealthFacts.from_config(
            {**config(run.num_steps), "monitoring": {"health": {"ignore": ["schedule"]}}}
        )
    )
    assert watched(run, watch) == []
    assert "stays at its peak" in watch.words()["learning rate"]


def test_a_watch_that_is_switched_off_says_nothing():
    run = SimulatedRun(7, planted="hot", num_steps=300)
    off = {**config(run.num_steps), "monitoring": {"health": {"enabled": False}}}
    watch = HealthWatch(HealthFacts.from_config(off, own_gpus=range(run.gpus)))
    assert watched(run, watch) == [] and watch.words().keys() <= {"tokens"}


def test_a_restarted_watcher_goes_on_where_it_was():
    run = SimulatedRun(5, num_steps=900)
    one, two = HealthWatch(facts(run)), None
    for kind, wall, *rest in run.moments():
        if kind != "step":
            continue
        step, values = rest
        one.take_step(step, values, wall)
        if step == 450:
            two = HealthWatch(facts(run))
            two.load(json.loads(json.dumps(one.to_json())))
        elif step > 450:
            two.take_step(step, values, wall)
    assert one.finish() == two.finish()
    for title in ("expected loss", "trend"):
        assert one.words().get(title) == two.words().get(title)


def test_a_trouble_that_a_stopped_watcher_told_of_is_cleared_by_the_next_and_not_told_again():
    first = HealthWatch(HealthFacts(1))
    told = first.take_step(1, {"data/token_psi": 0.5}, 10.0)
    assert [(alert.rule, alert.state) for alert in told] == [("token-drift", "fired")]
    second = HealthWatch(HealthFacts(1))
    second.load(json.loads(json.dumps(first.to_json())))
    assert second.open == told
    assert second.take_step(2, {"data/token_psi": 0.6}, 20.0) == ()
    (over,) = second.take_step(3, {"data/token_psi": 0.01}, 30.0)
    assert (over.id, over.state) == (told[0].id, "cleared")


def test_the_summary_is_plain_data_with_the_time_of_the_end():
    run = SimulatedRun(5, num_steps=1_000)
    watch = HealthWatch(facts(run))
    watched(run, watch, upto=0.5)
    summary = json.loads(json.dumps(watch.summary(), allow_nan=False))
    finish = summary["finish"]
    assert finish["seconds_low"] < finish["seconds"] < finish["seconds_high"]
    assert finish["wall"] == pytest.approx(run.num_steps * LOG_S, rel=0.15)
    assert summary["tokens_per_parameter"] == pytest.approx(1.31, rel=0.01)
    assert "compute-optimal" in summary["words"]["tokens"]


def test_a_program_without_a_config_of_ours_is_still_watched():
    watch = HealthWatch(HealthFacts.from_config({"optimizer": "adam", "training": [1, 2]}))
    for step in range(1, 300):
        assert watch.take_step(step, {"train/loss": 10.0 / step, "odd": 1.0}, float(step)) == ()
    assert watch.finish() is None
