"""Which runs are there: asked at every poll, so a folder is listed only when it changed.

A folder's modification time has the grain of a kernel tick, so a listing made right at the change
is made once more.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from albor_core.run.rundir import RunDir, is_run_id, read_json

_GRAIN_S = 0.1


class Discovery(Protocol):
    """A source of run directories by id. `runs` never raises and is cheap when nothing changed."""

    def runs(self) -> Mapping[str, RunDir]: ...


class FolderWatch:
    """Names in a folder, listed again only after a change."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._mark: tuple[int, int] | None = None
        self._names: frozenset[str] = frozenset()

    def names(self) -> frozenset[str]:
        """The folder's entries now; empty if it cannot be listed."""
        try:
            status = self.path.stat()
            mark = (status.st_ino, status.st_mtime_ns)
            if mark != self._mark:
                listed_at = time.time()
                self._names = frozenset(os.listdir(self.path))  # noqa: PTH208  names alone
                is_settled = listed_at - status.st_mtime > _GRAIN_S
                self._mark = mark if is_settled else None
        except OSError:
            self._mark, self._names = None, frozenset()
        return self._names


class HomeRuns:
    """Every run registered in an ALBOR_HOME, through its pointer files."""

    def __init__(self, home: Path) -> None:
        self._watch = FolderWatch(home / "runs")
        self._seen: frozenset[str] = frozenset()
        self._runs: dict[str, RunDir] = {}

    def runs(self) -> Mapping[str, RunDir]:
        """By id; a pointer is read once, when it appears."""
        names = self._watch.names()
        if names == self._seen:
            return self._runs
        for name in names - self._seen:
            run_id = name.removesuffix(".json")
            entry = read_json(self._watch.path / name) if name.endswith(".json") else None
            if entry is not None and isinstance(entry.get("path"), str) and is_run_id(run_id):
                self._runs[run_id] = RunDir(Path(entry["path"]))
        for name in self._seen - names:
            self._runs.pop(name.removesuffix(".json"), None)
        self._seen = names
        return self._runs


class FolderRuns:
    """The run directories directly below an output_dir."""

    def __init__(self, folder: Path) -> None:
        self._watch = FolderWatch(folder)
        self._runs: dict[str, RunDir] = {}

    def runs(self) -> Mapping[str, RunDir]:
        """By id. A folder counts from the moment it has its run.json, which comes last."""
        names = self._watch.names()
        for name in names - self._runs.keys():
            run = RunDir(self._watch.path / name)
            if is_run_id(name) and run.run_json.is_file():
                self._runs[name] = run
        for name in self._runs.keys() - names:
            del self._runs[name]
        return self._runs


class OneRun:
    """A single run directory."""

    def __init__(self, run: RunDir) -> None:
        self._runs = {run.id: run}

    def runs(self) -> Mapping[str, RunDir]:
        return self._runs
