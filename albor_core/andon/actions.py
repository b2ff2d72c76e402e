"""What an alert does to its run: the values of `action` in rules and budgets, weakest first."""

from __future__ import annotations

from collections.abc import Mapping

from albor_core.run.light_dataclass import dataclass


@dataclass(frozen=True)
class AlertEffect:
    """The effect of one action: its severity and description. The trainer's response is in
    train/alert_actions.py (`RESPONSES`)."""

    severity: str
    """Of an alert that names none: a word of andon.severity."""
    did: str
    """What the Andon screen says it did."""
    is_trusted: bool = False
    """Only for rules that the user of this machine wrote: never for those of an imported, pulled or
    copied run."""


ACTIONS: Mapping[str, AlertEffect] = {
    "notify": AlertEffect("warning", "told; training went on"),
    "command": AlertEffect("warning", "ran a command; training went on", is_trusted=True),
    "checkpoint": AlertEffect("warning", "asked for a checkpoint; training went on"),
    "pause": AlertEffect("error", "paused training"),
    "rollback": AlertEffect("error", "went back to the last good checkpoint", is_trusted=True),
    "stop": AlertEffect("error", "stopped training after a checkpoint"),
}
OLD_SPELLINGS = {"warn": "notify"}


def action_of(word: str) -> str:
    """The current name of an action; any other word unchanged."""
    return OLD_SPELLINGS.get(word, word)
