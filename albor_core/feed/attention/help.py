"""Which key and which command help on the run of an entry: those of feed.offers that work on it."""

from __future__ import annotations

from albor_core.feed.attention.item import KINDS
from albor_core.feed.offers import offer, subject_of_view, way_on
from albor_core.feed.view import RunView

KEYS = {"retry": "R", "stop": "x", "pause": "p", "checkpoint": "c"}
"""Action of feed.offers -> the cockpit's key for it, in the list and on the run's screen."""


def help_for(kind: str, view: RunView) -> tuple[str, str]:
    """A cockpit key ("enter" opens the run) and a command line, both of which work on the run."""
    table, subject = KINDS[kind], subject_of_view(view)
    for action in table.helps:
        found = offer(action, subject)
        if not found.is_possible:
            continue
        if action == "retry":
            is_ordered = found.order == "retry_now"
            return KEYS[action], f"albor guard retry {view.id}" if is_ordered else way_on(subject)
        return KEYS[action], f"albor guard {action} {view.id}"
    command = table.command
    if "logs" in command and view.kind == "imported":
        command = "albor runs show {run}"
    if "report" in command and not view.signs.report:
        command = "albor runs show {run}"
    return table.key, command.format(run=view.id, host=view.host)
