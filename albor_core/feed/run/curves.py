"""The curves of one run: from its own store, and their newest end from its live state.

While the index lags or is missing, the last intervals of training_state.json stand behind what the
store has; where there is no store of its own that can be read, the store of all runs has the shape
of each curve.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from albor_core.feed.run.files import CachedJson
from albor_core.feed.run.store_follower import StoreWatch
from albor_core.run.headlines import CHARTS, RECORDED
from albor_core.run.rundir import RunDir
from albor_core.run.values.clean import natural_place
from albor_core.run.values.directions import is_of_machine
from albor_core.run.values.lenient import history, integer, sequence
from albor_core.store.query.reader import Reader
from albor_core.store.rows.series import Series

_STATE_KEYS = {one.key: one.history for one in RECORDED}  # journal key: history of the live state
_CHART_PLACES = {one.key: index for index, one in enumerate(CHARTS)}
Document = Mapping[str, Any]
T = TypeVar("T")


class RunCurves:
    """The curves of one run, read when they are asked for. Belongs to one thread; raises nothing.

    `own` is the run's own store, `everybodys` that of all runs.
    """

    def __init__(
        self,
        run: RunDir,
        *,
        own: StoreWatch,
        everybodys: StoreWatch,
        state: CachedJson,
        resolved: CachedJson,
    ) -> None:
        self.run = run
        self.own = own
        self.state = state
        self._everybodys = everybodys
        self._resolved = resolved

    def ask(self, question: Callable[[Reader], T]) -> T | None:
        """The answer of the run's own store, which has every point; where there is none that can be
        read, that of the store of all runs.
        """
        answer = self.own.ask(question)
        if answer is None and (self.own.problem or not self.own.path.exists()):
            answer = self._everybodys.ask(question)
        return answer

    def keys(self) -> tuple[str, ...]:
        """Metric keys that can be drawn, in their order (`key_place`)."""
        found = self.ask(lambda reader: reader.keys(self.run.id)) or ()
        state = self.state.get() or {}
        live = [
            key
            for key, name in _STATE_KEYS.items()
            if any(value is not None for value in sequence(state, name))
        ]
        return tuple(sorted({*found, *live}, key=key_place))

    def has_live(self, key: str) -> bool:
        """Whether the live state may tell of steps that the store does not have yet."""
        return key in _STATE_KEYS

    def curve(self, key: str, max_points: int, lo: int | None, hi: int | None) -> Series:
        """A curve over the step window [lo, hi], with its min/max envelope.

        Steps that the index has not reached yet are added from the live state where it has them.
        """
        series = self.ask(
            lambda reader: reader.series(self.run.id, key, lo=lo, hi=hi, max_points=max_points)
        )
        if not self.has_live(key):
            return series or Series(key)
        live = state_curve(key, self.state.get() or {}, self._interval())
        return join_curves(series or Series(key), live, lo=lo, hi=hi)

    def _interval(self) -> int:
        training = (self._resolved.get() or {}).get("training")
        found = integer(training, "log_interval") if isinstance(training, Mapping) else None
        return found or 1


def key_place(key: str) -> tuple[bool, int, tuple[Any, ...]]:
    """Where a metric stands among others: the important ones first, those of the machine last."""
    return is_of_machine(key), _CHART_PLACES.get(key, len(_CHART_PLACES)), natural_place(key)


def state_curve(key: str, state: Document, interval: int) -> Series:
    """The last intervals as the live state has them; without `history_steps` they are assumed to be
    `interval` steps apart and to end at the newest multiple of it. Where none of them has a value,
    the run may not log the metric: that is for the store to say.
    """
    values = history(state, _STATE_KEYS.get(key, ""))
    if not any(map(math.isfinite, values)):
        return Series(key)
    steps = history(state, "history_steps")
    if len(steps) != len(values):
        now = integer(state, "global_step") or 0
        newest = now - now % interval
        steps = tuple(float(newest - interval * back) for back in range(len(values) - 1, -1, -1))
    nonfinite = tuple(int(not math.isfinite(value)) for value in values)
    return Series(key, steps, values, values, values, values, (1,) * len(values), nonfinite)


def join_curves(curve: Series, live: Series, *, lo: int | None, hi: int | None) -> Series:
    """`curve` and, behind its last step, what only the live state knows."""
    last = curve.steps[-1] if curve.steps else -math.inf
    new = [
        index
        for index, step in enumerate(live.steps)
        if step > last and (lo is None or step >= lo) and (hi is None or step <= hi)
    ]
    if not new or not curve.is_raw:  # a bucket may reach beyond its first step
        return curve
    words = ("key", "axis", "is_raw")  # of the curve as a whole
    columns = (f.name for f in fields(Series) if f.name not in words)
    longer: dict[str, Any] = {
        name: (*getattr(curve, name), *(getattr(live, name)[index] for index in new))
        for name in columns
    }
    return replace(curve, **longer)
