"""What the trainer does for an alert, beside saying it: one function for each action of a config.

It is called where the figures of a step are judged, which may be while the next step runs. So it
asks, and the loop carries out between two steps; nothing here waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from albor_core.andon.alert import Alert
from albor_core.andon.bricks.budgets import overrule_command
from albor_core.andon.bricks.names import brick_name
from albor_core.run.exit import STOPPED_BY_ANDON
from albor_core.train.process.attempt import Attempt, Outcome
from albor_core.train.resume.train_state import TrainState
from albor_core.train.step.stability import Trouble


@dataclass
class Due:
    """What is asked of the loop, to be done between two steps. Whoever asked first stays asked."""

    end: Outcome | None = None
    """Save, and end so."""
    pause_for: Alert | None = None
    """Stand still until a person says go on."""
    trouble: Trouble | None = None
    """Go back to the last good checkpoint."""
    save: bool = False
    """Write a checkpoint, as soon as none is being written."""
    fallback: int | None = None
    """Leave the kernels for the plain model: after this step they were found to be too far off."""


def go_on(due: Due, alert: Alert, step: int) -> None:
    """Nothing but the alert itself."""


def checkpoint(due: Due, alert: Alert, step: int) -> None:
    """Save after the step."""
    due.save = True


def roll_back(due: Due, alert: Alert, step: int) -> None:
    """Go back to the newest checkpoint from before this step, past the data since."""
    message = f"{alert.rule}: {alert.message}"
    due.trouble = due.trouble or Trouble("andon", max(1, step), message)


def pause(due: Due, alert: Alert, step: int) -> None:
    """Stand still after the step."""
    due.pause_for = due.pause_for or alert


def stop(due: Due, alert: Alert, step: int) -> None:
    """End the run after a checkpoint."""
    message = f"{alert.rule}: {alert.message}"
    due.end = due.end or Outcome("andon", STOPPED_BY_ANDON, step, message)


RESPONSES: Mapping[str, Callable[[Due, Alert, int], None]] = {
    "notify": go_on,
    "command": go_on,  # the index process runs it
    "checkpoint": checkpoint,
    "pause": pause,
    "rollback": roll_back,
    "stop": stop,
}
"""For each of `andon.actions.ACTIONS`; called with the step that is complete."""


def raise_alerts(alerts: list[Alert], attempt: Attempt, state: TrainState, due: Due) -> None:
    """Say each alert, and ask for what its action is."""
    step = state.step
    for alert in alerts:
        state.reporter.alert(alert)
        if alert.state == "cleared":
            continue
        if alert.kind == "brick" and alert.action == "pause":
            brick = brick_name(alert.metric)
            state.reporter.journal.event(
                "jidoka.pause",
                step=step,
                severity=alert.severity,
                brick=brick,
                value_ms=alert.value,
                budget_ms=state.alert_monitor.budgets_ms[brick],
                overrule=overrule_command(attempt.run.id, brick),
            )
        # what it does not know halts nothing
        RESPONSES.get(alert.action, go_on)(due, alert, step)
