"""Size and hash of a file or folder that a user names."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_PIECE = 1 << 20


def fingerprint(path: Path) -> tuple[int, str]:
    """(bytes, `blake3:HEX`). Of a folder: all its regular files, by their relative names and
    contents; links inside it are not followed. Raises OSError, also for anything but a file or
    folder: a FIFO is never waited for.
    """
    from blake3 import blake3  # noqa: PLC0415  most loops record no artefact

    hasher = blake3()
    if not path.is_dir():
        return _add(path, hasher, follow=True), f"blake3:{hasher.hexdigest()}"
    size = 0
    for inside in _files(path):
        name = os.fsencode(inside.relative_to(path))
        inner = blake3()
        size += _add(inside, inner, follow=False)
        hasher.update(len(name).to_bytes(8, "little") + name + inner.digest())
    return size, f"blake3:{hasher.hexdigest()}"


def _files(folder: Path) -> Iterator[Path]:
    found = []
    for parent, _, names in os.walk(folder, onerror=_raise):
        found += [Path(parent) / name for name in names]
    yield from sorted(path for path in found if stat.S_ISREG(path.lstat().st_mode))


def _raise(error: OSError) -> None:
    raise error


def _add(path: Path, hasher: Any, *, follow: bool) -> int:
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    fd = os.open(path, flags)
    with os.fdopen(fd, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(22, "neither a file nor a folder", str(path))
        size = 0
        while piece := file.read(_PIECE):
            hasher.update(piece)
            size += len(piece)
    return size
