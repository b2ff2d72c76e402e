"""How a run ended, decided from what was written about it. Pure.

The guard has the last word where there is one, since it may start the program again; the trainer's
exit.json has it where it leaves nothing to decide. Nothing of it says whether a process is alive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from albor_core.run.exit import STOPPED_BY_ANDON, end_word, exit_reason
from albor_core.run.guard_state import ASKED, GUARD_ENDS
from albor_core.run.status import ENDS
from albor_core.run.values.lenient import finite_of
from albor_core.store.index.cells import optional_text, whole_number


@dataclass(frozen=True)
class Ending:
    """How an attempt ended: completed, stopped or failed; None if no end was recorded."""

    status: str | None = None
    reason: str | None = None
    wall: float | None = None


@dataclass(frozen=True)
class LastWords:
    """The newest of each kind of statement about a run's end."""

    attempts: int
    guard_state: str | None
    guard_wall: float | None
    guard_reason: str | None
    guard_attempt: int | None
    """The newest attempt whose end a guard judged."""
    end_attempt: int | None
    end_status: str | None
    end_reason: str | None
    end_wall: float | None


def _by_guard(
    said: LastWords, verdict: str, words: Ending | None, exit_json: Mapping[str, Any]
) -> Ending:
    """The guard's verdict, with the program's own reason where that says more."""
    by_andon = words is not None and exit_json.get("code") == STOPPED_BY_ANDON
    status = "stopped" if by_andon else verdict
    own = words.reason if words is not None and words.status == status else None
    judged = said.guard_reason or said.guard_state or ""
    is_exception = exit_json.get("reason") == "exception"
    if own and is_exception and judged.startswith(own):
        own = None  # the guard's says the same, and why that is the end
    if own == "stopped" and (judged.startswith("stopped: SIG") or ASKED in judged):
        own = None  # and which signal, in which job
    return Ending(status, own or judged, said.guard_wall)


def ending(said: LastWords, exit_json: Mapping[str, Any] | None) -> Ending:
    """What became of the run."""
    words = _of_exit(exit_json, said.attempts)
    verdict = GUARD_ENDS.get(said.guard_state or "")
    is_bare = said.guard_attempt is not None and said.guard_attempt < said.attempts
    if verdict and not is_bare:  # else a program went on by itself when its guard was done
        return _by_guard(said, verdict, words, exit_json or {})
    if words is None and said.end_attempt is not None and said.end_attempt >= said.attempts:
        words = Ending(said.end_status, said.end_reason, said.end_wall)
    if words is None or words.status not in ENDS:
        return Ending()
    if said.guard_state is not None and not verdict and words.status == "failed":
        return Ending()  # a guard watches: it will restart the program or say that it gave up
    return words


def _of_exit(document: Mapping[str, Any] | None, attempts: int) -> Ending | None:
    """exit.json of the newest attempt; an older one was overtaken by a restart."""
    if document is None or not isinstance(document.get("reason"), str):
        return None
    attempt = whole_number(document.get("attempt"))
    if attempt is None or attempt < attempts:
        return None
    word = end_word(document["reason"], document.get("code"))
    return Ending(word, optional_text(exit_reason(document)), finite_of(document.get("wall")))
