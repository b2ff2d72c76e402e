"""Where data lies that a run names in the words of its config."""

from __future__ import annotations

import os
from pathlib import Path

from albor_core.feed.data.folder import DATASET, FolderView, kind_of, look_into
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.values.lenient import text

NOWHERE = "where it lay is not known: a relative path, and nothing here says where the run began"


def started_in(run_folder: str) -> str:
    """The folder that a run was started in, which relative paths of its config are relative to; ""
    where that is not known.
    """
    return text(read_json(RunDir(Path(run_folder)).launch) or {}, "cwd") if run_folder else ""


def whole_path(path: str, run_folder: str) -> str:
    """The absolute path of what a run's config names: relative ones are relative to where the run
    was started. As it is where that is not known.
    """
    if not path or "\0" in path or path.startswith("/"):
        return os.path.normpath(path) if path and "\0" not in path else ""
    home = started_in(run_folder)
    return os.path.normpath(str(Path(home) / path)) if home else path


def look_at(path: str) -> FolderView:
    """What lies at `path`; a relative one is of a run of which it is not known where it began."""
    return look_into(Path(path)) if path.startswith("/") else FolderView("gone", NOWHERE)


def data_set_of(path: str) -> str:
    """The folder of splits that the folder `path` is one of, or itself."""
    if not path.startswith("/"):
        return path
    parent = Path(path).parent
    return str(parent) if kind_of(parent) == DATASET else path
