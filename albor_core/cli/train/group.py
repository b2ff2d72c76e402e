"""`albor train`: plan says what would happen, apply makes it happen, resume goes on with it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from albor_core.cli.common.count import Count, FiniteRange
from albor_core.cli.common.environment import check_environment
from albor_core.cli.common.lazy import LazyGroup
from albor_core.cli.common.output import (
    F,
    clean,
    emit,
    json_option,
    print_line,
    print_note,
    screen_width,
)
from albor_core.cli.common.run_name import RUN_NAME
from albor_core.cli.plans.file_plan import plan_option
from albor_core.cli.train.detach import detach_option
from albor_core.cli.train.given_config import command_again, load, load_for_plan, with_packed_text
from albor_core.cli.train.resumed_run import (
    adopt_foreign_run,
    is_told_complete,
    refuse_foreign,
    run_inside,
    run_to_resume,
)
from albor_core.cli.train.text_data import packed_overrides
from albor_core.config.microbatches import MAX_RANKS_HERE
from albor_core.run.errors import ConfigError, UsageError
from albor_core.run.program.launched_rank import LaunchedRank, launched_rank
from albor_core.run.rundir import RUN_ID, RunDir, is_run_id
from albor_core.run.values.quantity import counted
from albor_core.store.query.resolve import find_run

if TYPE_CHECKING:
    from albor_core.config.load import LoadedConfig
    from albor_core.plan.plan import Plan


@click.group(
    cls=LazyGroup,
    entries={
        "plan": (f"{__name__}:plan", "Validate, estimate and print. Changes nothing."),
        "validate": (f"{__name__}:validate", "Check the config alone, without data or device."),
        "apply": (f"{__name__}:apply", "Start the run under a detached guard and follow it."),
        "run": (f"{__name__}:run", "Start or resume a run, or do nothing if complete."),
        "resume": (f"{__name__}:resume", "Resume an interrupted run, bit for bit."),
    },
)
def train() -> None:
    """Plan, start and resume training runs."""


def _config_options(command: F) -> F:
    options: tuple[Callable[[F], F], ...] = (
        click.argument("config", type=click.Path(path_type=Path)),
        click.option(
            "--set",
            "overrides",
            multiple=True,
            metavar="KEY=VALUE",
            help="Override one field of the config.",
        ),
        click.option("--seed", type=Count(0, 2**62), help="Short for --set training.seed=N."),
        json_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


def _follow_options(command: F) -> F:
    options: tuple[Callable[[F], F], ...] = (
        detach_option,
        click.option(
            "--stop-on-interrupt",
            is_flag=True,
            help="Stop the run on Ctrl-C; otherwise Ctrl-C only leaves it.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


_stop_after_option: Callable[[F], F] = click.option(
    "--stop-after",
    type=Count(1),
    metavar="N",
    help="Save and exit after step N; the schedule is unchanged, and `resume` continues.",
)


@train.command()
@_config_options
@click.option(
    "--probe",
    "probes",
    is_flag=True,
    help="Run 20 real steps here, in a temporary folder, and estimate time, energy and cost from "
    "them.",
)
@click.option(
    "--rate",
    type=FiniteRange(min=0, max=10**9, min_open=True),
    metavar="AMOUNT",
    help="Cost of a GPU-hour, if monitoring.budgets gives none.",
)
def plan(
    config: Path,
    overrides: tuple[str, ...],
    seed: int | None,
    as_json: bool,
    probes: bool,
    rate: float | None,
) -> int:
    """Show what `albor train apply CONFIG` would run and cost. Changes nothing.

    Exits 1 with every problem found at once.
    """
    from albor_core.launch.planned import plan_run
    from albor_core.plan.text import render

    check_environment()
    loaded = load_for_plan(config, overrides, seed)
    try:
        more = packed_overrides(loaded.config, str(loaded.path), packs=False)
    except ConfigError as error:
        error.exit_code = 1
        raise
    if more:
        overrides = (*overrides, *more)
        loaded = load_for_plan(config, overrides, seed)
    budgets = loaded.config.monitoring.budgets
    if rate is not None and budgets.rate_per_gpu_hour is None and budgets.rate_per_kwh is None:
        own = f"monitoring.budgets.rate_per_gpu_hour={rate!r}"
        loaded = load_for_plan(config, (*overrides, own), seed)
    made = plan_run(loaded)
    if probes and not made.problems:
        from albor_core.launch.probe import probe

        made = plan_run(loaded, measured=probe(loaded, made, tell=print_note))
    if as_json:
        document: Any = made.to_json()
        emit(document)
    else:
        print_line(render(made, min(screen_width() or 78, 120), is_ascii=not _shows_blocks()))
    return 1 if made.problems else 0


def _shows_blocks() -> bool:
    """Whether stdout can say the characters that a curve is drawn of."""
    try:
        "\u2588".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


@train.command()
@_config_options
def validate(config: Path, overrides: tuple[str, ...], seed: int | None, as_json: bool) -> int:
    """Check every field of CONFIG, without data, tokenizer or device; fast enough for CI."""
    from albor_core.andon.explain import andon_problems

    check_environment()
    loaded = load_for_plan(config, overrides, seed)
    found = andon_problems(loaded.config.resolved()["monitoring"])
    if problems := tuple(replace(one, file=loaded.place(one.field)) for one in found):
        bad = ConfigError(f"{config}: {counted(len(problems), 'problem')}", problems=problems)
        bad.exit_code = 1
        raise bad
    if as_json:
        emit({"schema": "albor.train.validate/1", "config": str(config), "ok": True})
    else:
        print_line(f"{config}: ok")
    return 0


@train.command()
@_config_options
@click.option("--name", type=RUN_NAME, help="Name the run; the run id is made from the name.")
@click.option(
    "--resume",
    "resume_from",
    default="never",
    metavar="auto|PATH|never",
    help="auto: resume the newest unfinished run of this config, if there is one. PATH: resume "
    "that run, named by its directory or a checkpoint in it, from its newest good checkpoint "
    "whichever is named; CONFIG and --set must equal the run's own.",
)
@_stop_after_option
@plan_option
@_follow_options
def apply(
    config: Path,
    overrides: tuple[str, ...],
    seed: int | None,
    as_json: bool,
    name: str | None,
    resume_from: str,
    stop_after: int | None,
    only_plan: bool,
    detach: bool,
    stop_on_interrupt: bool,
) -> int:
    """Train CONFIG under a detached guard, then follow it.

    The first Ctrl-C leaves the run alone (exit 0). Without a tty it waits and exits with the run's
    code.
    """
    from albor_core.cli.common.follow import follow
    from albor_core.cli.train.launched import all_done, leading, refuse_detached
    from albor_core.launch.start import start

    if only_plan:
        return _plan_of_new(config, overrides, seed, name, as_json=as_json)
    check_environment()
    launched = launched_rank()
    refuse_detached(launched, detach=detach)
    loaded = load(config, overrides, seed, launched)
    if name is not None and resume_from not in ("auto", "never"):
        raise UsageError(
            f"--name {name}: --resume {resume_from} resumes a run that has a name",
            hint="leave --name out, or --resume for a new run",
        )
    with leading(launched, loaded.config):
        loaded = with_packed_text(loaded, config)
        run = run_to_resume(loaded, resume_from, launched)
        if run is not None and is_told_complete(run, as_json=as_json):
            all_done(launched, run)
            return 0
        plan_again = command_again("plan", config, overrides, seed)
        run = _prepare(run, loaded, plan_again, name=name, launched=launched)
        begin = partial(start, run, stop_after=stop_after, launched=launched)
    return follow(
        run,
        begin,
        as_json=as_json,
        detach=detach,
        stop_on_interrupt=stop_on_interrupt or launched is not None,
    )


def _plan_of_new(
    config: Path, overrides: tuple[str, ...], seed: int | None, name: str | None, *, as_json: bool
) -> int:
    from albor_core.cli.plans.training import plan_new_run

    return plan_new_run(config, partial(load, config, overrides, seed), name, as_json=as_json)


def _prepare(
    run: RunDir | None,
    loaded: LoadedConfig,
    plan_again: str,
    *,
    name: str | None,
    launched: LaunchedRank | None,
) -> RunDir:
    """`run` ready to go on, or a new one, whose plan has no problem. Raises what `_sound` and
    `take_over` raise.
    """
    from albor_core.cli.train.launched import take_over
    from albor_core.launch.run_folder import keep_places, new_run

    if run is not None:
        adopt_foreign_run(run, loaded)
    take_over(run, launched)
    made = _sound(loaded, plan_again, going_on=run, launched=launched)
    if run is None:
        return new_run(loaded, made, name=name)
    keep_places(run, loaded.config)
    return run


def _sound(
    loaded: LoadedConfig, plan_again: str, *, going_on: RunDir | None, launched: LaunchedRank | None
) -> Plan:
    """The plan of a new run or of one that is `going_on`, its warnings told. Raises ConfigError
    with the problems that it has.
    """
    from albor_core.launch.planned import plan_run

    made = plan_run(loaded, begins=going_on is None, run=going_on, launched=launched)
    if made.problems:
        raise ConfigError(
            f"{loaded.path}: {counted(len(made.problems), 'problem')}, nothing was started",
            hint=plan_again,
            problems=made.problems,
        )
    for warning in made.warnings:
        print_note(f"warning: {clean(warning)}")
    for note in made.notes:
        print_note(f"note: {clean(note)}")
    return made


@train.command()
@_config_options
@click.option(
    "--name", type=RUN_NAME, required=True, help="Name the run: the id is the same in each attempt."
)
@_stop_after_option
@plan_option
def run(
    config: Path,
    overrides: tuple[str, ...],
    seed: int | None,
    as_json: bool,
    name: str,
    stop_after: int | None,
    only_plan: bool,
) -> int:
    """For schedulers: train CONFIG as run NAME, through any interruption.

    Starts a new run, resumes one that stopped or died, waits for one that is active here, does
    nothing for a complete one. Exits with the run's code; Ctrl-C and SIGTERM stop the run, with a
    checkpoint.
    """
    from albor_core.cli.common.follow import follow
    from albor_core.cli.train.existing_run import ExistingState, existing_state, print_complete
    from albor_core.cli.train.launched import all_done, leading
    from albor_core.launch.start import start

    if only_plan:
        return _plan_of_new(config, overrides, seed, name, as_json=as_json)
    check_environment()
    launched = launched_rank()
    if not is_run_id(name):
        raise UsageError(f"--name {name!r} cannot be a run's id", hint=f"use {RUN_ID.pattern}")
    loaded = load(config, overrides, seed, launched)
    folder = Path(loaded.config.training.output_dir) / name
    show = partial(follow, as_json=as_json, detach=False, stop_on_interrupt=True)
    found = None
    with leading(launched, loaded.config):
        loaded = with_packed_text(loaded, config)
        if folder.exists():
            found = RunDir(folder.resolve())
            stands = existing_state(found, kind="train")
            run_inside(loaded, str(folder), launched)
            if stands is ExistingState.COMPLETE:
                all_done(launched, found)
                return print_complete(found, as_json=as_json)
            if stands is ExistingState.GUARDED and stop_after is None and launched is None:
                return show(found, lambda: None)
        plan_again = command_again("plan", config, overrides, seed)
        found = _prepare(found, loaded, plan_again, name=name, launched=launched)
        begin = partial(start, found, forgets=True, stop_after=stop_after, launched=launched)
    return show(found, begin)


@train.command()
@click.argument("run")
@click.option(
    "--allow-config-change", is_flag=True, help="Resume although config.yaml of the run was edited."
)
@click.option(
    "--world-size",
    type=click.IntRange(1, MAX_RANKS_HERE),
    metavar="N",
    help="Resume on N ranks (GPUs); the steps stay the same.",
)
@_stop_after_option
@plan_option
@json_option
@_follow_options
def resume(
    run: str,
    allow_config_change: bool,
    world_size: int | None,
    stop_after: int | None,
    only_plan: bool,
    as_json: bool,
    detach: bool,
    stop_on_interrupt: bool,
) -> int:
    """Resume RUN (id, run directory or output_dir) from its newest good checkpoint.

    A completed run cannot be resumed: raise training.max_steps in its config.yaml and add
    --allow-config-change.
    """
    from albor_core.cli.common.follow import follow
    from albor_core.cli.train.launched import (
        all_done,
        leading,
        refuse_detached,
        refuse_world_size,
        take_over,
    )
    from albor_core.launch.run_folder import resize
    from albor_core.launch.start import start
    from albor_core.run.files.pulled_file import refuse_pulled
    from albor_core.run.home.registry import refuse_unlaunched, resumed_by_config

    if only_plan:
        from albor_core.cli.plans.training import plan_resumed_run

        return plan_resumed_run(run, as_json=as_json)
    launched = launched_rank()
    refuse_detached(launched, detach=detach)
    found = find_run(run)
    refuse_pulled(found, "resume", f"albor train resume {found.own_id}")
    refuse_foreign(found)
    with leading(launched, None):
        if not allow_config_change and is_told_complete(found, as_json=as_json):
            all_done(launched, found)
            return 0
        refuse_unlaunched(found, "resume", resumed_by_config(found.path))
        check_environment()
        refuse_world_size(launched, world_size)
        take_over(found, launched)
        if world_size is not None and launched is None:
            resize(found, world_size)
    return follow(
        found,
        partial(
            start,
            found,
            allow_config_change=allow_config_change,
            forgets=True,
            stop_after=stop_after,
            launched=launched,
        ),
        as_json=as_json,
        detach=detach,
        stop_on_interrupt=stop_on_interrupt or launched is not None,
    )
