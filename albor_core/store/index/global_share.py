"""A run's share in the global store: copied from its local store, bounded, as often as one likes.

The copy is of state, not of lines, so it is idempotent: a killed indexer, a locked global store or
a rebuild need no bookkeeping beyond "which journal, how far". The caller holds the global store's
`exclusive` lock.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable

from albor_core.run.errors import StoreError
from albor_core.run.rundir import RunDir
from albor_core.store.file import search
from albor_core.store.index.series.levels import PREVIEW_BUCKETS, TOP, merge, pack_preview, width
from albor_core.store.index.series.zoom import Zoom
from albor_core.store.index.write import experiment_id

MINOR_BUCKETS = 64  # previews of anything but losses: 10,000 runs stay below 200 MB
# of each run, newest first; alerts, warnings and people's words have their own thousand
MAX_EVENTS = 1000
_ALWAYS = ("keys", "journal")
_NAMED = ("attempts", "params", "artifacts", "tags", "notes", "goals", "span_ids")
TABLES = frozenset({*_NAMED, "events", "media"})
_ALL = (*_ALWAYS, *TABLES, "metrics", "metrics_discarded", "metric_levels")
_NEWEST = (
    "SELECT {columns} FROM events WHERE run_id = ?"
    " AND (severity = 'info' AND source <> 'annotations') = ? AND name <> 'sample'"
    " ORDER BY wall DESC, source, at DESC LIMIT ?"
)


def share(
    local: sqlite3.Connection,
    run: RunDir,
    target: sqlite3.Connection,
    *,
    tables: Collection[str] = TABLES,
    previews: bool = True,
) -> None:
    """Bring the global rows of `run` up to those of its local store, within the caller's
    transaction.

    `tables` names those of TABLES that may have changed since the last share; a target that does
    not know the run, such as one that began anew, gets all. Raises StoreError where the local store
    is another run's.
    """
    source_id = _id_of(local, run.own_id)
    if source_id is None:
        raise StoreError(f"its own store has no rows of {run.own_id}")
    if _id_of(target, run.id) is None:
        tables, previews = TABLES, True
    target_id = copy_run_row(local, run.own_id, target, known_as=run.id)
    for table in (*_ALWAYS, *(name for name in _NAMED if name in tables)):
        _copy(local, source_id, target, target_id, table)
    if "events" in tables:
        _copy_events(local, source_id, target, target_id)
    if "media" in tables:
        _copy(local, source_id, target, target_id, "media", only="kind = 'artifact'")
    if previews:
        _copy_previews(local, source_id, target, target_id)
    search.refresh(target, target_id)


def _copy_events(
    local: sqlite3.Connection, source_id: int, target: sqlite3.Connection, target_id: int
) -> None:
    names = _columns(target, "events")
    target.execute("DELETE FROM events WHERE run_id = ?", (target_id,))
    for informal in (0, 1):
        rows = local.execute(
            _NEWEST.format(columns=", ".join(names)), (source_id, informal, MAX_EVENTS)
        )
        _insert(target, "events", names, ((target_id, *row[1:]) for row in rows))


def copy_whole(source: sqlite3.Connection, run: str, target: sqlite3.Connection) -> None:
    """All rows of a run as they are: for runs whose folder is gone, when a store is rebuilt."""
    source_id = _id_of(source, run)
    assert source_id is not None, run
    target_id = copy_run_row(source, run, target)
    for table in _ALL:
        _copy(source, source_id, target, target_id, table)
    search.refresh(target, target_id)


def copy_run_row(
    source: sqlite3.Connection, run: str, target: sqlite3.Connection, *, known_as: str | None = None
) -> int:
    """The row in `runs`, in the target under `known_as`; returns its id there."""
    given = [name for name in _columns(target, "runs") if name not in ("id", "experiment_id")]
    select = ", ".join(f"r.{name}" for name in given)
    *row, experiment = source.execute(
        f"SELECT {select}, e.name FROM runs r JOIN experiments e ON e.id = r.experiment_id"
        " WHERE r.run = ?",
        (run,),
    ).fetchone()
    row[given.index("run")] = known_as or run
    assignments = ", ".join(f"{name} = excluded.{name}" for name in (*given, "experiment_id"))
    places = ", ".join("?" * (len(given) + 1))
    target.execute(
        f"INSERT INTO runs ({', '.join(given)}, experiment_id) VALUES ({places})"
        f" ON CONFLICT (run) DO UPDATE SET {assignments}",
        (*row, experiment_id(target, experiment)),
    )
    found = _id_of(target, known_as or run)
    assert found is not None
    return found


def _id_of(db: sqlite3.Connection, run: str) -> int | None:
    row = db.execute("SELECT id FROM runs WHERE run = ?", (run,)).fetchone()
    return None if row is None else int(row[0])


def _copy(
    source: sqlite3.Connection,
    source_id: int,
    target: sqlite3.Connection,
    target_id: int,
    table: str,
    *,
    only: str = "1",
) -> None:
    known = _columns(source, table)
    names = [name for name in _columns(target, table) if name in known]
    if not names:
        return  # a store of an older version
    rows = source.execute(
        f"SELECT {', '.join(names)} FROM {table} WHERE run_id = ? AND {only}", (source_id,)
    )
    target.execute(f"DELETE FROM {table} WHERE run_id = ?", (target_id,))
    _insert(target, table, names, ((target_id, *row[1:]) for row in rows))


def _columns(db: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in db.execute(f"PRAGMA table_info({table})")]  # run_id is the first


def _insert(
    target: sqlite3.Connection, table: str, names: list[str], rows: Iterable[tuple[object, ...]]
) -> None:
    places = ", ".join("?" * len(names))
    target.executemany(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({places})", rows)


def _copy_previews(
    local: sqlite3.Connection, source_id: int, target: sqlite3.Connection, target_id: int
) -> None:
    target.execute("DELETE FROM metric_levels WHERE run_id = ?", (target_id,))
    series = local.execute(
        "SELECT key_id, name, base, first_step, last_step FROM keys WHERE run_id = ? AND count > 0",
        (source_id,),
    ).fetchall()
    for key_id, name, base, first, last in series:
        most = PREVIEW_BUCKETS if "loss" in name or name.startswith("val/") else MINOR_BUCKETS
        data = preview(Zoom(local, source_id, key_id, max(base, 1)), first, last, most)
        target.execute(
            "INSERT INTO metric_levels (run_id, key_id, level, chunk, data) VALUES (?,?,0,0,?)",
            (target_id, key_id, data),
        )


def preview(zoom: Zoom, first: int, last: int, most: int = PREVIEW_BUCKETS) -> bytes:
    """The whole series in at most `most` buckets of equal width."""
    steps = (last - first) // most + 1
    level = 0
    while level < TOP and width(level + 1) * 2 <= steps:
        level += 1
    buckets = merge(zoom.cover(level, first, last + 1, last), steps, first)
    return pack_preview(buckets, first, steps)
