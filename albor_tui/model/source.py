"""Where the screens' values come from, so that they can come from elsewhere in a test.

Everything here blocks on files or SQLite and is called from worker threads only. What reads is
imported with the first question: none of it is needed to draw a screen.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from albor_core.feed.view import RunsView, RunView, TerminalView
from albor_core.run.errors import AlborError, NotFoundError
from albor_core.run.rundir import RunDir, placed
from albor_core.store.rows.series import Series
from albor_tui.messages import CommandReport

if TYPE_CHECKING:
    from albor_core.feed.archive.archive import Told
    from albor_core.feed.archive.checkpoints import ShelfView
    from albor_core.feed.archive.config_sheet import ConfigView
    from albor_core.feed.archive.log_file import LogName, LogWindow

ANSWER_S = 3.0
DONE_S = 120.0


class Follower(Protocol):
    """One run, followed. Belongs to the thread that made it."""

    problem: str
    """What was damaged of it at the last poll, since when and what to do; "" for nothing."""

    def poll(self) -> RunView | None:
        """The run now; None when nothing changed, its problem neither."""

    def curves(self, keys: Sequence[str], max_points: int) -> dict[str, Series]:
        """Curves for charts, by metric key; keys without points are left out."""

    def own_metrics(self) -> TerminalView | None:
        """What to show of a program that logs no loss; None where a loss is the thing to show."""

    def log(self) -> Sequence[str]:
        """Log lines since the last call."""

    def close(self) -> None:
        """Let go of files."""


class Archive(Protocol):
    """One run's records, looked up when a tab asks. Belongs to the thread that made it."""

    @property
    def problem(self) -> str:
        """Why its store cannot be read; "" if all is well or there is none yet."""

    def keys(self) -> tuple[str, ...]:
        """Metric keys that can be drawn, the important ones first."""

    def curves(
        self, keys: Sequence[str], *, lo: int | None = None, hi: int | None = None, points: int
    ) -> dict[str, Series]:
        """Curves by key over the step window [lo, hi]; keys without points are left out."""

    def log(self, name: LogName | None, top: int | None, count: int, needle: str = "") -> LogWindow:
        """`count` lines from line `top` (None: the last) of a log (None: the newest)."""

    def config(self) -> ConfigView:
        """The config file and what each field became."""

    def checkpoints(self) -> ShelfView:
        """What lies in the folder of checkpoints."""

    def events(self) -> Told:
        """The newest events, oldest first, and the crash reports, newest first."""

    def samples(self) -> Told:
        """The newest samples, oldest first."""

    def close(self) -> None:
        """Let go of files."""


class Overview(Protocol):
    """All runs, followed. Belongs to the thread that made it."""

    def poll(
        self, *, visible: Collection[str] = (), wanted: frozenset[str] = frozenset()
    ) -> RunsView:
        """All runs now; `version` moves when something changed. Runs in `visible` get a history;
        those in `wanted` are there also where there are too many to have them all.
        """

    def close(self) -> None:
        """Let go of files."""


class Source(Protocol):
    """What the cockpit shows."""

    def overview(self) -> Overview: ...

    def follow(self, view: RunView) -> Follower: ...

    def archive(self, view: RunView) -> Archive: ...

    def command(self, view: RunView, cmd: str, argument: str = "") -> Iterator[CommandReport]: ...

    def acknowledge(self, view: RunView, alert_id: str) -> None: ...

    def compare(self, run_ids: Sequence[str]) -> dict[str, Any]: ...


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
        from albor_core.feed.offers import subject_of_run, way_on

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
    if answer.status == "accepted":  # and not done in time: nobody waits any longer
        yield CommandReport(name, cmd, "no answer", f"still under way after {DONE_S:.0f} s")
        return
    yield CommandReport(name, cmd, answer.status, answer.detail)


class HasSource(Protocol):
    """What a screen asks of the app it is on."""

    source: Source


class LiveSource:
    """The real thing: run directories and stores on this machine.

    `target` is a run directory, an output_dir, an experiments.db, or None for this home.
    """

    def __init__(self, target: Path | None = None) -> None:
        self.target = target

    def overview(self) -> Overview:
        """Raises NotFoundError where `target` is nothing that holds runs."""
        from albor_core.feed.runs.watch import RunsFeed

        return RunsFeed(self.target)

    def follow(self, view: RunView) -> Follower:
        return _RunFollower(*self._place(view))

    def archive(self, view: RunView) -> Archive:
        from albor_core.feed.archive.archive import RunArchive

        run, store = self._place(view)
        return RunArchive(run, store=None if run.path.is_dir() else store)

    def _place(self, view: RunView) -> tuple[RunDir, Path | None]:
        """Where a run is, and the store to ask if it is not there. Raises NotFoundError."""
        folder = view.folder
        if folder is None:
            raise NotFoundError(f"{view.id}: its folder is not known", hint="albor runs show")
        is_store = self.target is not None and self.target.is_file()
        return placed(view.id, folder), self.target if is_store else None

    def command(self, view: RunView, cmd: str, argument: str = "") -> Iterator[CommandReport]:
        return deliver(view, cmd, argument)

    def acknowledge(self, view: RunView, alert_id: str) -> None:
        """Append an acknowledgement to the run's annotations. Raises AlborError."""
        from albor_core.store.index.annotations import annotate

        folder = view.folder
        if folder is None or not folder.is_dir():
            raise NotFoundError(f"{view.id}: the run's folder is gone")
        annotate(RunDir(folder), "ack", alert_id)

    def compare(self, run_ids: Sequence[str]) -> dict[str, Any]:
        """The albor.runs.diff document. Raises AlborError."""
        from albor_core.store.diff.compare import diff_runs
        from albor_core.store.file.paths import global_store
        from albor_core.store.query.reader import Reader

        is_store = self.target is not None and self.target.is_file()
        with Reader(self.target if is_store and self.target else global_store()) as reader:
            return diff_runs(reader, run_ids).to_json()


class _RunFollower:
    """A RunFeed that tells only news: rereading costs it little, redrawing would cost the link."""

    def __init__(self, run: RunDir, store: Path | None) -> None:
        from albor_core.feed.run.detail import RunFeed

        self._feed = RunFeed(run, store=None if run.path.is_dir() else store)
        self._last: RunView | None = None
        self._own: TerminalView | None = None
        self.problem = ""

    def poll(self) -> RunView | None:
        view = self._feed.poll() or self._nothing()
        if view.terminal is None and view.kind != "train":
            if self._own is None or self._last is None or view.step != self._last.step:
                self._own = self.own_metrics()
            view = replace(view, terminal=self._own)
        if (view, self._feed.problem) == (self._last, self.problem):
            return None
        self._last, self.problem = view, self._feed.problem
        return view

    def _nothing(self) -> RunView:
        run, why = self._feed.run, "no run.json in its folder, and no store knows it"
        if not run.path.is_dir():
            why = "its folder is gone, and no store knows it"
        return RunView(id=run.id, path=str(run.path), status="lost", detail=why)

    def own_metrics(self) -> TerminalView | None:
        from albor_tui.model.program_charts import own_choice

        return own_choice(self._feed.keys())

    def curves(self, keys: Sequence[str], max_points: int) -> dict[str, Series]:
        found = self._feed.curves(keys, max_points=max_points)
        return {key: curve for key, curve in found.items() if not curve.is_empty}

    def log(self) -> Sequence[str]:
        return self._feed.log.read()

    def close(self) -> None:
        self._feed.close()
