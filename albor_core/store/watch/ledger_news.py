"""What a guard's ledger says that a person wants to be told: a hang, an attempt that died, a guard
that gave up, the end of the run.

Each as an alert to send, and none to keep: the ledger has it already.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from albor_core.run.journal import parse_json
from albor_core.run.rundir import RunDir, open_plain
from albor_core.run.values.lenient import finite_of, mapping_of, whole_of

_MOST_BYTES = 1 << 20  # of one look
_ENDS = {"fail": ("died", "error"), "restart": ("restarted", "warning"), "stop": ("ended", "info")}


class LedgerNews:
    """Follows attempts.jsonl from its end as this process found it: what is older was told by an
    earlier one.
    """

    def __init__(self, run: RunDir) -> None:
        self._path = run.attempts
        try:
            self._offset = os.stat(self._path).st_size  # noqa: PTH116
        except OSError:
            self._offset = 0

    def look(self) -> Iterator[dict[str, Any]]:
        """What is new. Raises nothing."""
        try:
            with open_plain(self._path) as file:
                file.seek(self._offset)
                raw = file.read(_MOST_BYTES)
        except OSError:
            return
        whole = raw[: raw.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            record = parse_json(line + b"\n")
            if record is not None and (found := news_of(record)) is not None:
                yield found


def news_of(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """A line of the ledger as an alert to send; None where no one waits for it."""
    data, wall = mapping_of(record.get("data")), finite_of(record.get("wall"))
    attempt, name = whole_of(record.get("attempt")), record.get("name")
    if record.get("t") == "event" and name == "guard.hang":
        number = whole_of(data.get("attempt")) or 0
        return _news("hung", "error", f"hung: {data.get('reason')}", number, wall, None)
    if record.get("t") == "event" and name == "guard.gave_up":
        message = f"the guard gave up: {data.get('reason')}"
        return _news("gave-up", "critical", message, round(wall or 0), wall, None)
    if record.get("t") != "attempt.end" or attempt is None:
        return None
    rule, severity = _ENDS.get(str(record.get("action")), ("died", "error"))
    reason, step = str(record.get("reason") or "for no known reason"), whole_of(record.get("step"))
    message = {
        "died": f"died: {reason}",
        "restarted": f"attempt {attempt} died and is started again: {reason}",
        "ended": reason,
    }[rule]
    return _news(rule, severity, message, attempt, wall, step)


def _news(
    rule: str, severity: str, message: str, number: int, wall: float | None, step: int | None
) -> dict[str, Any]:
    return {
        "id": f"{rule}@{number}",
        "rule": rule,
        "kind": "rule",
        "severity": severity,
        "state": "fired",
        "action": "notify",
        "message": message,
        "step": step,
        "wall": wall,
    }
