"""Alert rules: `loss > 10 -> stop`, evaluated as a pure fold over the logged values.

The trap is the start of a run: a fresh model with 32,768 tokens begins at ln(32768) = 10.4, so a
naive `loss > 10` stops every run at its first step, and one that wakes at the first 9.99 at the
next 10.01: first steps are wild. A rule therefore sleeps until it is *armed*: by a first value on
its good side, by STEADY of them in a row in a run that begins on the other, or by the end of
warm-up (step WARMUP_FREE_STEPS in a run that has none), whichever comes first. Armed, it fires once
per crossing, and again only after a value on the good side. NaN is on neither side: it neither
fires nor arms (the trainer's own guard counts non-finite losses); an infinite value compares as
one.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from albor_core.andon.actions import ACTIONS
from albor_core.andon.alert import Alert, make_alert
from albor_core.run.errors import ConfigError, Problem
from albor_core.run.headlines import RULE_NAMES

WARMUP_FREE_STEPS = 100  # a run without warm-up gets this long to reach the good side by itself
STEADY = 10  # values that are no luck of a batch

_OPS: Mapping[str, tuple[Callable[[float, float], bool], str, str]] = {
    # operator: test, its opposite for people, the word in a rule id
    ">": (operator.gt, "<=", "gt"),
    ">=": (operator.ge, "<", "ge"),
    "<": (operator.lt, ">=", "lt"),
    "<=": (operator.le, ">", "le"),
    "==": (operator.eq, "!=", "eq"),
    "!=": (operator.ne, "==", "ne"),
}
_CONDITION = re.compile(r"\s*([A-Za-z][\w/<>.-]*?)\s*(>=|<=|==|!=|>|<)\s*(\S+)\s*")
_KEY = re.compile(r"[a-z][a-z0-9_.-]*(/[a-z0-9_.-]+)+")


@dataclass(frozen=True)
class Condition:
    """`metric op threshold`; `metric` is a journal key, `text` what the user wrote."""

    metric: str
    op: str
    threshold: float
    text: str = ""

    def is_bad(self, value: float) -> bool:
        """Whether the condition holds, i.e. the alarm's side. Never for NaN."""
        return not math.isnan(value) and _OPS[self.op][0](value, self.threshold)

    def __str__(self) -> str:
        return self.text or f"{self.metric} {self.op} {self.threshold:g}"

    @property
    def good_side(self) -> str:
        """The opposite, for sentences: "<= 10"."""
        return f"{_OPS[self.op][1]} {self.threshold:g}"

    @property
    def slug(self) -> str:
        """A word for ids that needs no quoting in a shell: `loss-gt-10`."""
        short = next((name for name, key in RULE_NAMES.items() if key == self.metric), self.metric)
        return f"{short.replace('/', '-')}-{_OPS[self.op][2]}-{self.threshold:g}".replace("+", "")


@dataclass(frozen=True)
class Rule:
    """A condition and what to do when it comes true, in a run with so much warm-up."""

    id: str
    condition: Condition
    action: str
    message: str
    warmup_steps: int = 0

    @property
    def arm_step(self) -> int:
        """Where it wakes at the latest."""
        return self.warmup_steps if self.warmup_steps > 0 else WARMUP_FREE_STEPS


@dataclass(frozen=True)
class RuleState:
    """What rules remember between steps: ids that are awake, ids whose alarm is on, and how many
    good values in a row those have met that began on the bad side.

    Part of a checkpoint, so a resumed run neither sleeps again nor repeats an alert.
    """

    armed: frozenset[str] = frozenset()
    firing: frozenset[str] = frozenset()
    steady: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "armed": sorted(self.armed),
            "firing": sorted(self.firing),
            "steady": dict(sorted(self.steady.items())),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> Self:
        """The saved state; empty for None, so that an older checkpoint still loads. Raises
        AttributeError, TypeError or ValueError for anything else.
        """
        data = data or {}
        return cls(
            frozenset(map(str, data.get("armed") or ())),
            frozenset(map(str, data.get("firing") or ())),
            {str(k): max(0, int(count)) for k, count in dict(data.get("steady") or {}).items()},
        )


def parse_condition(text: str) -> Condition:
    """`loss > 10` as a Condition. Raises ConfigError that names the text and what is wrong."""
    match = _CONDITION.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ConfigError(
            f"alert condition {text!r} is not METRIC OP NUMBER", hint="for example: loss > 10"
        )
    name, op, number = match.groups()
    metric = RULE_NAMES.get(name, name)
    if not _KEY.fullmatch(metric):
        raise ConfigError(
            f"alert condition {text!r}: {name!r} is not a metric",
            hint="one of " + ", ".join(RULE_NAMES) + ", or a journal key like optim/grad_norm",
        )
    try:
        threshold = float(number)
    except ValueError:
        threshold = math.nan
    if math.isnan(threshold):
        raise ConfigError(f"alert condition {text!r}: {number!r} is not a number to compare with")
    return Condition(metric, op, threshold, f"{name} {op} {number}")


def rules_from(monitoring: Mapping[str, Any], *, warmup_steps: int) -> tuple[Rule, ...]:
    """The rules of a config's `monitoring` section, in its order.

    Raises ConfigError with every bad rule among its problems. Ids come from the condition, so they
    survive reordering; a repeated condition gets `-2`.
    """
    rules: list[Rule] = []
    problems: list[Problem] = []
    for index, entry in enumerate(monitoring.get("alerts") or ()):
        where = f"monitoring.alerts.{index}"
        action = str(entry.get("action", "warn"))
        if action not in ACTIONS:
            problems.append(
                Problem(f"{where}.action", f"{action!r} is not one of {', '.join(ACTIONS)}")
            )
            continue
        try:
            condition = parse_condition(entry.get("condition", ""))
        except ConfigError as error:
            problems.append(Problem(f"{where}.condition", error.message, error.hint))
            continue
        taken = sum(rule.condition.slug == condition.slug for rule in rules)
        rule_id = f"{condition.slug}-{taken + 1}" if taken else condition.slug
        message = str(entry.get("message") or condition)
        rules.append(Rule(rule_id, condition, action, message, warmup_steps))
    if problems:
        raise ConfigError(str(problems[0]), hint=problems[0].hint, problems=tuple(problems))
    return tuple(rules)


def evaluate(
    rules: Sequence[Rule],
    state: RuleState,
    values: Mapping[str, float],
    *,
    step: int,
    attempt: int = 1,
) -> tuple[RuleState, tuple[Alert, ...]]:
    """The state after this step's values, and the alerts that fired.

    `values` has journal keys (short names work too); a metric that is absent leaves its rules as
    they are.
    """
    armed, firing, steady = set(state.armed), set(state.firing), dict(state.steady)
    alerts = []
    for rule in rules:
        if step >= rule.arm_step:
            armed.add(rule.id)
        value = _value_of(rule.condition.metric, values)
        if value is None or math.isnan(value):
            continue
        is_bad = rule.condition.is_bad(value)
        if rule.id not in armed:
            steady[rule.id] = 0 if is_bad else steady.get(rule.id, STEADY - 1) + 1
            if steady[rule.id] >= STEADY:
                armed.add(rule.id)
        if not is_bad:
            firing.discard(rule.id)
        elif rule.id in armed and rule.id not in firing:
            firing.add(rule.id)
            alerts.append(_alert(rule, value, step, attempt))
    asleep = {rule_id: count for rule_id, count in steady.items() if rule_id not in armed}
    return RuleState(frozenset(armed), frozenset(firing), asleep), tuple(alerts)


def replay(
    rules: Sequence[Rule], history: Iterable[tuple[int, Mapping[str, float]]]
) -> tuple[Alert, ...]:
    """What these rules would have said about a finished history of (step, values): a dry run."""
    state = RuleState()
    found: list[Alert] = []
    for step, values in history:
        state, alerts = evaluate(rules, state, values, step=step)
        found.extend(alerts)
    return tuple(found)


def _value_of(metric: str, values: Mapping[str, float]) -> float | None:
    names = [metric, *(name for name, key in RULE_NAMES.items() if key == metric)]
    value = next((values[name] for name in names if values.get(name) is not None), None)
    return None if value is None else float(value)


def _alert(rule: Rule, value: float, step: int, attempt: int) -> Alert:
    return make_alert(
        rule.id,
        "rule",
        rule.action,
        metric=rule.condition.metric,
        value=value,
        threshold=rule.condition.threshold,
        message=rule.message,
        step=step,
        attempt=attempt,
    )
