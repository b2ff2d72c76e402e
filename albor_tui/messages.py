"""The facts that cross screens. Widgets nest their own messages.

Frequent ones replace their predecessor while it waits: a slow terminal skips stale frames.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from textual.message import Message

from albor_core.feed.view import Curve, RunsView, RunView


@dataclass
class RunsChanged(Message):
    """What the feed of all runs shows now."""

    view: RunsView

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, RunsChanged)


@dataclass
class RunChanged(Message):
    """What the feed of one run shows now."""

    view: RunView

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, RunChanged) and message.view.id == self.view.id


@dataclass
class CurvesChanged(Message):
    """Curves of one run by metric key, for charts."""

    run_id: str
    curves: dict[str, Curve]

    def can_replace(self, message: Message) -> bool:
        return isinstance(message, CurvesChanged) and message.run_id == self.run_id


@dataclass
class LogArrived(Message):
    """New lines of a run's log, raw. Not replaceable: each line is shown once."""

    run_id: str
    lines: tuple[str, ...]


@dataclass
class CommandReport(Message):
    """How a command to a run's guard fares: sent, accepted, done, refused, no guard, no answer."""

    run_name: str
    cmd: str
    status: str
    detail: str = ""


@dataclass
class DiffReady(Message):
    """A finished comparison as its albor.runs.diff document, or why there is none."""

    document: dict[str, Any] | None
    problem: str = ""
