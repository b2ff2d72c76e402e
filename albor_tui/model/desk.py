"""What the cockpit can do to runs besides commanding their guards: annotate, resume, export,
report, judge alerts. Everything here blocks and is called from worker threads only, and imports
what it needs when it is first asked for."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from albor_core.feed.run.status import run_status
from albor_core.feed.view.run_view import RunView
from albor_core.run.errors import InUseError, NotFoundError, UsageError
from albor_core.run.home.runs import runs_in
from albor_core.run.rundir import read_json
from albor_core.run.values.lenient import mapping_of, text
from albor_core.store.file.paths import global_store, local_store
from albor_core.store.query.resolve import find_run
from albor_tui.model.command import albor

if TYPE_CHECKING:
    from albor_core.feed.attention.item import AttentionItem
    from albor_core.feed.data.batch import StepRows
    from albor_core.feed.data.known import DataShelf
    from albor_core.feed.data.sheet import DataSheet
    from albor_core.picture.line_picture import LinePicture
    from albor_core.store.query.column_names import ColumnNames
    from albor_core.store.rows.rows import AlertRow

_COMMANDS = {
    "ack": ("alerts", "ack"),
    "untag": ("runs", "tag", "--remove"),
    "unpin": ("runs", "pin", "--off"),
    "metric.pin": ("runs", "pin"),
    "metric.unpin": ("runs", "pin", "--off"),
}
_STOP_S = 10.0  # how long the end of a program is waited for
_LONG_S = 600.0  # an export of long runs
_ANSWERS_S = 2.0  # for acknowledgements that no store has yet
_VERIFY_S = 24 * 3600.0  # every byte of a data set; who leaves the screen ends it


class RunQuery(NamedTuple):
    """A query for runs of the store, and their order: by one of its sort keys."""

    words: str = ""
    sort: str = "created"
    descending: bool = True


class Matches(NamedTuple):
    """The first runs that answer a question, and how many there are in all."""

    ids: frozenset[str]
    total: int


def reference(view: RunView) -> str:
    """The unambiguous name of a run for a command."""
    return view.path if view.folder is not None and view.folder.is_dir() else view.id


class LiveDesk:
    """Acts on runs, named by a path or an id, of the store of this home or of the home, the folder
    of runs or the store given. Every method raises AlborError; tests hand in a double.
    """

    def __init__(self, target: Path | None = None) -> None:
        self._folder: Path | None = None
        self._store = global_store()
        if target is not None and target.is_file():
            self._store = target
        elif target is not None and (target / "experiments.db").is_file():
            self._store = target / "experiments.db"
        else:
            self._folder = target

    def board(self) -> StoreBoard:
        return StoreBoard(self._store)

    def annotate(self, run: str, kind: str, value: str = "") -> str:
        """Kinds: tag, untag, note, rename, pin, unpin, metric.pin, metric.unpin, ack (the alert's
        id, or `all`).
        """
        operands = (run, value) if value else (run,)
        command = _COMMANDS.get(kind, ("runs", kind))
        albor(*command, operands=_sayable(operands))
        return value

    def edit_note(self, run: str, number: int, text: str) -> None:
        """Put another text in the place of a note; "" takes it back."""
        if text:
            albor("runs", "note", "--replace", str(number), operands=_sayable((run, text)))
        else:
            albor("runs", "note", "--remove", str(number), operands=(run,))

    def set_tags(self, run: str, tags: Sequence[str], before: Sequence[str]) -> None:
        """Give a run these tags where it had those."""
        if new := [tag for tag in tags if tag not in before]:
            albor("runs", "tag", operands=_sayable((run, *new)))
        if gone := [tag for tag in before if tag not in tags]:
            albor("runs", "tag", "--remove", operands=_sayable((run, *gone)))

    def resume(self, run: str) -> str:
        """Under a new guard: a training run from its newest checkpoint, another program by its
        command. Raises AlborError, also for a run that is complete or at work: it is looked at now,
        whatever the screen showed."""
        from albor_core.feed.run.offers import offer, subject_of_run

        found = find_run(run)
        subject = subject_of_run(found, run_status(found))
        offered = offer("retry", subject)
        if not offered.is_possible:
            kind = InUseError if subject.is_active else UsageError
            raise kind(offered.why_not, hint=offered.instead)
        verb = ("train", "resume") if subject.kind == "train" else ("guard", "retry")
        albor(*verb, "--detach", operands=(run,))
        return "a guard has it again" if subject.is_active else "a guard has started it again"

    def stop(self, run: str, number: str) -> str:
        """Send a signal (of STOP_SIGNALS) to the program of a run without a guard. Raises
        AlborError where that is not provably the run's."""
        from albor_core.run.exit import STOP_SIGNALS
        from albor_core.run.program.stop_unguarded import signal_program

        if signal_program(find_run(run), number, wait_s=_STOP_S, sender="albor-tui"):
            return f"by SIG{number}"
        stronger = STOP_SIGNALS[STOP_SIGNALS.index(number) + 1 :]
        again = f"; stop it again for SIG{stronger[0]}" if stronger else ""
        return f"SIG{number} sent, it has not ended yet{again}"

    def export(self, runs: Sequence[str], out: Path) -> str:
        albor("runs", "export", "--out", str(out), operands=tuple(runs), timeout_s=_LONG_S)
        return str(out)

    def report(self, runs: Sequence[str], out: Path) -> str:
        albor("report", "--out", str(out), operands=tuple(runs), timeout_s=_LONG_S)
        return str(out)

    def draw(self, picture: LinePicture, out: Path) -> None:
        """Write what a chart shows as SVG, PNG or CSV, by the suffix of `out`, a new file."""
        from albor_core.picture.save import save

        save(picture, out)

    def matching(self, question: RunQuery) -> Matches:
        """The first MOST_BESIDES runs that a filter (store/query/filter.py) keeps. Raises
        FilterError, and NotFoundError where no store is.
        """
        from albor_core.feed.run.store_follower import MOST_BESIDES
        from albor_core.feed.runs.listed_status import statuses_for
        from albor_core.store.query.filter import parse_filter
        from albor_core.store.query.names import Unknown
        from albor_core.store.query.reader import Reader

        where = parse_filter(question.words)
        found: frozenset[str] = frozenset()
        more = 0
        unknown = Unknown(where)
        for store in self._stores():
            with Reader(store) as reader:
                unknown.look(reader)
                statuses = statuses_for(reader, where)
                ids = reader.ids(
                    where=where,
                    statuses=statuses,
                    sort=question.sort,
                    descending=question.descending,
                    limit=MOST_BESIDES,
                )
                if len(ids) == MOST_BESIDES:
                    more += reader.count(where, statuses) - MOST_BESIDES
                found |= frozenset(ids)
        unknown.refuse()
        return Matches(found, len(found) + more)

    def column_names(self) -> ColumnNames:
        """The metrics and params that a column may be of. Raises AlborError."""
        from albor_core.store.query.column_names import ColumnNames, column_names
        from albor_core.store.query.reader import Reader

        found = ColumnNames()
        for store in self._stores():
            with Reader(store) as reader:
                found = found.joined(reader.query(column_names))
        return found

    def _stores(self) -> list[Path]:
        """The one store, and those of the runs of a folder, which it may not know."""
        own = [] if self._folder is None else map(local_store, runs_in(self._folder))
        stores = [path for path in (self._store, *own) if path.is_file()]
        if not stores:
            raise NotFoundError("these runs are in no store yet: a plain word finds names alone")
        return stores

    def find(self, run_id: str) -> RunView:
        """A run as the store remembers it."""
        from albor_core.feed.run.store_follower import view_of_row
        from albor_core.store.query.reader import Reader

        with Reader(self._store) as reader:
            return view_of_row(reader.run(run_id))

    # -- attention --------------------------------------------------------------------------------

    def acknowledge(self, item: AttentionItem) -> None:
        """Say that an entry of attention was seen."""
        from albor_core.feed.attention.marks import acknowledge

        acknowledge(item)

    def mute(self, item: AttentionItem, until: float) -> None:
        """Leave an entry out until a moment, UTC seconds."""
        from albor_core.feed.attention.marks import mute

        mute(item, until)

    def note_look(self) -> None:
        """This user has looked at what needs a person. Returns at once; raises nothing."""
        threading.Thread(target=_note_look, args=(time.time(),), name="look").start()

    def evidence(self, item: AttentionItem) -> tuple[str, ...]:
        """The evidence of an entry. Raises nothing."""
        from albor_core.feed.attention.evidence import evidence

        return evidence(item)

    def gpu_past(self, item: AttentionItem) -> tuple[str, tuple[float, ...]]:
        """The figure that an entry about a GPU of this machine is about, for as long as the machine
        remembers; nothing for another entry."""
        from albor_core.telemetry.machine_ring import read_ring, ring_path

        kind, _, index = item.id.rpartition("/")[2].partition(":")
        figure = _GPU_FIGURES.get(kind)
        if figure is None or not index.isdigit() or item.host != os.uname().nodename:
            return "", ()
        found = (
            getattr(gpu, figure.attribute)
            for sample in read_ring(ring_path(), _GPU_PAST_S)
            for gpu in sample.gpus
            if gpu.index == int(index)
        )
        return figure.words, tuple(float(value) for value in found if value is not None)

    def replay_rules(self, run: str, conditions: Sequence[str]) -> dict[str, Any]:
        """The albor.alerts.test document, which also says which rules cannot be used."""
        return albor("alerts", "test", operands=(run, *conditions), accept=(0, 2))

    def weights(self, folder: str, cancelled: threading.Event) -> dict[str, Any]:
        """The albor.model.weights document of a folder of weights. Raises Cancelled, too."""
        command = ("model", "weights")
        return albor(*command, operands=(folder,), timeout_s=_LONG_S, cancelled=cancelled)

    def kernels(self, run: str, cancelled: threading.Event) -> dict[str, Any]:
        """The albor.kernels.show document of a run. Raises Cancelled, too."""
        command = ("kernels", "show")
        return albor(*command, operands=(run,), timeout_s=_LONG_S, cancelled=cancelled)

    # -- data -------------------------------------------------------------------------------------

    def data_sets(self) -> DataShelf:
        """The data sets that are known here. Raises nothing."""
        from albor_core.feed.data.known import known_data_sets

        return known_data_sets(self._store)

    def data_stats(self, path: str, cancelled: threading.Event) -> DataSheet:
        """The contents of a data set, as `albor data stats` counts them. Also raises Cancelled."""
        from albor_core.feed.data.sheet import sheet_of

        command = ("data", "stats")
        return sheet_of(albor(*command, operands=(path,), timeout_s=_LONG_S, cancelled=cancelled))

    def data_batch(self, run: str, cancelled: threading.Event) -> StepRows:
        """The rows of a run's newest step, decoded. Raises Cancelled, too."""
        from albor_core.feed.data.batch import batch_of

        command = ("data", "batch")
        return batch_of(albor(*command, operands=(run,), timeout_s=_LONG_S, cancelled=cancelled))

    def verify_data(self, path: str, cancelled: threading.Event) -> tuple[str, ...]:
        """Have every byte of shards read against its hash; what is wrong. Raises Cancelled, too."""
        command = ("data", "verify")
        document = albor(
            *command, operands=(path,), timeout_s=_VERIFY_S, cancelled=cancelled, accept=(0, 7)
        )
        found = [mapping_of(one) for one in document.get("problems") or ()]
        wrong = [f"{text(one, 'file')}: {text(one, 'message')}" for one in found]
        return tuple(wrong or ([] if document.get("ok") is True else ["not said to be whole"]))

    def watched(self, run: str) -> tuple[str, ...]:
        """Budgets that can stop a run, including those of parts of a step, besides its rules."""
        from albor_core.andon.budgets.limits import BudgetLimits
        from albor_core.andon.explain import explain
        from albor_core.feed.run.watched import watching_section

        place = find_run(run)
        resolved = read_json(place.config_resolved) or {}
        found = watching_section(place.metadata().get("kind"), resolved)
        limits, bricks = _numbers(found.get("budgets")), _numbers(found.get("bricks"))
        action = (found.get("budgets") or {}).get("action") if limits else None
        budgets = BudgetLimits.from_config({"budgets": {**limits, "action": action}})
        return explain((), budgets=budgets, bricks=bricks)


class _GpuFigure(NamedTuple):
    attribute: str
    words: str


_GPU_FIGURES = {
    **dict.fromkeys(("gpu_hot", "gpu_throttled"), _GpuFigure("temperature_c", "temperature, C")),
    **dict.fromkeys(("gpu_straggling", "gpu_idle"), _GpuFigure("util_percent", "load, %")),
}
_GPU_PAST_S = 330.0


def _sayable(words: tuple[str, ...]) -> tuple[str, ...]:
    """Words that are valid arguments of a command. Raises UsageError for others."""
    for word in words:
        if "\0" in word:
            raise UsageError("cannot write that down: it has a NUL character")
        try:
            os.fsencode(word)
        except UnicodeEncodeError as error:
            raise UsageError("cannot write that down: it has half of a character") from error
    return words


def _note_look(wall: float) -> None:
    from albor_core.feed.attention.marks import note_look
    from albor_core.run.home.folders import albor_home

    if albor_home().is_dir():
        note_look(albor_home(), wall)


def _numbers(section: object) -> dict[str, Any]:
    """The numbers in a section of a config, which may be any program's."""
    found = section if isinstance(section, dict) else {}
    return {key: value for key, value in found.items() if isinstance(value, int | float)}


class StoreBoard:
    """All alerts, followed: the store is asked only after a write to it. Belongs to the
    thread that made it.
    """

    def __init__(self, store: Path) -> None:
        from albor_core.feed.run.store_follower import StoreWatch

        self._watch = StoreWatch(store)
        self._version: int | None = None
        self._alerts: tuple[AlertRow, ...] | None = None

    @property
    def problem(self) -> str:
        """Why there are none to be read; "" if all is well."""
        return self._watch.problem

    def poll(self) -> tuple[AlertRow, ...] | None:
        """Every alert, newest first; None when nothing changed. Before the first answer, what was
        acknowledged and is in no store yet is brought there.
        """
        from albor_core.feed.run.alerts import index_answers

        version = self._watch.ask(lambda reader: reader.version())
        if version is None or version == self._version:
            first, self._alerts = self._alerts is None, self._alerts or ()
            return () if first else None
        found = self._watch.ask(lambda reader: reader.alerts(None))
        if found and self._version is None and index_answers(found, timeout_s=_ANSWERS_S):
            found = self._watch.ask(lambda reader: reader.alerts(None))
        if found is None:
            return None
        self._version = version
        fresh = tuple(reversed(found))
        if fresh == self._alerts:
            return None
        self._alerts = fresh
        return fresh

    def close(self) -> None:
        self._watch.close()
