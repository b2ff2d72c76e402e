"""The section `guard`: when the supervisor acts."""

from __future__ import annotations

from pydantic import Field

from albor_core.config.sections.numbers import Count, CountOrZero, Seconds, SecondsOrZero
from albor_core.config.sections.section import Section
from albor_core.run.guard_options import Options

_GUARD = Options()


class GuardConfig(Section):
    """The supervisor: how long silence may last and how often a run is started again."""

    poll_s: Seconds = _GUARD.poll_s
    """Seconds between looks at the run."""
    stale_s: Seconds = _GUARD.stale_s
    """Seconds without news before a run counts as hung."""
    backoff_s: tuple[SecondsOrZero, ...] = Field(default=_GUARD.backoff_s, min_length=1)
    """Waits before the first, second, ... restart; the last one repeats."""
    stable_s: Seconds = _GUARD.stable_s
    """Seconds that an attempt lasts, with a newer checkpoint, after which the waits start over."""
    grace_s: Seconds = _GUARD.grace_s
    """Seconds between asking a run to stop and killing it."""
    max_no_progress: Count = _GUARD.max_no_progress
    """Restarts without a newer checkpoint before the guard gives up."""
    max_restarts: CountOrZero = _GUARD.max_restarts
    """Restarts within one day before the guard gives up."""
    restarts: CountOrZero | None = _GUARD.restarts
    """Restarts of a run in all, whatever ended it; without it the other limits decide."""
    start_limit_s: Seconds = _GUARD.start_limit_s
    """Longest start-up."""
    compile_limit_s: Seconds = _GUARD.compile_limit_s
    """Longest compilation."""
    eval_limit_s: Seconds = _GUARD.eval_limit_s
    """Longest evaluation."""
    checkpoint_limit_s: Seconds = _GUARD.checkpoint_limit_s
    """Longest checkpoint."""
    min_free_bytes: CountOrZero | None = _GUARD.min_free_bytes
    """Free disk space needed to start; without it, 2.2 times the last checkpoint."""
