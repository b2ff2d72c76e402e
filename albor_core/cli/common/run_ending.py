"""How a run ended, for whoever waited for it: what happened, where, and the next command."""

from __future__ import annotations

from typing import Any

import click

from albor_core.cli.common.output import clean
from albor_core.feed.run import offers
from albor_core.feed.run.status import run_status
from albor_core.run.exit import COMPLETED, read_exit
from albor_core.run.rundir import RunDir


def print_ending(run: RunDir, code: int) -> None:
    """Print the end of a run with exit code `code` to stderr; nothing if it completed."""
    now = run_status(run)
    if code == 0 and now.word != "stopped":
        return
    detail = f": {now.detail}" if now.detail else ""
    click.echo(f"albor: {run.id} {now.word} (exit code {code}){clean(detail)}", err=True)
    click.echo(f"  next: {clean(_next(run, code))}", err=True)


def ended_at(run: RunDir) -> str:
    """`stopped at step 80`, as the run's last words say it."""
    words = read_exit(run) or {}
    step = words.get("step")
    return run_status(run).word + (f" at step {step:,}" if isinstance(step, int) else "")


def is_complete(run: RunDir) -> bool:
    """True when the newest attempt finished and no process holds the run."""
    words = read_exit(run) or {}
    return words.get("reason") in COMPLETED and not run.liveness().is_alive


def way_on(run: RunDir) -> str:
    """The command that goes on with an ended run, or starts its program again; for a run that
    neither can be done to, the one that shows it.
    """
    return offers.way_on(offers.subject_of_run(run))


def _next(run: RunDir, code: int) -> str:
    words = read_exit(run) or {}
    said = _hint(words)
    if said:
        return said
    match code:
        case 4:
            list_of_causes = "alerts ls" if words.get("reason") == "andon" else "runs tail"
            return f"albor {list_of_causes} {run.id}; when the cause is fixed: {way_on(run)}"
        case 6:
            return f"albor runs show {run.id}; nothing in {run.checkpoints} was removed"
        case 7:
            return "albor data verify DIR, on the data that the config names"
        case 0 | 130 | 143:
            return way_on(run)
    log = run.newest_log()
    return f"albor runs show {run.id}" + (f"; the output is in {log}" if log else "")


def _hint(words: dict[str, Any]) -> str:
    error = words.get("error")
    hint = error.get("hint") if isinstance(error, dict) else None
    return hint if isinstance(hint, str) else ""
