"""What takes how much of a home, and the size that its owner gave it: told, never enforced."""

from __future__ import annotations

import contextlib
import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from albor_core.run.errors import UsageError
from albor_core.run.files.media_file import MEDIA
from albor_core.run.files.whole_file import write_json
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.values.lenient import finite_of, whole_of
from albor_core.run.values.quantity import byte_size
from albor_core.store.upkeep.remove import size_of

CAP = "ALBOR_HOME_MAX"
NEAR = 0.9  # of the cap: from there on it is told
LOOK_S = 600.0
_WAIT_S = 0.05  # a small home is known at once
_LOOKED = "home-size.json"
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
            hint=f"export {CAP}=50GiB, or unset it",
        )
    return int(size)


def cap_problem() -> str:
    """Why ALBOR_HOME_MAX cannot be read; "" where it can, or is not set."""
    try:
        cap()
    except UsageError as error:
        return error.message
    return ""


def _looked_at(home: Path) -> tuple[int, int] | None:
    """What a home takes and what it may take, by a look of less than LOOK_S ago, or else one now,
    which a large home takes seconds for; None without a cap. Raises UsageError.
    """
    most = cap()
    if most is None:
        return None
    file, now = home / _LOOKED, time.time()
    found = read_json(file) or {}
    size, wall = whole_of(found.get("bytes")), finite_of(found.get("wall"))
    if size is None or wall is None or not 0 <= now - wall < LOOK_S:
        size = size_of(home.resolve())
        with contextlib.suppress(OSError):  # a full disk, or a home that we may only read
            write_json(file, {"bytes": size, "wall": now})
    return size, most


def nearly_full(home: Path) -> str:
    """What to say of a home that comes near the size that its owner gave it; "" of any other, and
    where that cannot be read.
    """
    with contextlib.suppress(UsageError):
        return _near(_looked_at(home))
    return ""


def _near(found: tuple[int, int] | None) -> str:
    if found is None or found[0] <= NEAR * found[1]:
        return ""
    return f"{byte_size(found[0])} of the {byte_size(found[1])} of {CAP} are taken"


def tell_if_nearly_full(home: Path, tell: Callable[[str], object]) -> None:
    """Say it where it is so: at once of a home that was looked at lately, or is small, else when a
    thread of its own has looked; or that the size that it was given cannot be read.
    """
    if problem := cap_problem():
        tell(f"{problem}; export {CAP}=50GiB, or unset it")
        return

    def look() -> None:
        if words := nearly_full(home):
            tell(f"{home}: {words}; albor doctor --disk says by what")

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(_WAIT_S)


class HomeLook:
    """As `nearly_full`, again each LOOK_S, in a thread: a large home takes seconds."""

    def __init__(self, home: Path, *, wait_s: float = _WAIT_S) -> None:
        """`words` waits for a look so long."""
        self._home, self._wait_s, self._at = home, wait_s, -math.inf
        self._said: str | None = None
        self._thread: threading.Thread | None = None

    def words(self) -> str | None:
        """What is to be said; None before it is known."""
        if not os.environ.get(CAP):
            return ""
        now = time.monotonic()
        if now - self._at >= LOOK_S:
            self._at = now
            self._thread = threading.Thread(target=self._look, daemon=True)
            self._thread.start()
            self._thread.join(self._wait_s)
        return self._said

    def _look(self) -> None:
        self._said = nearly_full(self._home)


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
    total = size_of(home.resolve())
    own = sum(size_of(file) for file in home.glob("experiments.db*"))
    parts["stores"] += own
    parts["backups"] = size_of(home / "backups")
    parts["other of the home"] = max(0, total - inside - own - parts["backups"])
    largest = sorted(sizes.items(), key=lambda item: (-item[1], item[0]))
    return HomeSize(total, parts, dict(largest))
