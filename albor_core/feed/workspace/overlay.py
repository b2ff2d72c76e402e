"""The curves of many runs, asked again several times a second while some of them go on.

An answer is kept until the store of its run moves, which costs three looks at files to find out.
Reading the news of runs at work takes a small share of the time, however many they are: between two
readings their curves stay as they were. A run whose store is gone keeps the curves that are known.
"""

from __future__ import annotations

import time
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from albor_core.feed.run.curves import RunCurves, key_place
from albor_core.feed.run.files import CachedJson, file_mark
from albor_core.feed.run.store_follower import StoreWatch
from albor_core.feed.view.run_view import RunView
from albor_core.run.home.runs import placed
from albor_core.run.rundir import RunDir, load_json
from albor_core.run.state import load_state
from albor_core.run.values.directions import is_of_machine
from albor_core.store.file.axis import WALL_KEY
from albor_core.store.file.paths import global_store, local_store
from albor_core.store.rows.series import Series

MOST_RUNS = 100
"""Runs that are drawn at once: the first of those that are asked for."""
MOST_OPEN = 16  # stores: one takes a quarter of a megabyte, and a millisecond to open again
MOST_KNOWN = 2 * MOST_RUNS  # runs whose answers are kept
MOST_QUESTIONS = 3  # of which answers are kept: pages, windows and widths that were just left
DUTY = 25  # rest from news this many times as long as reading them took
LONGEST_REST_S = 10.0
SETTLED_NS = 100_000_000  # a file that was written later may be written again within one tick

Mark = tuple[object, ...]


class CurveQuery(NamedTuple):
    """A curve that is wanted: a metric over a window of steps, in at most so many points."""

    key: str
    lo: int | None
    hi: int | None
    points: int


class KnownCurve(NamedTuple):
    """A curve, and by which mark of the files it was read; None: while they were being written."""

    mark: Mark | None
    series: Series


class OverlayFeed:
    """The curves of many runs. Belongs to one thread; raises nothing.

    `store` is the store of all runs, by default that of this home: it has the shape of the curves
    of runs whose own store is gone.
    """

    def __init__(
        self, store: Path | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._everybodys = StoreWatch(store or global_store(), clock=clock)
        self._runs: OrderedDict[str, KnownRun] = OrderedDict()  # the one asked last is last
        self._questions: list[frozenset[CurveQuery]] = []  # the newest is last
        self._rest_until = 0.0

    def close(self) -> None:
        """Let go of the stores."""
        self._everybodys.close()
        for run in self._runs.values():
            run.close()

    def keys(self, runs: Sequence[RunView]) -> tuple[str, ...]:
        """The metrics that can be drawn of any of these runs: the important ones first, those that
        fewer than half of the runs have behind the others, those of the machine last.
        """
        counts: Counter[str] = Counter()
        logging = 0
        for run in self._known(runs):
            found = run.keys()
            counts.update(found)
            logging += bool(found)

        def place(key: str) -> tuple[object, ...]:
            return is_of_machine(key), 2 * counts[key] < logging, key_place(key)

        return tuple(sorted(counts, key=place))

    def curves(
        self,
        runs: Sequence[RunView],
        keys: Sequence[str],
        *,
        lo: int | None = None,
        hi: int | None = None,
        points: int = 200,
    ) -> Mapping[str, Mapping[str, Series]]:
        """By key and run id the curves over the step window [lo, hi], in the order of the runs;
        those without points are left out.
        """
        questions = [CurveQuery(key, lo, hi, points) for key in dict.fromkeys(keys)]
        self._remember(questions)
        found: dict[str, dict[str, Series]] = {one.key: {} for one in questions}
        is_time_for_news = self._clock() >= self._rest_until
        spent = 0.0
        for run in self._known(runs):
            began, had_all = self._clock(), run.has_all(questions)
            for one, series in zip(
                questions, run.answers_to(questions, is_time_for_news), strict=True
            ):
                if not series.is_empty:
                    found[one.key][run.id] = series
            spent += self._clock() - began if had_all else 0.0
        if is_time_for_news:
            self._rest_until = self._clock() + min(DUTY * spent, LONGEST_REST_S)
        return found

    def _known(self, runs: Sequence[RunView]) -> Iterable[KnownRun]:
        for view in runs[:MOST_RUNS]:
            run = self._runs.get(view.id)
            if run is None or run.path != view.path:
                made = known_run(view, self._everybodys)
                if made is None:
                    continue
                if run is not None:
                    run.close()
                run = self._runs[view.id] = made
            run.is_active = view.is_active
            self._runs.move_to_end(view.id)
            while len(self._runs) > MOST_KNOWN:
                self._runs.popitem(last=False)[1].close()
            was_open = run.is_open
            yield run
            if run.is_open and not was_open:
                self._bound_open()

    def _remember(self, questions: Sequence[CurveQuery]) -> None:
        """Forget the answers to what was asked long ago."""
        asked = frozenset(questions)
        if self._questions and self._questions[-1] == asked:
            return
        self._questions = [*(one for one in self._questions if one != asked), asked]
        if len(self._questions) > MOST_QUESTIONS:
            self._questions = self._questions[-MOST_QUESTIONS:]
            kept = frozenset().union(*self._questions)
            for run in self._runs.values():
                run.keep(kept)

    def _bound_open(self) -> None:
        """Close stores beyond MOST_OPEN, those of runs that are over first, the oldest first."""
        are_open = [run for run in self._runs.values() if run.is_open]
        if len(are_open) > MOST_OPEN:
            min(are_open, key=lambda run: run.is_active).close()


class KnownRun:
    """A run whose curves are shown: its store, and what was read of it."""

    def __init__(self, run: RunDir, path: str, everybodys: StoreWatch) -> None:
        self.id = run.id
        self.path = path
        self.is_active = False
        self._own = StoreWatch(local_store(run))
        self._everybodys = everybodys.path
        self._curves = RunCurves(
            run,
            own=self._own,
            everybodys=everybodys,
            state=CachedJson(run.state, load_state),
            resolved=CachedJson(run.config_resolved, load_json),
        )
        self._wal = self._own.path.with_name(self._own.path.name + "-wal")
        self._keys: tuple[Mark | None, tuple[str, ...]] = (None, ())
        self._answers: dict[CurveQuery, KnownCurve] = {}
        self.is_open = False

    def close(self) -> None:
        """Close its store; what was read is kept."""
        self._own.close()
        self.is_open = False

    def keys(self) -> tuple[str, ...]:
        """The metrics that can be drawn of it."""
        mark = self._mark(with_state=True)
        if mark is None or mark != self._keys[0]:
            found = self._curves.keys()
            self.is_open = True
            if self._own.problem:
                drawn = (
                    one.key
                    for one, known in self._answers.items()
                    if known.series.steps and one.key != WALL_KEY
                )
                found = tuple(dict.fromkeys((*self._keys[1], *drawn, *found)))
            self._keys = (mark, found)
        return self._keys[1]

    def has_all(self, questions: Sequence[CurveQuery]) -> bool:
        """Whether each was asked before."""
        return all(one in self._answers for one in questions)

    def keep(self, questions: frozenset[CurveQuery]) -> None:
        """Keep the answers to these alone; of a run whose store is gone, all."""
        if self._own.path.exists():
            self._answers = {q: found for q, found in self._answers.items() if q in questions}

    def answers_to(
        self, questions: Sequence[CurveQuery], is_time_for_news: bool
    ) -> Sequence[Series]:
        """The curves. Unless `is_time_for_news` those that were read before are as they were."""
        if not is_time_for_news and self.has_all(questions):
            return [self._answers[one].series for one in questions]
        marks = {live: self._mark(with_state=live) for live in (False, True)}
        return [self._answer(one, marks[self._curves.has_live(one.key)]) for one in questions]

    def _answer(self, question: CurveQuery, mark: Mark | None) -> Series:
        known = self._answers.get(question)
        if known is not None and mark is not None and mark == known.mark:
            return known.series
        key, lo, hi, points = question
        found = self._curves.curve(key, points, lo, hi)
        self.is_open = True
        if self._own.problem:  # gone, damaged or held: what was read of it is more than a preview
            known = known or self._part_of_whole(question)
            if known is not None and not known.series.is_empty:
                return known.series
        known = self._answers[question] = KnownCurve(mark, _packed(found))
        return known.series

    def _part_of_whole(self, question: CurveQuery) -> KnownCurve | None:
        """The window of a curve that was read whole, the finest one."""
        whole = (
            one.series
            for asked, one in self._answers.items()
            if (asked.key, asked.lo, asked.hi) == (question.key, None, None)
        )
        best = max(whole, key=lambda series: len(series.steps), default=None)
        return None if best is None else KnownCurve(None, _cut(best, question.lo, question.hi))

    def _mark(self, *, with_state: bool) -> Mark | None:
        """Another one once what curves are read of was written; None while that may go on
        unnoticed.
        """
        marks = [file_mark(self._own.path), _unless_empty(file_mark(self._wal))]
        if with_state:
            marks.append(file_mark(self._curves.state.path))
        if marks[0] is None:
            marks.append(file_mark(self._everybodys))
        newest = max((mark[1] for mark in marks if mark is not None), default=0)
        return tuple(marks) if newest < time.time_ns() - SETTLED_NS else None


def known_run(view: RunView, everybodys: StoreWatch) -> KnownRun | None:
    """The run of a view; None where its folder is not known."""
    if view.folder is None:
        return None
    try:
        return KnownRun(placed(view.id, view.folder), view.path, everybodys)
    except (OSError, ValueError):
        return None


def _unless_empty(mark: tuple[int, int, int] | None) -> tuple[int, int, int] | None:
    """The mark of a WAL, which a reader makes where there is none."""
    return mark if mark is not None and mark[2] else None


def _packed(series: Series) -> Series:
    """The same curve in arrays, which take a quarter of the memory."""
    made: list[array[Any]] = []

    def column(values: Sequence[Any]) -> Sequence[Any]:
        kind = "q" if all(type(value) is int for value in values) else "d"
        try:
            packed = array(kind, values)
        except (OverflowError, TypeError):
            return values
        same = next((one for one in made if (one.typecode, one) == (kind, packed)), None)
        if same is None:
            made.append(packed)
        return packed if same is None else same

    return _with_columns(series, column)


def _cut(series: Series, lo: int | None, hi: int | None) -> Series:
    """The part of a curve between two steps."""
    steps = series.steps
    begin = 0 if lo is None else bisect_left(steps, lo)
    end = len(steps) if hi is None else bisect_right(steps, hi)
    return _with_columns(series, lambda values: values[begin:end])


def _with_columns(series: Series, change: Callable[[Sequence[Any]], Sequence[Any]]) -> Series:
    whole = ("key", "is_raw", "axis")
    names = (field.name for field in fields(series) if field.name not in whole)
    changed: dict[str, Any] = {name: change(getattr(series, name)) for name in names}
    return replace(series, **changed)
