"""`albor train`: plan says what would happen, apply makes it happen, resume goes on with it."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from albor_core.cli.count import Count
from albor_core.cli.environment import check_environment
from albor_core.cli.lazy import LazyGroup
from albor_core.cli.output import F, emit, json_option, say, talk
from albor_core.cli.run_name import RUN_NAME
from albor_core.run.errors import ConfigError, NotFoundError
from albor_core.run.rundir import RunDir, find_run, read_json, runs_in
from albor_core.run.share import MAX_RANKS

if TYPE_CHECKING:
    from albor_core.run.config import LoadedConfig


@click.group(
    cls=LazyGroup,
    entries={
        "plan": (f"{__name__}:plan", "Validate, estimate, print. Changes nothing."),
        "validate": (f"{__name__}:validate", "Check the config alone, without data or device."),
        "apply": (f"{__name__}:apply", "Start the run under a detached guard and follow it."),
        "resume": (f"{__name__}:resume", "Go on with an interrupted run, bit for bit."),
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
        click.option("--detach", is_flag=True, help="Return as soon as the guard runs."),
        click.option(
            "--stop-on-interrupt", is_flag=True, help="Ctrl-C stops the run instead of leaving it."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _load(config: Path, overrides: tuple[str, ...], seed: int | None) -> LoadedConfig:
    from albor_core.run.config import load_config

    extra = () if seed is None else (f"training.seed={seed}",)
    try:
        return load_config(config, (*overrides, *extra))
    except ConfigError as error:
        error.hint = error.hint or _way_out(error, config, overrides, seed)
        raise


def _way_out(error: ConfigError, config: Path, overrides: tuple[str, ...], seed: int | None) -> str:
    """The command to go on with, without the overrides that were refused."""
    places = {problem.file for problem in error.problems}
    places |= {place.rpartition(":")[0] for place in places}  # less the line in a value
    right = tuple(text for text in overrides if f"--set {text}" not in places)
    command = _again("validate", config, right, seed)
    is_file_right = all(problem.file.startswith("--set ") for problem in error.problems)
    return command if is_file_right else f"mend {config}, then: {command}"


def _again(verb: str, config: Path, overrides: tuple[str, ...], seed: int | None) -> str:
    """The command line with the same config and overrides, for another verb."""
    chosen = [word for one in overrides for word in ("--set", one)]
    chosen += [] if seed is None else ["--seed", str(seed)]
    return shlex.join(["albor", "train", verb, str(config), *chosen])


@train.command()
@_config_options
def plan(config: Path, overrides: tuple[str, ...], seed: int | None, as_json: bool) -> int:
    """Show what `albor train apply CONFIG` would run and cost. Changes nothing.

    Exits 1 with every problem found at once.
    """
    from albor_core.run.plan_text import render
    from albor_core.train.launch import plan_run

    made = plan_run(_load_for_plan(config, overrides, seed))
    if as_json:
        emit(made.to_json())
    else:
        say(render(made))
    return 1 if made.problems else 0


def _load_for_plan(config: Path, overrides: tuple[str, ...], seed: int | None) -> LoadedConfig:
    try:
        return _load(config, overrides, seed)
    except ConfigError as error:
        error.exit_code = 1  # DESIGN 7: plan and validate found problems
        raise


@train.command()
@_config_options
def validate(config: Path, overrides: tuple[str, ...], seed: int | None, as_json: bool) -> int:
    """Check every field of CONFIG, without data, tokenizer or device; fast enough for CI."""
    from albor_core.andon.explain import andon_problems

    loaded = _load_for_plan(config, overrides, seed)
    problems = andon_problems(loaded.config.resolved()["monitoring"], file=str(config))
    if problems:
        bad = ConfigError(f"{config}: {len(problems)} problem(s)", problems=problems)
        bad.exit_code = 1
        raise bad
    if as_json:
        emit({"schema": "albor.train.validate/1", "config": str(config), "ok": True})
    else:
        say(f"{config}: ok")
    return 0


@train.command()
@_config_options
@click.option("--name", type=RUN_NAME, help="A name for people; the run id is made from it.")
@click.option(
    "--resume",
    "resume_from",
    default="never",
    metavar="auto|PATH|never",
    help="auto: go on with the newest unfinished run of this config, if there is one.",
)
@_follow_options
def apply(
    config: Path,
    overrides: tuple[str, ...],
    seed: int | None,
    as_json: bool,
    name: str | None,
    resume_from: str,
    detach: bool,
    stop_on_interrupt: bool,
) -> int:
    """Train CONFIG under a detached guard, then follow it.

    The first Ctrl-C leaves the run alone (exit 0). Without a tty it waits and exits with the run's
    code.
    """
    from albor_core.cli.follow import follow
    from albor_core.train.launch import new_run, plan_run, start

    check_environment()
    loaded = _load(config, overrides, seed)
    made = plan_run(loaded)
    if made.problems:
        raise ConfigError(
            f"{config}: {len(made.problems)} problem(s), nothing was started",
            hint=_again("plan", config, overrides, seed),
            problems=made.problems,
        )
    run = _unfinished(loaded, resume_from) or new_run(loaded, made, name=name)
    return follow(
        run,
        partial(start, run),
        as_json=as_json,
        detach=detach,
        stop_on_interrupt=stop_on_interrupt,
    )


@train.command()
@click.argument("run")
@click.option(
    "--allow-config-change", is_flag=True, help="Go on although config.yaml of the run was edited."
)
@click.option(
    "--world-size",
    type=click.IntRange(1, MAX_RANKS),
    metavar="N",
    help="Go on with N ranks (GPUs); the steps stay the same.",
)
@json_option
@_follow_options
def resume(
    run: str,
    allow_config_change: bool,
    world_size: int | None,
    as_json: bool,
    detach: bool,
    stop_on_interrupt: bool,
) -> int:
    """Go on with RUN (id, run directory or output_dir) from its newest good checkpoint.

    A completed run has nothing to go on with: raise training.max_steps in its config.yaml and add
    --allow-config-change.
    """
    from albor_core.cli.follow import document, follow
    from albor_core.cli.last_word import ended_at, is_complete
    from albor_core.run.edits import edited
    from albor_core.train.launch import resize, start

    found = find_run(run)
    if is_complete(found) and not allow_config_change and edited(found) is None:
        if as_json:
            emit(document(found, "ended", 0))
        talk(f"{found.id} is {ended_at(found)}: nothing to go on with")
        return 0
    check_environment()
    if world_size is not None:
        resize(found, world_size)
    return follow(
        found,
        partial(start, found, allow_config_change=allow_config_change),
        as_json=as_json,
        detach=detach,
        stop_on_interrupt=stop_on_interrupt,
    )


def _unfinished(loaded: LoadedConfig, wish: str) -> RunDir | None:
    if wish == "never":
        return None
    if wish != "auto":
        path = Path(wish)
        inside = next((p for p in (path, *path.parents) if (p / "run.json").is_file()), None)
        if inside is None:
            raise NotFoundError(
                f"--resume {wish}: neither auto, never, nor inside a run directory",
                hint="albor runs ls",
            )
        return RunDir(inside.absolute())
    wanted = loaded.config.resolved()
    for run in runs_in(Path(loaded.config.training.output_dir)):
        last = read_json(run.exit) or {}
        unfinished = last.get("reason") != "completed" and not run.liveness().is_alive
        if unfinished and read_json(run.config_resolved) == wanted:
            talk(f"resuming {run.id}")
            return run
    return None
