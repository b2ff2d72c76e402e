"""`albor guard`: supervise any program, and talk to the guard of a run."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from albor_core.cli.lazy import LazyGroup
from albor_core.cli.output import emit, json_option, say
from albor_core.cli.run_name import RUN_NAME
from albor_core.run.errors import AlborError, InUseError, NotFoundError, TryAgainError
from albor_core.run.rundir import (
    RunDir,
    albor_home,
    create_run,
    is_run_id,
    new_run_id,
    read_json,
)
from albor_core.store.resolve import find_run

_VERBS = {
    "status": "What the guard of a run is doing.",
    "stop": "Finish the step, save a checkpoint, leave.",
    "pause": "Hold the run; it keeps its memory and its place.",
    "resume": "Let a paused run go on.",
    "checkpoint": "Save a checkpoint now.",
}


@click.group(
    cls=LazyGroup,
    entries={
        "run": (
            f"{__name__}:run",
            "Supervise any program: restart, crash reports, a row in the run table.",
        ),
        **{name: (f"{__name__}:{name}", text) for name, text in _VERBS.items()},
    },
)
def guard() -> None:
    """Supervise any program; stop, pause, resume, checkpoint a run."""


@guard.command(context_settings={"ignore_unknown_options": True})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD...")
@click.option("--name", type=RUN_NAME, help="A name for people; the run id is made from it.")
@click.option("--experiment", default="guard", show_default=True)
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="A timing or limit of the guard, such as backoff_s=[1,2] or max_restarts=3.",
)
@click.option("--detach", is_flag=True, help="Return as soon as the guard runs.")
@click.option("--stop-on-interrupt", is_flag=True, help="Ctrl-C stops the program.")
@json_option
def run(
    command: tuple[str, ...],
    name: str | None,
    experiment: str,
    options: tuple[str, ...],
    detach: bool,
    stop_on_interrupt: bool,
    as_json: bool,
) -> int:
    """Run CMD under a detached guard, with its output here and in the run's log."""
    import shutil

    from albor_core.cli.follow import follow
    from albor_core.guard.launch import start_guard, write_launch
    from albor_core.run.config import guard_options
    from albor_core.run.facts import versions
    from albor_core.train.launch import provenance

    program = shutil.which(command[0])
    if program is None:
        raise NotFoundError(f"{command[0]}: no such program", hint="albor guard run -- CMD")
    chosen = guard_options(options)
    title = name or Path(command[0]).name
    parent = albor_home() / "runs"
    if name is not None and is_run_id(name) and (parent / name).exists():
        raise InUseError(f"{parent / name}: this run directory exists", hint="another --name")
    code = provenance(list(command))
    made = create_run(
        parent,
        name if name is not None and is_run_id(name) else new_run_id(title),
        experiment=experiment,
        name=title,
        kind="guard",
        argv=code["argv"],
        facts={"git": code["git"], "versions": versions()},
    )
    launch = write_launch(
        made,
        argv=[program, *command[1:]],
        cwd=str(Path.cwd()),
        env={},
        options=chosen,
        max_steps=None,
        kind="guard",
    )
    return follow(
        made,
        partial(start_guard, made, launch),
        as_json=as_json,
        detach=detach,
        stop_on_interrupt=stop_on_interrupt,
        echo=not as_json,
    )


@guard.command()
@click.argument("run_ref", metavar="RUN")
@json_option
def status(run_ref: str, as_json: bool) -> int:
    """Who guards RUN, what it is doing, and how often it had to restart."""
    from albor_core.feed.status import run_status

    found = find_run(run_ref)
    guard_now = read_json(found.guard / "guard.json")
    now = run_status(found)
    document = {
        "schema": "albor.guard.status/1",
        "run": {"id": found.id, "path": str(found.path)},
        "status": {
            "word": now.word,
            "detail": now.detail,
            "trainer_pid": now.trainer_pid,
            "guard_pid": now.guard_pid,
        },
        "guard": guard_now,
    }
    if as_json:
        emit(document)
    else:
        say(f"{found.id}: {now.word}{': ' + now.detail if now.detail else ''}")
        say(f"  trainer {now.trainer_pid or '-'}  guard {now.guard_pid or '-'}")
        if guard_now is not None:
            last = guard_now.get("class_last") or "-"
            say(f"  attempt {guard_now.get('attempt')}  last exit {last}")
    return 0


def _order(found: RunDir, cmd: str, timeout_s: float, as_json: bool) -> int:
    """Send one command, wait for the guard's word, print it.

    Stopping what has ended is done already. Raises when there is nobody to hear anything else.
    """
    from albor_core.cli.last_word import ended_at, way_on
    from albor_core.feed.status import run_status
    from albor_core.run.control import send, wait_answer

    alive = found.liveness()
    if cmd == "stop" and not alive.is_alive:
        _tell(found, cmd, "done", f"nothing of it runs any more ({ended_at(found)})", as_json)
        return 0
    if not alive.is_alive:
        is_done = run_status(found).word == "completed"
        hint = f"albor runs show {found.id}" if is_done else way_on(found)
        raise NotFoundError(f"{found.id} is {ended_at(found)}: nobody can {cmd} it", hint=hint)
    if alive.guard is None:
        raise NotFoundError(
            f"{found.id}: no guard is running, so nobody can {cmd} it", hint=way_on(found)
        )
    answer = wait_answer(found, send(found, cmd, sender="cli"), timeout_s)
    if answer is None:
        raise TryAgainError(
            f"{found.id}: the guard did not answer {cmd} within {timeout_s:.0f} s",
            hint=f"albor guard status {found.id}",
        )
    detail = answer.detail
    if cmd == "stop" and answer.status == "done" and not as_json:
        detail = f"{ended_at(found)}; to go on: {way_on(found)}"
    _tell(found, cmd, answer.status, detail, as_json)
    if answer.status == "refused" and not as_json:
        raise AlborError(f"{found.id}: the guard refused {cmd}: {answer.detail}")
    return 1 if answer.status == "refused" else 0


def _tell(found: RunDir, cmd: str, status: str, detail: str, as_json: bool) -> None:
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
        say(f"{found.id}: {cmd} {status}{': ' + detail if detail else ''}")


def _verb(cmd: str, *, timeout_s: float = 30.0) -> click.Command:
    def act(run_ref: str, wait_s: float, as_json: bool) -> int:
        return _order(find_run(run_ref), cmd, wait_s, as_json)

    command = click.command(name=cmd, help=_VERBS[cmd])(
        click.argument("run_ref", metavar="RUN")(
            click.option(
                "--wait",
                "wait_s",
                default=timeout_s,
                show_default=True,
                help="Seconds to wait for it to be done.",
            )(json_option(act))
        )
    )
    guard.add_command(command)
    return command


stop = _verb("stop", timeout_s=120.0)
pause = _verb("pause")
resume = _verb("resume")
checkpoint = _verb("checkpoint", timeout_s=120.0)
