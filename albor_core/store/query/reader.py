"""Every query. A store is opened read-only; SQL appears nowhere above this room.

A reader belongs to the thread and the process that opened it. Rows are frozen; the same calls give
the same rows from a live store and from one rebuilt out of the journals. From the global store
`series` gives the preview of at most 256 buckets and `points` nothing: the points are in the run's
own store.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from albor_core.andon.severity import alert_data, severity_of
from albor_core.run.values.lenient import number_of
from albor_core.store.query.attempts import attempts_of
from albor_core.store.query.series.series_reader import SeriesReader
from albor_core.store.rows.rows import (
    AlertRow,
    ArtifactRow,
    AttemptRow,
    EventRow,
    JournalPosition,
    NoteRow,
    RunDetail,
    SampleRow,
)
from albor_core.store.rows.run_row import Param

_QUIET = ("sample", "guard.state", "kernels.chosen")  # kept as events, shown elsewhere
_ACK = (
    "SELECT data, wall FROM events WHERE run_id = ? AND subject = ? AND name = 'andon.ack'"
    " ORDER BY wall, source LIMIT 1"
)
_CLEARED = (  # when it was over; not where it fired again since
    "SELECT max(CASE WHEN name = 'andon.clear' AND wall >= (SELECT max(wall) FROM events a"
    " WHERE a.run_id = v.run_id AND a.subject = v.subject AND a.name = 'andon.alert')"
    " THEN wall END) FROM events v WHERE run_id = ? AND subject = ?"
)


class Reader(SeriesReader):
    """The run table and everything about each run."""

    def detail(self, run_id: str) -> RunDetail:
        """One run with its command line and the facts of run.json (git, versions, data)."""
        row = self.run(run_id)
        argv, facts = self._all("SELECT argv, facts FROM runs WHERE id = ?", (self._id(run_id),))[0]
        with self._errors():
            return RunDetail(row, tuple(json.loads(argv)), json.loads(facts))

    def params(self, run_id: str) -> dict[str, Param]:
        """The resolved config as recorded, flattened to dotted keys."""
        rows = self._all(
            "SELECT key, value FROM params WHERE run_id = ? ORDER BY key", (self._id(run_id),)
        )
        with self._errors():
            return {key: json.loads(value) for key, value in rows}

    def events(
        self,
        run_id: str,
        *,
        names: Collection[str] | None = None,
        limit: int | None = None,
        after: float | None = None,
    ) -> tuple[EventRow, ...]:
        """Events in order of time; with `limit` the newest ones, with `after` those later than that
        time.

        Samples and the guard's states are only given when named.
        """
        where = ["run_id = ?"]
        arguments: list[Any] = [self._id(run_id)]
        if names is None:
            where.append(f"name NOT IN ({', '.join('?' * len(_QUIET))})")
            arguments += [*_QUIET]
        else:
            where.append(f"name IN ({', '.join('?' * len(names))})")
            arguments += [*names]
        if after is not None:
            where.append("wall > ?")
            arguments.append(after)
        rows = self._all(
            "SELECT source, at, wall, attempt, step, name, severity, data FROM events"
            f" WHERE {' AND '.join(where)} ORDER BY wall DESC, source DESC, at DESC LIMIT ?",
            [*arguments, -1 if limit is None else max(limit, 0)],
        )
        with self._errors():
            return tuple(_event_row(run_id, row) for row in reversed(rows))

    def alerts(self, run_id: str | None = None, *, open_only: bool = False) -> tuple[AlertRow, ...]:
        """Andon alerts of one run or of all, oldest first, each once."""
        where, arguments = "", []
        if run_id is not None:
            where, arguments = " AND r.id = ?", [self._id(run_id)]
        rows = self._all(
            "SELECT r.id, r.run, r.name, v.subject, v.source, v.at, v.wall, v.attempt, v.step,"
            " v.name, v.severity, v.data FROM events v JOIN runs r ON r.id = v.run_id"
            f" WHERE v.subject IS NOT NULL AND v.name = 'andon.alert'{where}"
            " GROUP BY v.run_id, v.subject HAVING v.at = min(v.at) ORDER BY v.wall, v.at",
            arguments,
        )
        found = []
        for number, run, name, alert_id, *row in rows:
            acks = self._all(_ACK, (number, alert_id))
            ((cleared,),) = self._all(_CLEARED, (number, alert_id))
            with self._errors():
                event = _event_row(run_id or run, row)
                alert = alert_of(event, alert_id, name, acks[0] if acks else None, cleared)
            if alert.is_open or not open_only:
                found.append(alert)
        return tuple(found)

    def attempts(self, run_id: str) -> tuple[AttemptRow, ...]:
        """The attempts of a run, first to last, each with the step that it came to."""
        number = self._id(run_id)
        return self.query(lambda db: attempts_of(db, number))

    def span_ids(self, run_id: str) -> dict[str, tuple[str, str]]:
        """The trace id and the span id of the run ("run") and of each "attempt N"."""
        rows = self._all(
            "SELECT name, trace_id, span_id FROM span_ids WHERE run_id = ?", (self._id(run_id),)
        )
        return {name: (trace_id, span_id) for name, trace_id, span_id in rows}

    def tags(self, run_id: str) -> tuple[str, ...]:
        return self.run(run_id).tags

    def notes(self, run_id: str) -> tuple[NoteRow, ...]:
        """Notes in the order they were written."""
        rows = self._all(
            'SELECT wall, "by", text FROM notes WHERE run_id = ? ORDER BY at', (self._id(run_id),)
        )
        return tuple(NoteRow(*row) for row in rows)

    def artifacts(self, run_id: str) -> tuple[ArtifactRow, ...]:
        """Files the run made, by time."""
        rows = self._all(
            "SELECT name, path, kind, bytes, hash, step, wall FROM artifacts WHERE run_id = ?"
            " ORDER BY wall, path",
            (self._id(run_id),),
        )
        return tuple(ArtifactRow(*row) for row in rows)

    def samples(self, run_id: str, *, limit: int | None = None) -> tuple[SampleRow, ...]:
        """Generated texts by time; with `limit` the newest ones."""
        return tuple(
            SampleRow(event.step, event.wall, str(event.data.get("prompt", "")), str(text))
            for event in self.events(run_id, names=("sample",), limit=limit)
            if (text := event.data.get("text")) is not None  # not so of an event by that name
        )

    def positions(self, run_id: str) -> tuple[JournalPosition, ...]:
        """How far each file of the run is indexed, and what had to be skipped."""
        rows = self._all(
            "SELECT file, offset, lines, damaged, ignored FROM journal WHERE run_id = ?"
            " ORDER BY file",
            (self._id(run_id),),
        )
        return tuple(JournalPosition(*row) for row in rows)


def _event_row(run_id: str, row: Any) -> EventRow:
    source, at, wall, attempt, step, name, severity, data = row
    event_id = f"{source}:{at}"
    word, known = severity_of(severity), alert_data(name, json.loads(data))
    return EventRow(event_id, run_id, source, wall, attempt, step, name, word, known)


def alert_of(
    event: EventRow,
    alert_id: str,
    run_name: str = "",
    ack: Any | None = None,
    cleared: float | None = None,
) -> AlertRow:
    """The alert that an `andon.alert` event tells of; `ack`: what acknowledged it, and when."""
    data = event.data
    return AlertRow(
        id=alert_id,
        run_id=event.run_id,
        run_name=run_name,
        rule=str(data.get("rule") or ""),
        kind=str(data.get("kind") or ""),
        severity=event.severity,
        action=str(data.get("action") or ""),
        metric=data.get("metric"),
        value=number_of(data.get("value")),
        threshold=number_of(data.get("threshold")),
        message=str(data.get("message") or ""),
        step=event.step,
        attempt=event.attempt,
        wall=event.wall,
        acked_by=None if ack is None else str(json.loads(ack[0]).get("by") or "unknown"),
        acked_wall=None if ack is None else ack[1],
        cleared_wall=cleared,
    )
