"""An alert: one thing that went wrong in a run, with everything needed to understand it later.

Pure values. Unless a rule says otherwise, `warning` means "look at it" (training goes on) and
`error` that training was halted, so that a person or the guard has to act.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal

from albor_core.andon.actions import ACTIONS, action_of
from albor_core.run.light_dataclass import dataclass
from albor_core.run.values.lenient import number_of, number_word

KINDS = ("rule", "budget", "brick", "health", "machine")


@dataclass(frozen=True)
class Alert:
    """One alert. `id` is unique within a run and safe in a shell: `RULE@ATTEMPT.STEP`."""

    id: str
    rule: str
    kind: str
    severity: str
    action: str
    metric: str
    value: float
    threshold: float
    message: str
    step: int
    state: Literal["fired", "cleared"] = "fired"
    """A cleared one has the id of the alert that it ends, and the value that did."""

    @property
    def event(self) -> str:
        """The name of the event that records the alert."""
        return "andon.clear" if self.state == "cleared" else "andon.alert"

    def to_json(self) -> dict[str, Any]:
        """Plain data for an event; an infinite value travels as the word "inf" (JSON has none)."""
        return {
            "id": self.id,
            "rule": self.rule,
            "kind": self.kind,
            "severity": self.severity,
            "action": self.action,
            "metric": self.metric,
            "value": number_word(self.value),
            "threshold": number_word(self.threshold),
            "message": self.message,
            "step": self.step,
            "state": self.state,
        }


def make_alert(
    rule: str,
    kind: str,
    action: str,
    *,
    metric: str,
    value: float,
    threshold: float,
    message: str,
    step: int,
    attempt: int,
    severity: str = "",
) -> Alert:
    """Make an alert, with its id, and with the severity of its action if none is given."""
    action = action_of(action)
    assert action in ACTIONS, action
    assert kind in KINDS, kind
    return Alert(
        id=f"{rule}@{attempt}.{step}",
        rule=rule,
        kind=kind,
        severity=severity or ACTIONS[action].severity,
        action=action,
        metric=metric,
        value=value,
        threshold=threshold,
        message=message,
        step=step,
    )


def alert_from(said: Mapping[str, Any]) -> Alert:
    """The alert of data that `Alert.to_json` returned. Raises KeyError or TypeError for anything
    else."""
    named = {one.name: said[one.name] for one in fields(Alert)}
    numbers = {name: number_of(said[name]) for name in ("value", "threshold")}
    return Alert(**(named | {k: math.nan if v is None else v for k, v in numbers.items()}))
