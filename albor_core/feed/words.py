"""What listed runs do now, in one word each, for the cost of a look at their locks.

A store knows how runs ended. Whether one works is asked of the kernel, so a run with a recorded end
is looked at again only if somebody holds its locks: then it lives once more.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from albor_core.feed.status import run_status
from albor_core.run.rundir import RunDir
from albor_core.store.run_row import RunRow


def word_of(row: RunRow) -> str:
    """The status of one listed run, a word of feed.view.WORDS."""
    run = RunDir(Path(row.path))
    if row.ended_status is not None and not run.liveness().is_alive:
        return row.ended_status
    return run_status(run, ended=row.ended_status).word


def words_of_unended(runs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Words by id for runs without a recorded end, given with their paths."""
    return {run_id: run_status(RunDir(Path(path))).word for run_id, path in runs}
