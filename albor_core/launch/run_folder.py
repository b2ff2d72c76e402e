"""Makes and resizes the run directory of a training run, and records its sinks and collector."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from albor_core.andon.channels.kept_sinks import keep_sinks
from albor_core.config.config import Config
from albor_core.config.kept_config import config_of
from albor_core.config.load import LoadedConfig
from albor_core.config.recipes.own import own_class
from albor_core.config.resume_changes import origin, set_later
from albor_core.config.secret_urls import secrets_of, sink_entries, without_secrets
from albor_core.plan.continued import run_of_checkpoint
from albor_core.plan.plan import Plan
from albor_core.plan.recipes import own as own_recipe
from albor_core.plan.start_weights import parent_run
from albor_core.run.errors import AlborError, ConfigError, InUseError, Problem, StoreError
from albor_core.run.exit import COMPLETED, read_exit
from albor_core.run.files.whole_file import write_json
from albor_core.run.home.folders import own_home, private_folder
from albor_core.run.home.new_run import create_run
from albor_core.run.program.provenance import versions
from albor_core.run.program.recorded_code import recorded_code
from albor_core.run.rundir import RunDir, is_run_id, new_run_id, read_json
from albor_core.store.index.annotations import MAX_CHARS, annotate
from albor_core.store.spans.collector import keep_collector


@contextmanager
def _home() -> Iterator[None]:
    """Make ALBOR_HOME if it does not exist, and remove it again if the run cannot be made."""
    home = own_home()
    was_there = home.exists()
    private_folder(home)
    try:
        yield
    except AlborError:
        if not was_there:
            with suppress(OSError):  # not empty: another process uses it by now
                home.rmdir()
        raise


def new_run(loaded: LoadedConfig, made: Plan, *, name: str | None) -> RunDir:
    """Make a new run directory below training.output_dir, with config, code and data on record."""
    known = secrets_of(loaded.config)
    told, loaded = loaded.config, without_secrets(loaded)
    config: Config = loaded.config
    experiment = config.monitoring.tracking.experiment or loaded.path.stem
    title = name or loaded.path.stem
    if name is not None and is_run_id(name):
        run_id = name
        there = RunDir(Path(config.training.output_dir) / run_id)
        if there.path.exists():
            is_alive = there.liveness().is_alive
            ended = None if is_alive else read_exit(there)
            if ended is not None and ended.get("reason") in COMPLETED:
                raise InUseError(f"{run_id} is complete: {there.path}", hint="another --name")
            way_on = "monitor" if is_alive else "train resume"
            raise InUseError(
                f"{there.path}: this run {'is active' if is_alive else 'directory exists'}",
                hint=f"albor {way_on} {run_id}, or another --name",
            )
    else:
        run_id = new_run_id(title)
    own = own_class(config.training.mode)
    home = loaded.path.parent.absolute()
    source = None if own is None else own_recipe.source_file(own, home)
    code, script = recorded_code(sys.argv, source, known)
    with _home():  # where the run is registered: no run begins without it
        run = create_run(
            Path(config.training.output_dir),
            run_id,
            experiment=experiment,
            name=title,
            kind="train",
            argv=code["argv"],
            seed=config.training.seed,
            config=loaded.raw,
            resolved=config.resolved(),
            facts={
                "git": code["git"],
                "versions": versions(),
                "data": made.data_facts(),
                "max_steps": made.max_steps,
                "parent": _parent(config),
                **origin(loaded),
                **({} if own is None else {"recipe_folder": str(home), "script": code["script"]}),
                "tags": dict(config.monitoring.tracking.tags),
            },
            script=script,
        )
    keep_places(run, told)
    with suppress(StoreError):  # a run that is there goes on without
        for name, value in config.monitoring.tracking.tags.items():
            annotate(run, "tag", f"{name}:{value}"[: MAX_CHARS["tag"]], by="its config")
    return run


def _parent(config: Config) -> str | None:
    """The id of the run whose checkpoint this one starts from."""
    folder = config.training.continue_from
    return parent_run(config.model) if folder is None else run_of_checkpoint(folder)


def keep_places(run: RunDir, config: Config) -> None:
    """Record where alerts and spans are sent, including secrets, outside the run. Raises OSError,
    ConfigError.
    """
    keep_sinks(run, sink_entries(config))
    otlp = config.monitoring.otlp
    keep_collector(run, otlp.endpoint, otlp.plain_headers())


def resize(run: RunDir, world_size: int) -> None:
    """Set the number of ranks of the next attempt of `run`; its steps stay the same.

    Raises InUseError while it is active, ConfigError if the ranks cannot share its global batch.
    """
    if run.liveness().is_alive:
        raise InUseError(
            f"cannot change the ranks of {run.id}: the run is active",
            hint=f"albor guard stop {run.id}",
        )
    field, option = "training.distributed.world_size", f"--world-size {world_size}"
    config = config_of(run)
    resized = config.on_ranks(world_size)
    if problem := next(resized.problems(), None):
        near = config.fitting_ranks(world_size)
        message = f"{problem.message}; {' or '.join(map(str, sorted(near)))} would do"
        raise ConfigError(
            f"{option}: {message}",
            hint=f"albor train resume {run.id} --world-size {near[0]}",
            problems=(Problem(field, message, "", option),),
        )
    set_later(run, field, str(world_size))
    write_json(run.config_resolved, resized.resolved())


def home_of_paths(run: RunDir) -> str:
    """The folder of the config's relative paths: where it was first applied, while that exists."""
    first = (read_json(run.launch) or {}).get("cwd")
    return first if isinstance(first, str) and Path(first).is_dir() else str(Path.cwd())
