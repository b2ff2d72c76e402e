"""Size and time of a file, by which a step knows that the file is as it was."""

from __future__ import annotations

import os
from pathlib import Path

from albor_core.run.errors import DataError

Stamp = tuple[int, int]
"""Size and time of modification in nanoseconds."""


def stamp_of(status: os.stat_result) -> Stamp:
    return status.st_size, status.st_mtime_ns


def stamp_file(path: Path) -> Stamp:
    """The stamp of a file. Raises DataError naming an inaccessible one."""
    try:
        return stamp_of(path.stat())
    except OSError as error:
        raise unreadable(path, error) from error


def changed(path: Path) -> DataError:
    """The error for a file that is not what it was when the step began."""
    return DataError(
        f"{path}: changed while it was read",
        hint="run the same command again once nothing writes to it",
    )


def unreadable(path: Path, error: OSError) -> DataError:
    return DataError(
        f"{path}: cannot be read: {error.strerror or error}",
        hint=f"look at its owner and mode: ls -l {path}",
    )
