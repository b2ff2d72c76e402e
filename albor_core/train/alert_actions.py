"""What the trainer does for an alert, beside saying it: one function for each action of a config.

It is called where the figures of a step are judged, which may be while the next step runs. So it
asks, and the loop carries out between two steps; nothing here waits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from albor_core.andon.alert import Alert
from albor_core.run.exit import STOPPED_BY_ANDON
from albor_core.train.process.attempt import Outcome
from albor_core.train.resume.saving import CheckpointSaving
from albor_core.train.step.stability import Trouble


class Loop(Protocol):
    """What actions may ask of `train.loop.Training`. Whoever asked first stays asked."""

    end: Outcome | None
    """Save, and end so."""
    pause_for: Alert | None
    """Stand still until a person says go on."""
    trouble: Trouble | None
    """Go back to the last good checkpoint."""
    keeper: CheckpointSaving

    @property
    def step(self) -> int:
        """The step that is complete."""


def go_on(loop: Loop, alert: Alert) -> None:
    """Nothing but the alert itself."""


def checkpoint(loop: Loop, alert: Alert) -> None:
    """Save after the step."""
    loop.keeper.wanted = True


def roll_back(loop: Loop, alert: Alert) -> None:
    """Go back to the newest checkpoint from before this step, past the data since."""
    message = f"{alert.rule}: {alert.message}"
    loop.trouble = loop.trouble or Trouble("andon", max(1, loop.step), message)


def pause(loop: Loop, alert: Alert) -> None:
    """Stand still after the step."""
    loop.pause_for = loop.pause_for or alert


def stop(loop: Loop, alert: Alert) -> None:
    """End the run after a checkpoint."""
    message = f"{alert.rule}: {alert.message}"
    loop.end = loop.end or Outcome("andon", STOPPED_BY_ANDON, loop.step, message)


RESPONSES: Mapping[str, Callable[[Loop, Alert], None]] = {
    "notify": go_on,
    "command": go_on,  # the index process runs it
    "checkpoint": checkpoint,
    "pause": pause,
    "rollback": roll_back,
    "stop": stop,
}
"""For each of `andon.actions.ACTIONS`."""
