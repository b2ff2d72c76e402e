"""What the attempts of a run left on disk, read with distrust.

Last words, child.json, the ledger of attempts.

A file that is missing, torn, planted or of another attempt is the same as no file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from albor_core.guard.policy import TrainerWords
from albor_core.run.exit import read_exit
from albor_core.run.journal import parse_json, parse_line
from albor_core.run.program.scheduler import SchedulerJob
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.values.lenient import whole_of

_TAIL_BYTES = 256 << 10


@dataclass(frozen=True)
class LastAttempt:
    """An attempt as the ledger records it."""

    attempt: int
    nonce: str
    is_open: bool
    """Whether it was started and has no recorded end."""


def last_words(run: RunDir, nonce: str) -> TrainerWords | None:
    """exit.json, if this attempt wrote it."""
    body = read_exit(run)
    if body is None or body.get("nonce") != nonce or not isinstance(body.get("code"), int):
        return None
    raw_error = body.get("error")
    error: dict[str, Any] = raw_error if isinstance(raw_error, dict) else {}
    step = body.get("step")
    return TrainerWords(
        code=body["code"],
        reason=str(body.get("reason") or ""),
        step=whole_of(step),
        message=str(body.get("message") or ""),
        error_type=str(error.get("type") or ""),
        error_message=str(error.get("message") or ""),
        where=str(error.get("where") or ""),
    )


def checkpoint_bytes(folder: Path) -> int:
    """Size of the files directly inside a checkpoint."""
    total = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                total += entry.stat(follow_symlinks=False).st_size
    return total


def last_attempt(run: RunDir) -> LastAttempt | None:
    """The newest attempt that any guard began, from the ledger's tail and child.json.

    A guard that was killed right after it started a program left only child.json.
    """
    started: dict[int, str] = {}
    ended: set[int] = set()
    for record in ledger_tail(run):
        attempt = record.get("attempt")
        if record.get("t") == "attempt.start" and isinstance(attempt, int):
            started[attempt] = str(record.get("nonce") or "")
        elif record.get("t") == "attempt.end" and isinstance(attempt, int):
            ended.add(attempt)
    child = read_json(run.guard / "child.json") or {}
    attempt, nonce = child.get("attempt"), child.get("nonce")
    if isinstance(attempt, int) and isinstance(nonce, str) and attempt > max(started, default=0):
        started[attempt] = nonce
    if not started:
        return None
    newest = max(started)
    return LastAttempt(newest, started[newest], is_open=newest not in ended)


def start_record(run: RunDir, attempt: int) -> dict[str, Any] | None:
    """The ledger's line of an attempt's start, where it says when."""
    for record in reversed(ledger_tail(run)):
        if record.get("t") == "attempt.start" and record.get("attempt") == attempt:
            return record if isinstance(record.get("mono_ns"), int) else None
    return None


def job_in(record: Mapping[str, Any] | None) -> SchedulerJob | None:
    """The scheduler's job in a line of the ledger, or in child.json."""
    found = None if record is None else record.get("job")
    if not isinstance(found, dict) or not found.get("scheduler"):
        return None
    restart = found.get("restart")
    return SchedulerJob(
        str(found["scheduler"]),
        str(found.get("id") or ""),
        whole_of(restart),
        str(found.get("nodes") or ""),
    )


def known_nonces(run: RunDir) -> frozenset[str]:
    """Nonces of the attempts in the ledger's tail."""
    return frozenset(str(record["nonce"]) for record in ledger_tail(run) if record.get("nonce"))


@dataclass(frozen=True)
class Said:
    """The records of one attempt in the journal."""

    is_tracked: bool
    """Anything at all: the program has a tracker."""
    has_metric: bool


def said_by(run: RunDir, attempt: int) -> Said:
    """Whether an attempt logged anything, by the journal's tail. Where that is full of its other
    lines, it is taken to have logged.
    """
    lines = _tail_lines(run.journal)
    own = [
        record
        for line in lines
        if (record := parse_line(line)) is not None and record.get("attempt") == attempt
    ]
    is_full = 0 < len(lines) == len(own) and sum(map(len, lines)) > _TAIL_BYTES // 2
    return Said(bool(own), is_full or any(record.get("t") == "m" for record in own))


def next_attempt(run: RunDir) -> int:
    """1 + the last attempt, whether a guard or a trainer by itself began it."""
    last_one = last_attempt(run)
    last = 0 if last_one is None else last_one.attempt
    for line in reversed(_tail_lines(run.journal)):
        record = parse_line(line)
        if record is not None and isinstance(record.get("attempt"), int):
            return max(last, int(record["attempt"])) + 1
    return last + 1


def ledger_tail(run: RunDir) -> list[dict[str, Any]]:
    """The whole records in the last 256 KiB of attempts.jsonl."""
    found = []
    for line in _tail_lines(run.attempts):
        record = parse_json(line)
        if record is not None:
            found.append(record)
    return found


def _tail_lines(path: Path) -> list[bytes]:
    """Whole lines near the end; the first of a cut window is dropped."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    with os.fdopen(fd, "rb") as file:
        size = os.fstat(fd).st_size
        start = max(0, size - _TAIL_BYTES)
        file.seek(start)
        lines = file.read(_TAIL_BYTES).splitlines(keepends=True)
    return [line for line in lines[1 if start else 0 :] if line.endswith(b"\n")]
