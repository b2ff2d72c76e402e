"""Every kind of rule fires, clears and acts, by a clock that the test holds."""

from __future__ import annotations

import json
import math

import pytest

from albor_core.andon.actions import ACTIONS
from albor_core.andon.rules.engine import RuleEngine
from albor_core.andon.rules.grammar import parse_condition
from albor_core.andon.rules.sources import rules_from


def engine_of(condition, **fields):
    entry = {"condition": condition, **fields}
    return RuleEngine(rules_from({"alerts": [entry]}, warmup_steps=0))


def resumed(engine):
    found = RuleEngine(engine.rules, attempt=engine.attempt)
    found.load(json.loads(json.dumps(engine.to_json(), allow_nan=False)))
    return found


def steps(condition, values, *, first=1, every=1, key="train/loss", wall_s=1.0, **fields):
    """(state, step) of what is said of a series; the engine is saved and loaded now and then."""
    engine, said = engine_of(condition, **fields), []
    for i, value in enumerate(values):
        step = first + i * every
        alerts = engine.take_step(step, {key: value}, step * wall_s)
        said += [(alert.state, step) for alert in alerts]
        if i < 10 or not i % 29:
            engine = resumed(engine)
    return said


def clock(condition, figures, *, every_s=10.0, **fields):
    engine, said = engine_of(condition, **fields), []
    for i, values in enumerate(figures):
        wall = 1000.0 + i * every_s
        said += [(a.state, i, a.metric) for a in engine.take_clock(wall, values)]
        engine = resumed(engine)
    return said


def test_a_loss_above_its_threshold_fires_and_clears():
    assert steps("loss > 10", [9, 9, 11, 12, 9]) == [("fired", 3), ("cleared", 5)]


def test_a_count_is_of_values_in_a_row():
    norms = [1, 200, 200, 1, 200, 200, 200, 200, 1]
    found = steps("gradient_norm > 100 for 3", norms, key="optim/grad_norm")
    assert found == [("fired", 7), ("cleared", 9)]


def test_a_time_is_how_long_it_was_bad_without_a_break():
    found = steps("loss > 10 for 60s", [9, 11, 9, 11, 11, 11, 11, 9], wall_s=25.0)
    assert found == [("fired", 7), ("cleared", 8)]


def test_nan_fires_at_the_first_step_and_clears():
    assert steps("loss is nan", [math.nan, math.nan, 3.0]) == [("fired", 1), ("cleared", 3)]
    assert steps("loss is inf", [3.0, -math.inf, 3.0]) == [("fired", 2), ("cleared", 3)]
    assert steps("loss is not finite for 2", [math.nan, math.inf, 1.0]) == [
        ("fired", 2),
        ("cleared", 3),
    ]


def test_a_rise_is_of_values_in_a_row():
    losses = [3.0, 3.1, 3.2, 3.0, 3.1, 3.2, 3.3, 3.3]
    found = steps("val_loss rises 3", losses, every=500, key="val/loss")
    assert found == [("fired", 3001), ("cleared", 3501)]
    falling = steps("mfu falls 2", [0.5, 0.4, 0.3, 0.3], key="perf/mfu")
    assert falling == [("fired", 3), ("cleared", 4)]


def test_a_figure_is_held_against_the_median_of_its_window():
    speeds = [1000.0] * 250 + [600.0] * 20 + [1000.0] * 5
    found = steps("tokens_per_second < 0.7 * median(200)", speeds, key="perf/tokens_per_s")
    assert found == [("fired", 251), ("cleared", 271)]


def test_a_window_that_is_not_full_says_nothing():
    speeds = [1000.0] * 100 + [600.0] * 20
    assert steps("tokens_per_second < 0.7 * median(200)", speeds, key="perf/tokens_per_s") == []


def test_a_window_counts_steps_whatever_lies_between_two_values():
    losses = [3.0] * 25 + [6.0] * 3
    assert steps("loss > 1.5 * mean(200)", losses, every=10) == [("fired", 251)]
    assert steps("loss > 1.5 * min(loss, 200)", losses, every=10) == [("fired", 251)]


def test_a_plateau_is_an_improvement_that_ended():
    losses = (
        [10.0 - 0.01 * i for i in range(500)] + [5.0] * 200 + [5.0 - 0.02 * i for i in range(90)]
    )
    found = steps("plateau(loss, 100) < 0.5%", losses)
    assert [state for state, _ in found] == ["fired", "cleared"]
    assert 550 < found[0][1] < 600 and 700 < found[1][1] < 720


def test_more_of_a_share_is_better_where_it_is():
    shares = [0.3] * 10 + [0.3 + 0.001 * i for i in range(300)]
    found = steps("plateau(mfu, 50) < 0.5%", shares, key="perf/mfu", clear_at=0.006)
    assert found == []  # it begins on a plateau: asleep until it was off it, and never back


def test_an_average_that_rises_by_a_share_within_a_window():
    losses = [3.0] * 700 + [3.0 + 0.01 * i for i in range(100)] + [2.0] * 700
    found = steps("ema(loss, 100) rises 5% over 500", losses)
    assert [state for state, _ in found] == ["fired", "cleared"]
    assert 700 < found[0][1] < 800 < found[1][1]
    assert steps("loss rises 0.5 over 2", [1.0, 1.2, 1.4, 1.8, 1.8, 1.8]) == [
        ("fired", 4),
        ("cleared", 5),
    ]


def test_silence_fires_and_the_next_step_clears_it():
    quiet = [{"seconds_since_step": s} for s in (0, 60, 119, 120, 180, 1)]
    assert [(s, i) for s, i, _ in clock("no step for 120s", quiet)] == [
        ("fired", 3),
        ("cleared", 5),
    ]


def test_any_gpu_is_each_of_them_by_its_name():
    hot = [{"gpu0.temperature": 60.0, "gpu3.temperature": t} for t in [60, *[90] * 8, 60]]
    assert clock("gpu.temperature > 85 for 60s", hot) == [
        ("fired", 7, "gpu3.temperature"),
        ("cleared", 9, "gpu3.temperature"),
    ]
    assert clock("gpu0.temperature > 85", hot) == []
    both = [{"gpu0.temperature": 90.0, "gpu1.temperature": 91.0}]
    assert [metric for *_, metric in clock("gpu.temperature > 85", both)] == [
        "gpu0.temperature",
        "gpu1.temperature",
    ]


def test_an_idle_gpu_is_told_after_its_time():
    idle = [{"gpu0.utilization": u} for u in [97.0, *[41.0] * 70, 98.0]]
    found = clock("gpu.utilization < 70% for 10m", idle)
    assert [(state, i) for state, i, _ in found] == [("fired", 61), ("cleared", 71)]


def test_a_full_disk_and_memory():
    free = [{"disk_free": 3e10}, {"disk_free": 1.9e10}, {"disk_free": 2.1e10}]
    assert [(s, i) for s, i, _ in clock("disk_free < 20GB", free)] == [("fired", 1), ("cleared", 2)]
    assert clock("memory_free < 4GiB", [{"memory_free": 4 * 2**30 - 1}])[0][0] == "fired"
    full = [{"gpu1.memory": 9e9, "gpu1.memory_percent": 95.0}]
    assert clock("gpu.memory > 90%", full) == [("fired", 0, "gpu1.memory_percent")]


def test_any_logged_key_can_be_watched():
    assert steps("Loss/train > 2", [1, 3], key="Loss/train") == [("fired", 2)]
    assert steps('"recall @ 5" < 0.5', [0.6, 0.4], key="recall @ 5") == [("fired", 2)]
    assert steps("step_ms > 2s", [900.0, 2500.0], key="perf/step_ms") == [("fired", 2)]


def test_clear_at_keeps_an_alert_on_until_the_figure_is_there():
    losses = [7, 11, 9, 11, 9, 8, 11]
    found = steps("loss > 10", losses, clear_at=8.0)
    assert found == [("fired", 2), ("cleared", 6), ("fired", 7)]


def test_a_cooldown_keeps_a_rule_silent_after_an_alert():
    losses = [9, 11, 9, 11, 9, 11]
    assert steps("loss > 10", losses, cooldown_s=3.5) == [
        ("fired", 2),
        ("cleared", 3),
        ("fired", 6),
    ]


def test_a_cleared_alert_has_the_id_of_the_one_it_ends():
    engine = engine_of("loss > 10")
    engine.take_step(1, {"loss": 9.0}, 1.0)
    (fired,) = engine.take_step(2, {"loss": 11.0}, 2.0)
    (cleared,) = resumed(engine).take_step(3, {"loss": 9.0}, 3.0)
    assert (fired.id, fired.event) == (cleared.id, "andon.alert")
    assert (cleared.event, cleared.value) == ("andon.clear", 9.0)


def test_steps_that_a_rollback_lost_are_out_of_the_window():
    engine = engine_of("loss > 2 * max(loss, 3)")
    for step, loss in enumerate([1.0, 1.0, 1.0, 50.0], 1):
        engine.take_step(step, {"loss": loss}, step)
    engine.take_step(4, {"loss": 1.0}, 9.0)
    assert [v for _, v in engine._windows[":max(loss, 3)"].points] == [1.0] * 3


@pytest.mark.parametrize("action", [action for action in ACTIONS if action != "command"])
def test_the_severity_is_the_actions_unless_the_rule_says_another(action):
    for said, wanted in ((None, ACTIONS[action].severity), ("critical", "critical")):
        engine = engine_of("loss is nan", action=action, severity=said)
        (alert,) = engine.take_step(1, {"loss": math.nan}, 0.0)
        assert (alert.severity, alert.action) == (wanted, action)


def test_warn_is_read_as_notify():
    (alert,) = engine_of("loss is nan", action="warn").take_step(1, {"loss": math.nan}, 0.0)
    assert alert.action == "notify"


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("loss >> 10", 7),
        ("loss > ten", 8),
        ("loss => 3", 6),
        ("los > 3", 1),
        ("loss > 10 for", 14),
        ("loss > 10 for 0", 15),
        ("loss > 10 for 3 and", 17),
        ("disk_free < 5%", 13),
        ("gpu.temp > 3", 1),
        ("foo(loss, 3) > 1", 1),
        ("median(200) > 3", 8),
        ("mean(loss, 60s) > 3", 12),
        ("no step for 120", 13),
        ("seconds_since_step > 5GB", 22),
        ("loss rises 2.5", 12),
        ("loss > 10xx", 10),
    ],
)
def test_an_error_names_its_column_and_helps(text, column):
    with pytest.raises(Exception, match=rf"column {column}:") as caught:
        parse_condition(text)
    assert caught.value.hint
