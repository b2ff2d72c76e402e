"""Severities: one of four words for how bad something is, for every event, alert and run.

Journals, stores and checkpoints of earlier versions use colours; code that reads a word which may
be an old one passes it through `severity_of`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

SEVERITIES = ("info", "warning", "error", "critical")
"""From nothing to do, over look at it and act on it, to everything else can wait."""
CALM = SEVERITIES[0]
COLOURS = {"green": "info", "yellow": "warning", "red": "error"}
"""What earlier versions wrote."""


def severity_of(word: Any) -> str:
    """The severity of a word of any version; `info` for one that is not a severity."""
    if not isinstance(word, str):
        return CALM
    return word if word in SEVERITIES else COLOURS.get(word, CALM)


def alert_data(name: Any, data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The data of an event; the severity of an alert in it has its current name."""
    if name not in ("andon.alert", "andon.clear") or "severity" not in data:
        return data
    return {**data, "severity": severity_of(data["severity"])}


def worst(words: Iterable[Any]) -> str:
    """The worst of several severities; `info` if there are none."""
    return max(map(severity_of, words), key=SEVERITIES.index, default=CALM)
