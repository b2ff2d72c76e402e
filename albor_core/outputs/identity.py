"""Identity of a built thing: one hash of one canonical JSON of everything it depends on; hashes of
files.

BLAKE3 of compact JSON with sorted keys. Corpora use SHA-256 and evaluations wider separators, as
their first versions did, so identities in existing records stay valid.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from blake3 import blake3

from albor_core.run.files.tensor_header import DamagedFileError

ALGO = "blake3"
CHUNK = 8 << 20


class Hasher(Protocol):
    def update(self, data: Any, /) -> Any: ...
    def hexdigest(self) -> str: ...


@dataclass(frozen=True)
class FileHash:
    """Expected contents of a file: size in bytes, algorithm, hex digest."""

    size: int
    algo: str
    hash: str

    def to_json(self) -> dict[str, Any]:
        return {"size": self.size, "algo": self.algo, "hash": self.hash}


def new_hasher(algo: str = ALGO, *, threads: int = 1) -> Hasher:
    """Make a hasher for `algo`. Raises DamagedFileError for an algorithm that this machine cannot
    compute."""
    if algo == "sha256":
        return hashlib.sha256()
    if algo == ALGO:
        return blake3(max_threads=threads)  # of its own: those of AUTO are dead after a fork
    raise DamagedFileError(f"hash algorithm {algo!r} is not available here")


def identity_of(document: Any, algo: str = ALGO, separators: tuple[str, str] = (",", ":")) -> str:
    """Hex hash of a JSON document: equal documents have equal identities, whatever the order of
    their keys."""
    hasher = new_hasher(algo)
    hasher.update(json.dumps(document, sort_keys=True, separators=separators).encode())
    return hasher.hexdigest()


def write_file(path: Path, chunks: Iterable[bytes | memoryview]) -> FileHash:
    """Write a new file with these bytes, hashed while they are written and fsynced. Raises
    OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    hasher, size = new_hasher(), 0
    try:
        for chunk in chunks:
            hasher.update(chunk)
            view = memoryview(chunk).cast("B")
            while view:
                written = os.write(fd, view)
                size, view = size + written, view[written:]
        os.fsync(fd)
    finally:
        os.close(fd)
    return FileHash(size, ALGO, hasher.hexdigest())


def hash_file(path: Path, algo: str, *, threads: int = 1) -> FileHash:
    """Hash of a file as it is on the disk now. Raises OSError, DamagedFileError for anything but a
    regular file. `threads`: more than one only while no training needs the cores.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    hasher, size = new_hasher(algo, threads=threads), 0
    with os.fdopen(fd, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise DamagedFileError("not a regular file")
        # into the same memory again and again: 2.8 GB/s with new pages for each chunk, 3.7 so
        chunk = memoryview(bytearray(CHUNK))
        while count := file.readinto(chunk):
            hasher.update(chunk[:count])
            size += count
    return FileHash(size, algo, hasher.hexdigest())


def hash_of_file(path: Path, *, threads: int = 1) -> str:
    """BLAKE3 of a file in hex. Raises OSError. `threads`: -1 for all cores, never in a forked
    process."""
    return str(blake3(max_threads=threads).update_mmap(path).hexdigest())


def hash_of_data(path: Path) -> str:
    """BLAKE3 of a file, or of names and bytes of all files below a folder; "" if `path` does not
    exist. Raises OSError.
    """
    if path.is_file():
        status = path.stat()
        return _hash_seen(path, status.st_size, status.st_mtime_ns, status.st_ino)
    digest = blake3()
    files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else []
    for file in files:
        digest.update(f"{file.relative_to(path)}\0{hash_of_data(file)}\n".encode())
    return digest.hexdigest() if files else ""


@lru_cache(maxsize=256)
def _hash_seen(path: Path, *status: int) -> str:
    """Cached hash of a file: a watch asks for each checkpoint again and again; a changed `status`
    invalidates the entry."""
    return hash_of_file(path)
