"""What the figures that a store has of an ended run are short of.

An index process may die shortly before its run does, and a disk that stays full takes no more
lines. The first shows by the size of the journal, which need not be read for it; the second is said
by the run's own last words.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from albor_core.feed.run.status import run_status
from albor_core.feed.view.run_status import LIVE_WORDS
from albor_core.run.errors import AlborError
from albor_core.run.exit import read_exit
from albor_core.run.liveness import lock_holder
from albor_core.run.rundir import RunDir
from albor_core.run.values.lenient import NOTHING, whole_of
from albor_core.store.file.home_store import is_fresh
from albor_core.store.file.paths import local_store
from albor_core.store.query.table import RunList

LATE_S = 60.0
"""How long after its end an index process may still be at a run."""
_SETTLED_S = 5.0  # from a run's last line to its index process at work, on a busy machine


class Arrears(NamedTuple):
    """Missing records of an ended run: bytes of its journal that the store lacks, and log lines
    that no disk accepted.
    """

    unindexed_bytes: int = 0
    lines_lost: int = 0


def find_arrears(
    table: RunList, shown: Collection[str] = (), *, settled: bool = False
) -> dict[str, Arrears]:
    """By run, of those that have any: the runs without a recorded end, and those in `shown`. A run
    at work has none. `settled` leaves bytes out that an index process is about to read.
    """
    found = {}
    for run_id, path, offset, has_ended, facts in table.indexed(shown):
        run = RunDir(Path(path))
        behind = _size(os.path.join(path, "journal.jsonl")) - offset  # noqa: PTH118  of thousands
        if behind > 0 and ((settled and _is_settling(run)) or not _has_unread_lines(run, offset)):
            behind = 0
        lost = _lost(_parsed(facts) if has_ended else read_exit(run))
        if behind > 0 or lost:
            found[run_id] = Arrears(max(0, behind), lost)
    return found


def index_arrears(table: RunList, late: Collection[str], *, timeout_s: float) -> None:
    """Have them indexed as far as this user may, and as the time suffices."""
    if not late:
        return
    from albor_core.store.index.catch_up import index_ended_run  # noqa: PLC0415  loads what lists do without

    deadline = time.monotonic() + timeout_s
    for run_id, path, *_ in table.indexed(late):
        if run_id in late and (left_s := deadline - time.monotonic()) > 0:
            try:
                index_ended_run(RunDir(Path(path)), timeout_s=left_s)
            except (AlborError, OSError):
                continue  # whoever asks looks again, and tells what is still missing


def index_new(runs: Collection[RunDir], *, timeout_s: float) -> list[RunDir]:
    """Have runs that the store lacks indexed, those that have ended, as far as this user may and as
    the time suffices; returns those that go on.
    """
    from albor_core.store.index.catch_up import drain_index  # noqa: PLC0415  as above

    deadline, active = time.monotonic() + timeout_s, []
    for run in runs:
        if run.liveness().is_alive:
            active.append(run)
        elif (left_s := deadline - time.monotonic()) > 0:
            with contextlib.suppress(AlborError, OSError):
                drain_index(run, timeout_s=left_s)
    return active


def lines_lost(path: str, facts: Mapping[str, Any]) -> int:
    """How many lines a run's program logged that no disk took, by its last words or by what a store
    kept of them.
    """
    return _lost(read_exit(RunDir(Path(path))) or facts)


def console_bytes_lost(path: str, facts: Mapping[str, Any]) -> int:
    """The same of bytes that it printed and no log took."""
    return _lost(read_exit(RunDir(Path(path))) or facts, "console_bytes_lost")


def is_coming(run: RunDir) -> bool:
    """Whether a run that the store of all runs lacks may still be on its way there: it has just
    begun, and was not indexed to its end before.
    """
    return is_fresh(run) and (
        run.liveness().is_alive
        or lock_holder(run.index_lock) is not None
        or not local_store(run).is_file()
    )


def find_being_read(table: RunList, shown: Collection[str]) -> list[str]:
    """Of runs without a recorded end and those in `shown`, the ones that ended a moment ago and
    whose index process still tells what it found in their last lines.
    """
    runs = [(run_id, RunDir(Path(path))) for run_id, path, *_ in table.indexed(shown)]
    return [
        run_id
        for run_id, run in runs
        if _is_young(run, LATE_S)
        and lock_holder(run.index_lock) is not None
        and not run.liveness().is_alive
    ]


def is_being_read(run: RunDir) -> bool:
    """Whether a run that has ended is still on its way into the stores, and with it what its last
    lines tell: its index process is at it, or about to be.
    """
    from albor_core.store.index.catch_up import is_behind, is_wanted  # noqa: PLC0415  as above

    if lock_holder(run.index_lock) is not None:
        return True
    return _is_young(run) and is_wanted(run) and is_behind(run)


def _is_settling(run: RunDir) -> bool:
    return _is_young(run) or lock_holder(run.index_lock) is not None


def _is_young(run: RunDir, within_s: float = _SETTLED_S) -> bool:
    """Whether its last line is of a moment ago."""
    try:
        return time.time() - run.journal.stat().st_mtime < within_s
    except OSError:
        return False


def _has_unread_lines(run: RunDir, offset: int) -> bool:
    """Whether no process works on it, and more than a torn line follows."""
    from albor_core.store.index.sources import (  # noqa: PLC0415  as above
        Position,
        parse_plain,
        read_batch,
    )

    status = run_status(run)
    if status.is_alive or status.word in LIVE_WORDS:
        return False
    try:
        return read_batch(run.journal, Position(offset=offset), parse_plain) is not None
    except OSError:
        return False


def _parsed(facts: str | None) -> Mapping[str, Any] | None:
    try:
        found = json.loads(facts or "{}")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _lost(said: Mapping[str, Any] | None, key: str = "lines_lost") -> int:
    count = whole_of((said or NOTHING).get(key)) or 0
    return count if 0 < count < 1 << 63 else 0


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except (OSError, ValueError):  # gone, or no path at all
        return 0
