"""Runs that differ by their seed only, as one: mean and band of their numbers.

Two runs belong together when they are of one experiment and their recorded params are equal, apart
from seed, name and output folder. A run without params stands for itself. `std` is the sample
standard deviation over runs, so it needs two. Ranks of one job are not seeds: where the first of
them is there the others stand beside the numbers, and so does what was before a restart of the job.
A run whose number is NaN or infinite is counted in `nonfinite` and kept out of the rest: a diverged
seed is said, never averaged away.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from albor_core.run.values.lenient import is_number, real, text_of, whole_of
from albor_core.store.query.listing import ListColumn
from albor_core.store.query.table import RunList
from albor_core.store.rows.run_row import Param, RunRow

IGNORED = (
    *("seed", "training.seed", "data.seed"),
    *("name", "run_name", "training.name"),
    *("output_dir", "training.output_dir"),
    *("local_rank", "global_rank", "world_rank", "process_index"),  # of a job with a run for each
)
_PARAMS = (  # the primary key keeps the params of a run in order, and runs by their small id
    "SELECT (SELECT run FROM runs WHERE id = p.run_id),"
    " group_concat(p.key || '\x1f' || p.value, '\x1f') FROM params p"
    " WHERE p.run_id IN (SELECT id FROM runs WHERE run IN (SELECT value FROM json_each(?)))"
    f" AND p.key NOT IN ({', '.join('?' * len(IGNORED))}) GROUP BY p.run_id"
)
_JOBS = (
    "SELECT run, json_extract(facts, '$.job.rank'), json_extract(facts, '$.job.agent'),"
    " json_extract(facts, '$.job.restart')"
    " FROM runs WHERE run IN (SELECT value FROM json_each(?))"
    " AND json_extract(facts, '$.job.rank') IS NOT NULL"
)
_PAGE = 5_000  # runs of one question: each has the store's limit of time to itself
HEADLINES = ("loss", "val_loss", "val_ppl", "best_val_loss", "tokens_per_s")


class RankOf(NamedTuple):
    """The place of a run in a job of ranks (run/program/job_rank.py)."""

    rank: int
    agent: str
    restart: int


@dataclass(frozen=True)
class Band:
    """A number over the runs of a group. All but the counts are None where no run has a finite one;
    `std` is None below two.
    """

    n: int
    nonfinite: int
    mean: float | None
    std: float | None
    minimum: float | None
    maximum: float | None


@dataclass(frozen=True)
class GroupRow:
    """Runs of one config. `key` is the same for the same config in every store."""

    key: str
    experiment: str
    name: str
    runs: tuple[str, ...]
    """Those that count."""
    ranks: tuple[str, ...]
    """Runs of the same jobs that do not: of other ranks, or before a restart."""
    seeds: tuple[int, ...]
    created: float | None
    pinned: bool
    bands: Mapping[str, Band]


def groups_of(
    table: RunList, rows: Sequence[RunRow], columns: Sequence[ListColumn] = ()
) -> tuple[GroupRow, ...]:
    """The groups that these rows form. `columns` adds metrics and params to the numbers."""
    runs = [row.id for row in rows]
    same: dict[str, str] = {}
    cells: dict[str, tuple[Param, ...]] = {}
    jobs: dict[str, RankOf] = {}
    for start in range(0, len(runs), _PAGE):
        some = runs[start : start + _PAGE]
        same |= table.query(lambda db, some=some: configs(db, some))  # type: ignore[misc]
        jobs |= table.query(lambda db, some=some: jobs_of(db, some))  # type: ignore[misc]
        cells |= table.cells(some, columns)
    names = [":".join(part for part in column if part) for column in columns]
    return group(rows, same, cells, names, jobs)


def jobs_of(db: sqlite3.Connection, runs: Sequence[str]) -> dict[str, RankOf]:
    """The place of each run that is one of a job's ranks."""
    rows = db.execute(_JOBS, (json.dumps([*runs]),))
    return {
        run: RankOf(rank, text_of(agent) or "", whole_of(restart) or 0)
        for run, rank, agent, restart in rows
        if type(rank) is int
    }


def configs(db: sqlite3.Connection, runs: Sequence[str]) -> dict[str, str]:
    """By run, a digest of its config without names and seeds; runs without params are left out."""
    return {
        run: hashlib.blake2b(text.encode(errors="replace"), digest_size=6).hexdigest()
        for run, text in db.execute(_PARAMS, (json.dumps([*runs]), *IGNORED))
    }


def group(
    rows: Iterable[RunRow],
    configs: Mapping[str, str],
    cells: Mapping[str, Sequence[Param]] | None = None,
    names: Sequence[str] = (),
    jobs: Mapping[str, RankOf] | None = None,
) -> tuple[GroupRow, ...]:
    """Groups in the order of their first run. `cells` holds the values of the further columns
    `names` by run, `jobs` the places of those that are ranks.
    """
    members: dict[tuple[str, str], list[RunRow]] = {}
    for row in rows:
        members.setdefault((row.experiment, configs.get(row.id, row.id)), []).append(row)
    return tuple(
        _group_row(key, experiment, *_counted(found, jobs or {}), cells or {}, names)
        for (experiment, key), found in members.items()
    )


def _counted(rows: list[RunRow], jobs: Mapping[str, RankOf]) -> tuple[list[RunRow], list[RunRow]]:
    """The runs of one config that are not ranks, or the first ones that are there, each of its
    newest start; and the rest.
    """
    first = min((jobs[row.id].rank for row in rows if row.id in jobs), default=0)
    newest: dict[tuple[str, int | None], int] = {}
    for row in rows:
        if (job := jobs.get(row.id)) is not None and job.rank == first:
            start = job.agent, row.seed
            newest[start] = max(newest.get(start, 0), job.restart)

    def counts(row: RunRow) -> bool:
        job = jobs.get(row.id)
        return job is None or (job.rank == first and job.restart == newest[job.agent, row.seed])

    return [row for row in rows if counts(row)], [row for row in rows if not counts(row)]


def _group_row(
    key: str,
    experiment: str,
    rows: list[RunRow],
    others: list[RunRow],
    cells: Mapping[str, Sequence[Param]],
    names: Sequence[str],
) -> GroupRow:
    bands = {name: band([getattr(row, name) for row in rows]) for name in HEADLINES}
    for place, name in enumerate(names):
        found = (cells[row.id][place] for row in rows if row.id in cells)
        bands[name] = band([_number(value) for value in found])
    return GroupRow(
        key=key,
        experiment=experiment,
        name=_common_name([row.name for row in rows]),
        runs=tuple(row.id for row in rows),
        ranks=tuple(row.id for row in others),
        seeds=tuple(row.seed for row in rows if row.seed is not None),
        created=max((row.created for row in rows if row.created is not None), default=None),
        pinned=any(row.pinned for row in rows),
        bands=bands,
    )


def _number(value: Param) -> float | None:
    """A truth counts as 0 or 1, so that its mean is a share."""
    return real(value) if is_number(value) or isinstance(value, bool) else None


def _common_name(names: Sequence[str]) -> str:
    """What the names begin with together, without a dangling separator; the first if nothing."""
    first, last = min(names), max(names)
    same = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), None)
    prefix = first[: len(min(first, last, key=len)) if same is None else same]
    if first == last:
        return prefix
    unfinished = re.compile(r"[-_. ,]*\w*=[^=\s]*$")  # `seed=1` and `seed=2` share `seed=`
    return unfinished.sub("", prefix.rstrip("-_. 0123456789")) or names[0]


def band(values: Iterable[float | None]) -> Band:
    """The numbers of some runs as one; None is unknown and counts nowhere."""
    known = [value for value in values if value is not None]
    finite = [value for value in known if math.isfinite(value)]
    if not finite:
        return Band(0, len(known), None, None, None, None)
    n = len(finite)
    try:
        mean = math.fsum(finite) / n
        std = math.sqrt(math.fsum((v - mean) ** 2 for v in finite) / (n - 1)) if n > 1 else None
    except OverflowError:  # their sum or their squares are beyond floats
        mean, std = math.fsum(v / n for v in finite), math.inf
    return Band(n, len(known) - n, mean, std, min(finite), max(finite))
