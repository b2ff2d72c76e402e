"""All runs, polled: history from the store, the present from locks and live state files.

The cost of a poll follows what happens now, not how much happened before. Ten thousand ended runs
cost one query when the store moved; files are read for runs that work, that are new, or whose row
just changed. The rest is swept for held locks a few milliseconds per poll, so a run that a person
wakes by hand is found even if nothing ever told the store.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from albor_core.feed.run.detail import MetricChoices, RunFeed
from albor_core.feed.run.files import RunFiles
from albor_core.feed.run.store_follower import (
    StoreWatch,
    aged,
    known_of,
    merge,
    row_in,
    without_files,
)
from albor_core.feed.runs.cells import CellReader
from albor_core.feed.runs.discover import Discovery, FolderRuns, HomeRuns, OneRun
from albor_core.feed.runs.of_visible import VisibleRuns
from albor_core.feed.runs.store_lag import find_arrears, is_coming
from albor_core.feed.view.run_view import RunsView, RunView
from albor_core.run.errors import NotFoundError
from albor_core.run.home.folders import albor_home
from albor_core.run.home.runs import placed
from albor_core.run.liveness import Liveness
from albor_core.run.rundir import FRESH_S, RunDir
from albor_core.run.values.clean import clean
from albor_core.run.values.quantity import counted
from albor_core.store.file.paths import local_store, rebuild_hint
from albor_core.telemetry.sample import GpuSample
from albor_core.telemetry.shared_gpus import SharedGpus

__all__ = ["RunFeed", "RunsFeed"]

SWEEP_S = 0.004  # per poll, looking for held locks among runs thought dead
READ_S = 0.15  # per poll, first reads of runs that no store describes: the newest come first
GPU_S = 1.0
ARREARS_S = 5.0

_Mark = tuple[tuple[int, int] | None, tuple[int, int] | None]  # inode, mtime of two files


class RunsFeed:
    """The runs of one home, output_dir, run directory or database file, merged and current.

    Belongs to one thread. Raises NotFoundError for a source that does not exist, nothing later.
    `chosen` gives what a person chose for experiments: of a run it comes first of its main metrics.
    """

    def __init__(
        self,
        source: Path | None = None,
        *,
        gpus: SharedGpus | None = None,
        clock: Callable[[], float] = time.monotonic,
        chosen: MetricChoices = dict,
    ) -> None:
        self._clock = clock
        self._discovery, store = _open_source(source)
        self.store = StoreWatch(store, clock=clock)
        self._gpus = gpus or SharedGpus()
        self._gpu_samples: tuple[GpuSample, ...] = ()
        self._gpu_at = -math.inf
        self._files: dict[str, RunFiles] = {}
        self._told: dict[str, RunView] = {}  # what files said, merged with the store's row
        self._marks: dict[str, _Mark] = {}  # of files that are read no more
        self._runs: Mapping[str, RunDir] = {}
        self._rows: Mapping[str, RunView] = {}
        self._stored: Mapping[str, RunView] = {}  # what the store alone gave of them
        self._is_sure = False  # whether all runs were found that may have left the store
        self._arrears, self._arrears_at = "", -math.inf
        self._found: Mapping[str, RunDir] = {}
        self._places: dict[str, RunDir] = {}
        self._hot: set[str] = set()
        self._sweep: Iterator[str] = iter(())
        self.visible = VisibleRuns(self.store, clock, chosen)
        self.cells = CellReader(self.store, clock)
        self._news = 0  # how often the store gave another list
        self._is_in_order = False
        self._shown: list[RunView] = []
        self._place: dict[str, int] = {}
        self._touched: set[str] = set()
        self._last = RunsView(version=0)

    def close(self) -> None:
        """Let go of the store and of NVML."""
        self.store.close()
        self._gpus.close()

    def poll(
        self, *, visible: Collection[str] = (), wanted: frozenset[str] = frozenset()
    ) -> RunsView:
        """The present view; the same object as before if nothing changed.

        Rows named in `visible` get their main metrics and their trend from the store. Of a
        store that is too large to be shown whole the runs in `wanted` are shown in any case.
        """
        if not self._shows_all_of_store():
            wanted = wanted.union(self._found)
        rows = self._find_runs(self.store.rows(wanted))
        self._read_hot(rows)
        self._sweep_cold()
        changed = self._arrange(rows)
        changed |= self._refresh(rows, frozenset(visible))
        return self._publish(changed)

    def complete(self, *, visible: Collection[str] = ()) -> RunsView:
        """Poll until every known run was looked at, and what stands for each is known: for
        documents that are made once.
        """
        while not (view := self.poll(visible=visible)).is_complete:
            continue
        return replace(view, rows=self.visible.with_metrics(view.rows))

    def _shows_all_of_store(self) -> bool:
        return self._discovery is None or isinstance(self._discovery, HomeRuns)

    def _find_runs(self, stored: Mapping[str, RunView]) -> Mapping[str, RunView]:
        """Find run directories, choose those whose files to examine now, and return known rows."""
        is_skipped = self._discovery is None or self.store.is_partial
        known = self.store.known
        found = self._found if is_skipped else self._discovery.runs(known)  # type: ignore[union-attr]
        before, rows = self._runs, self._kept(stored, found)
        if found is not self._found or rows is not self._rows:
            self._found, self._runs = found, found
            if self._shows_all_of_store():  # also runs that only the store knows the place of
                self._places = {
                    run_id: self._places.get(run_id) or placed(run_id, row.path)
                    for run_id, row in rows.items()
                }
                self._runs = {**self._places, **found}
        changed = self.store.take_changed() & self._runs.keys()
        new = self._runs.keys() - before.keys() if self._runs is not before else frozenset()
        for run_id in changed | new:
            row = rows.get(run_id)
            if row is None or row.is_loading or run_id in self._told:
                self._hot.add(run_id)
        if self._runs is not before:
            self._is_in_order = False
            for run_id in before.keys() - self._runs.keys():
                self._forget(run_id)
        return rows

    def _kept(
        self, stored: Mapping[str, RunView], found: Mapping[str, RunDir]
    ) -> Mapping[str, RunView]:
        """The store's rows, and the last ones of runs that left it and are still there: the store
        was lost, and indexers began another."""
        is_sure = self._discovery is None or self._discovery.is_complete
        if stored is self._stored and found is self._found and self._is_sure:
            return self._rows
        left = self._rows.keys() - stored.keys() - self.store.known
        kept = {run_id: self._rows[run_id] for run_id in left if run_id in found or not is_sure}
        were_kept = self._rows.keys() - self._stored.keys()
        self._hot |= kept.keys() - were_kept  # their files may know better: read once
        self._stored, self._is_sure = stored, is_sure
        return {**stored, **kept} if kept else stored

    def _forget(self, run_id: str) -> None:
        self._hot.discard(run_id)
        self._told.pop(run_id, None)
        self._files.pop(run_id, None)
        self._marks.pop(run_id, None)
        self._touched.add(run_id)

    def _read_hot(self, rows: Mapping[str, RunView]) -> None:
        """Runs that work are read at every poll; others newest first while there is time."""
        stop = self._clock() + READ_S
        waiting = sorted(
            self._hot - self._files.keys(), key=lambda i: _created(rows, i), reverse=True
        )
        for run_id in [*(self._hot & self._files.keys()), *waiting]:
            if run_id not in self._files and self._clock() > stop:
                return
            self._read(run_id, self._runs[run_id], rows.get(run_id))

    def _read(self, run_id: str, run: RunDir, row: RunView | None) -> None:
        files = self._files.setdefault(run_id, RunFiles(run))
        mark = _mark(run)
        try:
            view = _look(files, row, self._told.get(run_id))
        except Exception as error:  # whatever its files are, all others are shown
            why = f"its files cannot be read: {type(error).__name__}: {error}"
            view = _unread(run, self._told.get(run_id) or row, clean(why, limit=200))
        self._touched.add(run_id)
        if view is None:
            self._told.pop(run_id, None)
        else:
            self._told[run_id] = view
        if view is None or not (view.is_active or view.status == "queued"):
            self._hot.discard(run_id)
            self._files.pop(run_id)
            self._marks[run_id] = mark
            if view is not None:  # thousands of these may be kept: only what a table shows
                self._told[run_id] = replace(view, lr_history=(), grad_norm_history=(), gpu=())

    def _sweep_cold(self) -> None:
        """Look for held locks and new words among runs thought dead, a slice per poll."""
        stop = self._clock() + SWEEP_S
        for turn in range(2):
            for run_id in self._sweep:
                run = self._runs.get(run_id)
                if run is not None and run_id not in self._hot and self._wants_a_look(run_id, run):
                    self._hot.add(run_id)
                if self._clock() > stop:
                    return
            if turn == 0:
                self._sweep = iter(list(self._runs))

    def _wants_a_look(self, run_id: str, run: RunDir) -> bool:
        """Whether a process holds its locks, or wrote its files since they were read."""
        is_rewritten = run_id in self._told and self._marks.get(run_id) != _mark(run)
        return is_rewritten or _locks(run).is_alive

    def _arrange(self, rows: Mapping[str, RunView]) -> bool:
        """Put the rows in order again if there are new ones, or the store gave a new list."""
        is_new = any((i in self._told) != (i in self._place) for i in self._touched)
        if self._is_in_order and rows is self._rows and not is_new:
            return False
        self._news += rows is not self._rows
        self._rows, self._is_in_order = rows, True
        ids = rows.keys() | self._told.keys() if self._shows_all_of_store() else self._runs.keys()
        views = [view for i in ids if (view := self._told.get(i) or rows.get(i)) is not None]
        views.sort(key=lambda view: (view.created or 0.0, view.id), reverse=True)
        self._place = {view.id: index for index, view in enumerate(views)}
        changed = len(views) != len(self._shown) or not all(map(_looks_same, views, self._shown))
        self._shown = views
        return changed

    def _refresh(self, rows: Mapping[str, RunView], visible: frozenset[str]) -> bool:
        """Replace the rows that were read or that want a sparkline; whether any looks different."""
        changed = False
        self.visible.begin()
        for run_id in (self._touched | visible) & self._place.keys():
            index, row = self._place[run_id], rows.get(run_id)
            view = self._told.get(run_id) or row or self._shown[index]
            view = self.visible.completed(view, row, self._news, may_ask=run_id in visible)
            changed |= not _looks_same(view, self._shown[index])
            self._shown[index] = view
        self._touched.clear()
        return changed

    def _is_complete(self) -> bool:
        unread = any(run_id not in self._told for run_id in self._hot)
        found_all = self._discovery is None or self._discovery.is_complete
        return found_all and not unread and not self.store.is_partial

    def _problem(self) -> str:
        left_out = "" if self._discovery is None else self._discovery.problem
        store = (self.store.problem,) if self.store.problem else (self._unlisted(), self._behind())
        parts = (*store, left_out, self._flaws())
        return "; ".join(part for part in parts if part)

    def _unlisted(self) -> str:
        """How many runs of this home the store should have and has not."""
        if not isinstance(self._discovery, HomeRuns):
            return ""
        missing = self._found.keys() - self.store.known
        count = sum(self._is_there(run_id) and not self._is_coming(run_id) for run_id in missing)
        what = f"{counted(count, 'registered run', 'is', 'are')} not in {self.store.path.name}"
        return f"{what}; {rebuild_hint()}" if count else ""

    def _behind(self) -> str:
        """The number of ended runs whose store lacks lines that no process is about to index."""
        if not self._shows_all_of_store() or (now := self._clock()) < self._arrears_at:
            return self._arrears
        self._arrears_at = now + ARREARS_S
        found = self.store.ask(lambda reader: find_arrears(reader, settled=True)) or {}
        count = sum(one.unindexed_bytes > 0 for one in found.values())
        what = (
            f"{counted(count, 'ended run', 'is', 'are')} not in {self.store.path.name} to the end"
        )
        self._arrears = f"{what}; {rebuild_hint()}" if count else ""
        return self._arrears

    def _is_there(self, run_id: str) -> bool:
        """Whether a run has a folder, as far as anybody looked."""
        return run_id in self._told or run_id in self._hot

    def _is_coming(self, run_id: str) -> bool:
        """Whether it was made a moment ago and may still be on its way to the store."""
        view = self._told.get(run_id) or self._rows.get(run_id)
        born = 0.0 if view is None else view.created or 0.0
        return born >= time.time() - FRESH_S and is_coming(self._found[run_id])

    def _flaws(self) -> str:
        """Damage of active runs: the first, and how many more there are."""
        flaws = [(run_id, files.flaw) for run_id, files in self._files.items() if files.flaw]
        if not flaws:
            return ""
        (run_id, flaw), more = flaws[0], len(flaws) - 1
        view = self._told.get(run_id)
        name = clean(view.name if view else run_id, limit=40)
        return f"{name}: {flaw}" + (f", and {more} more" if more else "")

    def _publish(self, changed: bool) -> RunsView:
        now = self._clock()
        if now - self._gpu_at >= GPU_S:
            self._gpu_samples, self._gpu_at = self._gpus.sample(), now
        last = self._last
        view = RunsView(
            rows=tuple(self._shown) if changed else last.rows,
            gpus=self._gpu_samples,
            gpus_why_none=self._gpus.why_none,
            problem=self._problem(),
            version=last.version,
            total=max(
                len(self._shown),
                len(self._runs),
                self.store.total if self._shows_all_of_store() else 0,
            ),
            is_complete=self._is_complete(),
        )
        if changed or replace(view, rows=()) != replace(last, rows=()):
            self._last = replace(view, version=last.version + 1)
        return self._last


def _open_source(source: Path | None) -> tuple[Discovery | None, Path]:
    """The discovery of runs (None: through the store's rows), and the store that has them."""
    if source is None:
        home = albor_home()
        return HomeRuns(home), home / "experiments.db"
    path = source.expanduser().absolute()
    global_path = albor_home() / "experiments.db"
    if (path / "run.json").is_file():
        return OneRun(RunDir(path)), global_path
    if path.is_dir():
        if (path / "experiments.db").is_file() and (path / "runs").is_dir():
            return HomeRuns(path), path / "experiments.db"
        return FolderRuns(path), global_path
    inside = RunDir(path.parent.parent)
    if path.parent.name == ".albor" and inside.run_json.is_file():
        return OneRun(inside), path
    if path.is_file():
        return None, path
    raise NotFoundError(f"{source}: no such run, folder or database", hint="albor runs ls")


def _look(files: RunFiles, row: RunView | None, told: RunView | None) -> RunView | None:
    """A run as its files and its row in the store tell it, `told` being what they told before; None
    for a folder that is gone, unless the row has no end.
    """
    view = files.view(*known_of(row))
    if row is None and view is not None and files.state.get() is None and _is_over(view):
        row = row_in(local_store(files.run), view.id)  # its own store has what no file of it says
        view = files.view(*known_of(row))
    if view is not None:
        return view if row is None else merge(view, row)
    if files.run.path.is_dir():
        return _unread(files.run, told or row, "its run.json is missing")
    return without_files(row, files.run) if row is not None and row.is_loading else None


def _is_over(view: RunView) -> bool:
    return not view.is_active and view.status != "queued"


def _unread(run: RunDir, known: RunView | None, why: str) -> RunView:
    """The view of a run whose files cannot be read, with the reason."""
    view = known or RunView(id=run.id, name=run.id, path=str(run.path), status="lost")
    if _locks(run).is_alive:
        view = replace(view, status="running", ended_wall=None)
    elif view.is_active or view.is_loading:
        view = replace(view, status="lost", trainer_pid=None, guard_pid=None)
    return replace(aged(view), is_live=False, detail=why)


def _locks(run: RunDir) -> Liveness:
    try:
        return run.liveness()
    except (OSError, ValueError):  # its place, which a store may say, is not a path
        return Liveness(None, None)


def _mark(run: RunDir) -> _Mark:
    """A stamp that changes when a file that describes an ended run is written."""
    return _stamp(run.run_json), _stamp(run.state)


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return None
    return status.st_ino, status.st_mtime_ns


def _created(rows: Mapping[str, RunView], run_id: str) -> float:
    row = rows.get(run_id)
    return math.inf if row is None else row.created or 0.0


def _looks_same(new: RunView, old: RunView) -> bool:
    """Whether a screen would draw both alike: ages below five seconds do not count."""
    if new is old:
        return True
    return _shown_age(new) == _shown_age(old) and replace(new, age_s=old.age_s) == old


def _shown_age(view: RunView) -> int | None:
    age = view.age_s
    return None if age is None else (0 if age < 5 else int(age))
