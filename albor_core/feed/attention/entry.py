"""One entry of a run: its id, its help, and what it costs."""

from __future__ import annotations

from typing import Any

from albor_core.feed.attention.item import KINDS, AttentionItem
from albor_core.feed.run.offers import offer, subject_of_view, way_on
from albor_core.feed.view.run_view import RunView
from albor_core.run.values.quantity import duration

HOUR_S = 3600.0
LITTLE_S = 60.0  # work too little to count
_KEYS = {"retry": "R", "stop": "x", "pause": "p", "checkpoint": "c"}
"""Action of feed.run.offers -> the cockpit's key for it, in the list and on the run's screen."""


def item_of(
    view: RunView,
    kind: str,
    *,
    summary: str,
    since: float | None,
    tag: str = "",
    name: str = "",
    attempt: int | None = None,
    severity: str | None = None,
    key_of: str = "",
    **rest: Any,
) -> AttentionItem:
    """An entry of `view`. Its id has the attempt that it is of, and `tag`."""
    table = KINDS[kind]
    number = attempt if attempt is not None else view.attempt
    key, command = _help_for(key_of or kind, view)
    return AttentionItem(
        **{
            "id": f"{view.id}/{name or kind}@{number or 0}{tag}",
            "kind": kind,
            "word": table.word,
            "severity": severity or table.severity,
            "run_id": view.id,
            "run_name": view.name or view.id,
            "host": view.host,
            "since_wall": since,
            "summary": summary,
            "key": key,
            "command": command,
            "path": view.path,
            **rest,
        }
    )


def at_risk(view: RunView, gpus: int | None, at: float, verb: str = "at risk") -> dict[str, Any]:
    """What was worked since the newest checkpoint, until `at`; since the start where no checkpoint
    is known, which for a program of one's own only means that none was told of."""
    saved = view.checkpoint.last_wall
    until = at if view.last_wall is None or view.is_active else min(at, view.last_wall)
    if saved is not None:
        hours = max(0.0, until - saved) / HOUR_S
        behind = f"since the checkpoint at step {view.checkpoint.last_step or 0:,}"
        return cost_fields(hours, gpus, f"{{}} {verb} {behind}")
    if view.elapsed_s is not None and view.elapsed_s >= LITTLE_S:
        words = f"up to {{}} {verb}: no checkpoint is known"
        return cost_fields(view.elapsed_s / HOUR_S, gpus, words)
    return {}


def cost_fields(hours: float, gpus: int | None, words: str) -> dict[str, Any]:
    """The fields of what an entry costs: `hours` of each of `gpus` GPUs (None: not known), whose
    amount stands in `words` in the place of {}.
    """
    return {
        "cost_gpu_hours": hours * (gpus or 1),
        "is_of_gpus": gpus is not None,
        "cost": words.format(_amount(hours, gpus)),
    }


def _amount(hours: float, gpus: int | None) -> str:
    """ "1.6 GPU-h", or where the GPUs are not known "12m of work"."""
    if gpus is None:
        return f"{duration(hours * HOUR_S)} of work"
    total = hours * gpus
    return f"{total:.1f} GPU-h" if total >= 0.1 else f"{total:.2g} GPU-h"


def first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _help_for(kind: str, view: RunView) -> tuple[str, str]:
    """A cockpit key ("enter" opens the run) and a command line, both of which work on the run."""
    table, subject = KINDS[kind], subject_of_view(view)
    for action in table.helps:
        found = offer(action, subject)
        if not found.is_possible:
            continue
        if action == "retry":
            is_ordered = found.order == "retry_now"
            return _KEYS[action], f"albor guard retry {view.id}" if is_ordered else way_on(subject)
        return _KEYS[action], f"albor guard {action} {view.id}"
    command = table.command
    if "logs" in command and view.kind == "imported":
        command = "albor runs show {run}"
    if "report" in command and not view.diagnostics.report:
        command = "albor runs show {run}"
    return table.key, command.format(run=view.id, host=view.host)
