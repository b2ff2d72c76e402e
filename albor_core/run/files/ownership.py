"""Whether a run directory is ours alone.

A guard starts what the files of a run directory say, so whoever may write them may run programs as
us. Viewers only read, so they look at any directory; they leave nothing in one that is not ours.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from albor_core.run.files.pulled_file import pulled_from
from albor_core.run.rundir import RunDir

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def distrust(run: RunDir) -> str:
    """The reason why the run directory may hold foreign text; "" if it is ours alone.

    Looked at are the folder and the files that decide what is started: owner, mode, and that none
    of the files is a link. Raises OSError where the folder cannot be looked at.
    """
    if problem := _problem(run.path, run.path.stat()):
        return problem
    if host := pulled_from(run):
        return f"{run.path}: was pulled from {host}"
    files = (run.guard, run.run_lock, run.guard_lock, run.launch)
    for path in (*files, run.run_json, run.config_yaml, run.config_resolved):
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue
        if stat.S_ISLNK(status.st_mode):
            return f"{path}: is a link"
        if problem := _problem(path, status):
            return problem
    return ""


def is_ours(run: RunDir) -> bool:
    """Whether the folder belongs to this user, so that an index and locks may be put there."""
    try:
        return run.path.stat().st_uid == os.geteuid()
    except OSError:
        return False


def _problem(path: Path, status: os.stat_result) -> str:
    if status.st_uid != os.geteuid():
        return f"{path}: belongs to user id {status.st_uid}"
    if status.st_mode & _OTHERS_WRITE:
        return f"{path}: others may write to it"
    return ""
