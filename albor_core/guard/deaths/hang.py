"""Whether a trainer still moves: pure, from what the guard saw and when it looked.

News is a change of (nonce, seq) seen under the guard's own monotonic clock. No stamp in the file is
trusted, so a wrong wall clock, an old file or garbage can never kill a run. Time in which the guard
itself did not look (stopped, suspended, a stalled disk) is not held against the trainer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from albor_core.run.guard_options import Options
from albor_core.run.values.lenient import finite_of, whole_of

_FORGIVEN_POLLS = 2.0  # a gap longer than this many polls was the guard's own


@dataclass(frozen=True)
class HangWatch:
    """The guard's memory of one trainer's news."""

    run_id: str
    nonce: str
    news_s: float
    """When the last news was seen."""
    looked_s: float
    seq: int | None = None
    alive_seq: int | None = None
    phase: str = "initializing"
    phase_limit_s: float | None = None

    @property
    def has_news(self) -> bool:
        """Whether this trainer ever wrote its state."""
        return self.seq is not None


@dataclass(frozen=True)
class Hang:
    """Silence beyond the limit of the phase."""

    phase: str
    silent_s: float
    limit_s: float

    def __str__(self) -> str:
        return f"no news for {self.silent_s:.1f} s in phase {self.phase} (limit {self.limit_s:g} s)"


def watch(run_id: str, nonce: str, now_s: float) -> HangWatch:
    """A watch over a trainer that was just started or found."""
    return HangWatch(run_id, nonce, news_s=now_s, looked_s=now_s)


def observe(
    seen: HangWatch, state: Mapping[str, Any] | None, now_s: float, options: Options
) -> HangWatch:
    """The watch after a look at the state file; anything but this trainer's document is ignored."""
    gap = now_s - seen.looked_s
    own_gap = gap if gap > _FORGIVEN_POLLS * options.poll_s else 0.0
    seen = replace(seen, news_s=min(now_s, seen.news_s + own_gap), looked_s=now_s)
    if state is None or state.get("nonce") != seen.nonce or state.get("run_id") != seen.run_id:
        return seen
    seq, alive_seq = whole_of(state.get("seq")), whole_of(state.get("alive_seq"))
    if seq is None:
        return seen
    phase = str(state.get("phase") or "")
    if seq != seen.seq:
        return replace(
            seen,
            news_s=now_s,
            seq=seq,
            alive_seq=alive_seq,
            phase=phase,
            phase_limit_s=_seconds(state.get("phase_limit_s")),
        )
    if phase == "paused" and alive_seq != seen.alive_seq:
        return replace(seen, news_s=now_s, alive_seq=alive_seq)
    return seen


def find_hang(seen: HangWatch, options: Options) -> Hang | None:
    """The hang at the time of the last look, if it is one."""
    limit_s = limit_of(seen, options)
    silent_s = seen.looked_s - seen.news_s
    return Hang(seen.phase, silent_s, limit_s) if silent_s > limit_s else None


def limit_of(seen: HangWatch, options: Options) -> float:
    """Allowed silence: what the trainer announced for its phase, never more than the option."""
    cap = {
        "initializing": options.start_limit_s,
        "preparing": options.start_limit_s,
        "compiling": options.compile_limit_s,
        "evaluating": options.eval_limit_s,
        "checkpointing": options.checkpoint_limit_s,
    }.get(seen.phase, options.stale_s)
    return cap if seen.phase_limit_s is None else min(cap, seen.phase_limit_s)


def _seconds(value: Any) -> float | None:
    found = finite_of(value)
    return found if found is not None and 0 < found < 1e9 else None
