"""`albor runs wait`: sleep until runs meet a condition, and say which, in one document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from albor_core.cli.common.output import (
    clean,
    emit,
    field_values,
    json_option,
    print_line,
    print_note,
)
from albor_core.cli.common.time_span import TIME_SPAN
from albor_core.run.errors import AlborError, TryAgainError
from albor_core.run.exit import STOPPED_BY_ANDON
from albor_core.run.values.quantity import figure

if TYPE_CHECKING:
    from albor_core.documents.runs import RunsWaitDocument
    from albor_core.feed.waiting.waiter import RunStanding, RunWait, WaitResult

_CODES = {"met": 0, "andon": STOPPED_BY_ANDON, "timeout": TryAgainError.exit_code}


@click.command()
@click.argument("references", nargs=-1, required=True, metavar="RUN...")
@click.option(
    "--until",
    "text",
    default="ended",
    show_default=True,
    metavar="CONDITION",
    help="Wait for this condition; | between several means any of them.",
)
@click.option("--any", "any_one", is_flag=True, help="Wait for one of the runs instead of all.")
@click.option("--timeout", "timeout_s", type=TIME_SPAN, metavar="TIME", help="Give up after TIME.")
@json_option
def wait(
    references: tuple[str, ...], text: str, any_one: bool, timeout_s: float | None, as_json: bool
) -> int:
    """Sleep until each RUN meets a condition, as the kernel tells of it.

    \b
    A CONDITION is
      ended                     however it ended
      attention                 something of it needs a person
      'step>=1000'              it has come to this step
      'val/loss<2.1'            a condition as in an alert rule, on what it logs
      'no step for 5m'          it has logged nothing for so long

    A condition that was met once stays met: the same command again gives the same answer. Exits
    with 0 if it was met, 1 if a run ended and can no longer meet it, 4 if a rule stopped that run,
    75 if the time is up.
    """
    from albor_core.feed.waiting.until import parse_until
    from albor_core.feed.waiting.waiter import RunWait, wait_for
    from albor_core.run.program.notified import Notifier
    from albor_core.store.query.resolve import find_run

    untils = parse_until(text)
    runs = {run.id: run for run in map(find_run, references)}
    waits = [RunWait(run, untils) for run in runs.values()]
    _note_hosts(waits)
    with Notifier() as notifier:
        result = wait_for(
            waits, notifier, any_one=any_one, timeout_s=timeout_s, tell_blind=_note_blind
        )
    if as_json:
        emit(document(result, text))
    else:
        for standing in result.standings:
            print_line(_line(standing, text))
    return _CODES.get(result.outcome, AlborError.exit_code)


def document(result: WaitResult, text: str) -> RunsWaitDocument:
    """albor.runs.wait/1: what decided, and how each run stands."""
    from albor_core.run.program.notified import INTERVAL_S

    decided = result.decided
    outcome: Any = result.outcome
    return {
        "schema": "albor.runs.wait/1",
        "met": outcome == "met",
        "outcome": outcome,
        "condition": decided.condition or text,
        "run": decided.run,
        "value": decided.value,
        "step": decided.step,
        "wall": decided.wall,
        "wakeups": result.wakeups,
        "interval_s": INTERVAL_S if result.why_blind else None,
        "why_interval": result.why_blind,
        "runs": [field_values(standing) for standing in result.standings],
    }


def _note_hosts(waits: list[RunWait]) -> None:
    """Print a note about runs of other hosts, which cannot be observed from here, before the
    wait."""
    for one in waits:
        standing = one.standing
        if standing.is_elsewhere:
            print_note(
                f"{one.run.id} is of {clean(standing.host)}: its processes cannot be seen from"
                " here, only what comes into its files"
            )


def _note_blind(why: str) -> None:
    from albor_core.run.program.notified import INTERVAL_S

    print_note(f"albor: cannot be notified: {clean(why)}; looking each {INTERVAL_S:g} s")


def _line(standing: RunStanding, text: str) -> str:
    at = "" if standing.step is None else f" at step {standing.step:,}"
    why = f": {standing.detail}" if standing.detail else ""
    if standing.outcome == "met":
        value = "" if standing.value is None else f" ({figure(standing.value)})"
        told = why if standing.condition in ("ended", "attention") else ""
        word = f", {standing.status}" if standing.condition == "ended" else ""
        return clean(f"{standing.run}: {standing.condition}{value}{at}{word}{told}")
    if standing.outcome:
        return clean(f"{standing.run}: {standing.status}{why}; not met: {text}")
    return clean(f"{standing.run}: {standing.status}; not yet: {text}")
