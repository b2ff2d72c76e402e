"""What an alert does to its run: the values of `action` in rules and budgets, weakest first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class AlertEffect:
    """Of one action; the trainer's part of it is in train/loop.py (`Training._raise`)."""

    severity: str
    """yellow: look at it, training goes on; red: training was halted."""
    did: str
    """What the Andon screen says it did."""


ACTIONS: Mapping[str, AlertEffect] = {
    "warn": AlertEffect("yellow", "warned; training went on"),
    "pause": AlertEffect("red", "paused training"),
    "stop": AlertEffect("red", "stopped training after a checkpoint"),
}
