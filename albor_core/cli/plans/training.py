"""`--plan` of what starts or continues a training run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import chdir
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from albor_core.cli.plans.file_plan import Estimate, run_source, show_plan
from albor_core.run.errors import AlborError
from albor_core.run.rundir import RunDir, is_run_id

if TYPE_CHECKING:
    from albor_core.config.config import Config
    from albor_core.config.load import LoadedConfig
    from albor_core.plan.plan import Plan


def plan_new_run(
    file: Path, load: Callable[[], LoadedConfig], name: str | None, *, as_json: bool
) -> int:
    """Of a run of a config: `load` reads it. A run without a name that is an id gets one when it
    begins: its folder is told as `*`. Returns the exit code.
    """
    try:
        loaded = load()
    except AlborError as error:
        return show_plan([config_source(file)], [], partial(_raise, error), as_json=as_json)
    config = loaded.config
    run = name if name is not None and is_run_id(name) else "*"
    writes = [Path(config.training.output_dir) / run]
    reads = [loaded.path, *inputs_of(config)]
    return show_plan(reads, writes, partial(_of_config, loaded), as_json=as_json, is_whole=True)


def plan_resumed_run(reference: str, *, as_json: bool) -> int:
    """Print the plan of an existing run. Returns the exit code."""
    source = run_source(reference)
    reads: list[str | Path] = [source]
    writes = [source] if isinstance(source, Path) else []
    if not isinstance(source, Path) or not source.is_dir():
        return show_plan(reads, writes, Estimate, as_json=as_json)
    from albor_core.config.kept_config import config_of
    from albor_core.config.load import LoadedConfig
    from albor_core.launch.run_folder import home_of_paths

    run = RunDir(source)
    try:
        loaded = LoadedConfig(b"", config_of(run), run.config_yaml)
    except AlborError as error:
        return show_plan(reads, writes, partial(_raise, error), as_json=as_json)
    with chdir(home_of_paths(run)):  # which relative paths in it are relative to
        reads += inputs_of(loaded.config)
        work = partial(_of_config, loaded, run)
        return show_plan(reads, writes, work, as_json=as_json, is_whole=True)


def config_source(file: Path) -> Path:
    """The path of a CONFIG on the command line, which may be one that comes with Albor."""
    from albor_core.config.text.config_file import packaged_config

    is_there = file.exists() and not file.is_dir()
    return file if is_there else packaged_config(str(file)) or file


def inputs_of(config: Config) -> Iterator[Path]:
    """The files and folders that a config names."""
    data = config.data
    for mixture, split in ((data.mixture, data.train), (data.val_mixture, data.val)):
        yield from (one.path for one in mixture)
        if not mixture and split is not None:
            yield split
    begins = (config.model.path, config.training.continue_from)
    yield from (path for path in (data.tokenizer, *begins) if path is not None and path != Path())


def inputs_of_run(run: RunDir) -> Iterator[Path]:
    """The inputs in its config, wherever its relative paths begin. Raises AlborError."""
    from albor_core.config.kept_config import config_of
    from albor_core.launch.run_folder import home_of_paths

    home = Path(home_of_paths(run))
    yield from (home / path for path in inputs_of(config_of(run)))


def _raise(error: AlborError) -> Estimate:
    raise error


def _of_config(loaded: LoadedConfig, run: RunDir | None = None) -> Estimate:
    from albor_core.launch.planned import plan_run

    made = plan_run(loaded, begins=run is None, run=run)
    return Estimate(
        _left(made),
        None if made.duration is None else made.duration.seconds,
        made.expenses.money,
        made.problems,
        made.to_json(),
    )


def _left(made: Plan) -> int | None:
    """Bytes of the run directory at its end: without the checkpoint that is being written."""
    if made.disk.total is None or made.disk.checkpoint is None:
        return made.disk.total
    return made.disk.total - made.disk.checkpoint
