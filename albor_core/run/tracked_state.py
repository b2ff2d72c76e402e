"""training_state.json of a loop that is not ours: made from the metrics that it logs."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from itertools import islice
from typing import Any

from albor_core.run.headlines import LIVE, RECORDED
from albor_core.run.state import HISTORIES, HISTORY, PHASES, StateWriter
from albor_core.run.values.lenient import finite, integer, number_word, real
from albor_core.run.values.main_metrics import MOST_KEYS, Logged, main_metrics

_HEADLINES = frozenset(one.key for one in LIVE)
_GAP_WEIGHT = 0.1
_TOLD, _CHOICE_S = 8, 2.0  # metrics besides the headlines, and seconds between two choices of them
_OF_ITS_ATTEMPT = (  # of a state file: what its writer was, and what was true while that lived
    *("schema", "run_id", "attempt", "nonce", "pid", "start_ticks", "host", "boot_id"),
    *("seq", "alive_seq", "mono_ns", "wall", "phase", "phase_since_mono_ns", "phase_limit_s"),
    *("executable_path", "max_steps", "journal", "eta_seconds", "eta_low_seconds"),
    *("eta_high_seconds", "news_gap_seconds", "gpu", "system"),
)


class LiveState:
    """The newest value of each metric, and the state file made from them.

    `take` is cheap, for the loop; `refresh` then `publish` are for whoever has the time.
    """

    def __init__(self, state: StateWriter, *, max_steps: int | None) -> None:
        self._state, self._max_steps = state, max_steps
        self._latest: dict[str, float | int] = {}
        self._has_news = False
        self._began = time.monotonic()
        self._first_step: int | None = None
        self._shown_step: int | None = None
        self._every = 1
        self._val_step: int | None = None
        self._refreshed: float | None = None  # when the loop's news were last taken over
        self._ranges: dict[str, tuple[float, float]] = {}
        self._told: tuple[str, ...] = ()  # the metrics besides the headlines that are told
        self._chosen: tuple[int, float] = (0, -math.inf)  # of how many, and when
        names = (*(one.state for one in LIVE), "loss_text", "eta_seconds", "progress_percent")
        names += ("val_step", "news_gap_seconds")
        state.fields.update(dict.fromkeys(names))
        state.fields.update({name: [] for name in HISTORIES})
        state.fields.update(global_step=0, max_steps=max_steps, elapsed_seconds=0.0)
        state.fields["executable_path"] = sys.executable
        state.fields["metrics"] = {}
        self.waiting(pending=0, dropped=0, error=None)

    def recall(self, earlier: Mapping[str, Any]) -> None:
        """Go on from the last state file of an earlier attempt."""
        fields = self._state.fields
        kept: list[Any] = [earlier.get(name) for name in HISTORIES]
        is_whole = all(isinstance(one, list) for one in kept) and len({*map(len, kept)}) == 1
        left_out = {*_OF_ITS_ATTEMPT, *(() if is_whole else HISTORIES)}
        fields.update({key: value for key, value in earlier.items() if key not in left_out})
        fields["global_step"] = integer(earlier, "global_step") or 0
        self._began -= finite(earlier, "elapsed_seconds") or 0.0
        self._val_step = integer(earlier, "val_step")
        self._shown_step = integer({"last": (fields["history_steps"] or [None])[-1]}, "last")

    def rewind(self, step: int) -> None:
        """Take back what the histories say of `step` and later."""
        fields = self._state.fields
        kept = [n for n, at in enumerate(fields["history_steps"]) if real(at) < step]
        for name in HISTORIES:
            fields[name] = [fields[name][n] for n in kept]
        self._shown_step = None

    def take(self, values: dict[str, float | int], step: int) -> None:
        """Add values that the loop has just logged."""
        self._latest.update(values)
        if "val/loss" in values:
            self._val_step = step
        self._has_news = True

    def refresh(self, step: int) -> bool:
        """Bring the fields up to date; False where nothing was taken since the last time."""
        if not self._has_news:
            return False
        self._has_news = False
        fields = self._state.fields
        for one in LIVE:
            if one.key in self._latest:
                fields[one.state] = self._latest[one.key]
        loss = real(self._latest.get("train/loss", 0.0))
        fields["loss_text"] = None if math.isfinite(loss) else str(loss)
        fields["global_step"], fields["val_step"] = step, self._val_step
        self._remember(step)
        self._estimate(step)
        self._time_news()
        return True

    def publish(self) -> None:
        """Write the file; the first time that there are values, the loop is known to train."""
        self._tell_others()
        if self._state.current_phase == "initializing" and self._latest:
            self._state.phase("training")
        else:
            self._state.publish()

    def waiting(self, *, pending: int, dropped: int, error: str | None) -> None:
        """Lines of the journal that wait for the disk, or were given up; told with the next news,
        since they do not show that it is alive.
        """
        self._state.fields["journal"] = {"pending": pending, "dropped": dropped, "error": error}

    def beat(self, phase: str, step: int) -> None:
        """A sign of life from the loop, written at once where the phase is another, else soon."""
        self._has_news = True
        if phase in PHASES and phase != self._state.current_phase:
            self.refresh(step)
            self._state.phase(phase)

    def end(self, status: str, step: int) -> None:
        """The last word: `status` is a phase."""
        self.refresh(step)
        self._tell_others()
        self._state.fields["eta_seconds"] = None
        self._state.phase(status)

    def _tell_others(self) -> None:
        """The metrics that stand for a loop that logs no headline, each with its range."""
        if not self._latest:
            return  # of an attempt before there may be some
        ranges = self._ranges
        others = {
            name: value
            for name, value in islice(self._latest.copy().items(), MOST_KEYS)
            if name not in _HEADLINES
        }
        for name, value in others.items():
            if math.isfinite(value):
                low, high = ranges.get(name, (value, value))
                ranges[name] = (min(low, value), max(high, value))
        now = time.monotonic()
        if self._chosen[0] != len(others) or now - self._chosen[1] > _CHOICE_S:
            logged = (Logged(name, None, *ranges.get(name, (None, None))) for name in others)
            self._told = tuple(one.name for one in main_metrics(logged, most=_TOLD))
            self._chosen = (len(others), now)
        self._state.fields["metrics"] = {
            name: [number_word(others[name]), *ranges.get(name, (None, None))]
            for name in self._told
        }

    def _remember(self, step: int) -> None:
        """A point of the histories; when they are full every second one goes."""
        fields = self._state.fields
        if self._shown_step is not None and 0 <= step - self._shown_step < self._every:
            return
        self._shown_step = step
        fields["history_steps"] = [*fields["history_steps"], step]
        for one in RECORDED:
            fields[one.history] = [*fields[one.history], fields[one.state]]
        if len(fields["history_steps"]) > HISTORY:
            self._every = max(1, (step - fields["history_steps"][0]) // (HISTORY // 2))
            for history in HISTORIES:
                fields[history] = fields[history][::2]

    def _time_news(self) -> None:
        """How long the loop takes from news to news, smoothed: a longer silence is told by it."""
        now, last = time.monotonic(), self._refreshed
        self._refreshed = now
        if last is not None:
            known = self._state.fields["news_gap_seconds"]
            gap = now - last if known is None else known + _GAP_WEIGHT * (now - last - known)
            self._state.fields["news_gap_seconds"] = round(gap, 3)

    def _estimate(self, step: int) -> None:
        fields: dict[str, Any] = self._state.fields
        elapsed = time.monotonic() - self._began
        fields["elapsed_seconds"] = round(elapsed, 1)
        if self._first_step is None:
            self._first_step = step
            self._began_steps = time.monotonic()
        if self._max_steps:
            fields["progress_percent"] = round(100 * step / self._max_steps, 2)
            done, took = step - self._first_step, time.monotonic() - self._began_steps
            if done > 0 and step <= self._max_steps:
                fields["eta_seconds"] = round(real(self._max_steps - step) * took / done, 1)
