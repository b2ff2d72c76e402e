"""Moving a run's folder elsewhere, to another disk too, and never being without a whole run.

A run keeps its id, which is its folder's name; what changes is the folder it lies in. All its locks
are held meanwhile. The pointer in ALBOR_HOME/runs says what is going on, so that after a kill at
any moment the run is found, whole, and the same command finishes the job:

    path old, moving_to new     rename, or on another disk: copy under a hidden name, compare every
                                byte, rename
    path new, moved_from old    the old folder is removed
    path new                    done

The stores follow from the run's own files, like everything else they know.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blake3 import blake3

from albor_core.run.errors import AlborError, NotFoundError, UsageError, remedy
from albor_core.run.files.whole_file import fsync_dir, write_json
from albor_core.run.home.folders import pointer_of
from albor_core.run.home.runs import lent, placed, registered_runs, run_at
from albor_core.run.rundir import RunDir, is_run_id, read_json
from albor_core.run.values.quantity import byte_size
from albor_core.store.file.paths import local_store
from albor_core.store.index.catch_up import drain_index
from albor_core.store.upkeep.rebuild import discard
from albor_core.store.upkeep.remove import doom, hold_run, must_be_ours, remove_tree, size_of

_BLOCK = 4 << 20


@dataclass(frozen=True)
class MoveResult:
    """A run that lies in `path` from now on. `copied`: across file systems. `indexed`: both stores
    know already; else the run's index process will tell them.
    """

    run: str
    old: str
    path: str
    bytes: int
    copied: bool
    indexed: bool


def move_run(run: RunDir, folder: Path) -> MoveResult:
    """Let the run lie in `folder`, which is made if need be; the run's own folder keeps its name.

    Raises InUseError where a process works on the run, UsageError where it cannot lie there,
    AlborError where the system refuses: then it is where it was.
    """
    must_be_ours(run)
    target = RunDir(folder.expanduser().resolve() / run.own_id, run.alias)
    pointer = _Pointer(run)
    old = pointer.old_place(target.path)
    _must_fit(run.path, target.path, is_known=pointer.entry.get("moving_to") == str(target.path))
    size, outside = size_of(run.path), local_store(run)
    copied = False
    with hold_run(run):
        if run.path != target.path:
            pointer.replace(run.path, moving_to=target.path)
            try:
                copied = _move_or_copy(run.path, target.path, size)
            except BaseException:
                if not os.path.lexists(target.path):
                    pointer.replace(run.path)
                raise
        pointer.replace(target.path, moved_from=old)
        if old != target.path and os.path.lexists(old):
            with nullcontext() if old == run.path else hold_run(RunDir(old)):
                _remove_old(RunDir(old), target)
        pointer.replace(target.path)
    if outside not in (run.store, local_store(target)):
        discard(outside)  # on this host's disk, where the run's was a network mount
    return MoveResult(run.id, str(old), str(target.path), size, copied, drain_index(target))


def find_moved(reference: str) -> RunDir:
    """A run that a killed move left where no pointer's path leads. Raises NotFoundError."""
    for run in registered_runs():
        entry = read_json(pointer_of(run.id)) or {}
        target = entry.get("moving_to")
        if (
            reference.lower() in (run.id, run.own_id)
            and isinstance(target, str)
            and (Path(target) / "run.json").is_file()
        ):
            return RunDir(Path(target), run.alias)
    raise NotFoundError(f"no run {reference!r}", hint="albor runs ls")


class _Pointer:
    """ALBOR_HOME/runs/ID.json of a run that moves."""

    def __init__(self, run: RunDir) -> None:
        self._run, self._file = run, pointer_of(run.id)
        self.entry: dict[str, Any] = read_json(self._file) or {}
        known_at = run_at(run.id, self.entry)
        if known_at is not None and known_at.path == run.path:
            self.entry["path"] = str(run.path)  # the home itself has moved since
        known = (self.entry.get("path"), self.entry.get("moving_to"), self.entry.get("moved_from"))
        if self.entry and str(run.path) not in known:
            raise UsageError(
                f"{run.path}: this home knows another run {run.id!r}, in {self.entry.get('path')}"
            )
        self._created = self.entry.get("created", run.metadata().get("created"))

    def old_place(self, target: Path) -> Path:
        """The run's directory before this move, or before a killed one that this completes."""
        for place in (self.entry.get("moved_from"), self.entry.get("path")):
            if isinstance(place, str) and place != str(target):
                return placed(self._run.id, place, self._created, is_ours=True).path
        return target

    def replace(self, path: Path, **going_on: Path) -> None:
        """Replace the pointer, durably."""
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        notes = {key: str(place) for key, place in going_on.items()}
        entry = {
            "path": str(path),
            "created": self._created,
            **lent(RunDir(path, self._run.alias)),
            **notes,
        }
        try:
            write_json(self._file, entry, durable=True)
        except OSError as error:
            raise AlborError(f"{self._file}: {error.strerror}", hint=remedy(error)) from error


def _must_fit(source: Path, target: Path, *, is_known: bool) -> None:
    if target.is_relative_to(source) and target != source:
        raise UsageError(f"{target}: lies inside the run itself")
    if target != source and os.path.lexists(target) and not is_known:
        raise UsageError(f"{target}: exists", hint="choose another folder")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AlborError(f"{target.parent}: {error.strerror}", hint="another folder") from error


def _move_or_copy(source: Path, target: Path, size: int) -> bool:
    """The run at `target` as well or instead; whether it had to be copied."""
    if os.path.lexists(target):  # a killed copy had got this far
        _must_be_equal(source, target)
        return True
    try:
        source.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise AlborError(f"{source}: cannot be moved: {error.strerror}") from error
        _copy(source, target, size)
        return True
    fsync_dir(target.parent)
    fsync_dir(source.parent)
    return False


def _copy(source: Path, target: Path, size: int) -> None:
    free = shutil.disk_usage(target.parent).free
    if free < size:
        raise AlborError(
            f"{target.parent}: {byte_size(size)} needed, {byte_size(free)} free",
            hint="free some space, or another folder",
        )
    hidden = target.with_name(f".{target.name}.moving")
    try:
        if os.path.lexists(hidden):  # of a killed move: we hold the run's locks
            remove_tree(hidden)
        _copy_folder(source, hidden)
        _must_be_equal(source, hidden)
        hidden.rename(target)
        fsync_dir(target.parent)
    except BaseException as error:
        if os.path.lexists(hidden):
            shutil.rmtree(hidden, ignore_errors=True)
        if isinstance(error, OSError):
            where = error.filename or target
            raise AlborError(f"{where}: cannot be copied: {error.strerror}") from error
        raise


def _copy_folder(source: Path, target: Path) -> None:
    """Files with their modes and times, links as links. Locks are left out: to close one is to drop
    it, and an old one is not needed.
    """
    target.mkdir(mode=0o700)
    for entry in _entries(source):
        copy = target / entry.name
        if entry.is_symlink():
            copy.symlink_to(Path(entry).readlink())
        elif entry.is_dir():
            _copy_folder(Path(entry), copy)
        else:
            shutil.copy2(entry, copy, follow_symlinks=False)
            with copy.open("rb+") as file:
                os.fsync(file.fileno())
    shutil.copystat(source, target)
    fsync_dir(target)


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """What is worth moving: no locks, no sockets, no pipes, none of SQLite's shared memory."""
    with os.scandir(folder) as found:
        for entry in sorted(found, key=lambda entry: entry.name):
            is_plain = entry.is_symlink() or entry.is_dir() or entry.is_file()
            if is_plain and not entry.name.endswith((".lock", ".db-shm")):
                yield entry


def _must_be_equal(source: Path, copy: Path) -> None:
    """Every file byte by byte. Raises AlborError for the first that differs."""
    theirs = {entry.name: entry for entry in _entries(copy)}
    for entry in _entries(source):
        twin = theirs.pop(entry.name, None)
        if twin is None or not _is_equal(entry, twin):
            raise AlborError(f"{copy / entry.name}: differs from {entry.path}", hint=_BOTH)
        if entry.is_dir(follow_symlinks=False):
            _must_be_equal(Path(entry), Path(twin))
    if theirs:
        raise AlborError(f"{copy / min(theirs)}: is not in {source}", hint=_BOTH)


_BOTH = "both folders are as they were; look at them"


def _is_equal(a: os.DirEntry[str], b: os.DirEntry[str]) -> bool:
    if a.is_symlink() or b.is_symlink():
        return a.is_symlink() and b.is_symlink() and os.readlink(a) == os.readlink(b)  # noqa: PTH115
    if a.is_dir() or b.is_dir():
        return a.is_dir() and b.is_dir()
    return a.stat().st_size == b.stat().st_size and _hash(Path(a)) == _hash(Path(b))


def _hash(path: Path, size: int | None = None) -> bytes:
    """Hash of the first `size` bytes, or of the whole file."""
    hasher, left = blake3(), size
    with path.open("rb") as file:
        while block := file.read(_BLOCK if left is None else min(_BLOCK, left)):
            hasher.update(block)
            left = None if left is None else left - len(block)
    return hasher.digest()


def _remove_old(old: RunDir, new: RunDir) -> None:
    """Remove the folder that was copied; not if it went on after that."""
    if not is_run_id(old.own_id) or not old.run_json.is_file():
        return  # nothing of ours, or half removed: gc takes the rest
    size = old.journal.stat().st_size if old.journal.is_file() else 0
    if size and (not new.journal.is_file() or _hash(old.journal) != _hash(new.journal, size)):
        raise AlborError(f"{old.path}: went on after it was copied to {new.path}", hint=_BOTH)
    must_be_ours(old)
    remove_tree(doom(old))
