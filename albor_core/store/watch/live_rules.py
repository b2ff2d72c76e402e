"""The rules that the index process evaluates for a run, and the one who evaluates the others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from albor_core.andon.alert import Alert, make_alert
from albor_core.andon.rules.engine import RuleEngine, rule_of
from albor_core.andon.rules.sources import Rule, Source, read_rules, read_rules_file
from albor_core.run.errors import AlborError, ConfigError
from albor_core.run.home.folders import albor_home
from albor_core.run.rundir import RunDir, read_json


@dataclass(frozen=True)
class LiveRules:
    """What is evaluated here (`rules`), and by the loop of `albor train` (`by_loop`), which leaves
    commands to be run here. `users` are those of `rules` that rules.yaml has.
    """

    rules: tuple[Rule, ...] = ()
    by_loop: tuple[Rule, ...] = ()
    problems: tuple[str, ...] = ()
    monitoring: Mapping[str, Any] = field(default_factory=dict)
    users: tuple[Rule, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        every = (*self.by_loop, *self.rules)
        return tuple(f"{rule.condition} -> {rule.action}" for rule in every)

    def engine(self, attempt: int) -> RuleEngine:
        """A new one; `load` gives it the memory of an earlier one."""
        return RuleEngine(self.rules, attempt=attempt)

    def rule_of(self, name: str) -> Rule | None:
        """The rule that raises alerts called `name`."""
        return rule_of((*self.rules, *self.by_loop), name)


def live_rules(
    run: RunDir, kind: str, *, launched_here: bool = True, before: LiveRules | None = None
) -> LiveRules:
    """The rules of a run of this home. A damaged rule is a problem to tell, and costs itself only;
    while rules.yaml as a whole cannot be read, its rules of `before` hold. Those of a config that
    was not given here may neither run anything nor go back. The trainer of `albor train` evaluates
    its config's rules over steps itself, since it must act between two of them; those of rules.yaml
    are evaluated here for every run.
    """
    resolved = read_json(run.config_resolved) or {}
    monitoring, training = resolved.get("monitoring"), resolved.get("training")
    monitoring = monitoring if isinstance(monitoring, dict) else {}
    warmup = training.get("warmup_steps") if isinstance(training, dict) else 0
    warmup = warmup if isinstance(warmup, int) else 0
    source: Source = "config" if launched_here else "foreign"
    problems: list[str] = []
    alerts = monitoring.get("alerts")
    entries = [
        (f"monitoring.alerts.{index}", entry)
        for index, entry in enumerate(alerts if isinstance(alerts, list) else ())
    ]
    own, found = read_rules(entries, warmup_steps=warmup, source=source)
    problems += [str(problem) for problem in found]
    experiment = run.metadata().get("experiment")
    damaged: list[ConfigError] = []
    try:
        file = read_rules_file(albor_home(), damaged=damaged)
        users = file.of(experiment if isinstance(experiment, str) else None)
    except AlborError as error:
        users = () if before is None else before.users
        damaged.append(error if isinstance(error, ConfigError) else ConfigError(str(error)))
    problems += [str(error) for error in damaged]
    taken = {rule.id for rule in own}
    users = tuple(
        replace(rule, id=f"user-{rule.id}" if rule.id in taken else rule.id, warmup_steps=warmup)
        for rule in users
    )
    by_loop = tuple(rule for rule in own if kind == "train" and rule.condition.reads == "steps")
    here = (*(rule for rule in own if rule not in by_loop), *users)
    return LiveRules(here, by_loop, tuple(problems), monitoring, users)


def withdrawn(rule: Rule, raised: str, attempt: int, step: int) -> Alert:
    """The end of what a rule told that was taken away."""
    alert = make_alert(
        raised,
        "rule",
        rule.action,
        metric="",
        value=math.nan,
        threshold=math.nan,
        message=f"{rule.message}: the rule was taken away",
        step=step,
        attempt=attempt,
        severity=rule.severity,
    )
    return replace(alert, state="cleared")
