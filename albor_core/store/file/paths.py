"""Where stores lie."""

from __future__ import annotations

import os
from pathlib import Path

from albor_core.run.rundir import RunDir, albor_home

# SQLite's WAL needs shared memory between all readers: no network file system gives it
_REMOTE = ("nfs", "cifs", "smb", "fuse", "lustre", "gpfs", "beegfs", "9p", "afs", "ceph")


def global_store() -> Path:
    """The store of every run: `ALBOR_HOME/experiments.db`."""
    return albor_home() / "experiments.db"


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
