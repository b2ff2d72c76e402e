"""`albor guard`: supervise any program, and talk to the guard of a run."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from albor_core.cli.goals import goal_option
from albor_core.cli.lazy import LazyGroup
from albor_core.cli.output import emit, json_option, say
from albor_core.cli.run_name import RUN_NAME
from albor_core.run.errors import InUseError, NotFoundError
from albor_core.run.rundir import (
    albor_home,
    create_run,
    is_run_id,
    new_run_id,
    read_json,
)
from albor_core.store.resolve import find_run

_ORDERS = {
    "stop": "End a run: by its guard, or its program by signals.",
    "pause": "Hold the run; it keeps its memory and its place.",
    "resume": "Let a paused run go on, with another step-time budget if wanted.",
    "checkpoint": "Save a checkpoint now.",
    "retry": "Run the command of an ended `guard run` again.",
}


@click.group(
    cls=LazyGroup,
    entries={
        "run": (
            f"{__name__}:run",
            "Supervise any program: restart, crash reports, a row in the run table.",
        ),
        "status": (f"{__name__}:status", "What the guard of a run is doing."),
        **{name: (f"albor_core.cli.guard_orders:{name}", text) for name, text in _ORDERS.items()},
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
@click.option(
    "--restarts",
    type=click.IntRange(0),
    metavar="N",
    help="Start it again at most N times, whatever ends it; short for --option restarts=N.",
)
@goal_option
@click.option("--detach", is_flag=True, help="Return as soon as the guard runs.")
@click.option("--stop-on-interrupt", is_flag=True, help="Ctrl-C stops the program.")
@json_option
def run(
    command: tuple[str, ...],
    name: str | None,
    experiment: str,
    options: tuple[str, ...],
    restarts: int | None,
    goals: tuple[str, ...],
    detach: bool,
    stop_on_interrupt: bool,
    as_json: bool,
) -> int:
    """Run CMD under a detached guard, with its output here and in the run's log."""
    import shutil

    from albor_core.cli.follow import follow
    from albor_core.guard.launch import start_guard, write_launch
    from albor_core.guard.provenance import recorded_code
    from albor_core.run.config import guard_options
    from albor_core.run.directions import parse_goals
    from albor_core.run.facts import versions
    from albor_core.run.provenance import script_of_command

    program = shutil.which(command[0])
    if program is None:
        raise NotFoundError(f"{command[0]}: no such program", hint="albor guard run -- CMD")
    counted = () if restarts is None else (f"restarts={restarts}",)
    chosen, chosen_goals = guard_options((*options, *counted)), parse_goals(goals)
    found_script = script_of_command(command, Path.cwd())
    title = name or (found_script.stem if found_script else Path(command[0]).name)
    parent = albor_home() / "runs"
    if name is not None and is_run_id(name) and (parent / name).exists():
        raise InUseError(f"{parent / name}: this run directory exists", hint="another --name")
    code, script = recorded_code(command, found_script)
    made = create_run(
        parent,
        name if name is not None and is_run_id(name) else new_run_id(title),
        experiment=experiment,
        name=title,
        kind="guard",
        argv=code["argv"],
        facts={
            "git": code["git"],
            "script": code["script"],
            "versions": versions(),
            **({"goals": chosen_goals} if chosen_goals else {}),
        },
        script=script,
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
