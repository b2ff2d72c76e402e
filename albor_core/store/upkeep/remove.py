"""Taking a run away for good, and what killed processes left lying about.

Only run directories are removed, only if no process works on them, and never through a symbolic
link. All locks of the run are held meanwhile; the folder is renamed first, so that a kill in
between leaves a hidden folder that `garbage` finds, and never half a run.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shlex
import shutil
import sqlite3
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from albor_core.andon.channels.kept_sinks import forget_sinks
from albor_core.run.checkpoints import HALF, entries
from albor_core.run.errors import AlborError, InUseError, NotFoundError, StoreError, UsageError
from albor_core.run.files.media_file import MEDIA
from albor_core.run.files.whole_file import fsync_dir
from albor_core.run.home.folders import albor_home, begun_mark, pointer_of
from albor_core.run.home.runs import is_known_id, placed, run_at
from albor_core.run.liveness import take_lock
from albor_core.run.rundir import RunDir, is_run_id, read_json
from albor_core.store.file import search
from albor_core.store.file.connect import (
    as_store_error,
    exclusive,
    open_reader,
    open_writer,
    remove_copy,
    transaction,
)
from albor_core.store.file.paths import local_store
from albor_core.store.query.table import RunList
from albor_core.store.spans.collector import forget_collector
from albor_core.store.upkeep.rebuild import discard

_DOOMED = re.compile(r"\.[a-z0-9][a-z0-9._-]{0,63}\.removed-[0-9a-f]{8}")
_CORRUPT_S = 7 * 86400.0
_TEMPORARY = re.compile(r"\..+\.tmp")
SETTLED_S = 3600.0  # a temporary file this old is abandoned
_INDEX_WAIT_S = 10.0


@dataclass(frozen=True)
class Removed:
    """What was taken away: `path` None where only rows were left of the run."""

    run: str
    path: str | None
    bytes: int
    history_kept: bool


@dataclass(frozen=True)
class Garbage:
    """A leftover. `run` is the run it belongs to, None for half-removed runs. `journal` is how long
    the run's journal was when nothing in it needed the file; what is longer now may.
    """

    path: Path
    bytes: int
    why: str
    run: RunDir | None = None
    journal: int | None = None


def remove_run(run: RunDir, global_path: Path, *, keep_history: bool = False) -> Removed:
    """Remove the directory of a run, its pointer and, but for `keep_history`, its rows.

    Raises UsageError for what is not a run directory of ours, InUseError where a process works on
    it, AlborError where the system refuses.
    """
    must_be_ours(run)
    with hold_run(run):
        size = size_of(run.path)
        outside = local_store(run)
        # asked while it is there: a folder that is gone leads nowhere
        is_named, is_listed = _is_named(run), not keep_history and is_row_of(run, global_path)
        doomed = doom(run)
        if outside != run.store:
            discard(outside)  # on this host's disk, where the run's is a network mount
        remove_tree(doomed)  # first: on a full disk there is room for the rest only then
        if is_listed:
            forget_rows(run.id, global_path)
        if is_named:
            _forget_pointer(run)
    return Removed(run.id, str(run.path), size, keep_history)


def is_remembered(run_id: str, global_path: Path) -> bool:
    """Whether a pointer or a row is left of a run, wherever its folder went."""
    if not is_known_id(run_id):
        return False
    if os.path.lexists(pointer_of(run_id)):
        return True
    if not global_path.is_file():
        return False
    with RunList(global_path) as table:
        try:
            table.run(run_id)
        except NotFoundError:
            return False
    return True


def forget_run(run_id: str, global_path: Path) -> Removed:
    """Remove the pointer and the rows of a run whose folder is gone, and what an earlier removal
    left of that. Raises NotFoundError, UsageError while the folder exists.
    """
    pointer = pointer_of(run_id)
    if not is_known_id(run_id):
        raise NotFoundError(f"no run {run_id!r}", hint="albor runs ls")
    known = run_at(run_id, read_json(pointer))
    path = None if known is None else str(known.path)
    if path is not None and os.path.lexists(path):
        raise UsageError(f"{path}: exists, but is not a run directory", hint=f"look at {path}")
    size = 0
    for half in _halves(run_id, path):
        size += size_of(half)
        remove_tree(half)
    rows = forget_rows(run_id, global_path) if global_path.is_file() else 0
    if not rows and not os.path.lexists(pointer):
        raise NotFoundError(f"no run {run_id!r}", hint="albor runs ls")
    pointer.unlink(missing_ok=True)
    begun_mark(run_id).unlink(missing_ok=True)
    forget_sinks(run_id)
    forget_collector(run_id)
    return Removed(run_id, None, size, history_kept=False)


def _halves(run_id: str, path: str | None) -> Iterator[Path]:
    """What removals that were killed left of a run that was in `path`."""
    own_id = run_id.partition("@")[0]
    parent = Path(path).parent if path else albor_home() / "runs"
    for child in _children(parent):
        is_its = child.name.startswith(f".{own_id}.removed-") and _DOOMED.fullmatch(child.name)
        if is_its and _is_folder(child):
            yield child


def is_row_of(run: RunDir, global_path: Path) -> bool:
    """Whether the global store's row under this id is that of this folder, as far as it can be
    read: who writes to it next says what is wrong with it.
    """
    if not global_path.is_file():
        return False
    try:
        db, copy = open_reader(global_path)
    except StoreError:
        return True
    try:
        row = db.execute("SELECT path, created FROM runs WHERE run = ?", (run.id,)).fetchone()
    except sqlite3.Error:
        return True
    finally:
        db.close()
        remove_copy(copy)
    return row is not None and (placed(run.id, str(row[0]), row[1], is_ours=True).path == run.path)


def forget_rows(run_id: str, global_path: Path) -> int:
    """Delete the run from the global store, if it is recorded.

    Returns the number of runs deleted. Raises TryAgainError, StoreError.
    """
    if not global_path.is_file():
        return 0
    with exclusive(global_path), _in_words(global_path):
        db = open_writer(global_path)
        try:
            with transaction(db):
                row = db.execute("SELECT id FROM runs WHERE run = ?", (run_id,)).fetchone()
                if row is None:
                    return 0
                for (table,) in db.execute(
                    "SELECT m.name FROM sqlite_master m JOIN pragma_table_info(m.name) c"
                    " WHERE m.type = 'table' AND c.name = 'run_id'"
                ).fetchall():
                    db.execute(f"DELETE FROM {table} WHERE run_id = ?", (row[0],))
                search.remove_words(db, row[0])
                db.execute("DELETE FROM runs WHERE id = ?", (row[0],))
        finally:
            db.close()
    return 1


@contextlib.contextmanager
def _in_words(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise as_store_error(path, error) from error


def garbage(runs: Iterable[RunDir]) -> Iterator[Garbage]:
    """What killed processes left: half-removed runs, half-written files and checkpoints, rebuilds
    that did not end, and damaged stores set aside a week ago.
    """
    known = list(runs)
    for parent in sorted({albor_home() / "runs", *(run.path.parent for run in known)}):
        for path in _children(parent):
            if _DOOMED.fullmatch(path.name) and _is_folder(path):
                yield Garbage(path, size_of(path), "half-removed run")
    for run in known:
        if not _is_folder(run.path) or not run.run_json.is_file() or run.liveness().is_alive:
            continue
        for path, why in _leftovers(run):
            yield Garbage(path, size_of(path), why, run)


def sweep(item: Garbage) -> bool:
    """Remove a leftover; False where its run has come to life. Raises AlborError."""
    if item.run is None:
        remove_tree(item.path)
        return True
    try:
        with hold_run(item.run):
            if item.journal not in (None, size_of(item.run.journal)):
                return False
            if _is_folder(item.path):
                remove_tree(item.path)
            else:
                item.path.unlink(missing_ok=True)
    except InUseError:
        return False
    return True


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files below a folder; links count as themselves."""
    total = 0
    with contextlib.suppress(OSError):
        total = path.lstat().st_size if not _is_folder(path) else 0
    if _is_folder(path):
        for parent, _, names in os.walk(path):
            for name in names:
                with contextlib.suppress(OSError):
                    total += (Path(parent) / name).lstat().st_size
    return total


def doom(run: RunDir) -> Path:
    """Rename the folder to one that `garbage` knows for half removed; returns it."""
    doomed = run.path.with_name(f".{run.own_id}.removed-{secrets.token_hex(4)}")
    try:
        run.path.rename(doomed)
        fsync_dir(doomed.parent)
    except OSError as error:
        raise AlborError(f"{run.path}: cannot be removed: {error.strerror}") from error
    return doomed


def must_be_ours(run: RunDir) -> None:
    """Raise NotFoundError, UsageError for what is not a run directory of this user."""
    try:
        status = run.path.lstat()
    except OSError as error:
        raise NotFoundError(f"{run.path}: {error.strerror}", hint="albor runs ls") from error
    if stat.S_ISLNK(status.st_mode):
        raise link_refused(run.path)
    if not stat.S_ISDIR(status.st_mode):
        raise UsageError(f"{run.path}: not a folder")
    if status.st_uid != os.geteuid():
        raise UsageError(f"{run.path}: belongs to user id {status.st_uid}")
    document = read_json(run.run_json) or {}
    if document.get("id") != run.path.name or not is_run_id(run.path.name):
        raise UsageError(f"{run.path}: its run.json does not say that it is run {run.path.name!r}")


def link_refused(path: Path) -> UsageError:
    """What to say of a link where a run directory was meant."""
    real = path.resolve()
    return UsageError(
        f"{path}: a symbolic link to {real}; links are not followed",
        hint=f"albor runs rm {shlex.quote(str(real))}",
    )


@contextlib.contextmanager
def hold_run(run: RunDir) -> Iterator[None]:
    """All locks of the run. The index process of a run that has just ended gets time to finish."""
    held: list[int] = []
    try:
        # the index process first: it ends only while no process holds the others
        deadline = time.monotonic() + _INDEX_WAIT_S
        while _is_folder(run.index_lock.parent):
            try:
                held.append(take_lock(run.index_lock))
                break
            except InUseError as error:
                if time.monotonic() > deadline:
                    raise InUseError(f"{run.id}: still being indexed", hint="try again") from error
                time.sleep(0.1)
        for lock in (run.run_lock, run.guard_lock):
            if _is_folder(lock.parent):
                held.append(_lock(lock, run))
        yield
    finally:
        for fd in held:
            os.close(fd)


def _lock(path: Path, run: RunDir) -> int:
    try:
        return take_lock(path)
    except InUseError as error:
        hint = f"albor guard stop {run.id}"
        raise InUseError(f"{run.id} is alive: {error.message}", hint=hint) from error
    except OSError as error:
        raise AlborError(f"{path}: {error.strerror}") from error


def _leftovers(run: RunDir) -> Iterator[tuple[Path, str]]:
    yield from _half_written(run)
    for path in _children(run.store.parent):
        if path.name.startswith("experiments.db.rebuild") and is_old(path, SETTLED_S):
            yield path, "rebuild that did not end"
        if path.name.startswith("corrupt-") and _is_folder(path) and is_old(path, _CORRUPT_S):
            yield path, "damaged store, made again since"


def _half_written(run: RunDir) -> Iterator[tuple[Path, str]]:
    for folder in (run.path, run.guard, run.checkpoints, run.crash_reports, run.path / MEDIA):
        for path in _children(folder):
            if _TEMPORARY.fullmatch(path.name) and path.is_file() and is_old(path, SETTLED_S):
                yield path, "half-written file"
    for name, path in entries(run.checkpoints) if _is_folder(run.checkpoints) else ():
        if name.suffix == HALF and _is_folder(path) and is_old(path, SETTLED_S):
            yield path, "half-written checkpoint"


def _children(folder: Path) -> list[Path]:
    """Entries of a folder that is not a link; none where it cannot be read."""
    try:
        return sorted(folder.iterdir()) if _is_folder(folder) else []
    except OSError:
        return []


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def is_old(path: Path, age_s: float) -> bool:
    try:
        return time.time() - path.lstat().st_mtime > age_s
    except OSError:
        return False


def _is_named(run: RunDir) -> bool:
    """Whether this home's file under this id leads to this folder, and not to another run's."""
    known = run_at(run.id, read_json(pointer_of(run.id)))
    return known is not None and known.path == run.path


def _forget_pointer(run: RunDir) -> None:
    pointer_of(run.id).unlink(missing_ok=True)
    begun_mark(run.id).unlink(missing_ok=True)
    forget_sinks(run.id)
    forget_collector(run.id)


def remove_tree(path: Path) -> None:
    """Remove a folder. Raises AlborError if the system refuses: what is left is garbage."""
    try:
        shutil.rmtree(path)  # by descriptors: what turns into a link on the way is not followed
    except OSError as error:
        raise AlborError(
            f"{path}: cannot be removed: {error.strerror}", hint="albor runs gc"
        ) from error
