"""An alert: one pull of the cord, with everything needed to understand it later.

Pure values. Colours: yellow means "look at it" (training goes on), red means that training was
halted (`pause`, `stop`) and a person or the guard has to act.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from albor_core.andon.actions import ACTIONS
from albor_core.run.values.lenient import number_word

KINDS = ("rule", "budget", "brick")


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
) -> Alert:
    """An alert with its id and colour filled in."""
    assert action in ACTIONS, action
    assert kind in KINDS, kind
    return Alert(
        id=f"{rule}@{attempt}.{step}",
        rule=rule,
        kind=kind,
        severity=ACTIONS[action].severity,
        action=action,
        metric=metric,
        value=value,
        threshold=threshold,
        message=message,
        step=step,
    )
