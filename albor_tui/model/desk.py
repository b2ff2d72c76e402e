"""What the cockpit can do to runs besides commanding their guards: annotate, resume, export,
report, judge alerts. Everything here blocks and is called from worker threads only, and imports
what it needs when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from albor_core.feed.runs.status import run_status
from albor_core.feed.view import RunView
from albor_core.run.errors import InUseError, NotFoundError, UsageError
from albor_core.run.rundir import read_json, runs_in
from albor_core.store.file.paths import global_store, local_store
from albor_core.store.query.resolve import find_run
from albor_tui.model.command import albor

if TYPE_CHECKING:
    from albor_core.store.query.reader import Reader
    from albor_core.store.rows.rows import AlertRow

T = TypeVar("T")
_FLAGS = {"untag": ("runs", "tag", "--remove"), "unpin": ("runs", "pin", "--off")}
_STOP_S = 10.0  # how long the end of a program is waited for
_LONG_S = 600.0  # an export of long runs


class RunSelection(NamedTuple):
    """Which runs of the store, and which of them first: by one of its sort keys."""

    words: str = ""
    sort: str = "created"
    descending: bool = True


class Matches(NamedTuple):
    """The first runs that answer a question, and how many there are in all."""

    ids: frozenset[str]
    total: int


class Board(Protocol):
    """All alerts, followed. Belongs to the thread that made it."""

    def poll(self) -> tuple[AlertRow, ...] | None:
        """Every alert, newest first; None when nothing changed."""

    @property
    def problem(self) -> str:
        """Why there are none to be read; "" if all is well."""

    def close(self) -> None:
        """Let go of files."""


class Desk(Protocol):
    """Acts on runs, named by a path or an id. Every method raises AlborError."""

    def board(self) -> Board: ...

    def annotate(self, run: str, kind: str, value: str = "") -> str: ...

    def resume(self, run: str) -> str: ...

    def stop(self, run: str, number: str) -> str: ...

    def export(self, runs: Sequence[str], out: Path) -> str: ...

    def report(self, runs: Sequence[str], out: Path) -> str: ...

    def matching(self, question: RunSelection) -> Matches: ...

    def find(self, run_id: str) -> RunView: ...

    def replay_rules(self, run: str, conditions: Sequence[str]) -> dict[str, Any]: ...

    def watched(self, run: str) -> tuple[str, ...]: ...


def reference(view: RunView) -> str:
    """What names a run to a command without doubt."""
    return view.path if view.folder is not None and view.folder.is_dir() else view.id


class LiveDesk:
    """The real thing, on the store of this home or of the home, the folder of runs or the store
    given."""

    def __init__(self, target: Path | None = None) -> None:
        self._folder: Path | None = None
        self._store = global_store()
        if target is not None and target.is_file():
            self._store = target
        elif target is not None and (target / "experiments.db").is_file():
            self._store = target / "experiments.db"
        else:
            self._folder = target

    def board(self) -> Board:
        return StoreBoard(self._store)

    def annotate(self, run: str, kind: str, value: str = "") -> str:
        """Kinds: tag, untag, note, rename, pin, unpin, ack (the alert's id, or `all`)."""
        operands = (run, value) if value else (run,)
        command = ("alerts", "ack") if kind == "ack" else _FLAGS.get(kind, ("runs", kind))
        albor(*command, operands=operands)
        return value

    def resume(self, run: str) -> str:
        """Under a new guard: a training run from its newest checkpoint, another program by its
        command. Raises AlborError, also for a run that is complete or at work: it is looked at now,
        whatever the screen showed."""
        from albor_core.feed.offers import offer, subject_of_run

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
        from albor_core.run.program.stop_unguarded import STOP_SIGNALS, signal_program

        if signal_program(find_run(run), number, wait_s=_STOP_S):
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

    def matching(self, question: RunSelection) -> Matches:
        """The first MOST_BESIDES runs that a filter (store/query/filter.py) keeps. Raises
        FilterError, and NotFoundError where no store is.
        """
        from albor_core.feed.run.store_follower import MOST_BESIDES
        from albor_core.feed.runs.list_states import words_of_unended
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
                statuses = words_of_unended(reader.unended()) if where.needs_status else {}
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

    def replay_rules(self, run: str, conditions: Sequence[str]) -> dict[str, Any]:
        """The albor.alerts.test document."""
        return albor("alerts", "test", operands=(run, *conditions))

    def watched(self, run: str) -> tuple[str, ...]:
        """What pulls the cord of a run besides its rules: budgets of tokens, hours and bricks."""
        from albor_core.andon.budgets import Budgets
        from albor_core.andon.explain import explain
        from albor_core.feed.watched import watching_section

        place = find_run(run)
        resolved = read_json(place.config_resolved) or {}
        found = watching_section(read_json(place.run_json) or {}, resolved)
        limits, bricks = _numbers(found.get("budgets")), _numbers(found.get("bricks"))
        action = (found.get("budgets") or {}).get("action") if limits else None
        budgets = Budgets.from_config({"budgets": {**limits, "action": action}})
        return explain((), budgets=budgets, bricks_ms=bricks)


def _numbers(section: object) -> dict[str, Any]:
    """What is a number in a section of a config, which may be of any program."""
    found = section if isinstance(section, dict) else {}
    return {key: value for key, value in found.items() if isinstance(value, int | float)}


class StoreBoard:
    """Asks the store only when somebody wrote to it."""

    def __init__(self, store: Path) -> None:
        from albor_core.feed.run.store_follower import StoreWatch

        self._watch = StoreWatch(store)
        self._version: int | None = None
        self._alerts: tuple[AlertRow, ...] | None = None

    @property
    def problem(self) -> str:
        return self._watch.problem

    def poll(self) -> tuple[AlertRow, ...] | None:
        version = self._ask(lambda reader: reader.version())
        if version is None or version == self._version:
            first, self._alerts = self._alerts is None, self._alerts or ()
            return () if first else None
        found = self._ask(lambda reader: reader.alerts(None))
        if found is None:
            return None
        self._version = version
        fresh = tuple(reversed(found))
        if fresh == self._alerts:
            return None
        self._alerts = fresh
        return fresh

    def _ask(self, question: Callable[[Reader], T]) -> T | None:
        return self._watch.ask(question)

    def close(self) -> None:
        self._watch.close()
