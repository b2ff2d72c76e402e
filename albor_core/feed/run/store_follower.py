"""A store followed: opened when it is there, reopened when it was replaced, asked only on news.

A viewer must never make a store late or a screen slow. So the list is queried again only when
another connection committed (`Reader.version` moves) or the file was written, and never more than a
tenth of the time: twenty runs being indexed move it constantly. Belongs to the thread that polls.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Set
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from albor_core.andon.severity import CALM, worst
from albor_core.feed.run.status import NEVER_STARTED, works_without_folder
from albor_core.feed.view.newest import NewestFigures, brought_up, share_done, whole_tokens
from albor_core.feed.view.run_status import without_folder
from albor_core.feed.view.run_view import LOADING, RunView
from albor_core.run.errors import AlborError, NotFoundError
from albor_core.run.headlines import NEWEST, STORED
from albor_core.run.rundir import RunDir
from albor_core.run.status import ENDS
from albor_core.store.file.migrations import user_version
from albor_core.store.file.paths import rebuild_hint
from albor_core.store.file.schema import SCHEMA_VERSION
from albor_core.store.query.reader import Reader
from albor_core.store.query.terms import Filter
from albor_core.store.rows.run_row import RunRow

RETRY_S = 2.0
FIRST_ROWS = 200  # more than a screen: shown while the rest is on its way
MOST_ROWS = 10_000  # kept of a larger store: its newest
MOST_BESIDES = 1_000  # and of older ones: what is asked for, is pinned or has no end
MIN_GAP_S = 0.25
DUTY = 10  # rest this many times as long as the last query took

_Mark = tuple[int, int, int, int]  # device, inode, mtime, size
T = TypeVar("T")


class StoreWatch:
    """One store file, which may be absent, damaged or replaced at any time. Never raises."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.path = path
        self.is_partial = False  # `rows` gave the newest runs only; the next call gives all
        self.known: Set[str] = frozenset()  # ids of all runs of the store
        self.total = 0  # how many there are, at the newest query
        self._clock = clock
        self._reader: Reader | None = None
        self._mark: _Mark | None = None
        self._retry_at = 0.0
        self._version: int | None = None
        self._rest_until = 0.0
        self._views: dict[str, RunView] = {}
        self._wanted: Collection[str] = ()
        self._prints: dict[str, int] = {}  # of the rows that the views were made of
        self._changed: frozenset[str] = frozenset()
        self._trouble = self._caveat = ""
        self._since = self._read_at = ""  # times of the day: of the trouble, of the last answer

    @property
    def problem(self) -> str:
        """Why it cannot be read or no longer grows, since when, what to do, and of when the rows
        are; "" if all is well, or for a store that does not exist yet.
        """
        return self._trouble or self._caveat

    def close(self) -> None:
        """Close the file; the next question opens it again."""
        reader, self._reader = self._reader, None
        self._mark, self._version = None, None
        if reader is not None:
            reader.close()

    def refresh(self) -> None:
        """Have the next `rows` look for news, however lately it did."""
        self._rest_until = 0.0

    def ask(self, question: Callable[[Reader], T]) -> T | None:
        """The answer to one question, None if the store cannot answer now."""
        answer = self._ask(question)
        if answer is not None and (self._version is not None or not self._views):
            self._be_well()  # with views it is well once the whole list can be read
        return answer

    def _ask(self, question: Callable[[Reader], T]) -> T | None:
        reader = self._open()
        if reader is None:
            return None
        try:
            return question(reader)
        except NotFoundError:  # the store is well, it only does not know the run
            return None
        except AlborError as error:
            self._give_up(error)
            return None

    def rows(self, wanted: Collection[str] = ()) -> dict[str, RunView]:
        """The runs of the store by id, as of the newest query; cheap without news.

        Of a store of more than MOST_ROWS runs these are the newest, those that are pinned or have
        no recorded end, and those named in `wanted`.
        """
        now = self._clock()
        is_same = wanted == self._wanted or self.total <= MOST_ROWS
        if self._views and is_same and now < self._rest_until:
            return self._views
        self._drop_if_rewritten()
        version = self._ask(lambda reader: reader.version())
        if version is None:
            self.is_partial = False  # no more will come before the store is well again
            return self._views
        is_news = version != self._version or not is_same
        if is_news and self._query(wanted):
            self._version = version  # asked before the query: news since then moves it again
            self._wanted = wanted
            self._rest_until = now + max(MIN_GAP_S, DUTY * (self._clock() - now))
        if self._reader is not None:
            self._be_well()
        return self._views

    def _query(self, wanted: Collection[str]) -> bool:
        """Take the list as it is now; whether all came that `rows` is to give."""
        is_first = not self._views
        limit = FIRST_ROWS if is_first else MOST_ROWS
        rows = self._ask(lambda reader: reader.runs(limit=limit))
        is_cut = rows is not None and len(rows) == limit
        self.is_partial = is_first and is_cut
        if rows is None:
            return False
        self._caveat_of(self._ask(lambda reader: reader.query(user_version)))
        self._take(rows + self._beyond(rows, wanted) if is_cut and not is_first else rows)
        self._count(is_cut)
        return not self.is_partial

    def _beyond(self, rows: tuple[RunRow, ...], wanted: Collection[str]) -> tuple[RunRow, ...]:
        """The runs that must be seen although they are not among the newest."""
        asked = {*wanted, *(self._ask(lambda reader: reader.outstanding(MOST_BESIDES)) or ())}
        asked -= {row.id for row in rows}
        return self._ask(lambda reader: reader.by_id(asked)) or () if asked else ()

    def _count(self, is_cut: bool) -> None:
        if not is_cut:
            self.known, self.total = self._views.keys(), len(self._views)
        elif self.is_partial:
            self.total = self._ask(lambda reader: reader.count(Filter())) or len(self._views)
        else:
            pointers = self._ask(lambda reader: reader.pointers()) or ()
            self.known = frozenset(name.removesuffix(".json") for name in pointers)
            self.total = len(self.known)

    def take_changed(self) -> frozenset[str]:
        """Ids whose rows are new or different since this was last called."""
        changed, self._changed = self._changed, frozenset()
        return changed

    def _take(self, rows: tuple[RunRow, ...]) -> None:
        views, prints, changed = {}, {}, set()
        lost = self._ask(lambda reader: reader.losses()) or {}
        for row in rows:
            prints[row.id] = mark = _print_of(row)
            if mark == self._prints.get(row.id):
                views[row.id] = self._views[row.id]
            else:
                view = view_of_row(row, self._severity(row))
                lines, unlogged = lost.get(row.id, (0, 0))
                views[row.id] = replace(view, lines_lost=lines, console_bytes_lost=unlogged)
                changed.add(row.id)
        self._views, self._prints = views, prints
        self._changed |= changed

    def _severity(self, row: RunRow) -> str:
        """The worst open alert of a run."""
        if not row.alerts_open:
            return CALM
        alerts = self.ask(lambda reader: reader.alerts(row.id, open_only=True)) or ()
        return worst(alert.severity for alert in alerts)

    def _open(self) -> Reader | None:
        try:
            mark = _mark(self.path)
        except OSError as error:
            self.close()
            is_absent = isinstance(error, FileNotFoundError)
            if is_absent and not self._read_at:  # it is still to come
                self._trouble = self._since = ""
            else:
                self._set_trouble(f"{self.path.name}: {'gone' if is_absent else error.strerror}")
            return None
        if self._reader is not None and self._mark is not None and mark[:2] == self._mark[:2]:
            return self._reader
        began = self._clock()
        if mark == self._mark and began < self._retry_at:
            return None
        self.close()
        self._mark = mark
        try:
            self._reader = Reader(self.path)
        except AlborError as error:
            self._give_up(error, patience_s=DUTY * (self._clock() - began))
        return self._reader

    def _drop_if_rewritten(self) -> None:
        """Let go of a file that was written: most often by a checkpoint, but what writes over it
        past SQLite moves no version.
        """
        with suppress(OSError):
            if self._reader is not None and _mark(self.path) != self._mark:
                self.close()

    def _give_up(self, error: AlborError, *, patience_s: float = 0.0) -> None:
        mark = self._mark
        self.close()
        self._mark = mark
        what = error.message.replace(str(self.path), self.path.name, 1)
        if self.path.is_dir():
            what = f"{self.path.name}: a folder is in its place"
        self._set_trouble(what, error.hint)
        self._retry_at = self._clock() + max(RETRY_S, patience_s)

    def _set_trouble(self, what: str, hint: str | None = None) -> None:
        hint = rebuild_hint(self.path) if hint is None else hint
        self._since = self._since or _time_of_day()
        rows = f"rows as of {self._read_at}" if self._views and self._read_at else ""
        parts = (f"{what} since {self._since}", hint, rows)
        self._trouble = "; ".join(part for part in parts if part)

    def _be_well(self) -> None:
        self._trouble, self._since, self._read_at = "", "", _time_of_day()

    def _caveat_of(self, version: int | None) -> None:
        """A newer store can be read, but the guards and indexers of this Albor leave it alone."""
        if version is None or version <= SCHEMA_VERSION:
            self._caveat = ""
        elif not self._caveat:
            newer = f"newer than this Albor's {SCHEMA_VERSION}, which adds nothing to it"
            what = f"version {version} since {_time_of_day()}, {newer}"
            self._caveat = f"{self.path.name}: {what}; upgrade albor"


def _mark(path: Path) -> _Mark:
    """The identity and version of a file. Raises OSError."""
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def _time_of_day() -> str:
    """Now as people here read a clock: 14:05."""
    return time.strftime("%H:%M")


def row_in(store: Path, run_id: str) -> RunView | None:
    """The row of a run in a store that is not followed; None if it cannot be read."""
    try:
        with Reader(store) as reader:
            return view_of_row(reader.run(run_id))
    except AlborError:
        return None


def view_of_row(row: RunRow, severity: str = CALM) -> RunView:
    """A run as a store remembers it: nothing of it is live.

    One that has no recorded end is "loading" until its locks were examined. A value that should be
    a number and is not (SQLite stores anything anywhere) is unknown.
    """
    row = _sound(row)
    figures: dict[str, Any] = whole_tokens({one.name: getattr(row, one.name) for one in STORED})
    word = row.ended_status if row.ended_status in ENDS else LOADING
    step, max_steps = row.last_step, row.max_steps
    last_wall = row.ended_wall if row.last_wall is None else row.last_wall
    return RunView(
        **figures,
        id=row.id,
        name=row.name or row.id,
        experiment=row.experiment,
        kind=row.kind,
        path=row.path,
        host=row.host or "",
        created=row.created,
        status=word,
        detail=(row.ended_reason or "") if row.ended_reason != row.ended_status else "",
        age_s=_age(last_wall),
        last_wall=last_wall,
        attempt=row.attempts or None,
        attempts_total=row.attempts or None,
        step=step,
        max_steps=max_steps,
        progress=share_done(step, max_steps),
        elapsed_s=_span(row),
        alerts_open=row.alerts_open,
        severity=severity,
        seed=row.seed,
        git_commit=row.git_commit or "",
        ended_wall=row.ended_wall,
        is_pinned=row.pinned,
        tags=row.tags,
    )


def _age(wall: float | None) -> float | None:
    """Seconds since the last news that a store knows of."""
    if wall is None or not math.isfinite(wall):
        return None
    return max(0.0, time.time() - wall)


def without_files(row: RunView, run: RunDir) -> RunView:
    """What a store knows of a run whose folder is gone; of one without a recorded end, whether its
    program goes on all the same.
    """
    if not row.is_loading:
        return row
    pid = works_without_folder(run)
    word = "lost" if pid is None else "running"
    return replace(row, status=word, trainer_pid=pid, detail=without_folder(pid))


def aged(row: RunView) -> RunView:
    """A view of a store's row, queried some time ago, with the age of its news now."""
    return replace(row, age_s=_age(row.last_wall))


_COUNTS = ("attempts", "alerts_open")
_NUMBERS = (
    *("created", "ended_wall", "last_step", "max_steps", "first_wall", "last_wall", "seed"),
    *(one.name for one in STORED),
)
_NUMERIC = (float, int, type(None))


def _sound(row: RunRow) -> RunRow:
    wrong: dict[str, Any] = {n: None for n in _NUMBERS if type(getattr(row, n)) not in _NUMERIC}
    wrong |= {name: 0 for name in _COUNTS if type(getattr(row, name)) is not int}
    return replace(row, **wrong) if wrong else row


def _print_of(row: RunRow) -> int:
    """Equal for equal rows, NaN being equal to NaN: a run that ended in it does not count as
    changed at every query. Rows themselves, ten thousand of them, would take a megabyte each
    thousand.
    """
    return hash(tuple("nan" if v != v else v for v in vars(row).values()))


def _span(row: RunRow) -> float | None:
    if row.first_wall is None or row.last_wall is None:
        return None
    return max(0.0, row.last_wall - row.first_wall)


def known_of(row: RunView | None) -> tuple[str | None, bool]:
    """The end that a store recorded, and whether it has steps: what files are judged by."""
    if row is None:
        return None, False
    return None if row.is_loading or row.status == "lost" else row.status, row.step is not None


_EITHER = ("experiment", "host", "git_commit")  # "": the files do not say it
_UNSAID = ("created", "last_wall", "max_steps")  # None: the same
_STORED = ("is_pinned", "tags", *(one.name for one in STORED if one.stat == "best"))


def _elapsed(view: RunView, row: RunView) -> float | None:
    """The elapsed time: of an active run as it reports it; of an ended one the sum over all
    attempts, since a program reports only its last one."""
    said, span = view.elapsed_s, row.elapsed_s
    if said is None or span is None:
        return span if said is None else said
    return said if view.is_active else span


def merge(view: RunView, row: RunView) -> RunView:
    """The view of files, completed by what only the store has."""
    found = brought_up(_figures(view), _figures(row), is_starting=view.is_starting)
    fields: dict[str, Any] = {name: getattr(row, name) for name in _STORED}
    fields |= {name: getattr(view, name) or getattr(row, name) for name in _EITHER}
    fields |= {name: _first(getattr(view, name), getattr(row, name)) for name in _UNSAID}
    fields |= whole_tokens(found.fields())
    return replace(
        view,
        **fields,
        elapsed_s=_elapsed(view, row),
        **_alerts(view, row),
        name=row.name or view.name,
        detail=_detail(view, row),
        age_s=_age(row.last_wall) if view.age_s is None else view.age_s,
        step=found.step,
        val_step=found.val_step,
        progress=_first(share_done(found.step, fields["max_steps"]), view.progress),
        ended_wall=None if view.is_active else (view.ended_wall or row.ended_wall),
        lines_lost=0 if view.is_active else max(view.lines_lost, row.lines_lost),
        console_bytes_lost=(
            0 if view.is_active else max(view.console_bytes_lost, row.console_bytes_lost)
        ),
        attempts_total=max(view.attempts_total or 0, row.attempts_total or 0) or None,
    )


def _first(value: Any, other: Any) -> Any:
    return other if value is None else value


def _alerts(view: RunView, row: RunView) -> dict[str, Any]:
    """How many are open and how bad they are: the state file may tell of one not yet indexed."""
    is_indexed = view.last_alert_step is None or (row.step or -1) >= view.last_alert_step
    if is_indexed and row.alerts_open == 0:
        severity = CALM
    else:
        severity = row.severity if view.severity == CALM else view.severity
    unseen = 0 if is_indexed or view.severity == CALM else 1
    return {"alerts_open": row.alerts_open + unseen, "severity": severity}


def _detail(view: RunView, row: RunView) -> str:
    """A run whose attempts a store knows has started."""
    if not view.detail.startswith(NEVER_STARTED) or row.attempts_total is None:
        return view.detail
    flaws = view.detail.removeprefix(NEVER_STARTED).removeprefix("; ")
    return flaws or "its state file is missing"


def _figures(view: RunView) -> NewestFigures:
    values = {one.name: getattr(view, one.name) for one in NEWEST}
    known = {name: value for name, value in values.items() if value is not None}
    return NewestFigures(view.last_wall, view.step, view.val_step, known)
