"""What listed runs do now, in one word each, for the cost of a look at their locks.

A store knows how runs ended. Whether one works is asked of the kernel, so a run with a recorded end
is examined again only if a process holds its locks: then it is active again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from albor_core.feed.run.status import gather, judge, run_status
from albor_core.feed.view.newest import (
    NewestFigures,
    brought_up,
    figures_of_journal,
    figures_of_state,
    known,
    metrics_of_state,
    newest,
)
from albor_core.feed.view.run_status import LIVE_WORDS, RunStatus
from albor_core.run.headlines import NEWEST
from albor_core.run.rundir import RunDir
from albor_core.run.status import SILENT
from albor_core.run.values.lenient import finite, integer
from albor_core.run.values.main_metrics import Logged
from albor_core.store.query.table import RunList
from albor_core.store.query.terms import Filter
from albor_core.store.rows.run_row import RunRow


class Now(NamedTuple):
    """What one listed run does now, its row with the newest figures, and what its state file tells
    of its metrics where that is newer than a store.
    """

    status: RunStatus
    row: RunRow
    told: tuple[Logged, ...] = ()


def status_of(row: RunRow) -> str:
    """The status of one listed run, a word of feed.view.WORDS."""
    return now_of(row).status.word


def now_of(row: RunRow) -> Now:
    """The present status of a listed run: stores lag behind active runs, and behind one that was
    just killed."""
    run = RunDir(Path(row.path))
    if row.ended_status is not None and not run.liveness().is_alive:
        return Now(RunStatus(row.ended_status), row)
    evidence = gather(run, ended=row.ended_status)
    status = judge(evidence)
    is_over = status.word not in LIVE_WORDS
    journal = figures_of_journal(run.journal) if is_over else NewestFigures()
    own = newest(figures_of_state(evidence.state or {}), journal)
    now = brought_up(own, _figures(row), is_starting=evidence.is_starting)
    changed: dict[str, Any] = now.fields()
    if not is_over:  # an end that was recorded is of an attempt: another follows
        changed |= {"ended_status": None, "ended_reason": None, "ended_wall": None}
    told = () if is_over else metrics_of_state(evidence.state or {})
    return Now(status, replace(row, last_step=now.step, **changed), told)


def _figures(row: RunRow) -> NewestFigures:
    said = vars(row)  # SQLite stores anything anywhere
    return NewestFigures(
        wall=finite(said, "last_wall"),
        step=integer(said, "last_step"),
        values=known(said, {one.name: one.name for one in NEWEST}),
    )


def statuses_for(reader: RunList, where: Filter) -> dict[str, str]:
    """What a filter needs to be asked: words by id for runs without a recorded end, "silent" for
    one at work that gives no news; none where it does not ask for the status.
    """
    if not where.needs_status:
        return {}
    found = {run_id: run_status(RunDir(Path(path))) for run_id, path in reader.unended()}
    return {i: one.word if one.silent_s is None else SILENT for i, one in found.items()}


def statuses_of_unended(runs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Words by id for runs without a recorded end, given with their paths."""
    return {run_id: run_status(RunDir(Path(path))).word for run_id, path in runs}
