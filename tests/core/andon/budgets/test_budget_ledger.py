from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from albor_core.andon.budgets.energy import EnergyMeter
from albor_core.andon.budgets.ledger import BudgetLedger, used_before
from albor_core.andon.budgets.limits import BudgetLimits, check_budgets, use
from albor_core.andon.budgets.projection import UsePoint, project
from albor_core.andon.explain import explain

RECORDED = Path(__file__).with_name("h100_power.json")


@dataclass(frozen=True)
class Card:
    index: int
    power_w: float | None
    energy_j: float | None = None


@dataclass(frozen=True)
class Sample:
    wall: float
    gpus: tuple[Card, ...]


# -- limits ------------------------------------------------------------------------------------


def test_every_amount_warns_at_its_soft_share_and_acts_once_at_its_limit():
    limits = BudgetLimits(steps=100, gpu_hours=10, soft=0.5, action="pause")
    already, said = set(), []
    for done in range(0, 120, 10):
        used = use(limits, steps=done, gpu_hours=done / 20)
        alerts = check_budgets(limits, used, already=already, step=done)
        already |= {alert.rule for alert in alerts}
        said += [(done, alert.rule, alert.action) for alert in alerts]
    assert said == [
        (50, "budget-steps-50", "notify"),
        (100, "budget-steps", "pause"),
        (100, "budget-gpu_hours-50", "notify"),
    ]


def test_money_is_gpu_hours_and_energy_at_their_rates():
    both = BudgetLimits(rate_per_gpu_hour=2.0, rate_per_kwh=0.3, currency="EUR", money=100)
    assert use(both, gpu_hours=10, energy_kwh=20).money == pytest.approx(26.0)
    assert use(BudgetLimits(rate_per_kwh=0.3), gpu_hours=10).money is None
    (alert,) = check_budgets(both, use(both, gpu_hours=46), step=5)
    assert alert.message == "92% of the budget of 100 EUR is used"


def test_a_plan_says_every_budget():
    limits = BudgetLimits(tokens=10_000_000, gpu_hours=50, energy_kwh=3.5, soft=0.8)
    assert explain((), budgets=limits) == (
        "10,000,000 tokens -> stop; warns at 80%",
        "50 GPU-hours -> stop; warns at 80%",
        "3.5 kWh -> stop; warns at 80%",
    )


# -- projection --------------------------------------------------------------------------------


def recorded(seed, *, steps=2_000, gpus=8, start_s=120.0):
    """(wall, gpu_hours, tokens, energy, share) of a run with a start-up, pauses, a schedule of
    sequence lengths that doubles the cost of a step for the last three fifths, and noise."""
    rng, wall, tokens, energy, rows = random.Random(seed), start_s, 0, 0.0, []
    for step in range(1, steps + 1):
        long = step > 0.4 * steps
        seconds = rng.uniform(0.9, 1.1) * (2.0 if long else 1.0)
        seconds += rng.uniform(30, 60) if step % 200 == 0 else 0.0
        wall += seconds
        tokens += 65_536
        energy += gpus * rng.uniform(550, 620) * seconds / 3.6e6
        if step % 10 == 0:
            rows.append((wall, gpus * wall / 3600, tokens, energy, step / steps))
    return rows


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("column", "within"), [(0, 0.05), (1, 0.05), (2, 1e-9), (3, 0.05)])
def test_at_half_way_the_end_is_known_within_five_percent(seed, column, within):
    rows = recorded(seed, steps=2_000)
    points = [UsePoint(row[0], row[column], row[4]) for row in rows]
    upto = [point for point in points if point.share <= 0.6]  # half of the wall time
    found = project(None, upto)
    assert found.at_completion == pytest.approx(points[-1].used, rel=within)


def test_a_steady_run_is_projected_from_half_of_its_steps():
    points = [UsePoint(60.0 + t, 100.0 + 3.0 * t, t / 1_000) for t in range(1, 501)]
    found = project(2_000.0, points)
    assert found.at_completion == pytest.approx(3_100.0)
    assert found.exhausted_wall == pytest.approx(60.0 + 1_900 / 3)


def test_a_budget_that_holds_until_the_end_never_runs_out():
    points = [UsePoint(float(t), 2.0 * t, t / 1_000) for t in range(1, 501)]
    assert project(2_001.0, points).exhausted_wall is None
    assert project(None, points).exhausted_wall is None


def test_a_run_without_an_end_still_has_a_date():
    points = [UsePoint(float(t), 2.0 * t) for t in range(1, 501)]
    found = project(2_000.0, points)
    assert found.at_completion is None and found.exhausted_wall == pytest.approx(1_000.0)
    assert project(500.0, points).exhausted_wall == 500.0  # since now at the latest


def test_one_point_or_a_clock_that_stands_says_little_and_breaks_nothing():
    assert project(10.0, [UsePoint(5.0, 1.0, 0.0)]).at_completion is None
    still = project(10.0, [UsePoint(5.0, 1.0, 0.2), UsePoint(5.0, 1.0, 0.2)])
    assert still.at_completion == pytest.approx(5.0) and still.exhausted_wall is None
    assert project(10.0, [UsePoint(5.0, 7.0, 1.0)]).at_completion == 7.0


# -- energy ------------------------------------------------------------------------------------


def trace(seed, *, seconds=3_600, every=1.0):
    """One GPU: its power as steps and pauses make it, and the counter that adds it up."""
    rng, joules, wall, rows = random.Random(seed), 5e7, 0.0, []
    while wall < seconds:
        busy = 0.0 if 900 < wall % 1_000 < 940 else 1.0
        power = 90 + busy * (510 + 60 * math.sin(wall / 7) + rng.gauss(0, 25))
        rows.append((wall, power, joules))
        gap = every * rng.uniform(0.8, 1.2)
        joules += power * gap
        wall += gap
    return rows


def metered(rows, *, counter=True, power=True):
    meter = EnergyMeter()
    for wall, watts, joules in rows:
        card = Card(0, watts if power else None, joules if counter else None)
        meter.take(wall, (card,))
    return meter.kwh


@pytest.mark.parametrize("seed", range(5))
def test_the_counter_and_the_integral_of_power_agree_within_one_percent(seed):
    rows = trace(seed)
    true = (rows[-1][2] - rows[0][2]) / 3.6e6
    assert metered(rows) == pytest.approx(true, rel=1e-9)
    assert metered(rows, power=False) == pytest.approx(true, rel=1e-9)
    assert metered(rows, counter=False) == pytest.approx(true, rel=0.01)


@pytest.mark.parametrize("every", [1, 4])  # four readings a second, and the ring's one
def test_counter_and_integral_agree_on_a_recorded_card(every):
    """93 s of an H100: idle, matrix products with pauses, idle; four readings a second."""
    rows = json.loads(RECORDED.read_text())["rows"][::every]
    assert metered(rows, counter=False) == pytest.approx(metered(rows, power=False), rel=0.01)


def test_missing_readings_of_the_counter_are_bridged_and_made_good():
    rows = trace(1)
    true = (rows[-1][2] - rows[0][2]) / 3.6e6
    gaps = [(w, p, None if 100 < i < 400 else j) for i, (w, p, j) in enumerate(rows)]
    assert metered(gaps) == pytest.approx(true, rel=1e-9)
    meter = EnergyMeter()
    for wall, watts, joules in gaps[:300]:
        meter.take(wall, (Card(0, watts, joules),))
    upto = (rows[299][2] - rows[0][2]) / 3.6e6
    assert meter.kwh == pytest.approx(upto, rel=0.01)  # known meanwhile, too


def test_a_counter_that_was_reset_loses_nothing():
    rows = trace(2)
    true = (rows[-1][2] - rows[0][2]) / 3.6e6
    reset = [(w, p, j if i < 1_500 else j - rows[1_500][2]) for i, (w, p, j) in enumerate(rows)]
    assert metered(reset) == pytest.approx(true, rel=1e-3)


def test_hours_without_samples_count_by_the_counter_alone():
    rows = [(0.0, 600.0, 1e6), (10.0, 600.0, 1e6 + 6_000), (7_210.0, 600.0, 1e6 + 1_000_000)]
    assert metered(rows) == pytest.approx(1_000_000 / 3.6e6)
    assert metered(rows, counter=False) == pytest.approx(6_000 / 3.6e6)


def test_a_gpu_that_tells_neither_has_no_energy():
    assert metered(trace(0), counter=False, power=False) is None


# -- the ledger --------------------------------------------------------------------------------


def ledger_of(limits, hours, *, before=None, power=600.0, gpus=2):
    ledger = BudgetLedger(limits, before=before)
    said = []
    begin = float((before or {}).get("wall_hours") or 0.0)
    for minute in range(int(hours * 60) + 1):
        wall = 1e6 + 60.0 * minute
        cards = tuple(Card(i, power, power * 60 * minute) for i in range(gpus))
        ledger.take_machine([Sample(wall, cards)], range(gpus))
        said += ledger.take(
            wall,
            step=minute,
            tokens=1_000.0 * minute,
            wall_hours=begin + minute / 60,
            num_gpus=gpus,
            share=minute / 600,
        )
    return ledger, said


def test_a_ledger_counts_hours_energy_and_money_of_the_gpus_of_the_run():
    limits = BudgetLimits(
        gpu_hours=12, energy_kwh=10, money=30, rate_per_gpu_hour=2, currency="EUR"
    )
    ledger, said = ledger_of(limits, 5)
    assert ledger.used.gpu_hours == pytest.approx(10.0)
    assert ledger.used.energy_kwh == pytest.approx(2 * 0.6 * 5)
    assert ledger.used.money == pytest.approx(20.0)
    assert said == []
    by_name = {one["amount"]: one for one in json.loads(json.dumps(ledger.summary()))}
    assert by_name["gpu_hours"]["at_completion"] == pytest.approx(20.0)
    assert by_name["gpu_hours"]["exhausted_wall"] == pytest.approx(1e6 + 6 * 3600, rel=1e-6)
    assert by_name["money"]["unit"] == "EUR"
    assert by_name["tokens"]["limit"] is None and by_name["tokens"]["used"] == 300_000


def test_what_earlier_attempts_used_counts():
    limits = BudgetLimits(gpu_hours=12, energy_kwh=7)
    first, _ = ledger_of(limits, 5)
    before = used_before(json.loads(json.dumps(first.summary())))
    second, said = ledger_of(limits, 2, before=before)
    assert second.used.gpu_hours == pytest.approx(14.0)
    assert second.used.energy_kwh == pytest.approx(8.4)
    assert [alert.rule for alert in said] == [
        "budget-energy_kwh-90",
        "budget-gpu_hours-90",
        "budget-energy_kwh",
        "budget-gpu_hours",
    ]


def test_a_new_attempt_shows_what_was_used_before_its_first_step():
    first, _ = ledger_of(BudgetLimits(gpu_hours=12), 2)
    second = BudgetLedger(BudgetLimits(gpu_hours=12), before=used_before(first.summary()))
    assert used_before(second.summary()) == used_before(first.summary())


def test_a_resumed_run_is_told_again_that_a_budget_is_spent_and_not_that_it_was_nearly():
    limits = BudgetLimits(wall_hours=1.0)
    first, _ = ledger_of(limits, 1)
    second = BudgetLedger(limits, before=used_before(first.summary()))
    second.recall(first.warned())
    (alert,) = second.take(2e6, wall_hours=1.0)
    assert alert.rule == "budget-wall_hours"
    assert used_before("odd") == used_before([1, {"amount": "x"}]) == {}


def test_memory_does_not_grow_with_the_run_and_the_end_is_still_known():
    ledger = BudgetLedger(BudgetLimits(tokens=10**9))
    for step in range(1, 20_001):
        ledger.take(float(step), step=step, tokens=50.0 * step, wall_hours=step / 3600,
                    share=step / 40_000)  # fmt: skip
    assert len(ledger._points) <= 128
    assert ledger.project("tokens").at_completion == pytest.approx(2e6, rel=0.01)
