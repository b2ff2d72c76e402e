"""The newest records of a run's files of JSON lines, without any database."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from albor_core.run.rundir import open_plain
from albor_core.run.values.lenient import integer, number, text
from albor_core.store.rows.rows import EventRow

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
            severity=text(record, "severity") or "info",
            step=integer(record, "step"),
            wall=number(record, "wall"),
            attempt=integer(record, "attempt"),
            data=record["data"] if isinstance(record.get("data"), dict) else {},
        )
        for record in records
        if record.get("t") == "e"
    )


def parse_json(line: bytes) -> dict[str, Any] | None:
    """One plain JSON line; None if it is not an object."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None
