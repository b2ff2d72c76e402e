"""Follows the lines of a run for signs of trouble: values that are not numbers, alerts
that fired and cleared.

Most lines say nothing of the kind, so their bytes are searched and only lines that match are
parsed: an update costs what is new, at most READ_BYTES.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from albor_core.feed.run.records import journal_events
from albor_core.feed.view.diagnostics import LOSSES, NonFinite
from albor_core.run.journal import parse_line
from albor_core.run.rundir import open_plain
from albor_core.run.values.lenient import integer, number, number_word, text
from albor_core.store.query.reader import alert_of
from albor_core.store.rows.rows import AlertRow

READ_BYTES = 1 << 20
# All that it may find begins with the same two bytes: `re` looks for these ten times faster.
_TELLING = re.compile(rb':"(?:nan"|-?inf"|(?<="t":")[er]")')


class DiagnosticLines:
    """One file of a run, journal.jsonl or system.jsonl. Never raises. The first update reads its
    last READ_BYTES; later ones go on from there.
    """

    def __init__(self, path: Path, run_id: str) -> None:
        self._path, self._run_id = path, run_id
        self._identity: tuple[int, int] | None = None
        self._at = 0
        self._attempt: int | None = None
        self._non_finite: dict[str, NonFinite] = {}
        self._alerts: dict[str, AlertRow] = {}
        self.cleared: set[str] = set()

    @property
    def non_finite(self) -> tuple[NonFinite, ...]:
        """Non-finite metrics of the newest attempt, by key."""
        return tuple(self._non_finite.values())

    @property
    def alerts(self) -> tuple[AlertRow, ...]:
        """Alerts that fired and did not clear, oldest first."""
        return tuple(self._alerts.values())

    def update(self) -> None:
        """Take in what was appended."""
        try:
            with open_plain(self._path) as file:
                status = os.fstat(file.fileno())
                identity = (status.st_dev, status.st_ino)
                if identity != self._identity or status.st_size < self._at:
                    self._identity, self._at = identity, 0
                    self._attempt, self._non_finite, self._alerts = None, {}, {}
                if status.st_size == self._at:
                    return
                start = max(self._at, status.st_size - READ_BYTES)
                file.seek(start)
                raw = file.read(READ_BYTES)
        except OSError:
            return
        whole = raw.rfind(b"\n") + 1
        self._at = start + whole
        found = _TELLING.finditer(raw, 0, whole)
        for first in dict.fromkeys(raw.rfind(b"\n", 0, one.start()) + 1 for one in found):
            record = parse_line(raw[first : raw.index(b"\n", first) + 1])
            if record is not None:
                self._take(record)

    def _take(self, record: Mapping[str, Any]) -> None:
        attempt = integer(record, "attempt")
        if attempt is not None and attempt != self._attempt:
            self._attempt, self._non_finite = attempt, {}
        match record.get("t"):
            case "m":
                self._take_values(record)
            case "e":
                self._take_event(record)
            case "r" if (to := integer(record, "to")) is not None:
                kept = self._non_finite.items()
                self._non_finite = {k: v for k, v in kept if (v.first_step or 0) <= to}

    def _take_values(self, record: Mapping[str, Any]) -> None:
        for key in LOSSES & record["v"].keys():
            value = number(record["v"], key)
            if value is None or math.isfinite(value):
                continue
            step, wall = integer(record, "step"), number(record, "wall")
            now = NonFinite(key, str(number_word(value)), 1, step, step, wall, wall)
            if (known := self._non_finite.get(key)) is not None:
                now = replace(
                    now,
                    count=known.count + 1,
                    first_step=known.first_step,
                    first_wall=known.first_wall,
                )
            self._non_finite[key] = now

    def _take_event(self, record: Mapping[str, Any]) -> None:
        (event,) = journal_events((record,), self._run_id)
        alert_id = text(event.data, "id")
        if event.name == "andon.alert" and text(event.data, "state") != "cleared" and alert_id:
            self._alerts[alert_id] = alert_of(event, alert_id)
            self.cleared.discard(alert_id)
        elif event.name == "andon.clear":
            self._alerts.pop(alert_id, None)
            self.cleared.add(alert_id)
