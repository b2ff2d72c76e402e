"""Which runs are there: asked at every poll, so a folder is listed only when it changed.

A folder's modification time has the grain of a kernel tick, so a listing made right at the change
is made once more.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Protocol

from albor_core.run.home.folders import albor_home
from albor_core.run.home.runs import run_at
from albor_core.run.rundir import RunDir, is_run_id, read_json

_GRAIN_S = 0.1
_SEARCH_S = 10.0  # between two searches of folders that are not runs
_RECORDS = ("run.json", "training_state.json", "journal.jsonl")  # a run being made has none yet
_READ_S = 0.2  # per call: a home of many runs without a store is shown bit by bit


class Discovery(Protocol):
    """A source of run directories by id. `is_complete`: the last answer held all of them."""

    is_complete: bool
    problem: str  # what was left out of it, and why; "" for nothing

    def runs(self, known: Collection[str] = ()) -> Mapping[str, RunDir]:
        """The runs now; the same object as before if nothing changed. `known` may be left out: the
        caller has their paths from elsewhere. Never raises.
        """


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

    problem = ""

    def __init__(self, home: Path) -> None:
        self.is_complete = True
        self._is_ours = home.resolve() == albor_home().resolve()
        self._watch = FolderWatch(home / "runs")
        self._seen: frozenset[str] = frozenset()  # pointer files whose answer we have
        self._runs: dict[str, RunDir] = {}
        self._asked: tuple[frozenset[str], Collection[str]] = (frozenset(), ())

    def runs(self, known: Collection[str] = ()) -> Mapping[str, RunDir]:
        """Registered runs by id; a pointer is read once. Thousands of new ones take several
        calls."""
        names = self._watch.names()
        if names is self._asked[0] and known is self._asked[1]:
            return self._runs
        found = {i: run for i, run in self._runs.items() if f"{i}.json" in names}
        seen = set(self._seen & names)
        stop = time.monotonic() + _READ_S
        waiting = [n for n in names - seen if n.endswith(".json") and n[:-5] not in known]
        for name in waiting:
            if time.monotonic() > stop:
                self.is_complete = False
                break
            seen.add(name)
            if (run := self._run(name)) is not None:
                found[name[:-5]] = run
        else:
            self._asked, self.is_complete = (names, known), True
        if found.keys() != self._runs.keys():
            self._runs = found
        self._seen = frozenset(seen)
        return self._runs

    def _run(self, name: str) -> RunDir | None:
        return run_at(name[:-5], read_json(self._watch.path / name), is_ours=self._is_ours)


class FolderRuns:
    """The run directories directly below an output_dir."""

    is_complete = True

    def __init__(self, folder: Path) -> None:
        self.problem = ""
        self._watch = FolderWatch(folder)
        self._runs: dict[str, RunDir] = {}
        self._searched: tuple[frozenset[str], float] = (frozenset(), 0.0)

    def runs(self, known: Collection[str] = ()) -> Mapping[str, RunDir]:
        """Runs by id. A folder counts from the moment it has its run.json, which is written
        last."""
        names = self._watch.names()
        new = {}
        for name in names - self._runs.keys():
            run = RunDir(self._watch.path / name)
            if is_run_id(name) and run.run_json.is_file():
                new[name] = run
        if new or self._runs.keys() - names:
            kept = {name: run for name, run in self._runs.items() if name in names}
            self._runs = kept | new
        self._search_headless(names)
        return self._runs

    def _search_headless(self, names: frozenset[str]) -> None:
        """Look for runs without a run.json: a folder's own time does not tell when it lost it."""
        now = time.monotonic()
        if names is self._searched[0] and now < self._searched[1]:
            return
        self._searched = (names, now + _SEARCH_S)
        rest = filter(is_run_id, names - self._runs.keys())
        self.problem = _headless(
            sorted(name for name in rest if has_records(self._watch.path / name))
        )


def _headless(names: list[str]) -> str:
    if len(names) > 1:
        many = f"{len(names)} folders here look like runs but have"
        return f"{many} no readable run.json: {names[0]}, say"
    return f"{names[0]} looks like a run but has no readable run.json" if names else ""


def has_records(folder: Path) -> bool:
    """Whether a folder holds files that only runs have."""
    return any(os.path.lexists(folder / name) for name in _RECORDS)


class OneRun:
    """A single run directory."""

    is_complete = True
    problem = ""

    def __init__(self, run: RunDir) -> None:
        self._runs = {run.id: run}

    def runs(self, known: Collection[str] = ()) -> Mapping[str, RunDir]:
        return self._runs
