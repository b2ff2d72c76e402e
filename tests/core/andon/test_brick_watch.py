"""Bricks as a fold: what is learned, what trips, what is only noise, and what is traced."""

import random

import pytest

from albor_core.andon.bricks.variation import TRACE_GAP_S, TRACES, may_trace, variation
from albor_core.andon.bricks.watch import GAP_S, SETTLE_INTERVALS, BrickWatch
from albor_core.andon.bricks.window import WINDOW

USUAL = {
    "data": 0.4,
    "h2d": 0.05,
    "forward+loss": 30.0,
    "backward": 60.0,
    "clip+optimizer": 8.0,
    "other": 1.5,
}
BETWEEN = {"log": 2.0, "eval": 900.0, "checkpoint": 40.0}
STEPS = 10


class Course:
    """A run of log intervals of STEPS steps, a tenth of a per cent apart from each other."""

    def __init__(self, *, noise=0.02, learns=True, budgets=None, seed=0):
        self.watch = BrickWatch(1, learns=learns)
        self.budgets, self.noise = budgets or {}, noise
        self.random, self.step, self.wall, self.alerts = random.Random(seed), 0, 0.0, []

    def go(self, intervals, *, slow=None, by=1.0, efficiency=None, rare_every=5, noise=None):
        """So many intervals, `slow` (a brick, or all) taking `by` times as long."""
        for _ in range(intervals):
            self.step += STEPS
            usual = {**USUAL, "log": BETWEEN["log"]}
            if self.step // STEPS % rare_every == 0:
                usual |= BETWEEN
            spread = self.noise if noise is None else noise
            bricks = {
                name: ms
                * self.random.lognormvariate(0, spread)
                * (by if slow in (name, "all") else 1.0)
                for name, ms in usual.items()
            }
            step_ms = sum(bricks[name] for name in USUAL)
            self.wall += STEPS * step_ms / 1000
            self.alerts += self.watch.take_interval(
                self.step,
                bricks,
                steps=STEPS,
                step_ms=step_ms,
                wall=self.wall,
                budgets_ms=self.budgets,
                efficiency=efficiency,
            )
        return self

    @property
    def rules(self):
        return [a.rule for a in self.alerts if getattr(a, "state", "fired") == "fired"]

    @property
    def learned(self):
        return [rule for rule in self.rules if rule.endswith("-learned")]


@pytest.mark.parametrize(
    ("brick", "times"),
    [
        *((brick, 5.0) for brick in ("forward+loss", "backward", "clip+optimizer")),
        ("data", 50.0),
        ("h2d", 300.0),
        ("other", 10.0),
        ("log", 100.0),
    ],
)
def test_the_brick_that_became_slow_is_named_within_one_window_and_no_other(brick, times):
    course = Course().go(SETTLE_INTERVALS + 3 * WINDOW)
    assert course.alerts == []
    course.go(WINDOW, slow=brick, by=times)
    assert course.learned == [f"brick-{brick}-learned"]
    alert = next(alert for alert in course.alerts if alert.rule in course.learned)
    assert (alert.kind, alert.action, alert.metric) == ("brick", "notify", f"brick/{brick}_ms")
    assert alert.value > alert.threshold


@pytest.mark.parametrize("brick", ["eval", "checkpoint"])
def test_what_happens_now_and_then_is_judged_by_its_last_few_times(brick):
    course = Course().go(40).go(10, slow=brick, by=10.0, rare_every=3)
    assert course.rules == [f"brick-{brick}-learned"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_thousands_of_undisturbed_steps_trip_nothing(seed):
    assert Course(noise=0.06, seed=seed).go(400).alerts == []


def test_single_slow_intervals_trip_nothing():
    course = Course().go(30)
    for _ in range(10):
        course.go(1, slow="backward", by=20.0).go(6)
    assert course.rules == []


def test_a_machine_that_is_slower_as_a_whole_is_no_brick_s_fault():
    assert Course().go(30).go(50, slow="all", by=4.0).learned == []


def test_a_small_brick_cries_no_wolf():
    assert Course().go(30).go(20, slow="h2d", by=20.0).rules == []


def test_a_trouble_that_goes_on_is_told_once_and_one_that_returns_is_told_again():
    course = Course().go(30).go(60, slow="backward", by=5.0)
    assert course.learned == ["brick-backward-learned"]
    course.go(30)
    course.wall += GAP_S
    assert course.go(20, slow="backward", by=5.0).learned == ["brick-backward-learned"] * 2


def test_a_run_may_learn_nothing():
    assert Course(learns=False).go(30).go(30, slow="backward", by=5.0).learned == []


def test_a_brick_with_a_budget_of_its_own_is_held_to_that():
    course = Course(budgets={"backward": 400.0, "forward": None}).go(30)
    course.go(10, slow="backward", by=5.0)
    assert course.rules == []
    course.go(1, slow="backward", by=20.0)
    (alert,) = course.alerts
    assert (alert.rule, alert.action, alert.threshold) == ("brick-backward", "pause", 800.0)


def test_the_budget_of_forward_holds_for_forward_and_loss_where_they_are_one():
    course = Course(budgets={"forward": 40.0}).go(SETTLE_INTERVALS)
    (alert,) = course.go(1, slow="forward+loss", by=3.0).alerts
    assert (alert.rule, alert.threshold) == ("brick-forward+loss", 80.0)


def test_a_muted_brick_is_not_held_to_the_budget_of_its_part():
    budgets = {"forward": 40.0, "forward+loss": None}
    assert Course(budgets=budgets).go(20, slow="forward+loss", by=3.0).rules == []


def test_time_that_no_brick_explains_is_told():
    course = Course(learns=False).go(20)
    assert course.rules == []
    (alert,) = course.go(WINDOW, slow="other", by=8.0).alerts
    assert (alert.rule, alert.metric) == ("brick-coverage", "perf/brick_coverage")
    assert alert.value < alert.threshold == 0.95


def test_a_brick_that_varies_is_worth_a_look_once_a_run_has_trained_a_while():
    course = Course(learns=False).go(40, noise=0.5)
    assert course.rules == []
    course.go(60, noise=0.5)
    assert course.rules and all(rule.endswith("-varies") for rule in course.rules)
    assert {alert.severity for alert in course.alerts} == {"info"}


def test_variation_is_that_of_a_normal_distribution_whatever_a_single_value_says():
    draw = random.Random(1)
    values = [draw.gauss(100.0, 20.0) for _ in range(10_000)]
    assert variation(values) == pytest.approx(0.2, rel=0.05)
    assert variation([10.0] * 7 + [500.0]) == variation([]) == variation([0.0] * 8) == 0.0


def test_a_device_that_does_little_of_what_it_could_is_worth_a_look():
    assert Course().go(100, efficiency=0.3).rules == []
    (alert,) = Course().go(100, efficiency=0.1).alerts
    assert (alert.rule, alert.severity) == ("brick-efficiency", "info")


def test_an_interval_that_was_disturbed_says_nothing():
    watch = BrickWatch(1)
    for step in range(1, 100):
        slow = {**USUAL, "backward": 60.0 if step < 40 else 900.0}
        assert not watch.take_interval(
            step,
            slow,
            steps=1,
            step_ms=sum(slow.values()),
            wall=float(step),
            budgets_ms={"backward": 100.0},
            disturbed=step >= 40,
        )


def test_steps_of_a_millisecond_are_added_up_before_they_are_judged():
    watch, tiny = BrickWatch(1), {"forward": 1.0, "backward": 1.5, "other": 0.1}
    for step in range(1, 200):
        watch.take_interval(step, tiny, steps=1, step_ms=2.6, wall=step / 385, budgets_ms={})
    assert not watch.learned.budgets_ms
    for step in range(200, 2000):
        watch.take_interval(step, tiny, steps=1, step_ms=2.6, wall=step / 385, budgets_ms={})
    assert watch.learned.budgets_ms == pytest.approx({k: 1.25 * v for k, v in tiny.items()})


def test_a_run_keeps_few_traces_an_hour_apart():
    assert may_trace([], 0.0)
    assert not may_trace([1000.0], 1000.0 + TRACE_GAP_S - 1)
    assert may_trace([1000.0], 1000.0 + TRACE_GAP_S)
    assert not may_trace([0.0] * TRACES, 1e9)


def test_on_a_crowded_machine_only_budgets_that_a_person_set_hold():
    watch = BrickWatch(1)
    slow = {**USUAL, "other": 90.0}
    found = [
        watch.take_interval(
            step,
            slow,
            steps=STEPS,
            step_ms=sum(slow.values()),
            wall=float(step),
            budgets_ms={"data": 0.1} if step == 60 else {},
            crowded=True,
        )
        for step in range(1, 61)
    ]
    assert not any(found[:-1]) and not watch.learned.budgets_ms
    assert [alert.rule for alert in found[-1]] == ["brick-data"]
