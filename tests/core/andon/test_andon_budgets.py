from __future__ import annotations

import math

import pytest

from albor_core.andon.bricks.budgets import check_bricks, read_overrules
from albor_core.andon.budgets.limits import BudgetLimits, Use, check_budgets
from albor_core.run.errors import UsageError


def spend(budgets, amounts):
    already, log = frozenset(), []
    for tokens in amounts:
        alerts = check_budgets(budgets, Use(tokens=tokens), already=already)
        already |= {alert.rule for alert in alerts}
        log += [(tokens, alert.action, alert.severity) for alert in alerts]
    return log


def test_a_budget_warns_at_ninety_percent_and_acts_once_at_the_limit():
    amounts = range(0, 140, 10)
    assert spend(BudgetLimits(tokens=100), amounts) == [
        (90, "notify", "warning"),
        (100, "stop", "error"),
    ]


def test_a_jump_over_the_limit_says_it_once():
    assert spend(BudgetLimits(tokens=100, action="pause"), [10, 200, 300]) == [
        (200, "pause", "error")
    ]


def test_no_budget_or_an_unknown_amount_fires_nothing():
    assert check_budgets(BudgetLimits(), Use(tokens=1e12, wall_hours=1e6)) == ()
    limits = BudgetLimits(tokens=1, wall_hours=1)
    assert check_budgets(limits, Use(tokens=None, wall_hours=math.nan)) == ()


def test_hours_and_tokens_are_separate_budgets():
    limits = BudgetLimits.from_config(
        {"budgets": {"tokens": 10, "wall_hours": 2.0, "action": None}}
    )
    alerts = check_budgets(limits, Use(tokens=10, wall_hours=1.9), step=7, attempt=2)
    assert [a.id for a in alerts] == ["budget-tokens@2.7", "budget-wall_hours-90@2.7"]


def test_a_brick_over_twice_its_budget_pauses_and_is_named():
    budgets = {"data_ms": 5.0, "forward_ms": 40.0, "backward_ms": None}
    measured = {"data": 11.0, "brick/forward_ms": 80.0, "backward_ms": 1e9}
    (alert,) = check_bricks(budgets, measured, step=3)
    assert (alert.action, alert.metric, alert.threshold) == ("pause", "brick/data_ms", 10.0)
    assert alert.message.startswith("data takes 11 ms")


def test_the_worst_brick_comes_first_and_acknowledged_ones_stay_silent():
    budgets = {"data_ms": 1.0, "optimizer_ms": 1.0, "other_ms": 1.0}
    measured = {"data_ms": 3.0, "optimizer_ms": 9.0, "other_ms": math.nan}
    names = [alert.rule for alert in check_bricks(budgets, measured)]
    assert names == ["brick-optimizer", "brick-data"]
    assert check_bricks(budgets, measured, already=frozenset(names)) == ()


def test_budgets_are_overruled_by_brick_in_ms_or_by_a_word():
    said = read_overrules("forward=180,brick/data_ms=mute, other=learn")
    assert said == {"forward": 180.0, "data": "mute", "other": "learn"}
    assert read_overrules("") == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("wheels=3", "'wheels' is not a brick"),
        ("forward=fast", "'fast' is not a step-time budget"),
        ("forward=0", "'0' is not a step-time budget"),
        ("forward=nan", "'nan' is not a step-time budget"),
        ("forward", "'' is not a step-time budget"),
    ],
)
def test_what_is_not_a_brick_or_a_budget_is_refused_by_name(text, why):
    with pytest.raises(UsageError, match=why) as refused:
        read_overrules(text)
    assert refused.value.hint
