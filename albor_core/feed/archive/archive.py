"""What a run left behind, looked up on request: the source of the Run screen's tabs.

`RunFeed` follows what is alive and is polled; this answers questions, each from the store where the
store knows, else from the tails of the run's files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from albor_core.feed.archive.card import CardShelf, RunCard
from albor_core.feed.archive.checkpoints import Shelf, ShelfView
from albor_core.feed.archive.config_sheet import ConfigSheet, ConfigView
from albor_core.feed.archive.crashes import CrashShelf, CrashView
from albor_core.feed.archive.log_file import LogName, LogShelf, LogWindow
from albor_core.feed.archive.media import MediaShelf, MediumView, MediumWanted
from albor_core.feed.archive.traced import TracedBricks, TraceShelf
from albor_core.feed.data.of_run import RunData, figures_of, run_data
from albor_core.feed.run.detail import RunFeed
from albor_core.feed.run.records import RecordTail, journal_events
from albor_core.feed.run.store_follower import StoreWatch
from albor_core.run.journal import parse_line
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.values.lenient import integer, number, text
from albor_core.store.file.paths import global_store
from albor_core.store.query.reader import Reader
from albor_core.store.rows.rows import EventRow, SampleRow
from albor_core.store.rows.series import Series

EVENTS = 2000  # newest ones that can be scrolled through
SAMPLES = 500
VALIDATIONS = 5000
T = TypeVar("T")


@dataclass(frozen=True)
class Told:
    """Rows of one kind."""

    events: tuple[EventRow, ...] = ()
    samples: tuple[SampleRow, ...] = ()
    crashes: tuple[CrashView, ...] = ()  # beside events


class RunArchive:
    """The records of one run. Used by the thread that made it; raises nothing."""

    def __init__(self, run: RunDir, *, store: Path | None = None) -> None:
        self.run = run
        self._feed = RunFeed(run, store=store)  # never polled: its curves and its store
        self._logs = LogShelf(run.logs)
        self._shelf = Shelf(run.checkpoints)
        self._config = ConfigSheet(run)
        self._crashes = CrashShelf(run)
        self._traces = TraceShelf(run.traces)
        self._everybodys = StoreWatch(store or global_store())
        self._card = CardShelf(run, own=self._asked, everybody=self._asked_of_everybody)
        self._media = MediaShelf(run, self._feed.store.ask)
        self._journal = RecordTail(run.journal, parse_line)
        self._known: dict[str, tuple[int | None, object]] = {}

    def close(self) -> None:
        """Let go of the stores."""
        self._feed.close()
        self._everybodys.close()

    @property
    def problem(self) -> str:
        """Why the store cannot be read; "" if all is well or there is none yet."""
        return self._feed.store.problem

    def keys(self) -> tuple[str, ...]:
        """Metric keys that can be drawn, the important ones first."""
        return self._feed.keys()

    def curves(
        self, keys: Sequence[str], *, lo: int | None = None, hi: int | None = None, points: int
    ) -> dict[str, Series]:
        """Curves by key over the step window [lo, hi]; keys without points are left out."""
        found = self._feed.curves(keys, max_points=points, lo=lo, hi=hi)
        return {key: curve for key, curve in found.items() if not curve.is_empty}

    def log(self, name: LogName | None, top: int | None, count: int, needle: str = "") -> LogWindow:
        """A window of lines of a log; see LogShelf."""
        return self._logs.window(name, top, count, needle)

    def config(self) -> ConfigView:
        """The config file and what each field became."""
        run_id = self.run.id
        is_here = self.run.config_resolved.exists()
        params = {} if is_here else self._asked("params", lambda r: r.params(run_id)) or {}
        return self._config.look(params)

    def card(self) -> RunCard:
        """The card of a run: what it is, its relatives, what it left and how it died."""
        return self._card.look()

    def medium(self, wanted: MediumWanted) -> MediumView:
        """One picture, histogram, table or text that the run kept, as it is shown."""
        return self._media.medium(wanted)

    def data(self) -> RunData:
        """The data that the run reads, and whether it is still in its place."""
        run_id, told = self.run.id, read_json(self.run.run_json)
        if not told:
            detail = self._asked("detail", lambda r: r.detail(run_id))
            told = {} if detail is None else {**detail.facts, "kind": detail.row.kind}
        figures = self._asked("figures of data", lambda r: figures_of(r.summary(run_id))) or {}
        resolved = read_json(self.run.config_resolved) or {}
        return run_data(told, resolved, figures, str(self.run.path))

    def checkpoints(self) -> ShelfView:
        """The contents of the checkpoint folder, with events about them."""
        run_id = self.run.id
        # of the newest attempt: a rewind takes back what it repeats
        points = self._asked("val", lambda r: r.points(run_id, "val/loss", limit=VALIDATIONS))
        losses = {step: value for step, value, _ in points or ()}
        return self._shelf.look(self.events().events, losses)

    def events(self) -> Told:
        """The newest events, oldest first, and the crash reports, newest first."""
        run_id, crashes = self.run.id, self._crashes.look()
        rows = self._asked("events", lambda r: r.events(run_id, limit=EVENTS))
        if rows is not None:
            return Told(events=rows, crashes=crashes)
        return Told(events=journal_events(self._journal.records(), run_id), crashes=crashes)

    def samples(self) -> Told:
        """The newest samples, oldest first."""
        run_id = self.run.id
        rows = self._asked("samples", lambda r: r.samples(run_id, limit=SAMPLES))
        if rows is not None:
            return Told(samples=rows)
        records = (r for r in self._journal.records() if r.get("t") == "s")
        said = (
            SampleRow(integer(r, "step"), number(r, "wall"), text(r, "prompt"), text(r, "text"))
            for r in records
        )
        return Told(samples=tuple(said))

    def traced(self) -> TracedBricks:
        """Kernels under each brick, by the newest trace that the run kept."""
        return self._traces.look()

    def _asked(self, name: str, question: Callable[[Reader], T]) -> T | None:
        """The answer of the run's store, asked again only after a write to it."""
        return self._answer(self._feed.store, name, question)

    def _asked_of_everybody(self, name: str, question: Callable[[Reader], T]) -> T | None:
        return self._answer(self._everybodys, name, question)

    def _answer(self, store: StoreWatch, name: str, question: Callable[[Reader], T]) -> T | None:
        version = store.ask(lambda reader: reader.version())
        known = self._known.get(name)
        if version is None:
            return None
        if known is None or known[0] != version:
            answer = store.ask(question)
            if answer is None:
                return None
            self._known[name] = known = (version, answer)
        return known[1]  # type: ignore[return-value]
