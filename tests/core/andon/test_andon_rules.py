from __future__ import annotations

import itertools
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albor_core.andon.explain import andon_problems, andon_sentences, explain
from albor_core.andon.rules.engine import STEADY, RuleEngine
from albor_core.andon.rules.grammar import parse_condition
from albor_core.andon.rules.replay import replay
from albor_core.andon.rules.sources import WARMUP_FREE_STEPS, rules_from
from albor_core.run.errors import ConfigError

SPEC = {
    "alerts": [
        {"condition": "loss > 10", "action": "stop", "message": "Loss exploded"},
        {"condition": "gradient_norm > 100", "action": "stop", "message": "Gradient explosion"},
    ]
}


def fired(condition, losses, *, warmup_steps=50, start=0):
    rules = rules_from(
        {"alerts": [{"condition": condition, "action": "stop"}]}, warmup_steps=warmup_steps
    )
    history = [(start + i, {"train/loss": loss}) for i, loss in enumerate(losses)]
    return [alert.step for alert in replay(rules, history) if alert.state == "fired"]


def test_a_run_that_starts_above_the_threshold_is_not_stopped():
    assert fired("loss > 10", [10.4, 10.3, 10.1, 9.9, 9.0]) == []


def test_a_run_whose_batches_differ_about_the_threshold_is_not_stopped():
    falling = [10.4 - 0.02 * i + 0.1 * (-1) ** i for i in range(60)]
    assert fired("loss > 10", falling, warmup_steps=500) == []
    first = [10.42, 9.02, 10.21, 9.80, 9.66]  # 62.4M parameters, 20 steps of warm-up, on a CPU
    assert fired("loss > 10", first, warmup_steps=20) == []
    assert fired("loss > 10", [10.4, *[9.9] * STEADY, 11], warmup_steps=500) == [STEADY + 1]
    assert fired("loss > 10", [10.4, *[9.9] * (STEADY - 1), 11], warmup_steps=500) == []


def test_a_run_without_warm_up_that_starts_above_the_threshold_is_not_stopped():
    assert fired("loss > 10", [10.4] * WARMUP_FREE_STEPS, warmup_steps=0) == []
    late = fired("loss > 10", [10.4] * (WARMUP_FREE_STEPS + 1), warmup_steps=0)
    assert late == [WARMUP_FREE_STEPS]


def test_a_loss_that_never_got_good_fires_when_warm_up_ends():
    assert fired("loss > 10", [10.4] * 60) == [50]


def test_the_rule_fires_once_per_crossing():
    assert fired("loss > 10", [9, 11, 12, 13, 9, 11, 9], start=50) == [51, 55]


def test_nan_neither_fires_nor_arms_and_infinity_does_fire():
    good = [11, *[9] * (STEADY - 1)]
    assert fired("loss > 10", [*good, math.nan, 11, 12]) == []
    assert fired("loss > 10", [*good, 9, math.nan, math.inf]) == [STEADY + 2]
    assert fired("loss > 10", [math.nan, 9, math.inf]) == [2]
    assert fired("loss != 3", [3, math.nan], start=50) == []
    assert fired("loss > 10", [9, 11, math.nan, 11], start=50) == [51]


def test_a_metric_that_is_not_measured_at_this_step_changes_nothing():
    rules = rules_from({"alerts": [{"condition": "val_loss > 5"}]}, warmup_steps=10)
    engine = RuleEngine(rules)
    assert engine.take_step(3, {"train/loss": 99.0}, 3.0) == ()
    assert engine.to_json()["watches"] == []


def test_the_saved_state_keeps_a_resumed_run_from_repeating_its_alert():
    rules = rules_from(SPEC, warmup_steps=50)
    engine = RuleEngine(rules)
    for step, loss in enumerate([10.4, *[9.0] * STEADY]):
        engine.take_step(step, {"train/loss": loss}, step)
        engine = resumed(engine, rules)
    engine = resumed(engine, rules, attempt=3)
    alerts = engine.take_step(STEADY + 1, {"train/loss": 11.0}, 0.0)
    assert [alert.id for alert in alerts] == ["loss-gt-10@3.11"]
    again = resumed(engine, rules)
    assert again.to_json() == engine.to_json()
    assert again.take_step(STEADY + 1, {"train/loss": 11.0}, 0.0) == ()


def resumed(engine, rules, attempt=1):
    found = RuleEngine(rules, attempt=attempt)
    found.load(json.loads(json.dumps(engine.to_json(), allow_nan=False)))
    return found


def test_the_state_of_an_old_checkpoint_is_understood():
    rules = rules_from(SPEC, warmup_steps=50)
    engine = RuleEngine(rules)
    engine.load({"armed": ["loss-gt-10"], "firing": ["loss-gt-10"], "steady": {}})
    assert engine.take_step(3, {"loss": 11.0}, 0.0) == ()
    assert engine.take_step(4, {"loss": 9.0}, 0.0) == ()  # what it began with has no id to clear
    assert [alert.id for alert in engine.take_step(5, {"loss": 11.0}, 0.0)] == ["loss-gt-10@1.5"]
    engine.load(None)
    assert engine.take_step(6, {"loss": 11.0}, 0.0) == ()


def test_the_alert_tells_the_whole_story_and_is_json():
    rules = rules_from(SPEC, warmup_steps=0)
    (alert,) = RuleEngine(rules).take_step(100, {"optim/grad_norm": math.inf}, 0.0)
    document = json.loads(json.dumps(alert.to_json(), allow_nan=False))
    assert document["value"] == "inf"
    assert (alert.severity, alert.action, alert.message) == ("error", "stop", "Gradient explosion")


@pytest.mark.parametrize(
    ("text", "metric", "op", "threshold"),
    [
        ("loss > 10", "train/loss", ">", 10.0),
        (" mfu<0.3 ", "perf/mfu", "<", 0.3),
        ("tokens_per_second <= 1e3", "perf/tokens_per_s", "<=", 1000.0),
        ("gpu0/temperature_c >= 85", "gpu0/temperature_c", ">=", 85.0),
        ("val_ppl!=-1", "val/ppl", "!=", -1.0),
        ("tokens > 1_000", "train/tokens", ">", 1000.0),
    ],
)
def test_conditions_as_people_write_them(text, metric, op, threshold):
    found = parse_condition(text)
    assert (found.metric, found.op, found.threshold) == (metric, op, threshold)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "loss",
        "loss > ",
        "loss > ten",
        "loss => 3",
        "los > 3",
        "loss > nan",
        "1 > loss",
    ],
)
def test_a_bad_condition_is_named(text):
    with pytest.raises(ConfigError) as caught:
        parse_condition(text)
    assert repr(text) in caught.value.message


def test_every_bad_rule_is_reported_at_once():
    bad = {"alerts": [{"condition": "los > 1"}, {"condition": "loss > 1", "action": "explode"}]}
    with pytest.raises(ConfigError) as caught:
        rules_from(bad, warmup_steps=0)
    fields = [problem.field for problem in caught.value.problems]
    assert fields == ["monitoring.alerts.0.condition", "monitoring.alerts.1.action"]


def test_rule_ids_are_distinct_and_need_no_quoting():
    entries = [{"condition": c} for c in ("loss > 10", "loss>10.0", "learning_rate < 1e-05")]
    ids = [rule.id for rule in rules_from({"alerts": entries}, warmup_steps=0)]
    assert ids == ["loss-gt-10", "loss-gt-10-2", "learning_rate-lt-1e-05"]


def test_the_plan_says_when_a_rule_arms():
    rules = rules_from(SPEC, warmup_steps=500)
    assert explain(rules)[0] == (
        "loss > 10 -> stop; arms once loss begins or stays <= 10 (10 values), "
        "or at step 500 (end of warm-up)"
    )
    assert "at step 100 (no warm-up)" in explain(rules_from(SPEC, warmup_steps=0))[1]
    assert "at step 100 (end of warm-up)" in explain(rules_from(SPEC, warmup_steps=100))[1]


numbers = st.floats(allow_nan=True, allow_infinity=True)


@given(
    st.lists(st.tuples(numbers, st.integers(1, 12)), max_size=12),
    st.floats(-100, 100),
    st.sampled_from([">", ">=", "<", "<="]),
)
def test_alerts_equal_crossings_from_good_to_bad_once_armed(repeated, threshold, op):
    """Oracle: drop NaN and, where the first value is bad, all before STEADY good ones in a row;
    then an alert is each bad value whose predecessor was good.
    """
    losses = [value for value, times in repeated for _ in range(times)]
    steps = fired(f"loss {op} {threshold!r}", losses, warmup_steps=10_000)
    condition = parse_condition(f"loss {op} {threshold!r}")
    seen = [(i, condition.is_bad(v)) for i, v in enumerate(losses) if not math.isnan(v)]
    if seen and seen[0][1]:
        quiet = [n for n in range(len(seen)) if not any(bad for _, bad in seen[n : n + STEADY])]
        seen = seen[quiet[0] :] if quiet else []
    expected = [i for (_, before), (i, bad) in itertools.pairwise(seen) if bad > before]
    assert steps == expected


def test_each_broken_rule_raises_an_alert_with_its_own_action():
    rules = rules_from(
        {
            "alerts": [
                {"condition": "loss > 1", "action": "warn"},
                {"condition": "loss > 2", "action": "stop"},
                {"condition": "loss > 3", "action": "pause"},
            ]
        },
        warmup_steps=0,
    )
    alerts = RuleEngine(rules).take_step(WARMUP_FREE_STEPS, {"loss": 9.0}, 0.0)
    assert len(alerts) == 3
    assert {alert.action for alert in alerts} == {"notify", "stop", "pause"}


def test_the_plan_warns_that_a_fresh_model_is_on_the_bad_side():
    sentences = andon_sentences(
        {**SPEC, "budgets": {"tokens": 10}}, warmup_steps=5, vocab_size=32768
    )
    assert any("ln(32,768) = 10.40" in sentence for sentence in sentences)
    assert any(sentence.startswith("10 tokens -> stop") for sentence in sentences)
    assert not any(
        "fresh model" in s for s in andon_sentences(SPEC, warmup_steps=5, vocab_size=512)
    )


def test_the_plan_warns_of_a_rule_that_first_gradients_would_pull():
    def told(**start):
        return [s for s in andon_sentences(SPEC, warmup_steps=5, **start) if "leave them room" in s]

    (sentence,) = told(first_gradients=600.0)
    assert sentence == (
        "a healthy run's first gradients may reach 600, where gradient_norm > 100 holds: "
        "leave them room, or it may stop one"
    )
    assert told() == told(first_gradients=50.0) == []


def test_problems_of_rules_name_the_file():
    (problem,) = andon_problems({"alerts": [{"condition": "los > 1"}]}, file="x.yaml")
    assert str(problem).startswith("x.yaml: monitoring.alerts.0.condition: ")
    assert andon_problems(SPEC) == ()
