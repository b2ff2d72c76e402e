"""Which data sets are on this machine: a file each in ALBOR_HOME/datasets, so that they are found.

A pointer and nothing more: what it points to may be gone or another by the time it is read.
"""

from __future__ import annotations

import hashlib
import re
import time
from contextlib import suppress
from pathlib import Path

from albor_core.run.errors import AlborError
from albor_core.run.files.whole_file import write_json
from albor_core.run.home.folders import own_home
from albor_core.run.rundir import read_json

_ODD = re.compile(r"[^A-Za-z0-9._-]+")


def register_dataset(path: Path, kind: str, name: str = "") -> str | None:
    """Leave a pointer to `path` and say under which name: `name`, by default the folder's, with a
    hash of the path where another data set has it. None where ALBOR_HOME takes no file: who made
    the data goes on.
    """
    where = str(path.absolute())
    name = _ODD.sub("-", name or path.absolute().name).strip(".-")[:64] or "dataset"
    with suppress(AlborError, OSError):
        folder = own_home() / "datasets"
        folder.mkdir(parents=True, exist_ok=True)
        there = read_json(folder / f"{name}.json")
        if there is not None and there.get("path") != where:
            name = f"{name}-{hashlib.sha256(where.encode()).hexdigest()[:6]}"
        write_json(folder / f"{name}.json", {"path": where, "made": time.time(), "kind": kind})
        return name
    return None
