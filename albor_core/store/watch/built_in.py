"""What is wrong with any run, whatever its rules say. Pure.

    NaN or Inf     a metric of the run is not finite: when that is told, not_finite.py says
    silence        no line for SILENCE times the run's own usual pause, and at least LEAST_S
    disk, memory   nearly full: below a share of the whole, or what an hour of this run writes

Each is told once when it begins and once when it is over.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from albor_core.andon.alert import Alert
from albor_core.store.watch.not_finite import MOST_TOLD, RULE, Found, NotFinite

SILENCE, LEAST_S = 10.0, 60.0
FREE_DISK_BYTES, FREE_MEMORY_SHARE = 2 << 30, 0.03
_BACK = 1.5  # what is nearly full is over when this much more is free
OTHERS = f"{RULE}others"
_GAPS = 64


@dataclass(frozen=True)
class BuiltInTrouble:
    """A trouble that is present, or, with `is_over`, has ended."""

    name: str
    severity: str
    metric: str
    value: float
    threshold: float
    message: str
    is_over: bool = False
    step: int | None = None  # where it began; None: now

    def alert(self, attempt: int, now: int) -> Alert:
        """The trouble as an alert of an attempt at step `now`."""
        step = now if self.step is None else self.step
        return Alert(
            id=f"{self.name}@{attempt}.{step}",
            rule=self.name,
            kind="machine" if self.metric in ("disk_free", "memory_free") else "rule",
            severity=self.severity,
            action="notify",
            metric=self.metric,
            value=self.value,
            threshold=self.threshold,
            message=self.message,
            step=step,
        )


class BuiltIn:
    """What it remembers of one attempt."""

    def __init__(self, chosen: Collection[str] = ()) -> None:
        """`chosen`: metrics with a goal or a pin."""
        self._gaps: deque[float] = deque(maxlen=_GAPS)
        self._last: float | None = None
        self._open: dict[str, BuiltInTrouble] = {}
        self._not_finite = NotFinite(chosen)

    def choose(self, chosen: Collection[str]) -> None:
        """These metrics have a goal or a pin, too."""
        self._not_finite.choose(chosen)

    def take_step(
        self, values: Mapping[str, Any], wall: float, step: int = 0
    ) -> tuple[BuiltInTrouble, ...]:
        """Logged values."""
        if self._last is not None and wall > self._last:
            self._gaps.append(wall - self._last)
        self._last = wall
        said = list(self._settle("silence", None))
        said += self.wait(wall)  # as who looks each second had it, also where all is read at once
        for found in self._not_finite.take(step, values, wall):
            said += self._of_metric(found)
        return tuple(said)

    def wait(self, wall: float) -> tuple[BuiltInTrouble, ...]:
        """Judge the time that has passed without a new log line."""
        return tuple(one for found in self._not_finite.wait(wall) for one in self._of_metric(found))

    def finish(self) -> tuple[BuiltInTrouble, ...]:
        """The run is over: what its last values say. It is silent no more, and has ended; what it
        told of its machine was about work that goes on no more.
        """
        last = [one for found in self._not_finite.end() for one in self._of_metric(found)]
        names = ("silence", "disk-full", "memory-full")
        return (*last, *(over for name in names for over in self._settle(name, None)))

    def _of_metric(self, found: Found) -> Iterator[BuiltInTrouble]:
        name = f"{RULE}{_word(found.key)}"
        if found.is_over:
            yield from self._settle(name, None)
            return
        word = "NaN" if math.isnan(found.value) else "infinite"
        words = f"{found.key} is {word}"
        if sum(one.startswith(RULE) for one in self._open) >= MOST_TOLD:
            name, words = OTHERS, f"{words}, and so may be more metrics"
        trouble = BuiltInTrouble(
            name, "error", found.key, found.value, math.inf, words, step=found.step
        )
        yield from self._settle(name, trouble)

    def take_clock(
        self,
        wall: float,
        *,
        is_paused: bool,
        disk_free: float | None,
        memory_free: float | None,
        memory_total: float | None,
    ) -> tuple[BuiltInTrouble, ...]:
        """The time and the machine."""
        if is_paused:
            self._last = wall if self._last is not None else None
        said = list(self._settle("silence", self._silence(wall), keeps=True))
        limit = float(FREE_DISK_BYTES)
        said += self._full("disk-full", "disk_free", "disk", disk_free, limit)
        if memory_total:
            limit = FREE_MEMORY_SHARE * memory_total
            said += self._full("memory-full", "memory_free", "memory", memory_free, limit)
        return tuple(said)

    def end(self) -> tuple[BuiltInTrouble, ...]:
        """The attempt is over, and with it what was wrong."""
        return tuple(one for name in list(self._open) for one in self._settle(name, None))

    def usual_gap_s(self) -> float | None:
        """Seconds between two lines, as this attempt had them."""
        return statistics.median(self._gaps) if len(self._gaps) >= 3 else None

    def _silence(self, wall: float) -> BuiltInTrouble | None:
        usual = self.usual_gap_s()
        if usual is None or self._last is None:
            return None
        limit, silent = max(LEAST_S, SILENCE * usual), wall - self._last
        if silent <= limit:
            return None
        words = f"has logged nothing for {silent:.0f} s, usually each {usual:.3g} s"
        return BuiltInTrouble("silence", "error", "seconds_since_step", silent, limit, words)

    def _full(
        self, name: str, metric: str, what: str, free: float | None, limit: float
    ) -> Iterator[BuiltInTrouble]:
        if free is None:
            return
        if name in self._open and free < _BACK * limit:
            return
        found = None
        if free < limit:
            words = f"the {what} is nearly full: {free / 2**30:.1f} GiB free"
            found = BuiltInTrouble(name, "error", metric, free, limit, words)
        yield from self._settle(name, found)

    def _settle(
        self, name: str, found: BuiltInTrouble | None, *, keeps: bool = False
    ) -> Iterator[BuiltInTrouble]:
        """One trouble against what was told of it; `keeps`: only a fact ends it, not its lack."""
        told = self._open.get(name)
        if found is not None and told is None:
            self._open[name] = found
            yield found
        elif found is None and told is not None and not keeps:
            del self._open[name]
            yield BuiltInTrouble(
                name, "info", told.metric, told.value, told.threshold, told.message, is_over=True
            )

    def to_json(self) -> dict[str, Any]:
        return {
            "gaps": list(self._gaps),
            "last": self._last,
            "not_finite": self._not_finite.to_json(),
            "open": {name: vars(one) for name, one in self._open.items()},
        }

    def load(self, saved: Mapping[str, Any]) -> None:
        """Restore the state that `to_json` returned. Raises TypeError, ValueError or KeyError for
        anything else."""
        self._gaps.extend(float(gap) for gap in saved["gaps"])
        self._last = None if saved["last"] is None else float(saved["last"])
        self._not_finite.load(saved["not_finite"])
        self._open = {str(name): BuiltInTrouble(**one) for name, one in saved["open"].items()}


def _word(key: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in key)[:60]
