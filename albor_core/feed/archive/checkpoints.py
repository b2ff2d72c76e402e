"""The checkpoints of a run as they lie on the disk: which are whole, newest, best, and which were
set aside and why. Names, manifests and sizes are looked at; tensors are not read.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from albor_core.feed.run.files import CachedJson
from albor_core.run.checkpoints import BEST, DOOMED, HALF, MANIFEST, CheckpointName, parse
from albor_core.run.values.lenient import integer, mapping, number, text
from albor_core.run.values.quantity import counted
from albor_core.store.rows.rows import EventRow

MOST = 2000


@dataclass(frozen=True)
class SavedView:
    """One directory below checkpoints/.

    `state`: "verified" (whole by its manifest, and read back after it was written), "whole" (of
    without a report), "damaged", "writing". `reason` says what is wrong with a damaged one.
    """

    name: str
    step: int
    state: Literal["verified", "whole", "damaged", "writing"]
    path: str
    wall: float | None = None
    num_bytes: int | None = None
    val_loss: float | None = None
    reason: str = ""
    is_latest: bool = False
    is_best: bool = False


@dataclass(frozen=True)
class ShelfView:
    """All of them, the newest step first."""

    saved: tuple[SavedView, ...] = ()
    written: int = 0  # how many were ever written, as far as events tell
    failed: tuple[EventRow, ...] = ()  # saves that failed, oldest first
    problem: str = ""  # why the folder cannot be looked into


class Shelf:
    """Looks again and again at one folder; manifests are read when they are new. Never raises."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._manifests: dict[str, CachedJson] = {}
        self._best = CachedJson(folder / BEST)

    def look(
        self, events: Iterable[EventRow] = (), losses: Mapping[int, float] | None = None
    ) -> ShelfView:
        """The present checkpoints. `events` are the run's, `losses` validation losses by step."""
        told = [event for event in events if event.name.startswith("checkpoint.")]
        written = {e.step for e in told if e.name == "checkpoint.saved"}
        found, problem = self._entries(len(written))
        self._manifests = {name: self._manifests[name] for name in found if name in self._manifests}
        reasons = _reasons(told)
        saved = [self._one(name, said, written, reasons) for name, said in found.items()]
        saved.sort(key=lambda one: (one.step, one.name), reverse=True)
        return ShelfView(
            _ranked(saved, self._best.get() or {}, losses or {}),
            len(written),
            tuple(event for event in told if event.name == "checkpoint.failed"),
            problem,
        )

    def _entries(self, written: int) -> tuple[dict[str, CheckpointName], str]:
        try:
            with os.scandir(self._folder) as entries:
                names = [e.name for e in entries if e.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            what = (
                f"the {counted(written, 'checkpoint')} that it wrote"
                if written
                else "its checkpoints"
            )
            return {}, f"the folder of {what} is not here: removed, or left out of a copy"
        except OSError as error:
            return {}, f"its checkpoints cannot be listed: {error.strerror}"
        said = {name: found for name in names if (found := parse(name)) is not None}
        shown = sorted(said, key=lambda name: (said[name].step, name), reverse=True)[:MOST]
        return {name: said[name] for name in shown if said[name].suffix != DOOMED}, ""

    def _one(
        self,
        name: str,
        said: CheckpointName,
        written: set[int | None],
        reasons: Mapping[str, str],
    ) -> SavedView:
        path = self._folder / name
        cached = self._manifests.setdefault(name, CachedJson(path / MANIFEST))
        manifest = cached.get()
        step = said.step
        view = SavedView(name, step, "whole", str(path), num_bytes=_size(manifest))
        if said.suffix == HALF:
            return replace(view, state="writing")
        if manifest is not None:
            view = replace(view, wall=number(manifest, "created"))
        wrong = _fault(path, step, manifest)
        if said.is_bad:
            why = reasons.get(name) or wrong or "set aside by the trainer; it did not say why"
            return replace(view, state="damaged", reason=why)
        if wrong:
            return replace(view, state="damaged", reason=wrong)
        return replace(view, state="verified" if step in written else "whole")


def _ranked(
    saved: list[SavedView], best: Mapping[str, Any], losses: Mapping[int, float]
) -> tuple[SavedView, ...]:
    good = [one.step for one in saved if one.state in ("verified", "whole")]
    best_step = integer(best, "step")
    ranked = []
    for one in saved:
        is_good = one.state in ("verified", "whole")
        is_best = is_good and one.step == best_step
        value = losses.get(one.step)
        if value is None and is_best:
            value = number(best, "value")
        is_latest = is_good and one.step == max(good)
        ranked.append(replace(one, val_loss=value, is_best=is_best, is_latest=is_latest))
    return tuple(ranked)


def _fault(path: Path, step: int, manifest: Mapping[str, Any] | None) -> str:
    """A fault visible without reading the files: a missing manifest, a wrong size; "" if none."""
    if manifest is None:
        return "manifest.json is missing or no JSON document"
    if integer(manifest, "step") != step:
        return f"its manifest is of step {manifest.get('step')}"
    files = mapping(manifest, "files")
    if not files:
        return "its manifest lists no file"
    for name in files:
        stated = integer(mapping(files, name), "size")
        if "/" in name or name in ("", ".", ".."):
            return f"its manifest lists {name!r}"
        try:
            status = (path / name).lstat()
        except OSError:
            return f"{name} is missing"
        if not stat.S_ISREG(status.st_mode) or status.st_size != stated:
            return f"{name} has {status.st_size:,} bytes, not {stated or 0:,}"
    return ""


def _size(manifest: Mapping[str, Any] | None) -> int | None:
    files = mapping(manifest or {}, "files")
    sizes = [integer(mapping(files, name), "size") or 0 for name in files]
    return sum(sizes) if sizes else None


def _reasons(told: Iterable[EventRow]) -> dict[str, str]:
    """Why directories were set aside, by their new names."""
    return {
        Path(text(event.data, "path")).name: text(event.data, "reason")
        for event in told
        if event.name == "checkpoint.bad" and text(event.data, "path")
    }
