"""Where stores lie."""

from __future__ import annotations

import os
from pathlib import Path

from albor_core.run.home.folders import albor_home
from albor_core.run.rundir import RunDir

_REBUILD = "albor db rebuild"
_LEAST_BYTES = 256 << 10  # of a new store with its WAL
# SQLite's WAL needs shared memory between all readers: no network file system gives it
_REMOTE = ("nfs", "cifs", "smb", "fuse", "lustre", "gpfs", "beegfs", "9p", "afs", "ceph")


def global_store() -> Path:
    """The store of every run: `ALBOR_HOME/experiments.db`."""
    return albor_home() / "experiments.db"


def rebuild_hint(store: Path | None = None) -> str:
    """The command by which a store that is missing, or lacks something, is whole again; with what
    has to be done before it where its disk would take none.
    """
    place = store or global_store()
    place = next((one for one in (place.parent, *place.parents) if one.is_dir()), place)
    try:
        disk = os.statvfs(place)
    except OSError:
        return _REBUILD
    first = ""
    if disk.f_flag & os.ST_RDONLY:
        first = f"mount -o remount,rw (the file system of {place} is read-only)"
    elif disk.f_bavail * disk.f_frsize < _LEAST_BYTES:
        first = f"free some space in {place} (its disk is full)"
    elif disk.f_files and not disk.f_favail:
        first = f"remove some files in {place} (its disk has no inode left)"
    return f"{first}, then: {_REBUILD}" if first else _REBUILD


def local_store(run: RunDir) -> Path:
    """The store of one run: inside its directory, or on this host's disk where that is a network
    mount.
    """
    if not is_remote(file_system(run.path)):
        return run.store
    import hashlib  # noqa: PLC0415  8 ms that every list would pay

    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    name = hashlib.blake2b(str(run.path).encode(errors="replace"), digest_size=12).hexdigest()
    return state / "albor" / f"{name}.db"


def is_remote(kind: str) -> bool:
    """Whether a file system of this type (as in /proc/self/mountinfo) is shared between hosts."""
    return kind.startswith(_REMOTE)


def file_system(path: Path) -> str:
    """Type of the file system that `path` is on; "" if unknown."""
    try:
        device = path.stat().st_dev
        mounts = Path("/proc/self/mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts:  # "36 35 98:0 /root /mount options - type source"
        fields = line.split()
        if len(fields) > 2 and fields[2] == wanted and "-" in fields:
            return fields[fields.index("-") + 1]
    return ""
