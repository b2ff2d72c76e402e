"""Make the stores again from what the runs wrote: the journal is the truth, a store is its index.

Fresh files are built beside the old ones and put in their place in one step, so a killed rebuild
leaves the old stores. Runs whose folder is gone have no journal any more: their rows are carried
over. So are those of a run whose folder cannot be read, or whose journal lost what a store has of
it, and that is a problem to report.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from albor_core.run.errors import AlborError, InUseError, NotFoundError, StoreError
from albor_core.run.files.whole_file import fsync_dir
from albor_core.run.home.registry import known_as
from albor_core.run.home.runs import registered_runs
from albor_core.run.rundir import RunDir, read_json
from albor_core.store.file.connect import (
    as_store_error,
    exclusive,
    open_reader,
    open_writer,
    problems,
    remove_copy,
    transaction,
)
from albor_core.store.file.paths import global_store, local_store
from albor_core.store.index.backup import backups
from albor_core.store.index.global_share import copy_whole, share
from albor_core.store.index.indexer import OF_CONTENT, Indexer
from albor_core.store.upkeep.cut_short import lost_end, only_in

_OF_CONTENT = (*OF_CONTENT, LookupError, TypeError)  # of a whole run: of files and stores too
_OF_ROWS = (
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_RANGE,
    sqlite3.SQLITE_TOOBIG,
)


@dataclass
class RebuildReport:
    """What became of each run. `problems` has a sentence per run that could not be brought over."""

    target: Path
    rebuilt: list[str] = field(default_factory=list)
    # indexed at this moment: their store is current
    in_use: list[str] = field(default_factory=list)
    carried: list[str] = field(default_factory=list)
    carried_from: dict[str, str] = field(default_factory=dict)
    """The store or backup that the rows of each carried run came from."""
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What was wrong with older stores and cost nothing."""
    lines: int = 0
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "target": str(self.target)}


def unreadable(run: RunDir) -> str:
    """Why nothing can be made of a run's folder; "" where it is well, gone, or never was one."""
    present = [
        path.name
        for path in (run.journal, run.annotations, run.config_yaml, run.guard)
        if path.exists()
    ]
    if not present or read_json(run.run_json) is not None:
        return ""
    state = "cannot be read" if run.run_json.exists() else "is missing"
    return f"run.json {state} ({', '.join(present)} in it)"


def rebuild(target: Path | None, runs: Iterable[RunDir]) -> RebuildReport:
    """Rebuild the local store of each of `runs` and the global store `target` (None: the default
    one).

    Rows of all other runs are carried over from the old global store, or from its newest readable
    backup. Raises StoreError if the global store cannot be replaced.
    """
    started = time.monotonic()
    path = target or global_store()
    report = RebuildReport(path)
    fresh = path.with_name(path.name + ".rebuild")
    with exclusive(fresh):  # one rebuild at a time; the indexers of live runs go on meanwhile
        discard(fresh)
        damaged: dict[RunDir, str] = {}
        db: sqlite3.Connection | None = None
        try:
            db = open_writer(fresh)
            for run in runs:
                if why := unreadable(run) or _rebuild_known(run, db, report):
                    damaged[run] = why
            with exclusive(path):
                _carry_over(path, db, report, {run.id for run in damaged})
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                db.close()
                put_in_place(fresh, path)
        except sqlite3.Error as error:
            raise as_store_error(fresh, error) from error
        finally:
            if db is not None:
                db.close()
            discard(fresh)
    report.problems += [_told(run, why, report) for run, why in damaged.items()]
    report.seconds = time.monotonic() - started
    return report


def _told(run: RunDir, why: str, report: RebuildReport) -> str:
    source = report.carried_from.get(run.id)
    kept = f"its rows are an old copy from {source}" if source else "no older store has its rows"
    return f"{run.path}: {why}; {kept}"


def _rebuild_known(run: RunDir, db: sqlite3.Connection, report: RebuildReport) -> str:
    """Bring one run over by the id that this home knows it by; as `_rebuild_one`. Of a copy of a
    run that the home knows elsewhere only its own store is made.
    """
    known = known_as(run)
    if known is not None:
        return _rebuild_one(known, db, report)
    try:
        report.lines += _rebuild_local(run)
    except (AlborError, OSError, sqlite3.Error, *_OF_CONTENT) as error:
        return _unfit(error)
    report.problems.append(
        f"{run.path}: a copy of the run {run.id} that this home has elsewhere; only its own store"
        " was made"
    )
    return ""


def _rebuild_one(run: RunDir, db: sqlite3.Connection, report: RebuildReport) -> str:
    """Rebuild one run. Return the reason if it could not be rebuilt; "" if it was, or if its
    folder is gone: rows of unrebuilt runs are carried over later.
    """
    why = ""
    try:
        if cut := _rebuild_unless_cut(run, report):
            return cut
    except InUseError:
        report.in_use.append(run.id)
    except NotFoundError:
        return ""
    except (AlborError, OSError) as error:
        report.problems.append(f"{run.path}: {error}")
    except (sqlite3.Error, *_OF_CONTENT) as error:
        why = _unfit(error)
    try:
        local, folder = open_reader(local_store(run))
    except AlborError as error:
        if not why:
            report.problems.append(f"{run.path}: {error.message}")
        return why
    try:
        with transaction(db):
            share(local, run, db)
    except (sqlite3.Error, StoreError, *_OF_CONTENT) as error:
        if isinstance(error, sqlite3.Error) and not _is_of(local_store(run), error):
            raise
        return why or _unfit(error)
    finally:
        local.close()
        remove_copy(folder)
    if why:
        report.problems.append(f"{run.path}: {why}; its rows are those of its old store")
    return ""


def _rebuild_unless_cut(run: RunDir, report: RebuildReport) -> str:
    """Rebuild the store in the run's folder, but not from a journal that was cut. Returns what is
    in the store of this home alone, which then stays as it is; "" where nothing is.
    """
    if cut := only_in(run, local_store(run), run.own_id):
        report.problems.append(f"{run.id}: {cut}: kept as recorded")
        return ""
    if run.path.is_dir() and (cut := only_in(run, report.target, run.id)):
        return cut
    report.lines += _rebuild_local(run)
    report.rebuilt.append(run.id)
    if lacks := lost_end(run):
        report.problems.append(f"{run.id}: {lacks}")
    return ""


def _unfit(error: Exception) -> str:
    if isinstance(error, AlborError):
        return error.message
    return f"what it holds fits into no store ({type(error).__name__}: {error})"


def _is_of(store: Path, error: sqlite3.Error) -> bool:
    """Whether it is what `store` holds that made `error`, and not the place it was copied to."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_MISMATCH)  # none: Python refused it
    return code & 0xFF in _OF_ROWS or bool(problems(store))


def _rebuild_local(run: RunDir) -> int:
    path = local_store(run)
    fresh = path.with_name(path.name + ".rebuild")
    with Indexer(run, None, local_path=fresh) as indexer:
        discard(fresh)
        try:
            lines = indexer.drain()
            indexer.disconnect()
            put_in_place(fresh, path)  # still under index.lock
        except BaseException:
            indexer.disconnect()
            discard(fresh)
            raise
    return lines


def put_in_place(fresh: Path, path: Path) -> None:
    """Let `fresh` be the store at `path`. The caller keeps writers away from both.

    The old WAL goes first: SQLite would replay it into the new file.
    """
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    fresh.replace(path)
    fsync_dir(path.parent)


def discard(path: Path) -> None:
    """Remove an unused store, with all its files."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _carry_over(
    path: Path, db: sqlite3.Connection, report: RebuildReport, damaged: set[str]
) -> None:
    """Rows of runs that were not rebuilt: from the old store or its newest good backup. What cannot
    be read of those is a problem only where a run lost its rows by it.
    """
    done = {row[0] for row in db.execute("SELECT run FROM runs")}
    unread: dict[str, str] = {}
    for source in (path, *sorted(backups(path), reverse=True)):
        try:
            old, folder = open_reader(source)
        except NotFoundError:
            continue
        except AlborError as error:
            report.notes.append(f"{error.message}; made again")
            continue
        try:
            if _carry_from(source, old, done, db, report, unread):
                break
        finally:
            old.close()
            remove_copy(folder)
    for run, why in unread.items():
        (report.notes if run in done else report.problems).append(f"{run}: {why}")
    if not report.notes and not unread:
        return
    for known in registered_runs():  # a store without their rows looks whole
        if known.id not in done | damaged | unread.keys():
            is_there = known.run_json.is_file()
            why = "not rebuilt, and no" if is_there else "neither its folder nor an"
            report.problems.append(f"{known.id}: {why} older store has its rows")


def _carry_from(
    source: Path,
    old: sqlite3.Connection,
    done: set[str],
    db: sqlite3.Connection,
    report: RebuildReport,
    unread: dict[str, str],
) -> bool:
    """Copy what is not `done`; whether all of it could be read."""
    whole = True
    try:
        runs = [row[0] for row in old.execute("SELECT run FROM runs ORDER BY id")]
    except sqlite3.DatabaseError as error:
        report.notes.append(f"{source}: no list of runs: {error}; made again")
        return False
    for run in runs:
        if run in done:
            continue
        try:
            with transaction(db):
                copy_whole(old, run, db)
        except (sqlite3.DatabaseError, *_OF_CONTENT) as error:
            whole = False
            unread[run] = f"rows of this run cannot be read: {error}"
            continue
        done.add(run)
        report.carried.append(run)
        report.carried_from[run] = str(source)
    return whole
