"""`albor train`: plan says what would happen, apply makes it happen, resume goes on with it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

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
from albor_core.cli.train.text_data import packed_overrides
from albor_core.config.microbatches import MAX_RANKS_HERE
from albor_core.run.errors import ConfigError, NotFoundError, UsageError
from albor_core.run.program.launched_rank import LaunchedRank, launched_rank
from albor_core.run.rundir import RUN_ID, RunDir, folder_of, is_run_id, read_json, runs_in
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
            "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override one field."
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


def _load(
    config: Path,
    overrides: tuple[str, ...],
    seed: int | None,
    launched: LaunchedRank | None = None,
) -> LoadedConfig:
    from albor_core.andon.explain import andon_problems
    from albor_core.cli.train.launched import WORLD_SIZE, refuse_unfit
    from albor_core.config.load import load_config

    extra = () if seed is None else (f"training.seed={seed}",)
    try:
        loaded = load_config(config, (*overrides, *extra), andon_problems)
        if launched is None:
            return loaded
        refuse_unfit(launched, loaded.config, str(config))
        return load_config(config, (*loaded.overrides, f"{WORLD_SIZE}={launched.world_size}"))
    except ConfigError as error:
        if error.problems or not error.hint:
            error.hint = _way_out(error, config, overrides, seed)
        raise


def _way_out(error: ConfigError, config: Path, overrides: tuple[str, ...], seed: int | None) -> str:
    """The fix, and the command to go on with, without the overrides that were refused."""
    from albor_core.config.load import shown_override

    places = {problem.file for problem in error.problems}
    places |= {place.rpartition(":")[0] for place in places}  # less the line in a value
    right = tuple(text for text in overrides if f"--set {shown_override(text)}" not in places)
    command = _again("validate", config, right, seed)
    is_file_right = all(problem.file.startswith("--set ") for problem in error.problems)
    if error.hint:
        return f"{error.hint}{' ' if error.hint.endswith('?') else '; '}then: {command}"
    return command if is_file_right else f"fix {config}, then: {command}"


def _again(verb: str, config: Path, overrides: tuple[str, ...], seed: int | None) -> str:
    """The command line with the same config and overrides, for another verb."""
    chosen = [word for one in overrides for word in ("--set", one)]
    chosen += [] if seed is None else ["--seed", str(seed)]
    return shlex.join(["albor", "train", verb, str(config), *chosen])


@train.command()
@_config_options
@click.option(
    "--probe",
    "probes",
    is_flag=True,
    help="Run 20 real steps here, in a temporary folder, and estimate time, energy and cost by "
    "them.",
)
@click.option(
    "--rate",
    type=FiniteRange(min=0, max=10**9, min_open=True),
    metavar="AMOUNT",
    help="Cost of a GPU-hour, where monitoring.budgets has no rate.",
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
    loaded = _load_for_plan(config, overrides, seed)
    try:
        more = packed_overrides(loaded.config, str(loaded.path), packs=False)
    except ConfigError as error:
        error.exit_code = 1
        raise
    if more:
        overrides = (*overrides, *more)
        loaded = _load_for_plan(config, overrides, seed)
    budgets = loaded.config.monitoring.budgets
    if rate is not None and budgets.rate_per_gpu_hour is None and budgets.rate_per_kwh is None:
        own = f"monitoring.budgets.rate_per_gpu_hour={rate!r}"
        loaded = _load_for_plan(config, (*overrides, own), seed)
    made = plan_run(loaded)
    if probes and not made.problems:
        from albor_core.launch.probe import probe

        made = plan_run(loaded, measured=probe(loaded, made, tell=print_note))
    if as_json:
        emit(made.to_json())
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


def _load_for_plan(config: Path, overrides: tuple[str, ...], seed: int | None) -> LoadedConfig:
    try:
        return _load(config, overrides, seed)
    except ConfigError as error:
        error.exit_code = 1  # of plan and validate: problems were found
        raise


@train.command()
@_config_options
def validate(config: Path, overrides: tuple[str, ...], seed: int | None, as_json: bool) -> int:
    """Check every field of CONFIG, without data, tokenizer or device; fast enough for CI."""
    from albor_core.andon.explain import andon_problems

    check_environment()
    loaded = _load_for_plan(config, overrides, seed)
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
    "whichever is named; CONFIG and --set must be what it runs on.",
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
    loaded = _load(config, overrides, seed, launched)
    if name is not None and resume_from not in ("auto", "never"):
        raise UsageError(
            f"--name {name}: --resume {resume_from} resumes a run that has a name",
            hint="leave --name out, or --resume for a new run",
        )
    with leading(launched, loaded.config):
        loaded = _with_packed_text(loaded, config)
        run = _unfinished(loaded, resume_from, launched)
        if run is not None and _is_told_complete(run, as_json=as_json):
            all_done(launched, run)
            return 0
        plan_again = _again("plan", config, overrides, seed)
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

    return plan_new_run(config, partial(_load, config, overrides, seed), name, as_json=as_json)


def _with_packed_text(loaded: LoadedConfig, config: Path) -> LoadedConfig:
    """The same config, naming shards where it named text."""
    from albor_core.config.load import load_config

    more = packed_overrides(loaded.config, str(loaded.path), packs=True)
    return load_config(config, (*loaded.overrides, *more)) if more else loaded


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
        _take_from_elsewhere(run, loaded)
    take_over(run, launched)
    made = _sound(loaded, plan_again, going_on=run, launched=launched)
    if run is None:
        return new_run(loaded, made, name=name)
    keep_places(run, loaded.config)
    return run


def _take_from_elsewhere(run: RunDir, loaded: LoadedConfig) -> None:
    """Let a run that was not launched from this home go on by the user's own CONFIG. Raises
    InUseError where its class would come from another folder than that, OSError.
    """
    from albor_core.plan.recipes.own import folder_of
    from albor_core.run.registry import is_launched_here, mark_launched_here, refuse_unlaunched

    if is_launched_here(run):
        return
    recorded = folder_of(run)
    if recorded is not None and recorded != loaded.path.parent.absolute():
        hint = f"read {recorded} first, then give the CONFIG in it"
        refuse_unlaunched(run, "resume", hint)
    mark_launched_here(run)


def _sound(
    loaded: LoadedConfig,
    plan_again: str,
    *,
    going_on: RunDir | None,
    launched: LaunchedRank | None,
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
    """For schedulers: train CONFIG as run NAME, whatever interrupted it.

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
    loaded = _load(config, overrides, seed, launched)
    folder = Path(loaded.config.training.output_dir) / name
    show = partial(follow, as_json=as_json, detach=False, stop_on_interrupt=True)
    found = None
    with leading(launched, loaded.config):
        loaded = _with_packed_text(loaded, config)
        if folder.exists():
            found = RunDir(folder.resolve())
            stands = existing_state(found, kind="train")
            _named(loaded, str(folder), launched)
            if stands is ExistingState.COMPLETE:
                all_done(launched, found)
                return print_complete(found, as_json=as_json)
            if stands is ExistingState.GUARDED and stop_after is None and launched is None:
                return show(found, lambda: None)
        plan_again = _again("plan", config, overrides, seed)
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
    from albor_core.run.registry import refuse_unlaunched, resumed_by_config

    if only_plan:
        from albor_core.cli.plans.training import plan_resumed_run

        return plan_resumed_run(run, as_json=as_json)
    launched = launched_rank()
    refuse_detached(launched, detach=detach)
    found = find_run(run)
    refuse_pulled(found, "resume", f"albor train resume {found.own_id}")
    _refuse_foreign(found)
    with leading(launched, None):
        if not allow_config_change and _is_told_complete(found, as_json=as_json):
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


def _refuse_foreign(run: RunDir) -> None:
    """Raises UsageError for a run that another program trained, with how that one goes on."""
    from albor_core.feed.run.offers import offer, subject_of_run

    if (kind := run.metadata().get("kind") or "train") == "train":
        return
    found = offer("retry", subject_of_run(run))
    is_guarded = kind == "guard" and found.is_possible
    why = found.why_not or "it is a program of its own, not a run of `albor train`"
    raise UsageError(
        f"cannot resume {run.id}: {why}",
        hint=f"albor guard retry {run.id}" if is_guarded else found.instead,
    )


def _is_told_complete(run: RunDir, *, as_json: bool) -> bool:
    """Whether `run` has nothing to go on with, which is said then."""
    from albor_core.cli.common.follow import document
    from albor_core.cli.common.run_ending import ended_at, is_complete
    from albor_core.config.resume_changes import edited

    if not is_complete(run) or edited(run) is not None:
        return False
    if as_json:
        emit(document(run, "ended", 0))
    print_note(f"{run.id} is {ended_at(run)}: nothing to resume")
    return True


def _unfinished(
    loaded: LoadedConfig, wish: str, launched: LaunchedRank | None = None
) -> RunDir | None:
    """The run that --resume means; None for a new one."""
    from albor_core.cli.common.run_ending import is_complete

    if wish == "never":
        return None
    if wish != "auto":
        return _named(loaded, wish, launched)
    wanted = loaded.config.resolved()
    for run in runs_in(Path(loaded.config.training.output_dir)):
        unfinished = not run.liveness().is_alive and not is_complete(run)
        if unfinished and read_json(run.config_resolved) == wanted:
            print_note(f"resuming {run.id}")
            return run
    return None


def _named(loaded: LoadedConfig, wish: str, launched: LaunchedRank | None = None) -> RunDir:
    """The run of this config that a path is inside of; what a launcher started may be another
    number of ranks than before. Raises NotFoundError, or ConfigError where it is a run of another
    config.
    """
    from albor_core.config.kept_config import config_of
    from albor_core.config.resume_changes import change_refused
    from albor_core.run.values.flatten import diff_configs

    folder = folder_of(wish)
    places = () if folder is None else (folder.resolve(), *folder.resolve().parents)
    inside = next((place for place in places if (place / "run.json").is_file()), None)
    if inside is None:
        raise NotFoundError(
            f"--resume {wish}: neither auto, never, nor inside a run directory",
            hint="albor runs ls",
        )
    run = RunDir(inside)
    own = config_of(run)
    if launched is not None:
        own = own.on_ranks(launched.world_size)
    if changes := diff_configs(own.resolved(), loaded.config.resolved()):
        raise change_refused(
            f"CONFIG and --set differ from the config of {run.id}",
            changes,
            file=str(loaded.path),
            hint=f"albor train resume {run.id} keeps the run's own; to change that edit"
            f" {run.config_yaml} and add --allow-config-change",
        )
    return run
