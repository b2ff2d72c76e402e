"""Which configs were launched lately: `ALBOR_HOME/cockpit.json`, kept between starts.

A convenience and nothing more: a file that is damaged, foreign or cannot be written is as good as
none, and nothing here ever raises.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from albor_core.run.home.folders import albor_home

MOST = 20
_MAX_BYTES = 1 << 16


def recent_configs() -> dict[Path, float]:
    """Configs by absolute path, the newest first, each with the wall time of its last launch."""
    found: dict[Path, float] = {}
    for entry in _entries():
        try:
            path, wall = Path(entry["path"]), float(entry["wall"])
        except (TypeError, KeyError, ValueError):
            continue
        if path.is_absolute() and math.isfinite(wall):
            found.setdefault(path, wall)
    return dict(sorted(found.items(), key=lambda item: -item[1])[:MOST])


def remember(path: Path) -> None:
    """This config was launched now."""
    kept = recent_configs() | {path.expanduser().absolute(): time.time()}
    newest = sorted(kept.items(), key=lambda item: -item[1])[:MOST]
    document = {"configs": [{"path": str(one), "wall": wall} for one, wall in newest]}
    with contextlib.suppress(OSError, ValueError):
        _replace(albor_home() / "cockpit.json", json.dumps(document).encode())


def _entries() -> list[Any]:
    try:
        with (albor_home() / "cockpit.json").open("rb") as file:
            entries = json.loads(file.read(_MAX_BYTES))["configs"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []
    return entries if isinstance(entries, list) else []


def _replace(target: Path, data: bytes) -> None:
    """All of it or nothing, for this user alone (mkstemp makes it 0600)."""
    fd, name = tempfile.mkstemp(dir=target.parent, prefix=".cockpit.", suffix=".tmp")
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
        Path(name).replace(target)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise
