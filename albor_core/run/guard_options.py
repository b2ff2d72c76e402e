"""How patient a guard is: each time and count it decides by, named as in the config, whose defaults
these are. Standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """Times in seconds on the monotonic clock. Tests scale all of them down."""

    poll_s: float = 15.0
    """Between two looks at training_state.json."""
    stale_s: float = 300.0
    """Silence in phases `training` and `paused` that counts as a hang."""
    backoff_s: tuple[float, ...] = (30.0, 60.0, 120.0, 240.0, 600.0)
    """Waits before the first, second, ... restart in a row; the last one repeats."""
    stable_s: float = 3600.0
    """A life this long, with a newer checkpoint, starts the waits from the first again."""
    grace_s: float = 30.0
    """From SIGTERM to SIGKILL."""
    max_no_progress: int = 3
    """Restarts in a row without a newer checkpoint before the guard gives up."""
    max_restarts: int = 50
    """Restarts within one day before the guard gives up."""
    restarts: int | None = None
    """Restarts of a run in all, whatever ended it; None leaves it to the other limits."""
    start_limit_s: float = 900.0
    compile_limit_s: float = 900.0
    eval_limit_s: float = 900.0
    checkpoint_limit_s: float = 600.0
    min_free_bytes: int | None = None
    """Free disk below which nothing is started; None asks for 2.2 times the last checkpoint."""

    @property
    def pass_s(self) -> float:
        """The longest sleep of the loop: commands are answered within a second."""
        return min(1.0, self.poll_s)
