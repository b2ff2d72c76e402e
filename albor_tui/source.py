"""Where the screens' values come from, so that they can come from elsewhere in a test.

Everything here blocks on files or SQLite and is called from worker threads only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from albor_core.feed.detail import RunFeed
from albor_core.feed.view import Curve, RunsView, RunView
from albor_core.feed.watch import RunsFeed
from albor_core.run.control import send, wait_answer
from albor_core.run.errors import AlborError, NotFoundError
from albor_core.run.rundir import RunDir
from albor_core.store.annotations import annotate
from albor_core.store.diff import diff_runs
from albor_core.store.paths import global_store
from albor_core.store.reader import Reader
from albor_tui.messages import CommandReport

ANSWER_S = 3.0
DONE_S = 120.0


class Follower(Protocol):
    """One run, followed. Belongs to the thread that made it."""

    def poll(self) -> RunView | None:
        """The run now; None when nothing changed."""

    def curves(self, keys: Sequence[str], max_points: int) -> dict[str, Curve]:
        """Curves for charts, by metric key; keys without points are left out."""

    def log(self) -> Sequence[str]:
        """Log lines since the last call."""

    def close(self) -> None:
        """Let go of files."""


class Overview(Protocol):
    """All runs, followed. Belongs to the thread that made it."""

    def poll(self, *, visible: Collection[str] = ()) -> RunsView:
        """All runs now; `version` moves when something changed. Runs in `visible` get a history."""

    def close(self) -> None:
        """Let go of files."""


class Source(Protocol):
    """What the cockpit shows."""

    def overview(self) -> Overview: ...

    def follow(self, view: RunView) -> Follower: ...

    def command(self, view: RunView, cmd: str) -> Iterator[CommandReport]: ...

    def acknowledge(self, view: RunView, alert_id: str) -> None: ...

    def compare(self, run_ids: Sequence[str]) -> dict[str, Any]: ...


def deliver(view: RunView, cmd: str) -> Iterator[CommandReport]:
    """Send a command to the guard of a run and tell each stage of its way."""
    name = view.name or view.id
    folder = view.folder
    if folder is None or not folder.is_dir():
        yield CommandReport(name, cmd, "refused", "the run's folder is gone")
        return
    run = RunDir(folder)
    if run.liveness().guard is None:
        yield CommandReport(name, cmd, "no guard", "nobody is there to obey; albor train resume")
        return
    try:
        command_id = send(run, cmd, sender="albor-tui")
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
        return RunsFeed(self.target)

    def follow(self, view: RunView) -> Follower:
        folder = view.folder
        if folder is None:
            raise NotFoundError(f"{view.id}: its folder is not known", hint="albor runs show")
        is_store = self.target is not None and self.target.is_file()
        return _RunFollower(RunDir(folder), self.target if is_store else None)

    def command(self, view: RunView, cmd: str) -> Iterator[CommandReport]:
        return deliver(view, cmd)

    def acknowledge(self, view: RunView, alert_id: str) -> None:
        """Append an acknowledgement to the run's annotations. Raises AlborError."""
        folder = view.folder
        if folder is None or not folder.is_dir():
            raise NotFoundError(f"{view.id}: the run's folder is gone")
        annotate(RunDir(folder), "ack", alert_id)

    def compare(self, run_ids: Sequence[str]) -> dict[str, Any]:
        """The albor.runs.diff document. Raises AlborError."""
        is_store = self.target is not None and self.target.is_file()
        with Reader(self.target if is_store and self.target else global_store()) as reader:
            return diff_runs(reader, run_ids).to_json()


class _RunFollower:
    """A RunFeed that tells only news: rereading costs it little, redrawing would cost the link."""

    def __init__(self, run: RunDir, store: Path | None) -> None:
        self._feed = RunFeed(run, store=None if run.path.is_dir() else store)
        self._last: RunView | None = None

    def poll(self) -> RunView | None:
        view = self._feed.poll()
        if view is None or view == self._last:
            return None
        self._last = view
        return view

    def curves(self, keys: Sequence[str], max_points: int) -> dict[str, Curve]:
        found = self._feed.curves(keys, max_points=max_points)
        return {key: curve for key, curve in found.items() if not curve.is_empty}

    def log(self) -> Sequence[str]:
        return self._feed.log.read()

    def close(self) -> None:
        self._feed.close()
