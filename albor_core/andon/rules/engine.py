"""Evaluates rules over the values of a run, as a fold without a clock: alerts that fire and end.

The start of a run is special: a new model with 32,768 tokens begins at ln(32768) = 10.4, so a naive
`loss > 10` would stop every run at its first step, and a rule that becomes active at the first 9.99
would stop it at the next 10.01, since first steps vary widely. A comparison of logged values is
therefore inactive until it is *armed*: by a first value on its good side, by STEADY of them in a
row in a run that begins on the other, or by the end of warm-up (step WARMUP_FREE_STEPS in a run
that has none), whichever comes first. All other rules are active at once. An armed rule fires once
per crossing; the alert is cleared by a value on the good side (beyond `clear_at`, if the rule has
one), and only then can it fire again, `cooldown_s` after the last time at the earliest. NaN is on
neither side of a comparison; an infinite value compares as one.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from albor_core.andon.alert import Alert, make_alert
from albor_core.andon.rules.condition import (
    NAMES,
    OPS,
    Arithmetic,
    Comparison,
    Condition,
    Constant,
    Expression,
    FigureTerm,
    Kind,
    Streak,
    WindowChange,
    Windowed,
)
from albor_core.andon.rules.sources import Rule
from albor_core.andon.rules.windows import Window
from albor_core.run.values.lenient import number_of, number_word

STEADY = 10  # values: more than the luck of a batch


@dataclass
class _Watch:
    """The state of one rule for one of its subjects: the run, or a GPU."""

    is_armed: bool
    steady: int = STEADY - 1
    held: int = 0
    held_since: float | None = None
    firing: str | None = None  # id of the alert that is on; "" where an old checkpoint lacks it
    fired_wall: float | None = None
    before: float | None = None  # of a streak
    streak: int = 0
    history: deque[tuple[float, float]] = field(default_factory=deque)  # of a change

    def to_json(self) -> dict[str, Any]:
        told = {
            "armed": self.is_armed,
            "steady": self.steady,
            "held": self.held,
            "held_since": self.held_since,
            "firing": self.firing,
            "fired_wall": self.fired_wall,
            "before": None if self.before is None else number_word(self.before),
            "streak": self.streak,
        }
        return told | ({"history": [list(one) for one in self.history]} if self.history else {})

    def load(self, saved: Mapping[str, Any]) -> None:
        self.is_armed = self.is_armed or bool(saved["armed"])
        self.steady, self.held = max(0, int(saved["steady"])), max(0, int(saved["held"]))
        self.streak = max(0, int(saved["streak"]))
        self.held_since, self.fired_wall = _real(saved["held_since"]), _real(saved["fired_wall"])
        self.firing = None if saved["firing"] is None else str(saved["firing"])
        self.before = number_of(saved["before"])
        points = saved.get("history") or ()
        self.history = deque((float(at), float(value)) for at, value in points)


def _real(value: Any) -> float | None:
    return None if value is None else float(value)


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {key: real for key, raw in values.items() if (real := number_of(raw)) is not None}


def rule_of(rules: Iterable[Rule], raised: str) -> Rule | None:
    """The rule whose alerts have the name `raised`; a rule on any GPU has one for each, ID.gpu3."""
    name, dot, gpu = raised.rpartition(".")
    names = {raised, name} if dot and gpu.startswith("gpu") else {raised}
    return next((rule for rule in rules if rule.id in names), None)


class RuleEngine:
    """Rules with their state. The state is stored in checkpoints, so that a resumed run neither
    disarms a rule nor repeats an alert."""

    def __init__(self, rules: Sequence[Rule], *, attempt: int = 1) -> None:
        self.rules, self.attempt = tuple(rules), attempt
        self.step: int | None = None
        self._by_steps = [rule for rule in self.rules if rule.condition.reads == "steps"]
        self._by_clock = [rule for rule in self.rules if rule.condition.reads == "machine"]
        self._keys = {
            rule.id: frozenset(figure.key for figure in rule.condition.figures)
            for rule in self.rules
        }
        self._latest: dict[str, float] = {}
        self._windows: dict[str, Window] = {}
        self._windows_of: dict[str, list[Window]] = {}
        self._watches: dict[tuple[str, str], _Watch] = {}
        self._judged: dict[frozenset[str], tuple[tuple[Rule, str], ...]] = {}
        for rule in self._by_steps:
            self._add_windows(rule.condition, "")

    def take_step(self, step: int, values: Mapping[str, float], wall: float) -> tuple[Alert, ...]:
        """Evaluate the rules on logged values for those of a step. Keys are journal keys, or short
        names; rules whose figure is absent are unchanged."""
        known = {NAMES.get(key, key): value for key, value in values.items()}
        known |= {key: value for key, value in values.items() if key not in NAMES}
        numbers = _numbers(known)
        self.step = step
        self._take(numbers, float(step))
        found: list[Alert] = []
        for rule in self._by_steps:
            if not self._keys[rule.id].isdisjoint(numbers):
                found += self._judge(rule, "", float(step), wall)
        return tuple(found)

    def take_clock(self, wall: float, figures: Mapping[str, float]) -> tuple[Alert, ...]:
        """Evaluate the rules on clock and machine for the figures of now (condition.MACHINE_UNITS;
        those of GPUs as `gpu0.temperature`)."""
        numbers = _numbers(figures)
        names = frozenset(numbers)
        if (judged := self._judged.get(names)) is None:
            judged = self._judged[names] = self._to_judge(names)
        self._take(numbers, wall)
        found: list[Alert] = []
        for rule, subject in judged:
            found += self._judge(rule, subject, wall, wall)
        return tuple(found)

    def _to_judge(self, names: frozenset[str]) -> tuple[tuple[Rule, str], ...]:
        """The rules that read one of these figures, each with its subject."""
        found = []
        for rule in self._by_clock:
            for subject in self._subjects(rule, names):
                self._add_windows(rule.condition, subject)
                keys = {figure.of_gpu(subject) for figure in rule.condition.figures}
                if not keys.isdisjoint(names):
                    found.append((rule, subject))
        return tuple(found)

    def _subjects(self, rule: Rule, names: Iterable[str]) -> tuple[str, ...]:
        """The GPUs of a rule on any of them; the run itself for any other rule."""
        kinds = {f.key.removeprefix("gpu.") for f in rule.condition.figures if f.is_any_gpu}
        if not kinds:
            return ("",)
        gpus = {
            head
            for key in names
            if key.startswith("gpu") and (parts := key.partition("."))[2] in kinds
            if (head := parts[0])[3:].isdecimal()
        }
        return tuple(sorted(gpus, key=lambda gpu: int(gpu[3:])))

    # -- figures

    def _add_windows(self, condition: Condition, subject: str) -> None:
        for part in condition.expressions:
            name = f"{subject}:{part}"
            if isinstance(part, Windowed) and name not in self._windows:
                window = self._windows[name] = Window(part)
                self._windows_of.setdefault(part.of.of_gpu(subject), []).append(window)

    def _take(self, numbers: Mapping[str, float], at: float) -> None:
        self._latest |= numbers
        for key, value in numbers.items():
            for window in self._windows_of.get(key, ()):
                if math.isfinite(value):
                    window.push(at, value)
                else:
                    window.forget(at)

    def _value(self, expression: Expression, subject: str, at: float) -> float | None:
        if isinstance(expression, Constant):
            return expression.value
        if isinstance(expression, FigureTerm):
            return self._latest.get(expression.of_gpu(subject))
        if isinstance(expression, Windowed):
            return self._windows[f"{subject}:{expression}"].value(at)
        left = self._value(expression.left, subject, at)
        right = self._value(expression.right, subject, at)
        return None if left is None or right is None else calculate(expression, left, right)

    # -- judgement

    def _judge(self, rule: Rule, subject: str, at: float, wall: float) -> list[Alert]:
        condition = rule.condition
        watch = self._watch(rule, subject)
        if condition.arms and at >= rule.arm_step:
            watch.is_armed = True
        value = self._value(condition.left, subject, at)
        if value is None:
            return []
        test, threshold = condition.test, condition.threshold
        if isinstance(test, Kind):
            is_bad = test.holds(value)
        elif math.isnan(value):
            return []
        elif isinstance(test, Comparison):
            right = self._value(test.right, subject, at)
            if right is None or math.isnan(right):
                return []
            is_bad, threshold = OPS[test.op][0](value, right), right
        elif isinstance(test, Streak):
            is_bad = streak(watch, value, test)
        else:
            share = change(watch, at, value, test)
            if share is None:
                return []
            is_bad, value = share >= test.by, share if test.is_rise else -share
        return self._turn(rule, watch, subject, is_bad, value, threshold, wall)

    def judge_row(
        self, rule: Rule, is_bad: bool, value: float, threshold: float, step: int, wall: float
    ) -> list[Alert]:
        """Apply a rule to a step for which its test was evaluated elsewhere."""
        watch, self.step = self._watch(rule, ""), step
        if rule.condition.arms and step >= rule.arm_step:
            watch.is_armed = True
        return self._turn(rule, watch, "", is_bad, value, threshold, wall)

    def is_settled(self, rule: Rule, *, is_bad: bool) -> bool:
        """Whether further equal steps change nothing."""
        watch = self._watch(rule, "")
        return watch.is_armed and (watch.firing is not None) == is_bad

    def _turn(
        self,
        rule: Rule,
        watch: _Watch,
        subject: str,
        is_bad: bool,
        value: float,
        threshold: float,
        wall: float,
    ) -> list[Alert]:
        """Apply a value to the alert of a rule: it begins, it ends, or neither."""
        if not watch.is_armed:
            watch.steady = 0 if is_bad else watch.steady + 1
            watch.is_armed = watch.steady >= STEADY
        if not is_bad:
            watch.held, watch.held_since = 0, None
            if watch.firing is None or not _is_clear(rule, value):
                return []
            alert_id, watch.firing = watch.firing, None
            alert = self._alert(rule, subject, value, threshold, wall)
            return [replace(alert, id=alert_id, state="cleared")] if alert_id else []
        watch.held += 1
        watch.held_since = wall if watch.held_since is None else watch.held_since
        if not watch.is_armed or watch.firing is not None:
            return []
        hold = rule.condition.hold
        if hold and (watch.held < hold.values or wall - watch.held_since < hold.seconds):
            return []
        if watch.fired_wall is not None and wall - watch.fired_wall < rule.cooldown_s:
            return []
        alert = self._alert(rule, subject, value, threshold, wall)
        watch.firing, watch.fired_wall = alert.id, wall
        return [alert]

    def _watch(self, rule: Rule, subject: str) -> _Watch:
        found = self._watches.get((rule.id, subject))
        if found is None:
            found = self._watches[rule.id, subject] = _Watch(not rule.condition.arms)
        return found

    def _alert(
        self, rule: Rule, subject: str, value: float, threshold: float, wall: float
    ) -> Alert:
        by_steps = rule.condition.reads == "steps"
        name = f"{rule.id}.{subject}" if subject else rule.id
        alert = make_alert(
            name,
            "rule",
            rule.action,
            metric=rule.condition.figures[0].of_gpu(subject),
            value=value,
            threshold=threshold,
            message=f"{subject}: {rule.message}" if subject else rule.message,
            step=self.step or 0,
            attempt=self.attempt,
            severity=rule.severity,
        )
        if by_steps:
            return alert
        return replace(alert, id=f"{name}@{self.attempt}.t{math.floor(wall)}")

    # -- checkpoints

    def to_json(self) -> dict[str, Any]:
        """The whole state, as plain data."""
        return {
            "watches": [
                {"rule": rule, "subject": subject, **watch.to_json()}
                for (rule, subject), watch in sorted(self._watches.items())
            ],
            "windows": {name: window.to_json() for name, window in self._windows.items()},
            "latest": {key: number_word(value) for key, value in self._latest.items()},
            "step": self.step,
        }

    def load(self, saved: Mapping[str, Any] | None) -> None:
        """Restore the state that `to_json` returned, here or in an earlier version; None restores
        nothing. Raises AttributeError, KeyError, TypeError or ValueError for anything else."""
        saved = saved or {}
        self._watches.clear()
        self._latest.clear()
        self._windows.clear()
        self._windows_of.clear()
        self._judged.clear()
        for rule in self._by_steps:
            self._add_windows(rule.condition, "")
        by_id = {rule.id: rule for rule in self.rules}
        for rule_id, watch in _old_watches(saved):
            if rule_id in by_id:
                self._watch(by_id[rule_id], "").load(watch)
        for one in saved.get("watches") or ():
            if (known := by_id.get(str(one["rule"]))) is not None:
                self._add_windows(known.condition, str(one["subject"]))
                self._watch(known, str(one["subject"])).load(one)
        for name, window in dict(saved.get("windows") or {}).items():
            if name in self._windows:
                self._windows[name].load(window)
        latest = dict(saved.get("latest") or {}).items()
        self._latest = {str(k): v for k, raw in latest if (v := number_of(raw)) is not None}
        step = saved.get("step")
        self.step = None if step is None else int(step)


def _old_watches(saved: Mapping[str, Any]) -> Iterable[tuple[str, dict[str, Any]]]:
    """The state of checkpoints from before 1.1: ids that are armed, ids whose alarm is on, and
    counts of good values."""
    armed, firing = set(saved.get("armed") or ()), set(saved.get("firing") or ())
    steady = dict(saved.get("steady") or {})
    for rule_id in sorted(armed | firing | set(steady), key=str):
        yield (
            str(rule_id),
            _Watch(
                rule_id in armed,
                int(steady.get(rule_id, STEADY - 1)),
                firing="" if rule_id in firing else None,
            ).to_json(),
        )


def _is_clear(rule: Rule, value: float) -> bool:
    """Whether a value on the good side is far enough on it."""
    return rule.clear_at is None or not OPS[rule.condition.op][0](value, rule.clear_at)


def calculate(expression: Arithmetic, left: float, right: float) -> float | None:
    """The value of `left op right`; None if that is not a number."""
    match expression.op:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
    return left / right if right else None


def streak(watch: _Watch, value: float, test: Streak) -> bool:
    """Whether the required number of values in a row, this one the last, moved in the direction of
    the test."""
    before, watch.before = watch.before, value
    goes_on = before is not None and (value > before if test.is_rise else value < before)
    watch.streak = watch.streak + 1 if goes_on else 0
    return watch.streak >= test.times


def change(watch: _Watch, at: float, value: float, test: WindowChange) -> float | None:
    """The amount by which a value moved in the direction of the test since `over` ago; None if
    unknown. The earlier value is the newest that is old enough."""
    history = watch.history
    while history and history[-1][0] >= at:
        history.pop()
    if not math.isfinite(value):
        return None
    history.append((at, value))
    while len(history) > 1 and history[1][0] <= at - test.over:
        history.popleft()
    then_at, then = history[0]
    if then_at > at - test.over or (test.is_share and not then):
        return None
    share = (value - then) / abs(then) if test.is_share else value - then
    return share if test.is_rise else -share
