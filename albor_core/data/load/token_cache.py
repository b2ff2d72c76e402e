"""Token ids of a split as one flat file that all ranks and runs of this user map: written once, by
whoever needs it first, while others wait.

    ids            N rows of T ids of 2 or 4 bytes, from byte 0 on
    inner          N counts of 4 bytes: documents that begin inside of each row; where that is known
    digests        16 bytes of BLAKE3 for each block of BLOCK bytes of what stands before
    about          JSON: schema, what it was made from, shape, sizes
    its length     8 bytes, little endian, and the 8 bytes of MAGIC

The file's name is a hash of everything that determines its content, so it never needs an update. It
appears complete, by a rename. A process that uses it holds a shared lock; to free space, the oldest
unlocked files are removed. Its space is allocated before a byte is written, so a disk that fills up
later does not stop a run; a truncated file is noticed before it is read.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import random
import stat
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from albor_core.data.pack.manifest import Manifest
from albor_core.data.pack.shard_check import read_manifest
from albor_core.run.errors import Problem
from albor_core.run.home.folders import albor_home

SCHEMA = "tokens/1"
MAGIC = b"albortok"
BLOCK = 4 << 20
DIGEST = 16
KEPT_BYTES = 64 << 30
"""All caches of a folder together; beyond it the oldest go."""
LEFT_FREE = 2 << 30
"""Bytes of a disk that no cache takes: runs save their checkpoints there."""
_SAMPLES = 8
_TAIL = 16
_MAX_ABOUT = 1 << 20


@dataclass(frozen=True)
class Wanted:
    """Everything that determines the content of a cache."""

    manifest: Manifest
    column: str
    seq_len: int
    rows: int
    """At most: a cut that drops rows makes fewer."""
    dtype: np.dtype[Any]
    eos: int | None
    bos: int | None

    @property
    def key(self) -> str:
        parts: list[Any] = [SCHEMA, self.manifest.data_hash, self.column, self.seq_len]
        parts += [self.dtype.str, self.eos, self.bos]
        if self.manifest.scanned:  # its hash knows the shards' footers alone
            parts += [path.stat().st_mtime_ns for path in self.manifest.paths()]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]

    @property
    def tells_documents(self) -> bool:
        return self.eos is not None or self.bos is not None

    @property
    def num_bytes(self) -> int:
        per_row = self.seq_len * self.dtype.itemsize + 4 * self.tells_documents
        return self.rows * per_row


class MapWriter(Protocol):
    """Fills the maps (rows, T) and, if documents are told apart, (rows,); returns the number of
    rows and the highest id.
    """

    def __call__(
        self, ids: NDArray[Any], inner: NDArray[np.uint32] | None, /
    ) -> tuple[int, int]: ...


class DamagedCacheError(Exception):
    """A cache file that differs from what was written."""


class TokenFile:
    """One cache, open and locked."""

    def __init__(self, path: Path) -> None:
        """Open and lock a cache. Raises OSError, DamagedCacheError."""
        self.path = path
        self._file: BinaryIO = path.open("rb")
        try:
            fcntl.flock(self._file, fcntl.LOCK_SH)  # an evictor that came first leaves us the bytes
            self._size = os.fstat(self._file.fileno()).st_size
            self.about = self._read_about()
            rows, length = int(self.about["rows"]), int(self.about["seq_len"])
            dtype = np.dtype(self.about["dtype"])
            self.max_id = int(self.about["max_id"])
            self.ids: NDArray[Any] = np.memmap(self._file, dtype, "r", 0, (rows, length))
            self.inner: NDArray[Any] | None = None
            if self.about["tells_documents"]:
                begin = rows * length * dtype.itemsize
                self.inner = np.memmap(self._file, np.uint32, "r", begin, (rows,))
        except (KeyError, TypeError, ValueError) as error:
            self._file.close()
            raise DamagedCacheError(f"{path}: {error}") from error
        except BaseException:
            self._file.close()
            raise

    def _read_about(self) -> dict[str, Any]:
        fd = self._file.fileno()
        tail = os.pread(fd, _TAIL, max(0, self._size - _TAIL))
        if tail[8:] != MAGIC:
            raise DamagedCacheError(f"{self.path}: its end is missing")
        length = int.from_bytes(tail[:8], "little")
        if length > _MAX_ABOUT:
            raise DamagedCacheError(f"{self.path}: its end is damaged")
        about: dict[str, Any] = json.loads(os.pread(fd, length, self._size - _TAIL - length))
        blocks = -(-int(about["bytes"]) // BLOCK)
        if (
            about["schema"] != SCHEMA
            or self._size != about["bytes"] + blocks * DIGEST + length + 16
        ):
            raise DamagedCacheError(f"{self.path}: it is of another size than its writer says")
        return about

    def check(self, *, whole: bool = False) -> None:
        """Compare some blocks with their digests, others each time; or all of them. Raises
        DamagedCacheError, OSError.
        """
        size, fd = int(self.about["bytes"]), self._file.fileno()
        blocks = -(-size // BLOCK)
        chosen: Sequence[int] = range(blocks)
        if not whole and blocks > _SAMPLES:
            picked = random.SystemRandom().sample(range(1, blocks - 1), _SAMPLES - 2)
            chosen = [0, *picked, blocks - 1]
        for block in chosen:
            told = os.pread(fd, DIGEST, size + block * DIGEST)
            begin = block * BLOCK
            content = os.pread(fd, min(BLOCK, size - begin), begin)
            if blake3(content).digest(DIGEST) != told:
                raise DamagedCacheError(f"{self.path}: block {block} is damaged")

    @property
    def is_cut_short(self) -> bool:
        """Whether the file has become shorter: reading beyond its end through a map would kill this
        process without a message.
        """
        return os.fstat(self._file.fileno()).st_size < self._size


def folders() -> Iterator[Path]:
    """Folders for caches, the best first, created for the user; unusable ones are skipped."""
    places = (
        albor_home() / "cache" / "tokens",
        Path(tempfile.gettempdir()) / f"albor-tokens-{os.getuid()}",
    )
    for folder in places:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = folder.lstat()
        except OSError:
            continue
        if stat.S_ISDIR(found.st_mode) and found.st_uid in (os.getuid(), 0):
            yield folder


def open_cache(wanted: Wanted, write: MapWriter) -> TokenFile | None:
    """The cache, written by `write` if there is none; None if no disk has the space, or if the data
    to be written cannot be read.

    Other exceptions of `write` are raised.
    """
    for folder in folders():
        path = folder / f"{wanted.key}.tokens"
        if (found := _opened(path)) is not None:
            return found
    for folder in folders():
        with contextlib.suppress(OSError):
            return _made(folder / f"{wanted.key}.tokens", wanted, write)
    return None


def _opened(path: Path) -> TokenFile | None:
    """An existing intact cache; a damaged one is removed."""
    try:
        found = TokenFile(path)
        found.check()
        os.utime(path)  # the oldest go first
    except FileNotFoundError:
        return None
    except DamagedCacheError:
        path.unlink(missing_ok=True)  # whoever has it mapped keeps what they have
        return None
    except OSError:
        return None
    return found


def _made(path: Path, wanted: Wanted, write: MapWriter) -> TokenFile:
    lock, draft = path.with_suffix(".lock"), path.with_suffix(".draft")
    with lock.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # waits for another that writes the same
        if (found := _opened(path)) is not None:
            return found
        make_room(path.parent, wanted.num_bytes)
        try:
            _write(draft, wanted, write)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
        return TokenFile(path)


def _write(draft: Path, wanted: Wanted, write: MapWriter) -> None:
    descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "r+b") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, wanted.num_bytes))
        shape = (wanted.rows, wanted.seq_len)
        ids = np.memmap(file, wanted.dtype, "r+", 0, shape)
        begin = ids.nbytes
        inner = None
        if wanted.tells_documents:
            inner = np.memmap(file, np.uint32, "r+", begin, (wanted.rows,))
        rows, max_id = write(ids, inner)
        size = rows * wanted.seq_len * wanted.dtype.itemsize
        if inner is not None:
            counts = inner[:rows].tobytes()
            os.pwrite(file.fileno(), counts, size)
            size += len(counts)
        ids.flush()
        del ids, inner
        file.truncate(size)
        digests = _digests(file, size)
        about = {
            "schema": SCHEMA,
            "data_hash": wanted.manifest.data_hash,
            "folder": str(wanted.manifest.directory.absolute()),
            "column": wanted.column,
            "seq_len": wanted.seq_len,
            "rows": rows,
            "dtype": wanted.dtype.str,
            "tells_documents": wanted.tells_documents,
            "max_id": max_id,
            "bytes": size,
        }
        text = json.dumps(about).encode()
        file.seek(size)
        file.write(digests + text + len(text).to_bytes(8, "little") + MAGIC)
        file.flush()
        os.fsync(file.fileno())
        os.fchmod(file.fileno(), 0o400)


def _digests(file: BinaryIO, size: int) -> bytes:
    fd = file.fileno()
    starts = range(0, size, BLOCK)
    return b"".join(blake3(os.pread(fd, min(BLOCK, size - at), at)).digest(DIGEST) for at in starts)


def make_room(folder: Path, needed: int, *, kept: int = KEPT_BYTES, free: int = LEFT_FREE) -> None:
    """Remove leftovers of killed writers, and the oldest unlocked caches, until `needed` more bytes
    stay below `kept` and leave `free` bytes of the disk. Locked caches, or a single one larger than
    `kept`, may exceed it; raises OSError if the disk lacks the space.
    """
    for draft in folder.glob("*.draft"):
        if draft.stem and not _is_held(draft.with_suffix(".lock")):
            draft.unlink(missing_ok=True)
    files = sorted(_with_sizes(folder))
    total = sum(size for _, size, _ in files)
    for _, size, path in files:
        room = os.statvfs(folder)
        has_room = room.f_bavail * room.f_frsize >= needed + free
        if total + needed <= kept and has_room:
            return
        if _remove_unheld(path):
            total -= size
    room = os.statvfs(folder)
    if room.f_bavail * room.f_frsize < needed + free:
        raise OSError(f"{folder}: no room for {needed} bytes of token ids")


def _with_sizes(folder: Path) -> Iterator[tuple[float, int, Path]]:
    for path in folder.glob("*.tokens"):
        with contextlib.suppress(FileNotFoundError):
            found = path.stat()
            yield found.st_mtime, found.st_size, path


def _is_held(lock: Path) -> bool:
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _remove_unheld(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
    except (BlockingIOError, FileNotFoundError):
        return False
    return True


def verify_caches(split_dir: Path) -> Iterator[Problem]:
    """Problems of the caches that were made from a split, with any seq_len. Raises as
    `read_manifest`.
    """
    data_hash = read_manifest(split_dir, scan=True).data_hash
    for folder in folders():
        for path in sorted(folder.glob("*.tokens")):
            try:
                found = TokenFile(path)
            except (DamagedCacheError, OSError):
                continue  # of any split; whoever opens it writes it again
            if found.about.get("data_hash") != data_hash:
                continue
            try:
                found.check(whole=True)
            except (DamagedCacheError, OSError) as error:
                hint = f"rm {path}: the next run writes it again"
                yield Problem(path.name, f"cache of token ids: {error}", hint, str(path))
