"""The newest records of a run's files of JSON lines, without any database."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from albor_core.andon.severity import alert_data, severity_of
from albor_core.run.rundir import open_plain
from albor_core.run.values.lenient import Document, integer, number, text
from albor_core.store.rows.rows import AttemptRow, EventRow

TAIL_BYTES = 256 << 10


class RecordTail:
    """The whole records in the last TAIL_BYTES of a file of JSON lines, read again when it grew."""

    def __init__(self, path: Path, parse: Callable[[bytes], dict[str, Any] | None]) -> None:
        self._path, self._parse = path, parse
        self._mark: tuple[int, int] | None = None
        self._records: tuple[dict[str, Any], ...] = ()

    def records(self) -> tuple[dict[str, Any], ...]:
        try:
            status = self._path.stat()
            mark = (status.st_ino, status.st_size)
            if mark == self._mark:
                return self._records
            with open_plain(self._path) as file:
                file.seek(max(0, status.st_size - TAIL_BYTES))
                lines = file.read(TAIL_BYTES).splitlines(keepends=True)
        except OSError:
            return ()
        whole = [line for line in lines if line.endswith(b"\n")]
        parsed = map(self._parse, whole)
        self._mark, self._records = mark, tuple(record for record in parsed if record is not None)
        return self._records


def journal_events(records: Iterable[Mapping[str, Any]], run_id: str) -> tuple[EventRow, ...]:
    """The events among the records of a run's journal, in their order."""
    return tuple(
        EventRow(
            run_id=run_id,
            name=text(record, "name"),
            severity=severity_of(record.get("severity")),
            step=integer(record, "step"),
            wall=number(record, "wall"),
            attempt=integer(record, "attempt"),
            data=record["data"] if isinstance(record.get("data"), dict) else {},
        )
        for record in map(today_words, records)
        if record.get("t") == "e"
    )


def today_words(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record with the severity, where it has one, in the words of today."""
    told, data = dict(record), record.get("data")
    if "severity" in told:
        told["severity"] = severity_of(told["severity"])
        if isinstance(data, Mapping):
            told["data"] = dict(alert_data(told.get("name"), data))
    return told


def attempts_of(records: Iterable[Document]) -> tuple[AttemptRow, ...]:
    """Attempts from the guard's ledger."""
    found: dict[int, AttemptRow] = {}
    for record in records:
        attempt = integer(record, "attempt")
        if attempt is None:
            continue
        known = found.get(attempt, AttemptRow(attempt))
        if record.get("t") == "attempt.start":
            found[attempt] = replace(
                known, started=number(record, "wall"), diagnostic=bool(record.get("diagnostic"))
            )
        elif record.get("t") == "attempt.end":
            found[attempt] = replace(
                known,
                ended=number(record, "wall"),
                code=integer(record, "code"),
                signal=text(record, "signal") or None,
                exit_class=text(record, "class") or None,
                action=text(record, "action") or None,
                reason=text(record, "reason") or None,
                step=integer(record, "step"),
                report=text(record, "report") or None,
            )
    return tuple(found[attempt] for attempt in sorted(found))
