"""Which checkpoints of a run stay and which are removed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from albor_core.checkpoint.folder import best_of, unmark_best
from albor_core.outputs.place import remove
from albor_core.run.checkpoints import BEST, DOOMED, published
from albor_core.run.rundir import read_json


@dataclass(frozen=True)
class Retention:
    """Which checkpoints stay while a run trains, as config section training.checkpoint says."""

    keep: int
    keep_every: int | None = None
    source: int | None = None
    """Step this attempt resumed from."""


def prune(
    folder: Path, *, keep: int, keep_every: int | None, source: int | None, sound: int
) -> None:
    """Remove the checkpoints that `surplus` lists. Raises OSError."""
    for path in surplus(folder, keep=keep, keep_every=keep_every, source=source, sound=sound):
        remove(path)


def clear_doomed(folder: Path) -> None:
    """Remove folders that an earlier removal renamed but could not delete, if a checkpoint is left.
    Raises OSError.
    """
    if published(folder):
        for path in folder.glob(f"*{DOOMED}"):
            remove(path)


def surplus(
    folder: Path,
    *,
    keep: int,
    keep_every: int | None = None,
    source: int | None = None,
    sound: int = -1,
) -> list[Path]:
    """Checkpoints that may be removed: all but the newest `keep`, the best, multiples of
    `keep_every`, the newest up to step `sound` (a rollback may return to it), and `source` (the
    step this attempt started from) until two newer ones exist.
    """
    steps = published(folder)
    kept = set(list(steps)[:keep])
    kept.update(next(([path] for path, step in steps.items() if step <= sound), []))
    best = best_of(folder)
    newer = sum(1 for step in steps.values() if source is not None and step > source)
    for path, step in steps.items():
        is_best = best is not None and step == best[0]
        is_milestone = keep_every is not None and step > 0 and step % keep_every == 0
        if is_best or is_milestone or (step == source and newer < 2):
            kept.add(path)
    return [path for path in steps if path not in kept]


def discard_after(folder: Path, step: int) -> None:
    """Remove the checkpoints of steps above `step`, to which the run returned. Raises OSError.

    The mark of the best is removed first: other weights will soon have that step's name.
    """
    found = read_json(folder / BEST) or {}
    if isinstance(found.get("step"), int) and found["step"] > step:
        unmark_best(folder)
    for path, its_step in published(folder).items():
        if its_step > step:
            remove(path)
