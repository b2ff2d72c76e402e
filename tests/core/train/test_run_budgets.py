from __future__ import annotations

import json

import pytest

from albor_core.telemetry.sample import GpuSample
from albor_core.train.observe import run_budgets
from albor_core.train.observe.run_budgets import RunBudgets


@pytest.fixture
def clock(monkeypatch):
    """A wall clock that stands until it is moved, and a clock of the screen that always runs."""
    walls, ticks = [1e6], iter(range(0, 10**9, 100))
    monkeypatch.setattr(run_budgets.time, "time", lambda: walls[0])
    monkeypatch.setattr(run_budgets.time, "monotonic", lambda: float(next(ticks)))
    return walls


def hours(budgets, clock, begin, count, *, gpus=4):
    """Alerts of `count` hours of a run on two of four GPUs at 600 W each."""
    said = []
    for minute in range(60 * count + 1):
        cards = tuple(GpuSample(i, power_w=600.0) for i in range(gpus))
        said += budgets.check(minute, tokens=10.0 * minute, wall_hours=begin + minute / 60,
                              share=minute / 600, gpus=cards)  # fmt: skip
        clock[0] += 60.0
    return [alert.rule for alert in said]


def used(budgets):
    return {one["amount"]: one["used"] for one in budgets.fields()}


def test_gpu_hours_and_energy_are_of_the_gpus_the_run_was_given(clock, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    budgets = RunBudgets({"budgets": {"gpu_hours": 5.0}}, attempt=1)
    budgets.begin(None, num_gpus=2)
    assert hours(budgets, clock, 0.0, 2) == []
    assert used(budgets)["gpu_hours"] == pytest.approx(4.0)
    assert used(budgets)["energy_kwh"] == pytest.approx(2.4)


def test_the_next_attempt_goes_on_from_what_the_state_file_says(clock):
    limits = {"budgets": {"gpu_hours": 5.0, "action": "pause"}}
    first = RunBudgets(limits, attempt=1)
    first.begin([], num_gpus=2)
    hours(first, clock, 0.0, 2)
    second = RunBudgets(limits, attempt=2)
    second.begin(json.loads(json.dumps(first.fields())), num_gpus=2)
    assert hours(second, clock, 2.0, 1) == ["budget-gpu_hours-90", "budget-gpu_hours"]
    assert used(second)["gpu_hours"] == pytest.approx(6.0)
    assert used(second)["energy_kwh"] == pytest.approx(3.6)


def test_a_run_on_the_cpu_has_no_gpu_hours(clock):
    budgets = RunBudgets({"budgets": {"money": 5.0, "rate_per_gpu_hour": 1.0}}, attempt=1)
    budgets.begin(None, num_gpus=0)
    assert hours(budgets, clock, 0.0, 1) == []
    assert used(budgets)["money"] is None and "gpu_hours" not in used(budgets)
