"""checkpoints/: what lies there, by its names. What is inside one: albor_core/checkpoint/folder.py.

    step-00001200        published by the trainer, whole: eight digits, or more without a leading 0
    step-00001200.part   being written, or left by a killed save (.tmp by earlier versions)
    step-00001200.del    on its way out, or left by a killed prune
    bad-step-00001200    damaged and set aside; bad-step-00001200-2 where that name is taken
    best.json            which step has the lowest validation loss

Anything else in the folder is foreign.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from albor_core.run.rundir import read_json

MANIFEST, BEST = "manifest.json", "best.json"
HALF, DOOMED = ".part", ".del"
_NAME = re.compile(r"(bad-)?step-([0-9]{8}|[1-9][0-9]{8,14})(-[0-9]+)?(\.part|\.tmp|\.del)?")


class CheckpointName(NamedTuple):
    """The parsed name of a checkpoint folder."""

    step: int
    is_bad: bool = False
    suffix: str = ""
    """HALF or DOOMED; empty of what stays."""

    @property
    def is_published(self) -> bool:
        return not (self.is_bad or self.suffix)


def name_of(step: int) -> str:
    """The name under which the checkpoint of a step is published."""
    return f"step-{step:08d}"


def parse(name: str) -> CheckpointName | None:
    """The parsed name; None for a name that no checkpoint has, in any state."""
    match = _NAME.fullmatch(name)
    if match is None or (match[3] and not match[1]):
        return None
    suffix = HALF if match[4] == ".tmp" else match[4] or ""
    return CheckpointName(int(match[2]), match[1] is not None, suffix)


def step_of(name: str) -> int | None:
    """The step of a published checkpoint; None for any other name."""
    found = parse(name)
    return found.step if found is not None and found.is_published else None


def published(folder: Path) -> dict[Path, int]:
    """The published ones with their steps, newest first; none where the folder cannot be read."""
    found = [(name.step, path) for name, path in entries(folder) if name.is_published]
    return {path: step for step, path in sorted(found, reverse=True)}


def entries(folder: Path) -> Iterator[tuple[CheckpointName, Path]]:
    """All that has a checkpoint's name, sorted by that; nothing where the folder cannot be read."""
    try:
        paths = sorted(folder.iterdir())
    except OSError:
        return
    for path in paths:
        if (name := parse(path.name)) is not None:
            yield name, path


def newest(folder: Path, *, is_readable: bool = True) -> tuple[int, Path] | None:
    """Step and place of the newest published checkpoint; by default of those whose manifest can be
    read, which does not prove that the rest is whole.
    """
    for path, step in published(folder).items():
        if not is_readable or read_json(path / MANIFEST) is not None:
            return step, path
    return None
