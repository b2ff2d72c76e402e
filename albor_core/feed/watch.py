"""All runs, polled: history from the store, the present from locks and live state files.

The cost of a poll follows what happens now, not how much happened before. Ten thousand ended runs
cost one query when the store moved; files are read for runs that work, that are new, or whose row
just changed. The rest is swept for held locks a few milliseconds per poll, so a run that somebody
wakes by hand is found even if nothing ever told the store.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from albor_core.feed.alerts import alert_view
from albor_core.feed.detail import RunFeed
from albor_core.feed.discover import Discovery, FolderRuns, HomeRuns, OneRun
from albor_core.feed.files import RunFiles
from albor_core.feed.stores import StoreWatch, merge
from albor_core.feed.view import AlertView, RunsView, RunView
from albor_core.run.errors import NotFoundError
from albor_core.run.rundir import RunDir, albor_home
from albor_core.telemetry.gpu import Gpus
from albor_core.telemetry.sample import GpuSample

__all__ = ["RunFeed", "RunsFeed"]

SWEEP_S = 0.004  # per poll, looking for held locks among runs thought dead
READ_S = 0.15  # per poll, first reads of runs that no store describes: the newest come first
GPU_S = 1.0
HISTORIES = 40  # per poll, sparklines fetched for visible rows
SPARK_POINTS = 60


class RunsFeed:
    """The runs of one home, output_dir, run directory or database file, merged and current.

    Belongs to one thread. Raises NotFoundError for a source that does not exist, nothing later.
    """

    def __init__(
        self,
        source: Path | None = None,
        *,
        gpus: Gpus | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._discovery, store = _open_source(source)
        self.store = StoreWatch(store, clock=clock)
        self._gpus = gpus or Gpus()
        self._gpu_samples: tuple[GpuSample, ...] = ()
        self._gpu_at = -math.inf
        self._files: dict[str, RunFiles] = {}
        self._told: dict[str, RunView] = {}  # what files said, merged with the store's row
        self._known: set[str] = set()
        self._hot: set[str] = set()
        self._sweep: Iterator[str] = iter(())
        self._histories: dict[str, tuple[int | None, tuple[float, ...]]] = {}
        self._last = RunsView(version=0)

    def close(self) -> None:
        """Let go of the store and of NVML."""
        self.store.close()
        self._gpus.close()

    def poll(self, *, visible: Collection[str] = ()) -> RunsView:
        """The present view; the same object as before if nothing changed.

        Rows named in `visible` get a loss history from the store where their files have none.
        """
        rows = self.store.rows()
        runs = self._runs(rows)
        self._heat(rows, runs)
        self._read_hot(rows, runs)
        self._sweep_cold(runs)
        only = None if self._shows_all_of_store() else runs.keys()
        ids = rows.keys() | self._told.keys() if only is None else only
        views = [self._told.get(run_id) or rows.get(run_id) for run_id in ids]
        found = [view for view in views if view is not None]
        found.sort(key=lambda view: (view.created or 0.0, view.id), reverse=True)
        shown = self._with_histories(found, frozenset(visible))
        return self._publish(shown, total=len(ids | runs.keys()))

    def alerts(self, *, open_only: bool = True) -> tuple[AlertView, ...]:
        """Alerts of all runs from the store, as it lists them."""
        found = self.store.ask(lambda reader: reader.alerts(None, open_only=open_only))
        return tuple(alert_view(row) for row in found or ())

    def _runs(self, rows: Mapping[str, RunView]) -> Mapping[str, RunDir]:
        """Directories by id; a whole store also shows runs that only it knows the place of."""
        runs = {} if self._discovery is None else self._discovery.runs()
        if self._shows_all_of_store() and (others := rows.keys() - runs.keys()):
            return {**runs, **{i: RunDir(Path(rows[i].path)) for i in others if rows[i].path}}
        return runs

    def _shows_all_of_store(self) -> bool:
        return self._discovery is None or isinstance(self._discovery, HomeRuns)

    def _heat(self, rows: Mapping[str, RunView], runs: Mapping[str, RunDir]) -> None:
        """Decide which runs deserve a look at their files in this poll."""
        changed = self.store.take_changed()
        new = runs.keys() - self._known
        self._known |= new
        for run_id in new | (changed & runs.keys()):
            row = rows.get(run_id)
            if row is None or row.status == "lost" or run_id in self._told:
                self._hot.add(run_id)
        for run_id in self._known - runs.keys():
            self._forget(run_id)

    def _forget(self, run_id: str) -> None:
        self._known.discard(run_id)
        self._hot.discard(run_id)
        self._told.pop(run_id, None)
        self._files.pop(run_id, None)

    def _read_hot(self, rows: Mapping[str, RunView], runs: Mapping[str, RunDir]) -> None:
        """Runs that work are read at every poll; others newest first while there is time."""
        stop = self._clock() + READ_S
        waiting = sorted(
            self._hot - self._files.keys(), key=lambda i: _created(rows, i), reverse=True
        )
        for run_id in [*(self._hot & self._files.keys()), *waiting]:
            if run_id not in self._files and self._clock() > stop:
                return
            self._read(run_id, runs[run_id], rows.get(run_id))

    def _read(self, run_id: str, run: RunDir, row: RunView | None) -> None:
        files = self._files.setdefault(run_id, RunFiles(run))
        ended = None if row is None or row.status == "lost" else row.status
        view = files.view(ended)
        if view is None:  # the folder is gone: the store's row is all there is
            self._told.pop(run_id, None)
            if row is not None and row.status == "lost":
                self._told[run_id] = replace(row, detail="its folder is gone, no end was recorded")
        else:
            self._told[run_id] = view if row is None else merge(view, row)
        if view is None or not (view.is_active or view.status == "queued"):
            self._hot.discard(run_id)
            self._files.pop(run_id)
            if view is not None:  # thousands of these may be kept: only what a table shows
                self._told[run_id] = replace(
                    self._told[run_id], lr_history=(), grad_norm_history=(), gpu=()
                )

    def _sweep_cold(self, runs: Mapping[str, RunDir]) -> None:
        """Look for held locks among runs thought dead, a slice per poll."""
        stop = self._clock() + SWEEP_S
        for turn in range(2):
            for run_id in self._sweep:
                run = runs.get(run_id)
                if run is not None and run_id not in self._hot and run.liveness().is_alive:
                    self._hot.add(run_id)
                if self._clock() > stop:
                    return
            if turn == 0:
                self._sweep = iter(list(runs))

    def _with_histories(self, views: list[RunView], visible: frozenset[str]) -> tuple[RunView, ...]:
        left = HISTORIES
        shown = []
        for view in views:
            if view.loss_history or view.id not in visible:
                shown.append(view)
                continue
            known = self._histories.get(view.id)
            if (known is None or known[0] != view.step) and left:
                left -= 1
                known = (view.step, self._spark(view.id))
                self._histories[view.id] = known
            shown.append(view if known is None else replace(view, loss_history=known[1]))
        return tuple(shown)

    def _spark(self, run_id: str) -> tuple[float, ...]:
        series = self.store.ask(
            lambda reader: reader.series(run_id, "train/loss", max_points=SPARK_POINTS)
        )
        return () if series is None else tuple(series.mean)

    def _publish(self, rows: tuple[RunView, ...], *, total: int) -> RunsView:
        now = self._clock()
        if now - self._gpu_at >= GPU_S:
            self._gpu_samples, self._gpu_at = self._gpus.sample(), now
        last = self._last
        view = RunsView(
            rows=rows,
            gpus=self._gpu_samples,
            gpus_why_none=self._gpus.why_none,
            problem=self.store.problem,
            version=last.version,
            total=total,
        )
        same = len(rows) == len(last.rows) and all(map(_looks_same, rows, last.rows))
        if not same or replace(view, rows=last.rows) != last:
            self._last = replace(view, version=last.version + 1)
        return self._last


def _open_source(source: Path | None) -> tuple[Discovery | None, Path]:
    """Where runs are found (None: through the store's rows), and the store that remembers them."""
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


def _created(rows: Mapping[str, RunView], run_id: str) -> float:
    row = rows.get(run_id)
    return math.inf if row is None else row.created or 0.0


def _looks_same(new: RunView, old: RunView) -> bool:
    """Whether a screen would draw both alike: ages below five seconds are no news."""
    if new is old:
        return True
    return _shown_age(new) == _shown_age(old) and replace(new, age_s=old.age_s) == old


def _shown_age(view: RunView) -> int | None:
    age = view.age_s
    return None if age is None else (0 if age < 5 else int(age))
