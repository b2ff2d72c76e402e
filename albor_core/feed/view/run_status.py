"""What a run is doing, as one word and a sentence: the value, alone, so that lists load little."""

from __future__ import annotations

from dataclasses import field

from albor_core.run.light_dataclass import dataclass
from albor_core.run.status import LIVE_WORDS, LOADING, SILENT, STATUSES
from albor_core.run.values.quantity import age

__all__ = ["LIVE_WORDS", "LOADING", "WORDS", "RunStatus", "shown_word"]

WORDS = tuple(STATUSES)
SILENT_STEPS, SILENT_S = 10, 30.0  # no news for so many steps, and at least for so long
FOLDER_GONE = "its folder is gone"
"""How the sentence of a run begins whose folder was deleted or moved."""


def without_folder(pid: int | None) -> str:
    """A note about a run whose folder is gone and whose end was not recorded."""
    if pid is None:
        return f"{FOLDER_GONE}, no end was recorded"
    return f"{FOLDER_GONE}, and process {pid} goes on without it: what it logs is lost"


def shown_word(word: str, silent_s: float | None = None) -> str:
    """A status as lists for people show it: "silent 2m" for a run at work that gives no news."""
    if silent_s is not None:
        return f"{SILENT} {age(silent_s)}"
    known = STATUSES.get(word)
    return (known.shown if known else "") or word


@dataclass(frozen=True)
class RunStatus:
    """A word of WORDS, one sentence why, and who holds the locks (0: held, not visible here).

    `silent_s`: for how long a run at work has given no news, where its steps are much faster.
    """

    word: str
    detail: str = ""
    trainer_pid: int | None = None
    guard_pid: int | None = None
    silent_s: float | None = field(default=None, compare=False)

    @property
    def is_alive(self) -> bool:
        """Whether a process works on the run, by its locks."""
        return self.trainer_pid is not None or self.guard_pid is not None
