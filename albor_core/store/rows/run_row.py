"""One run as lists show it: alone here, since a list is made in the blink of an eye or not at all.

Each frozen row class costs a process half a millisecond to define, and the others are for screens
of one run (rows.py).
"""

from __future__ import annotations

from albor_core.run.light_dataclass import dataclass

Param = str | float | int | bool | None


@dataclass(frozen=True)
class RunRow:
    """One run as lists show it. `ended_status` (completed, stopped, failed) is None until it ended.

    A None says nothing about being alive: that is a lock, asked by the feed.
    """

    id: str
    name: str
    experiment: str
    kind: str
    created: float | None
    path: str
    host: str | None
    seed: int | None
    git_commit: str | None
    git_dirty: bool | None
    ended_status: str | None
    ended_reason: str | None
    ended_wall: float | None
    attempts: int
    last_step: int | None
    max_steps: int | None
    tokens: float | None
    loss: float | None
    val_loss: float | None
    val_ppl: float | None
    val_bpb: float | None
    best_val_loss: float | None
    tokens_per_s: float | None
    mfu: float | None
    first_wall: float | None
    last_wall: float | None
    alerts_open: int
    pinned: bool
    tags: tuple[str, ...] = ()
