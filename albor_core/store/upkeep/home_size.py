"""What takes how much of a home, and the size that its owner gave it: told, never enforced."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from albor_core.run.errors import UsageError
from albor_core.run.files.media_file import MEDIA
from albor_core.run.rundir import RunDir
from albor_core.store.upkeep.remove import size_of

CAP = "ALBOR_HOME_MAX"
NEAR = 0.9  # of the cap: from there on it is told
_UNITS = {"": 1, "b": 1, **{f"{unit}{i}b": 1024 ** (at + 1) if i else 1000 ** (at + 1)
                            for at, unit in enumerate("kmgt") for i in ("i", "")}}  # fmt: skip
_SIZE = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*([a-zA-Z]*)")


class HomeSize(NamedTuple):
    """Bytes by what they are for, and of each run, those outside the home too; the largest first.
    `total` is of the home alone.
    """

    total: int
    parts: dict[str, int]
    runs: dict[str, int]


def cap() -> int | None:
    """The bytes that a home is to have at most, as ALBOR_HOME_MAX says; None without. Raises
    UsageError.
    """
    text = os.environ.get(CAP, "").strip()
    if not text:
        return None
    found = _SIZE.fullmatch(text)
    scale = _UNITS.get(found[2].lower()) if found else None
    size = float(found[1]) * scale if found and scale else 0.0
    if size < 1:
        raise UsageError(
            f"cannot read {CAP}: {text[:40]!r} is not a size",
            hint=f"export {CAP}=50GiB; unset it for none",
        )
    return int(size)


def measured(home: Path, runs: Iterable[RunDir]) -> HomeSize:
    """Look through a home and the folders of its runs."""
    parts = dict.fromkeys(("checkpoints", "media", "stores", "backups", "other of runs"), 0)
    sizes: dict[str, int] = {}
    inside = 0
    for run in runs:
        whole = sizes[run.id] = size_of(run.path)
        its = {"checkpoints": size_of(run.checkpoints), "media": size_of(run.path / MEDIA),
               "stores": size_of(run.store.parent)}  # fmt: skip
        for name, size in its.items():
            parts[name] += size
        parts["other of runs"] += whole - sum(its.values())
        if run.path.resolve().is_relative_to(home.resolve()):
            inside += whole
    total = size_of(home)
    own = sum(size_of(file) for file in home.glob("experiments.db*"))
    parts["stores"] += own
    parts["backups"] = size_of(home / "backups")
    parts["other of the home"] = max(0, total - inside - own - parts["backups"])
    largest = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))
    return HomeSize(total, parts, dict(largest))
