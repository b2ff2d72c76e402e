"""training_state.json of a loop that is not ours: made from the metrics that it logs."""

from __future__ import annotations

import math
import sys
import time
from typing import Any

from albor_core.run.headlines import LIVE, RECORDED
from albor_core.run.state import HISTORIES, HISTORY, PHASES, StateWriter
from albor_core.run.values.lenient import real

_GAP_WEIGHT = 0.1


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
        names = (*(one.state for one in LIVE), "loss_text", "eta_seconds", "progress_percent")
        names += ("val_step", "news_gap_seconds")
        state.fields.update(dict.fromkeys(names))
        state.fields.update({name: [] for name in HISTORIES})
        state.fields.update(global_step=0, max_steps=max_steps, elapsed_seconds=0.0)
        state.fields["executable_path"] = sys.executable
        self.waiting(pending=0, dropped=0, error=None)

    def take(self, values: dict[str, float | int], step: int) -> None:
        """What the loop has just logged."""
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
        if self._state.current_phase == "initializing" and self._latest:
            self._state.phase("training")
        else:
            self._state.publish()

    def waiting(self, *, pending: int, dropped: int, error: str | None) -> None:
        """Lines of the journal that wait for the disk, or were given up; told with the next news,
        since they are no sign of life.
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
        self._state.fields["eta_seconds"] = None
        self._state.phase(status)

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
