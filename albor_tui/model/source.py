"""Where the screens' values come from.

Everything here blocks on files or SQLite and is called from worker threads only. What reads is
imported with the first question: none of it is needed to draw a screen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from albor_core.feed.view.run_view import RunView, TerminalView
from albor_core.run.errors import AlborError, NotFoundError
from albor_core.run.home.runs import placed
from albor_core.run.rundir import RunDir
from albor_core.store.rows.series import Series
from albor_tui.messages import AttentionChanged, CommandReport

if TYPE_CHECKING:
    from albor_core.feed.archive.archive import RunArchive
    from albor_core.feed.runs.watch import RunsFeed
    from albor_core.feed.view.run_view import RunsView
    from albor_core.feed.workspace.compare import RunMatrix
    from albor_core.feed.workspace.overlay import OverlayFeed
    from albor_core.run.values.directions import Direction

ANSWER_S = 3.0
DONE_S = 120.0


def deliver(view: RunView, cmd: str, argument: str = "") -> Iterator[CommandReport]:
    """Send a command to the guard of a run and tell each stage of its way."""
    from albor_core.run.control import send, wait_answer

    name = view.name or view.id
    folder = view.folder
    if folder is None or not folder.is_dir():
        yield CommandReport(name, cmd, "refused", "the run's folder is gone")
        return
    run = RunDir(folder)
    if run.liveness().guard is None:
        from albor_core.feed.run.offers import subject_of_run, way_on

        on = way_on(subject_of_run(run))
        yield CommandReport(name, cmd, "no guard", f"it has no guard ({on})")
        return
    try:
        command_id = send(run, cmd, sender="albor-tui", argument=argument)
    except AlborError as error:
        yield CommandReport(name, cmd, "refused", error.message)
        return
    yield CommandReport(name, cmd, "sent")
    answer = wait_answer(run, command_id, ANSWER_S, until=lambda _: True)
    if answer is not None and answer.status == "accepted":
        yield CommandReport(name, cmd, "accepted", answer.detail)
        answer = wait_answer(run, command_id, DONE_S)
    if answer is None:
        yield CommandReport(name, cmd, "no answer", f"the guard said nothing in {ANSWER_S:.0f} s")
        return
    if answer.status == "accepted":  # and not done in time: no one waits any longer
        yield CommandReport(name, cmd, "no answer", f"still under way after {DONE_S:.0f} s")
        return
    yield CommandReport(name, cmd, answer.status, answer.detail)


class LiveSource:
    """What the cockpit shows: run directories and stores on this machine. Tests hand in a double.

    `target` is a run directory, an output_dir, an experiments.db, or None for this home.
    """

    def __init__(self, target: Path | None = None) -> None:
        self.target = target
        self.chosen: Callable[[], Mapping[str, str]] = dict
        """Gives the metric that each experiment is compared by, where a person chose one."""

    def overview(self) -> RunsFeed:
        """Raises NotFoundError where `target` is nothing that holds runs."""
        from albor_core.feed.runs.watch import RunsFeed

        return RunsFeed(self.target, chosen=self.chosen)

    def attention(self) -> AttentionFollower:
        """What needs a person, for the thread that polls the overview."""
        return AttentionFollower(self.chosen)

    def follow(self, view: RunView) -> RunFollower:
        return RunFollower(*self._place(view), self.chosen)

    def archive(self, view: RunView) -> RunArchive:
        from albor_core.feed.archive.archive import RunArchive

        run, store = self._place(view)
        return RunArchive(run, store=None if run.path.is_dir() else store)

    def matrix(
        self, run_ids: Sequence[str], metric: str, better: Direction | None = None
    ) -> RunMatrix:
        """What differs in the params of any number of runs. Raises AlborError."""
        from albor_core.feed.workspace.compare import read_matrix
        from albor_core.store.file.paths import global_store

        store = self.target if self._is_of_store else None
        return read_matrix(store or global_store(), run_ids, metric, better)

    def overlay(self) -> OverlayFeed:
        """The curves of many runs, for the thread that asks for them."""
        from albor_core.feed.workspace.overlay import OverlayFeed

        return OverlayFeed(self.target if self._is_of_store else None)

    @property
    def _is_of_store(self) -> bool:
        return self.target is not None and self.target.is_file()

    def _place(self, view: RunView) -> tuple[RunDir, Path | None]:
        """The directory of a run, and the store to ask if that is gone. Raises NotFoundError."""
        folder = view.folder
        if folder is None:
            raise NotFoundError(f"{view.id}: its folder is not known", hint="albor runs show")
        return placed(view.id, folder), self.target if self._is_of_store else None

    def command(self, view: RunView, cmd: str, argument: str = "") -> Iterator[CommandReport]:
        return deliver(view, cmd, argument)

    def acknowledge(self, view: RunView, alert_id: str) -> None:
        """Append an acknowledgement to the run's annotations, and bring that of an ended run into
        the stores, which nothing else does. Raises AlborError.
        """
        from albor_core.store.index.annotations import annotate
        from albor_core.store.index.catch_up import drain_index

        folder = view.folder
        if folder is None or not folder.is_dir():
            raise NotFoundError(f"{view.id}: the run's folder is gone")
        run = placed(view.id, folder)
        annotate(run, "ack", alert_id)
        drain_index(run)

    def compare(self, run_ids: Sequence[str], metric: str | None = None) -> dict[str, Any]:
        """The albor.runs.diff document, by `metric`, or what a person chose for the experiment, or
        what stands for all. Raises AlborError.
        """
        from albor_core.store.diff.compare import diff_runs
        from albor_core.store.file.paths import global_store
        from albor_core.store.query.reader import Reader

        store = self.target if self._is_of_store else None
        with Reader(store or global_store()) as reader:
            return diff_runs(reader, run_ids, metric=metric, chosen=self.chosen()).to_json()


class RunFollower:
    """A RunFeed that tells only news: rereading costs it little, redrawing would cost the link.
    Belongs to the thread that made it.
    """

    problem: str
    """What was damaged of it at the last poll, since when and what to do; "" for nothing."""

    def __init__(
        self,
        run: RunDir,
        store: Path | None,
        chosen: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        from albor_core.feed.run.detail import RunFeed

        self._feed = RunFeed(run, store=None if run.path.is_dir() else store, chosen=chosen)
        self._last: RunView | None = None
        self._own: tuple[object, TerminalView | None] = (None, None)  # of what it was chosen
        self.problem = ""

    def poll(self) -> RunView | None:
        """The run now; None when nothing changed, its problem neither."""
        view = self._feed.poll() or self._nothing()
        if view.terminal is None:
            view = replace(view, terminal=self._choice(view))
        if (view, self._feed.problem) == (self._last, self.problem):
            return None
        self._last, self.problem = view, self._feed.problem
        return view

    def _nothing(self) -> RunView:
        run, why = self._feed.run, "no run.json in its folder, and no store knows it"
        if not run.path.is_dir():
            why = "its folder is gone, and no store knows it"
        return RunView(id=run.id, path=str(run.path), status="lost", detail=why)

    def _choice(self, view: RunView) -> TerminalView | None:
        """The Overview settings of a run whose config has none; None for Albor's default."""
        from albor_tui.model.program_charts import TILES, own_choice

        names = self.main_metrics(view, TILES)
        if (names, view.step) != self._own[0]:
            is_house = view.kind == "train"
            keys = () if is_house else self._feed.keys()
            self._own = ((names, view.step), own_choice(names, keys, is_house=is_house))
        return self._own[1]

    def main_metrics(self, view: RunView, most: int = 1) -> tuple[str, ...]:
        """The metrics that stand for the run, by all that is known of it."""
        told = [one.name for one in view.metrics]
        standing = self._feed.standing_in(view.experiment)
        stored = [one.name for one in standing.chosen(most)]
        first = [name for name in (*told, *stored) if name == standing.lead]
        return tuple(dict.fromkeys((*first, *told, *stored)))[:most]

    def curves(self, keys: Sequence[str], max_points: int) -> dict[str, Series]:
        """Curves for charts, by metric key; keys without points are left out."""
        found = self._feed.curves(keys, max_points=max_points)
        return {key: curve for key, curve in found.items() if not curve.is_empty}

    def log(self) -> Sequence[str]:
        """Log lines since the last call."""
        return self._feed.log.read()

    def close(self) -> None:
        self._feed.close()


class AttentionFollower:
    """An AttentionFeed that tells only news. Belongs to the thread that polls the overview."""

    def __init__(self, chosen: Callable[[], Mapping[str, str]] = dict) -> None:
        from albor_core.feed.attention.watch import AttentionFeed

        self._feed = AttentionFeed(chosen=chosen)
        self._last: AttentionChanged | None = None

    def look(self, overview: RunsFeed, runs: RunsView) -> AttentionChanged | None:
        """The present attention list; None if nothing changed."""
        found = self._feed.look(runs, overview.store)
        about = {item.run_id for item in found.items}
        views = tuple(row for row in runs.rows if row.is_active or row.id in about)
        last = self._last
        if last is not None and (found, views) == (last.found, last.views):
            return None
        self._last = AttentionChanged(found, views)
        return self._last
