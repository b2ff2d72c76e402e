"""What a run is doing, as one word and a sentence: the value, alone, so that lists load little."""

from __future__ import annotations

from dataclasses import dataclass, field

WORDS = (
    "running",  # the trainer lock is held and the main loop gives news
    "paused",
    "restarting",  # the guard lives and will start the trainer again
    "unguarded",  # the trainer lives, its guard does not
    "stalled",  # the trainer lock is held, the main loop gives no news
    "queued",  # created, not started yet
    "completed",
    "stopped",  # by a person or by an Andon rule
    "failed",
    "lost",  # neither lock is held and nobody left last words
    "unknown",  # of another machine, whose locks cannot be seen from here; no news for long
)
LIVE_WORDS = frozenset(("running", "paused", "restarting", "unguarded", "stalled"))


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
