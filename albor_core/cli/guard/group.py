"""`albor guard`: supervise any program, and talk to the guard of a run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from albor_core.cli.common.goals import goal_option
from albor_core.cli.common.lazy import LazyGroup
from albor_core.cli.common.output import clean, emit, json_option, print_line, when
from albor_core.cli.common.run_name import RUN_NAME
from albor_core.cli.train.detach import detach_option
from albor_core.run.errors import InUseError, NotFoundError, UsageError
from albor_core.run.guard_state import read_guard
from albor_core.run.home.folders import albor_home
from albor_core.run.home.new_run import create_run
from albor_core.run.rundir import RunDir, is_run_id, new_run_id
from albor_core.run.values.quantity import duration
from albor_core.store.query.resolve import find_run

if TYPE_CHECKING:
    from albor_core.documents.guard import GuardStatusDocument

_ORDERS = {
    "stop": "End a run through its guard, or by signals.",
    "pause": "Hold the run; memory and position are kept.",
    "resume": "Resume a paused run, optionally with another step-time budget.",
    "checkpoint": "Save a checkpoint now.",
    "retry": "Run the command of an ended `guard run` again.",
}


@click.group(
    cls=LazyGroup,
    entries={
        "report": (
            "albor_core.cli.guard.report:report",
            "Show the crash report of an attempt.",
        ),
        "run": (
            f"{__name__}:run",
            "Supervise any program: restart, crash reports, a row in the run table.",
        ),
        "status": (f"{__name__}:status", "Show what the guard of a run is doing."),
        **{name: (f"albor_core.cli.guard.orders:{name}", text) for name, text in _ORDERS.items()},
    },
)
def guard() -> None:
    """Supervise any program: the guard starts, restarts and stops it."""


@guard.command(context_settings={"ignore_unknown_options": True})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- CMD...")
@click.option("--name", type=RUN_NAME, help="Name the run; the run id is made from the name.")
@click.option(
    "--experiment", help="Put the run into this experiment.  [default: the program's, else guard]"
)
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set a timing or limit of the guard, such as backoff_s=[1,2] or max_restarts=3.",
)
@click.option(
    "--restarts",
    type=click.IntRange(0),
    metavar="N",
    help="Restart the program at most N times, whatever ends it; short for --option restarts=N.",
)
@goal_option
@click.option(
    "--resume-or-start",
    is_flag=True,
    help="For schedulers: start run --name if new, resume it if it stopped or died, do"
    " nothing if complete. Ctrl-C and SIGTERM stop the program.",
)
@detach_option
@click.option("--stop-on-interrupt", is_flag=True, help="Stop the program on Ctrl-C.")
@json_option
def run(
    command: tuple[str, ...],
    name: str | None,
    experiment: str | None,
    options: tuple[str, ...],
    restarts: int | None,
    goals: tuple[str, ...],
    resume_or_start: bool,
    detach: bool,
    stop_on_interrupt: bool,
    as_json: bool,
) -> int:
    """Run CMD under a detached guard, with its output here and in the run's log."""
    import shutil

    from albor_core.cli.common.follow import follow
    from albor_core.cli.train.existing_run import (
        ExistingState,
        existing_state,
        print_complete,
        same_command,
    )
    from albor_core.config.load import guard_options
    from albor_core.launch.launcher import Submission
    from albor_core.launch.local import LOCAL
    from albor_core.run.values.directions import parse_goals

    program = shutil.which(command[0])
    if program is None:
        raise NotFoundError(f"{command[0]}: no such program", hint="albor guard run -- CMD")
    counted = () if restarts is None else (f"restarts={restarts}",)
    chosen, chosen_goals = guard_options((*options, *counted)), parse_goals(goals)
    run_id = name if name is not None and is_run_id(name) else None
    if resume_or_start and run_id is None:
        raise UsageError(
            "--resume-or-start needs a --name that is a run id",
            hint="albor guard run --name first --resume-or-start -- CMD",
        )
    show = partial(
        follow, as_json=as_json, detach=detach, echo=not as_json,
        stop_on_interrupt=stop_on_interrupt or resume_or_start,
    )  # fmt: skip
    made = None if run_id is None else RunDir(albor_home() / "runs" / run_id)
    if made is not None and made.path.exists():
        if not resume_or_start:
            raise InUseError(
                f"{made.path}: this run directory exists",
                hint="another --name; --resume-or-start resumes this one",
            )
        found_state = existing_state(made, kind="guard")
        same_command(made, [program, *command[1:]])
        match found_state:
            case ExistingState.COMPLETE:
                return print_complete(made, as_json=as_json)
            case ExistingState.GUARDED:
                return show(made, lambda: None)
    else:
        made = _recorded(command, name, run_id, experiment, chosen_goals)
    submitted = Submission(
        [program, *command[1:]], str(Path.cwd()), options=chosen, forgets=resume_or_start
    )
    return show(made, partial(LOCAL.submit, made, submitted))


def _recorded(
    command: tuple[str, ...],
    name: str | None,
    run_id: str | None,
    experiment: str | None,
    goals: Mapping[str, str],
) -> RunDir:
    """A new run directory of `command`, with what is known of its code."""
    from albor_core.run.program.provenance import script_of_command, versions
    from albor_core.run.program.recorded_code import recorded_code

    found = script_of_command(command, Path.cwd())
    title = name or (found.stem if found else Path(command[0]).name)
    code, script = recorded_code(command, found)
    told = {"name": name is not None and run_id is None, "experiment": experiment is not None}
    facts = {
        "git": code["git"],
        "script": code["script"],
        "versions": versions(),
        "given": [word for word, is_told in told.items() if is_told],
    }
    return create_run(
        albor_home() / "runs",
        run_id or new_run_id(title),
        experiment=experiment or "guard",
        name=title,
        kind="guard",
        argv=code["argv"],
        facts=facts | ({"goals": goals} if goals else {}),
        script=script,
    )


@guard.command()
@click.argument("run_ref", metavar="RUN")
@json_option
def status(run_ref: str, as_json: bool) -> int:
    """Show which guard supervises RUN, what it is doing, and how often it restarted the program."""
    from albor_core.feed.run.status import guard_standing, run_status

    found = find_run(run_ref)
    guard_now: Any = read_guard(found)
    now = run_status(found)
    standing: Any = guard_standing(found, now, guard_now)
    document: GuardStatusDocument = {
        "schema": "albor.guard.status/1",
        "run": {"id": found.id, "path": str(found.path)},
        "status": {
            "word": now.word,
            "detail": now.detail,
            "trainer_pid": now.trainer_pid,
            "guard_pid": now.guard_pid,
        },
        "guard": guard_now,
        "standing": standing,
    }
    if as_json:
        emit(document)
    else:
        print_line(f"{found.id}: {now.word}{': ' + now.detail if now.detail else ''}")
        print_line(f"  trainer {now.trainer_pid or '-'}  guard {now.guard_pid or '-'}")
        if guard_now is not None and standing is not None:
            for line in _last_said(guard_now, standing):
                print_line(f"  {line}")
    return 0


def _last_said(guard: dict[str, Any], standing: dict[str, Any]) -> Iterator[str]:
    """The contents of the guard's file, marked as old if the guard is gone."""
    attempt, last = guard.get("attempt"), clean(str(guard.get("class_last") or "-"))
    if standing["word"] in ("watching", "ended"):
        yield f"attempt {attempt}  last exit {last}"
        return
    heard = standing["heard"]
    since = f"since {when(heard, '%Y-%m-%d %H:%M:%S')} UTC" if heard else "since an unknown time"
    ago = f", {duration(time.time() - heard)} ago" if heard and heard <= time.time() else ""
    told = (
        "its guard is gone"
        if standing["word"] == "gone"
        else "the guard is on another machine, unseen"
    )
    yield f"{told} {since}{ago}"
    state = clean(str(guard.get("state") or "-"))
    yield f"last reported: {state}, attempt {attempt}, last exit {last}"
