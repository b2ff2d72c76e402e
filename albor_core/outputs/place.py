"""The output path of a built thing: it exists complete under its name, or not at all.

    NAME.part/         what will be NAME, its result last; renamed when all of it is there
    NAME.part/.work/   as long as it is built: lock (with the pid of who holds it), identity, and
                       what a later try goes on from

A folder NAME that is there already (empty, a mount, to be replaced, begun by an earlier version) is
filled where it is: its result goes first and comes last.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from albor_core.run.checkpoints import DOOMED, HALF
from albor_core.run.errors import (
    AlborError,
    DataError,
    InUseError,
    refused_by_the_machine,
    remedy,
)
from albor_core.run.files.lock_file import locked
from albor_core.run.files.publish import link_or_copy
from albor_core.run.files.whole_file import fsync_dir

WORK = ".work"
_LOCK, _IDENTITY = "lock", "identity"  # in the work folder
ELSEWHERE = "choose another --out"


def part_of(path: Path) -> Path:
    """The temporary path at which `path` is built."""
    return path.with_name(f"{path.name}{HALF}")


@dataclass(frozen=True)
class OutputPlace:
    """The output path of a file or folder that is built; `own`: name patterns of the files that a
    folder gets."""

    path: Path
    own: tuple[str, ...] = ("*",)

    @property
    def work(self) -> Path:
        """The work folder, which exists until the output is complete."""
        return (self.path if self.path.is_dir() else part_of(self.path)) / WORK

    @property
    def begun(self) -> str | None:
        """The identity of the output that an unfinished attempt builds; None if there is none."""
        return _line(self.work / _IDENTITY) or None

    def foreign(self, folder: Path, own: Sequence[str] | None = None) -> list[Path]:
        """Files in the folder that Albor did not make."""
        ours = (WORK, *(self.own if own is None else own))
        return [one for one in folder.iterdir() if not any(fnmatchcase(one.name, x) for x in ours)]

    def tidy(self) -> None:
        """Remove what a kill after the very last step left in or beside a complete output."""
        room = self.work.parent
        if self.work.exists() or (room == part_of(self.path) and room.exists()):
            with suppress(InUseError, DataError), held(self) as work:
                clear(work)


@contextmanager
def held(place: OutputPlace, mode: int = 0o777) -> Iterator[Path]:
    """Lock the work folder against other processes and yield it. Results in it stay for the next
    attempt; without any it is removed. Raises InUseError, DataError if NAME.part was not made by
    Albor, AlborError if the disk refuses.
    """
    work = place.work
    room = work.parent
    is_beside = room == part_of(place.path)
    if is_beside and room.is_dir():
        _refuse(place.foreign(room, None if work.is_dir() else ()))
    made = [work, *[room] * is_beside, *(one for one in work.parents if not one.exists())]
    try:
        for folder in (room, work):
            folder.mkdir(mode=mode, parents=True, exist_ok=True)
        with _alone(place, work / _LOCK):
            try:
                yield work
            finally:
                _leave(work)
    except OSError as error:
        if (refusal := _refusal_of(error, place.path, work)) is None:
            raise
        raise refusal from error
    finally:
        for folder in made:
            with suppress(OSError):  # of another, or with something in it
                folder.rmdir()


def _refusal_of(error: OSError, path: Path, work: Path) -> AlborError | None:
    """The reason why `path` cannot be written; None if the error comes from what is read, a pipe or
    a process."""
    if error.filename is None and refused_by_the_machine(error) is None:
        return None
    room = work.parent
    at = Path(error.filename or room)
    is_above = at in (room, work, *room.parents)
    if at != path and not is_above and room not in at.parents:
        return None
    return AlborError(
        f"{path if is_above else at}: cannot be written: {error.strerror or error}",
        hint=f"{remedy(error) or 'run it again'}; or {ELSEWHERE}",
    )


@contextmanager
def _alone(place: OutputPlace, lock: Path) -> Iterator[None]:
    busy = InUseError(
        f"{place.path}: another process (pid {_line(lock) or 'unknown'}) is writing it",
        hint=f"wait for it, or {ELSEWHERE}",
    )
    with locked(lock, busy, 0o666) as descriptor:
        with suppress(OSError):  # a full disk: whatever comes will tell
            os.ftruncate(descriptor, 0)
            os.write(descriptor, f"{os.getpid()}\n".encode())
        yield


def begin(work: Path, identity: str, keep: Sequence[str] = ()) -> bool:
    """Prepare `work` for the job of this identity; True if an earlier attempt of the same job is in
    it. Leftovers of other jobs are removed, except names matched by `keep`.
    """
    if _line(work / _IDENTITY) == identity:
        return True
    clear(work, keep)
    (work / _IDENTITY).write_text(f"{identity}\n", encoding="ascii")
    return False


def clear(work: Path, keep: Sequence[str] = ()) -> None:
    """Remove everything in the work folder that a later attempt could use, except names matched by
    `keep`."""
    for entry in work.iterdir():
        if entry.name not in (_LOCK, *keep):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


@contextmanager
def kept_if_begun(work: Path, steps: str) -> Iterator[None]:
    """Keep the work of a failed or killed attempt for the next one if a step is complete (a JSON
    file in the folder `steps`), and never if an input was refused, since a corrected input is
    another job.
    """
    try:
        yield
    except BaseException as error:
        if isinstance(error, DataError) or not any((work / steps).glob("*.json")):
            clear(work)
        raise


def publish_files(files: Iterable[Path], folder: Path, old: Iterable[Path] = ()) -> None:
    """Remove the files `old`, whose first is the result, then link or copy `files` into `folder`: a
    result never refers to missing files. May be repeated after a kill.
    """
    for one in old:
        one.unlink(missing_ok=True)
    for file in files:
        link_or_copy(file, folder / file.name)
    fsync_dir(folder)


def finish(place: OutputPlace, work: Path) -> None:
    """Finish once the result is written: the output gets its final name, and the work folder is
    removed."""
    room = work.parent
    if room != place.path:
        _refuse(place.foreign(room))  # put there meanwhile
        fsync_dir(room)
        room.rename(place.path)
        fsync_dir(place.path.parent)
    shutil.rmtree(place.path / WORK)


def discard(work: Path) -> None:
    """Remove the work folder of a complete file, and NAME.part with it."""
    shutil.rmtree(work)
    if work.parent.suffix == HALF:
        with suppress(OSError):  # something else is in it
            work.parent.rmdir()


@contextmanager
def built(path: Path) -> Iterator[Path]:
    """Yield a new folder NAME.part to the only process that builds `path`: renamed to `path` if the
    block succeeds (replacing what was there), else removed. Raises OSError.
    """
    room, replaced = part_of(path), None
    shutil.rmtree(room, ignore_errors=True)
    room.mkdir(mode=0o700, parents=True)
    try:
        yield room
        fsync_dir(room)
        replaced = _step_aside(path) if path.exists() else None
        room.rename(path)
    except BaseException:
        shutil.rmtree(room, ignore_errors=True)
        raise
    fsync_dir(path.parent)
    if replaced is not None:
        _delete(replaced)


def remove(path: Path) -> None:
    """Remove a built folder, by a rename first: a kill in between leaves a `.del`, never half of
    it."""
    _delete(_step_aside(path))


def _step_aside(path: Path) -> Path:
    if path.suffix == DOOMED:
        return path
    doomed = path.with_name(f"{path.name}{DOOMED}")
    if os.path.lexists(doomed):
        _delete(doomed)
    return path.rename(doomed)


def _delete(path: Path) -> None:
    """Delete a folder with its contents; of a link only the link, wherever it points. Raises
    OSError."""
    if path.is_symlink():
        path.unlink()
    else:
        shutil.rmtree(path)


def _refuse(foreign: Sequence[Path]) -> None:
    if foreign:
        hint = f"move it away, or {ELSEWHERE}"
        raise DataError(f"{foreign[0]}: was not made by albor, which builds here", hint=hint)


def _line(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _leave(work: Path) -> None:
    """Remove the work folder if nothing in it is of use to a later attempt."""
    results = (one for one in work.rglob("*") if one.name not in (_LOCK, _IDENTITY))
    if work.exists() and not any(one.is_file() for one in results):
        clear(work)
        (work / _LOCK).unlink(missing_ok=True)
