"""What a run logs, followed in its journal: the first step that meets a condition.

The history is the effective one: what a later attempt took back does not count. Whoever asks again
after an interruption gets the same answer, as what was met stays met.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import orjson

from albor_core.andon.rules.condition import Condition
from albor_core.andon.rules.engine import RuleEngine
from albor_core.feed.waiting.until import rule_of
from albor_core.run.journal import parse_line
from albor_core.run.rundir import open_plain
from albor_core.run.values.lenient import integer, number

_REWIND, _METRICS = b'"t":"r"', b'"t":"m"'


@dataclass(frozen=True)
class LoggedValue:
    """The value that met a condition, its step and its time."""

    value: float | None
    step: int | None
    wall: float | None


class LoggedSteps:
    """Reads on from where it was at each look. Raises nothing."""

    def __init__(self, path: Path, conditions: Sequence[Condition]) -> None:
        self._path = path
        self._rules = [rule_of(index, one) for index, one in enumerate(conditions)]
        self._identity: tuple[int, int] | None = None
        self.last_wall: float | None = None
        """When the newest step was logged."""
        self._begin(())

    def _begin(self, rewinds: Sequence[tuple[int, int]]) -> None:
        self._engine = RuleEngine(self._rules)
        self._at = 0
        self._rewinds = list(rewinds)
        self.met: dict[int, LoggedValue] = {}
        """By place among the conditions, the first value that met it."""

    def look(self) -> None:
        """Take in every whole line that was appended."""
        try:
            with open_plain(self._path) as file:
                status = os.fstat(file.fileno())
                identity = (status.st_dev, status.st_ino)
                if identity != self._identity or status.st_size < self._at:
                    self._identity = identity
                    self._begin(())
                if status.st_size > self._at:
                    self._read(file)
        except OSError:
            return

    def _read(self, file: BinaryIO) -> None:
        start, rewinds = self._at, []
        end = start
        for at, raw in _lines(file, start):
            end = at + len(raw)
            if _REWIND in raw and (record := parse_line(raw)) and record.get("t") == "r":
                rewinds.append((at, integer(record, "to") or 0))
        if rewinds and start:  # it takes back what was taken in
            self._begin([*self._rewinds, *rewinds])
            start = 0
        else:
            self._rewinds += rewinds
        lost = _least_to_come(self._rewinds)
        for at, raw in _lines(file, start):
            if at >= end:
                break
            while lost and lost[0][0] < at:
                lost.pop(0)
            if _METRICS in raw:
                self._take(raw, lost[0][1] if lost else None)
        self._at = end

    def _take(self, raw: bytes, most: int | None) -> None:
        """Add a line; lines of steps above `most` are ignored."""
        record = parse_line(raw, orjson.loads)
        if record is None or record.get("t") != "m":
            return
        step, wall = integer(record, "step"), number(record, "wall")
        if step is None:
            return
        self.last_wall = wall
        if most is not None and step > most:
            return
        for alert in self._engine.take_step(step, {**record["v"], "step": step}, wall or 0.0):
            if alert.state != "cleared":
                self.met.setdefault(int(alert.rule), LoggedValue(alert.value, step, wall))


def _least_to_come(rewinds: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """For each rewind, with its byte, the least step that it or a later one went back to."""
    found: list[tuple[int, int]] = []
    least: int | None = None
    for at, to in reversed(rewinds):
        least = to if least is None else min(least, to)
        found.insert(0, (at, least))
    return found


def _lines(file: BinaryIO, start: int) -> Iterator[tuple[int, bytes]]:
    """Whole lines with the bytes that they begin at; a torn tail is left for later."""
    file.seek(start)
    at = start
    for raw in file:
        if not raw.endswith(b"\n"):
            return
        yield at, raw
        at += len(raw)
