"""exit.json: how an attempt ended, the last words of its program (schema albor.exit/1).

Written once by the program itself, tracker or trainer, or for one that cannot speak: by the guard's
stub for a command that cannot be executed, by whoever kills a program without a guard, by the
importer of a foreign run. A kill -9 leaves the words of the attempt before behind: whoever reads
them compares attempt or nonce.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from albor_core.run.files.reserved_file import ReservedFile
from albor_core.run.files.whole_file import write_json
from albor_core.run.rundir import RunDir, read_json

if TYPE_CHECKING:
    from albor_core.documents.guard import ExitDocument

COMPLETED = ("completed", "early_stopped")
"""The reasons of a program that did all it was asked to."""
STOP_SIGNALS = ("TERM", "INT", "KILL")
"""What a program without a guard is asked to stop by, each by itself, in this order."""
STOPPED_BY_ANDON = 4
"""The exit code with which "failed" means stopped: the program is not started again."""


def exit_document(
    run: RunDir,
    attempt: int | None,
    nonce: str | None,
    *,
    code: int,
    reason: str,
    step: int | None,
    message: str,
    wall: float | None,
    error: Mapping[str, str] | None = None,
    lines_lost: int | None = None,
    console_bytes_lost: int = 0,
) -> ExitDocument:
    """The document. `error`: type, message and where of an exception, and a hint; `lines_lost`:
    journal lines that no disk took, None where they were not counted; `console_bytes_lost`: what
    it printed and no log took.
    """
    document: ExitDocument = {
        "schema": "albor.exit/1",
        "run_id": run.id,
        "attempt": attempt,
        "nonce": nonce,
        "code": code,
        "reason": reason,
        "step": step,
        "message": message,
        "error": None if error is None else dict(error),
        "wall": wall,
    }
    if lines_lost is not None:
        document["lines_lost"] = lines_lost
    if console_bytes_lost:
        document["console_bytes_lost"] = console_bytes_lost
    return document


def reserve_exit(run: RunDir) -> ReservedFile:
    """Reserve disk space for the exit record, in case the disk is full at the end."""
    return ReservedFile(run.exit)


def write_exit(
    run: RunDir, document: Mapping[str, Any], reserved: ReservedFile | None = None
) -> None:
    """Write the exit record atomically and durably, into `reserved` space if there is some. Raises
    OSError."""
    if reserved is not None:
        reserved.write(document)
    else:
        write_json(run.exit, document, durable=True)


def forget_exit(run: RunDir) -> None:
    """Remove the exit record of an earlier attempt when a new one begins. Raises OSError."""
    run.exit.unlink(missing_ok=True)


def read_exit(run: RunDir) -> dict[str, Any] | None:
    """The last words, of whichever attempt; None where nothing readable lies there."""
    return read_json(run.exit)


def end_word(reason: str, code: object) -> str:
    """completed, stopped or failed: what a program's last words mean."""
    if reason in COMPLETED:
        return "completed"
    if reason == "exception":
        return "failed"
    if reason in ("stopped", "andon", "paused") or code == STOPPED_BY_ANDON:
        return "stopped"
    return "completed" if code == 0 else "failed"


def exit_reason(words: Mapping[str, Any]) -> str:
    """Why a program ended: an exception in its own words, else a word."""
    reason, error = str(words.get("reason") or ""), words.get("error")
    kind = error.get("type") if isinstance(error, Mapping) else None
    if reason != "exception" or not kind:
        return reason
    assert isinstance(error, Mapping)
    first = str(error.get("message") or "").strip().partition("\n")[0]
    return (f"{kind}: {first}" if first else str(kind))[:500]
