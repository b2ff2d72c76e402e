"""What a run is doing now, in one word: the words, what each means, and how it is shown.

A status is stored nowhere: feed/run/status.py derives it from held locks and last words.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class StatusWord(NamedTuple):
    """A status of a run. `group` is "active" while a process works on the run, "ended", or
    neither."""

    means: str
    tone: str
    """success, warning, error, secondary or muted: how good or bad it is."""
    group: str = ""
    standing: str = ""
    """Of a run that nothing works on, to go behind its name and a colon."""
    shown: str = ""
    """What people are told, where that is another word; filters take both."""


STATUSES: Mapping[str, StatusWord] = {
    # the trainer lock is held and the main loop gives news
    "running": StatusWord(
        "a process works on the run, and its loop reports progress", "success", "active"
    ),
    "paused": StatusWord(
        "the process is alive and waits for `albor guard resume`", "warning", "active"
    ),
    # the guard lives and will start the trainer again
    "restarting": StatusWord(
        "the guard is alive and starts the program again, now or soon", "warning", "active"
    ),
    # the trainer lives, its guard does not
    "unguarded": StatusWord(
        "the program runs without its guard; `albor train resume` starts a new guard",
        "warning",
        "active",
    ),
    # the trainer lock is held, the main loop gives no news
    "stalled": StatusWord(
        "the process is alive, the loop reports no progress; the guard will restart it",
        "error",
        "active",
        shown="hung",
    ),
    "queued": StatusWord("created, not started yet", "muted", standing="it has not started yet"),
    "completed": StatusWord("all of the work is done", "secondary", "ended", "it is complete"),
    "stopped": StatusWord(
        "ended by a person, a signal or an Andon rule", "muted", "ended", "it was stopped"
    ),
    "failed": StatusWord(
        "ended by an error; the last attempt's reason says which", "error", "ended", "it has failed"
    ),
    # neither lock is held and no last words were left
    "lost": StatusWord(
        "no process works on the run and no exit was recorded, as after a power cut",
        "error",
        "ended",
        "it is lost: no process works on the run",
    ),
    # of another machine, whose locks cannot be seen from here; no news for long
    "unknown": StatusWord(
        "ran on another machine when its copy was made: sync the folder again",
        "warning",
        standing="it ran on another machine, and cannot be seen from here",
        shown="running then",
    ),
}
GROUPS: Mapping[str, tuple[str, ...]] = {
    group: tuple(word for word, status in STATUSES.items() if status.group == group)
    for group in ("active", "ended")
}
SILENT = "silent"
"""Shown, and asked for, of a run at work that gives no news: it is "running" all the same."""
LOADING = "loading"
"""Of a run whose files are unread: no status, and nothing may be concluded from it."""
LIVE_WORDS = frozenset(GROUPS["active"])
ENDS = ("completed", "failed", "stopped")
"""The last phases of a program, and how a run can have ended as far as anything recorded says."""
_TONES = ("error", "warning", "muted", "success", "secondary")  # the worst first


def worst_status(words: Iterable[str]) -> str:
    """The word for several runs: the worst, and of words as bad that of a run that is over. A run
    that is not known yet, or silent, counts as a warning. "" for no runs.
    """
    return min(words, key=_how_bad, default="")


def _how_bad(word: str) -> tuple[int, bool, int]:
    status = STATUSES.get(word)
    if status is None:
        return _TONES.index("warning"), True, len(STATUSES)
    return _TONES.index(status.tone), status.group != "ended", [*STATUSES].index(word)
