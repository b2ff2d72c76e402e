"""guard.json: where a guard stands (schema albor.guard/1), replaced at each transition and pulse.

Written by guard/records alone. The words of its field `state`, and which of them may follow which:

    init -> preflight -> starting -> running <-> paused -> collecting -> backoff -> preflight ...
                                     hung, stopping -----> collecting -> done | failed | stopped
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from albor_core.run.rundir import RunDir, read_json

SCHEMA = "albor.guard/1"

ASKED = "; asked by "
"""Between how a run was stopped and who asked, in what a guard gives as the reason."""


class GuardState(StrEnum):
    """The states of a guard; a member is its word in guard.json and attempts.jsonl."""

    INIT = "init"  # looks what an earlier guard left behind
    PREFLIGHT = "preflight"
    STARTING = "starting"  # there is a process, and no news of it
    RUNNING = "running"
    PAUSED = "paused"
    HUNG = "hung"  # its stacks are asked for, then it is ended
    STOPPING = "stopping"  # the end was requested, the program was told
    COLLECTING = "collecting"  # the program has ended: how, and what now?
    BACKOFF = "backoff"  # waits before the next start
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"


_S = GuardState
GUARD_ENDS: Mapping[str, str] = {_S.DONE: "completed", _S.FAILED: "failed", _S.STOPPED: "stopped"}
"""The last states of a guard -> how its run ended."""
_LOOKED_AFTER = frozenset({_S.HUNG, _S.STOPPING, _S.COLLECTING})
MOVES: Mapping[GuardState, frozenset[GuardState]] = {
    # a program lives, one ended unseen, a wait is not over, or nothing of these
    _S.INIT: frozenset({_S.RUNNING, _S.COLLECTING, _S.BACKOFF, _S.PREFLIGHT}),
    _S.PREFLIGHT: frozenset({_S.STARTING, _S.BACKOFF, _S.FAILED, _S.STOPPED}),
    _S.STARTING: _LOOKED_AFTER | {_S.RUNNING},
    _S.RUNNING: _LOOKED_AFTER | {_S.PAUSED},
    _S.PAUSED: _LOOKED_AFTER | {_S.RUNNING},
    _S.HUNG: frozenset({_S.COLLECTING}),
    _S.STOPPING: frozenset({_S.COLLECTING}),
    # of one that was locked out, what was faster is adopted, or collected if it has ended too
    _S.COLLECTING: frozenset(
        {_S.BACKOFF, _S.PREFLIGHT, _S.RUNNING, _S.COLLECTING, *map(_S, GUARD_ENDS)}
    ),
    _S.BACKOFF: frozenset({_S.PREFLIGHT, _S.STOPPED}),
    **dict.fromkeys(map(_S, GUARD_ENDS), frozenset()),
}
"""State -> those that may follow it."""


def read_guard(run: RunDir) -> dict[str, Any] | None:
    """guard.json; None where no guard has written a readable one."""
    return read_json(run.guard_json)
