"""How a tracked program ended, for exit.json and for stderr."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from albor_core.guard.supervised_attempt import SupervisedAttempt
from albor_core.run.exit import exit_document, write_exit
from albor_core.run.files.line_appender import LAST_WAIT_S
from albor_core.run.files.reserved_file import ReservedFile
from albor_core.run.journal import Journal
from albor_core.run.tracked_state import LiveState
from albor_core.run.values.metrics import as_text, printable
from albor_core.run.values.quantity import counted
from albor_core.run.values.redact import redact_text


@dataclass(frozen=True)
class End:
    """One end: status and reason of exit.json, the exit code, and the error if there was one."""

    status: str
    reason: str
    message: str
    code: int
    error: Mapping[str, str] | None = None


def end_by(number: signal.Signals) -> End:
    return End("stopped", "stopped", f"ended by {number.name}", 128 + number)


def end_from(error: BaseException) -> End:
    """What an exception that left the block means."""
    if isinstance(error, KeyboardInterrupt):
        return End("stopped", "stopped", "interrupted", 130)
    code = 1
    if isinstance(error, SystemExit) and isinstance(error.code, int):
        code = error.code & 0xFF  # as the system sees it
        error = SystemExit(f"exit code {code}")
    message = redact_text(as_text(error)[:8000], dict(os.environ))[:2000]
    about = {"type": type(error).__name__, "message": message, "where": _innermost(error)}
    return End("failed", "exception", message, code, about)


def tell(text: str) -> None:
    """A note on stderr, if there is one."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"albor: {text}\n")
        sys.stderr.flush()


def say_rewind(journal: Journal, run_id: str, after: int, metrics: int) -> None:
    """Report that the training restarted behind recorded steps: what is hidden, and what restores
    it."""
    what = counted(metrics, "metric")
    tell(
        f"run {run_id}: training begins again: what {what} had after step {after:,} is taken back;"
        f" albor runs restore {run_id} brings it back, with --list shows it"
    )
    journal.event("track.rewind", severity="warning", after=after, metrics=metrics)


def lines_lost(journal: Journal, live: LiveState, run_id: str) -> int:
    """How many lines the disk never took, once it had a last chance; told on stderr."""
    why = "" if journal.wait(LAST_WAIT_S) else journal.error or f"{journal.path}: too slow"
    lost = journal.give_up()
    live.waiting(pending=0, dropped=lost, error=why or None)
    if lost:
        what = f"{counted(lost, 'line')} that run {run_id} logged could not be written"
        tell(f"{what}: {why or journal.path}")
    return lost


def say_unlogged(run_id: str, lost: int, why: str) -> None:
    """Report that the log of a run lacks some of its output."""
    if lost:
        tell(f"{counted(lost, 'byte')} that run {run_id} printed are in no log: {why}")


def record_end(attempt: SupervisedAttempt, end: End, reserved: ReservedFile, **facts: Any) -> bool:
    """Write exit.json; where that fails, say so on stderr. Whether it was written."""
    document = exit_document(
        attempt.dir,
        attempt.attempt,
        attempt.nonce,
        code=end.code,
        reason=end.reason,
        message=printable(end.message)[:2000],
        error=end.error,
        **facts,
    )
    try:
        write_exit(attempt.dir, document, reserved)
    except OSError as failed:
        run = attempt.dir
        tell(f"{run.exit}: {failed.strerror}: how run {run.id} ended is not recorded")
        return False
    return True


def _innermost(error: BaseException) -> str:
    """file:line of the innermost frame."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
