"""A config as a shell may give it: a file, or what another program writes; and those that come
with Albor, by name.
"""

from __future__ import annotations

import errno
import os
import select
import stat
from pathlib import Path

WAIT_S = 10.0


def packaged_configs() -> dict[str, Path]:
    """The training configs of Albor by name, `demo` or `train/pretrain-50m`: those of the
    installed package, or of the clone that it runs from.
    """
    return {name: path for name, path in _packaged().items() if not name.startswith(_RECIPES)}


def packaged_recipes() -> dict[str, Path]:
    """The recipes of data sets that come with Albor by name, such as `python-sources`."""
    found = _packaged().items()
    return {name.removeprefix(_RECIPES): path for name, path in found if name.startswith(_RECIPES)}


_RECIPES = "data/"


def _packaged() -> dict[str, Path]:
    package = Path(__file__).resolve().parents[2]
    folder = next(filter(Path.is_dir, (package / "configs", package.parent / "configs")), None)
    if folder is None:
        return {}
    paths = sorted(folder.rglob("*.yaml"))
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in paths}


def packaged_config(name: str) -> Path | None:
    """The one that comes with Albor under `name`, or whose name ends so: `pretrain-50m`."""
    known = packaged_configs()
    ends = [path for whole, path in known.items() if whole.rpartition("/")[2] == name]
    return known.get(name) or (ends[0] if len(ends) == 1 else None)


def read_config_file(path: Path, limit: int) -> bytes:
    """At most `limit` bytes of a file, or of what a shell's `<(...)` writes. Raises OSError, also
    where nothing writes into a FIFO, or nothing more for ten seconds.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if stat.S_ISFIFO(os.fstat(fd).st_mode):
            return _piped(fd, limit)
        os.set_blocking(fd, True)
        raw = b""
        while len(raw) < limit and (piece := os.read(fd, limit - len(raw))):
            raw += piece
        return raw
    finally:
        os.close(fd)


def _piped(fd: int, limit: int) -> bytes:
    raw = b""
    while len(raw) < limit:
        if not select.select([fd], [], [], WAIT_S)[0]:
            raise OSError(errno.ETIMEDOUT, f"a FIFO that nothing was written to for {WAIT_S:g} s")
        if not (piece := os.read(fd, limit - len(raw))):
            break
        raw += piece
    if not raw:
        raise OSError(errno.ENODATA, "a FIFO that nothing was written to")
    return raw
