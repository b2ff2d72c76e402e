"""The folder that `pretokenize` fills: held against other packers, cleared, taken back on failure.

The lock file stays in it, so that a later packer knows an unfinished output of ours from a folder
with somebody else's shards.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from albor_core.data.pack.manifest import MANIFEST_NAME
from albor_core.data.pack.shard_writer import SHARD_PATTERN
from albor_core.run.errors import AlborError, DataError, InUseError, UsageError, remedy
from albor_core.run.files.publish import temporary
from albor_core.run.files.whole_file import fsync_dir

SPLITS = ("train", "val")
_LOCK_NAME = ".pretokenize.lock"


class OutputLock:
    """The lock file of an output directory; not empty once a packer has begun to write there."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.text = os.pread(descriptor, 40, 0).decode("ascii", "replace").strip()
        self.found = bool(self.text)

    def write(self, text: str) -> None:
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, text.encode("ascii"), 0)


@contextmanager
def only_packer(out_dir: Path) -> Iterator[OutputLock]:
    """Hold `out_dir` against other packers. Raises InUseError naming the holder, UsageError where
    it is a file, AlborError where the disk refuses.
    """
    lock = out_dir / _LOCK_NAME
    if out_dir.is_file():
        raise UsageError(f"{out_dir}: is a file; name a folder", hint="another --out")
    made = [folder for folder in (out_dir, *out_dir.parents) if not folder.exists()]
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        _remove_folders(made)
        raise _refused(lock, error) from error
    try:
        _hold(descriptor, lock)
        try:
            yield OutputLock(descriptor)
        except BaseException as error:
            if made:
                _remove_output(out_dir, made)
            if isinstance(error, OSError):  # of the folder or the lock: files name themselves
                raise _refused(Path(error.filename or lock), error) from error
            raise
    finally:
        os.close(descriptor)


def _hold(descriptor: int, lock: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Between open and flock a packer that failed may have removed this very file.
        if os.path.samestat(os.fstat(descriptor), lock.stat(follow_symlinks=False)):
            return
    except (BlockingIOError, FileNotFoundError):
        pass
    holder = OutputLock(descriptor).text
    raise InUseError(
        f"{lock.parent}: another process (pid {holder or 'unknown'}) is packing into it",
        hint="wait for it, or choose another output directory",
    )


def _refused(path: Path, error: OSError) -> AlborError:
    return AlborError(
        f"{path}: cannot be written: {error.strerror}",
        hint=f"{remedy(error) or 'run it again'}; or choose another output directory",
    )


def _remove_output(out_dir: Path, made: list[Path]) -> None:
    """Take an output back that was begun in a new folder; what is not ours stays, and its folder.

    As well as the disk allows: the failure that brought us here is the one to tell.
    """
    splits = [out_dir / split for split in SPLITS]
    with suppress(OSError):
        clear(out_dir)
        (out_dir / _LOCK_NAME).unlink()
    _remove_folders([*splits, *made])


def _remove_folders(folders: list[Path]) -> None:
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


def refuse_foreign(out_dir: Path, *, ours: bool) -> None:
    """Raise DataError when a split holds shards that nothing here wrote."""
    for directory in (out_dir / split for split in SPLITS):
        shards = set(directory.glob(SHARD_PATTERN)) if ours else set()
        if foreign := sorted(set(directory.glob("*.parquet")) - shards):
            raise DataError(
                f"{foreign[0]}: was not written by albor data pretokenize",
                hint="choose another output directory, or move that file away",
            )


def clear(out_dir: Path) -> None:
    """Remove what an earlier packer left, manifests first: they must never name missing shards."""
    splits = [out_dir / split for split in SPLITS]
    for directory in (out_dir, *splits):
        (directory / MANIFEST_NAME).unlink(missing_ok=True)
    for directory in splits:
        directory.mkdir(exist_ok=True)
        for pattern in (SHARD_PATTERN, temporary(Path(SHARD_PATTERN)).name):
            for leftover in directory.glob(pattern):
                leftover.unlink()
        fsync_dir(directory)
    fsync_dir(out_dir)
