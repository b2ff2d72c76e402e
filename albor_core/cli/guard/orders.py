"""What a person may ask of a run: stop, pause, resume, checkpoint, retry.

Its guard carries it out where there is one; a program without a guard is stopped by signals. What
cannot be done is refused with the command that can, as `feed.run.offers` says it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import click

from albor_core.cli.common.output import emit, json_option, print_line, print_note
from albor_core.run.errors import (
    AlborError,
    InUseError,
    NotFoundError,
    TryAgainError,
    UsageError,
)
from albor_core.run.files.pulled_file import refuse_pulled
from albor_core.run.rundir import RunDir
from albor_core.store.query.resolve import find_run

F = TypeVar("F", bound=Callable[..., Any])
_run = click.argument("run_ref", metavar="RUN")


def _wait(seconds: float) -> Callable[[F], F]:
    return click.option(
        "--wait",
        "wait_s",
        default=seconds,
        show_default=True,
        help="Wait at most this many seconds.",
    )


@click.command()
@_run
@click.option(
    "--signal",
    "name",
    type=click.Choice(("TERM", "INT", "KILL")),
    default="TERM",
    show_default=True,
    help="Send this signal; KILL ends the program at once, and unsaved work is lost.",
)
@_wait(120.0)
@json_option
def stop(run_ref: str, name: str, wait_s: float, as_json: bool) -> int:
    """End RUN. A training run finishes its step and saves a checkpoint first.

    The guard ends the program, and kills it if it has not ended after guard.grace_s. A program
    without a guard gets only the signal, if it belongs to this user, host and boot.
    """
    from albor_core.cli.common.run_ending import ended_at
    from albor_core.feed.run.offers import offer, subject_of_run

    found = find_run(run_ref)
    _refuse_pulled(found, "stop")
    subject = subject_of_run(found)
    if not subject.is_active:
        _print_answer(
            found,
            "stop",
            "done",
            f"already {ended_at(found)}; no process works on the run",
            as_json,
        )
        return 0
    if subject.guard is not None:
        order = "stop_now" if name == "KILL" else "stop"
        return _order(found, order, wait_s, as_json, argument=name)
    offered = offer("stop", subject)
    if not offered.is_possible:
        raise InUseError(f"cannot stop {found.id}: {offered.why_not}", hint=offered.instead)
    return _signal(found, name, wait_s, as_json)


def _signal(found: RunDir, name: str, wait_s: float, as_json: bool) -> int:
    from albor_core.cli.common.run_ending import ended_at
    from albor_core.run.exit import STOP_SIGNALS
    from albor_core.run.program.stop_unguarded import signal_program

    if signal_program(found, name, wait_s=wait_s):
        _print_answer(found, "stop", "done", f"{ended_at(found)}, by SIG{name}", as_json)
        return 0
    stronger = STOP_SIGNALS[STOP_SIGNALS.index(name) + 1 :]
    hint = f"albor guard stop {found.id} --signal {stronger[0]}" if stronger else ""
    raise TryAgainError(
        f"{found.id}: its program was sent SIG{name} and had not ended after {wait_s:.0f} s",
        hint=hint or f"albor guard status {found.id}",
    )


@click.command()
@_run
@_wait(30.0)
@json_option
def pause(run_ref: str, wait_s: float, as_json: bool) -> int:
    """Pause RUN between two steps, through its guard; memory and position are kept."""
    return _order(find_run(run_ref), "pause", wait_s, as_json)


@click.command()
@_run
@click.option(
    "--brick",
    "bricks",
    multiple=True,
    metavar="NAME",
    help="Set the budget of this part of a step (brick), such as data, forward or clip+optimizer.",
)
@click.option(
    "--budget",
    "budgets",
    multiple=True,
    metavar="MS|learn|mute",
    help="Set its budget: ms, `learn` for the time it takes now, `mute` for no limit.",
)
@_wait(30.0)
@json_option
def resume(
    run_ref: str, bricks: tuple[str, ...], budgets: tuple[str, ...], wait_s: float, as_json: bool
) -> int:
    """Resume a paused RUN.

    A run that a slow part of its step has paused (monitoring.bricks) would pause again for the same
    excess: name that part with --brick and give it a new limit with --budget. The limit also holds
    after restarts.
    """
    from albor_core.andon.bricks.budgets import read_overrules

    if len(bricks) != len(budgets):
        raise UsageError(
            "cannot use --brick without --budget, or --budget without --brick",
            hint="--brick forward --budget learn",
        )
    argument = ",".join(f"{brick}={budget}" for brick, budget in zip(bricks, budgets, strict=True))
    read_overrules(argument)  # refused here, where the words were typed
    return _order(find_run(run_ref), "resume", wait_s, as_json, argument=argument)


@click.command()
@_run
@_wait(120.0)
@json_option
def checkpoint(run_ref: str, wait_s: float, as_json: bool) -> int:
    """Have RUN save a checkpoint now, through its guard."""
    return _order(find_run(run_ref), "checkpoint", wait_s, as_json)


@click.command()
@_run
@click.option("--detach", is_flag=True, help="Return as soon as the guard runs.")
@click.option("--stop-on-interrupt", is_flag=True, help="Stop the program on Ctrl-C.")
@json_option
def retry(run_ref: str, detach: bool, stop_on_interrupt: bool, as_json: bool) -> int:
    """Run the command of RUN, an ended `guard run`, again: same run, same folder, a new attempt.

    A guard that waits for its next attempt starts it now; a program whose guard has ended gets a
    new guard.
    """
    from albor_core.cli.common.follow import follow
    from albor_core.feed.run.offers import offer, subject_of_run

    found = find_run(run_ref)
    _refuse_pulled(found, "retry")
    subject = subject_of_run(found)
    offered = offer("retry", subject)
    if subject.word == "completed" and subject.kind != "imported":
        print_note(f"{found.id} is complete: there is nothing to retry")
    elif not offered.is_possible:
        is_owned = subject.is_active or (
            not subject.is_launched_here and subject.kind != "imported"
        )
        kind = InUseError if is_owned else UsageError
        raise kind(f"cannot retry {found.id}: {offered.why_not}", hint=offered.instead)
    elif offered.order:
        return _order(found, offered.order, 30.0, as_json)
    elif subject.kind == "train":
        why = "a run of `albor train` is resumed from its checkpoint"
        raise UsageError(f"cannot retry {found.id}: {why}", hint=f"albor train resume {found.id}")
    else:
        return follow(
            found,
            partial(_start_again, found),
            as_json=as_json,
            detach=detach,
            stop_on_interrupt=stop_on_interrupt,
            echo=not as_json,
        )
    if as_json:
        _print_answer(found, "retry", "done", "it is complete", as_json)
    return 0


def _refuse_pulled(found: RunDir, verb: str) -> None:
    """Raise InUseError for a copy: no guard and no program of it can be reached from here."""
    refuse_pulled(found, verb, f"albor guard {verb} {found.own_id}")


def _start_again(found: RunDir) -> None:
    """A new guard over the recorded command, in the folder it was first run in. Of the run's files
    only what this user's own home knows of is believed, and no environment. Raises AlborError.
    """
    from pathlib import Path

    from albor_core.guard.__main__ import refuse_strangers
    from albor_core.guard.launch import read_launch
    from albor_core.launch.launcher import Submission
    from albor_core.launch.local import LOCAL

    refuse_strangers(found)
    launch = read_launch(found)
    if not Path(launch.cwd).is_dir():
        raise NotFoundError(
            f"cannot retry {found.id}: the working directory {launch.cwd} is gone",
            hint="albor guard run -- CMD, in another folder",
        )
    from dataclasses import asdict

    again = Submission(
        launch.argv,
        launch.cwd,
        options=asdict(launch.options),
        max_steps=launch.max_steps,
        index=launch.index,
        forgets=True,
    )
    LOCAL.submit(found, again)


def _order(found: RunDir, cmd: str, timeout_s: float, as_json: bool, *, argument: str = "") -> int:
    """Send one command, wait for the guard's word, print it. Raises where no guard hears it."""
    from albor_core.cli.common.run_ending import ended_at, way_on
    from albor_core.feed.run.offers import offer, subject_of_run
    from albor_core.run.control import send, wait_answer

    subject, word = subject_of_run(found), cmd.partition("_")[0]
    _refuse_pulled(found, word)
    if subject.guard is None:
        offered = offer(word, subject)
        why = offered.why_not if subject.is_active else f"it is {ended_at(found)}"
        raise NotFoundError(f"cannot {word} {found.id}: {why}", hint=offered.instead)
    answer = wait_answer(found, send(found, cmd, sender="cli", argument=argument), timeout_s)
    if answer is None:
        raise TryAgainError(
            f"{found.id}: the guard did not answer `{word}` within {timeout_s:.0f} s",
            hint=f"albor guard status {found.id}",
        )
    detail = answer.detail
    if word == "stop" and answer.status == "done" and not as_json:
        detail = f"{ended_at(found)}; to go on: {way_on(found)}"
    _print_answer(found, word, answer.status, detail, as_json)
    if answer.status == "refused" and not as_json:
        raise AlborError(f"{found.id}: the guard refused {word}: {answer.detail}")
    return 1 if answer.status == "refused" else 0


def _print_answer(found: RunDir, cmd: str, status: str, detail: str, as_json: bool) -> None:
    if as_json:
        emit(
            {
                "schema": "albor.guard.command/1",
                "run": {"id": found.id, "path": str(found.path)},
                "command": cmd,
                "status": status,
                "detail": detail,
            }
        )
    else:
        print_line(f"{found.id}: {cmd} {status}{': ' + detail if detail else ''}")
