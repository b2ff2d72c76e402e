"""`albor profile`: where the time of a step goes, by a profiler trace."""

from __future__ import annotations

import gzip
import os
import shlex
from contextlib import chdir, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from albor_core.cli.common.count import Count
from albor_core.cli.common.output import (
    clean,
    emit,
    json_option,
    out_file,
    print_line,
    print_note,
    screen_width,
)
from albor_core.run.errors import AlborError, ConfigError, InUseError, NotFoundError, UsageError
from albor_core.run.values.quantity import counted

if TYPE_CHECKING:
    from albor_core.config.load import LoadedConfig
    from albor_core.profile.trace import StepTrace
    from albor_core.profile.workload import Workload
    from albor_core.run.rundir import RunDir

STEPS = 3
TAKEN, KEPT, GIVEN = "taken", "kept", "given"
_SUFFIXES = (".json", ".json.gz")


@dataclass(frozen=True)
class _Read:
    """A trace, and where it is from."""

    how: str
    trace: StepTrace
    kept_at: Path | None
    """Where it lies; None: it is gone."""
    run: str | None = None
    workload: Workload | None = None
    """Of its run's config, for a trace that does not say it."""


@click.command()
@click.argument("what", metavar="RUN|CONFIG|TRACE")
@click.option("--steps", type=Count(1, 100), metavar="N", show_default=f"{STEPS}",
              help="Trace N steps, behind some to warm up.")  # fmt: skip
@click.option("-o", "--out", type=click.Path(path_type=Path, dir_okay=False), metavar="TRACE",
              help="Keep the trace that is taken here, packed if it ends in .gz.")  # fmt: skip
@click.option("--trace", "name", metavar="NAME",
              help="Of a run, read this one of its traces; the newest otherwise.")  # fmt: skip
@click.option("--fresh", is_flag=True,
              help="Of a run, take a trace even where it kept some.")  # fmt: skip
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE",
              help="Override one field of CONFIG.")  # fmt: skip
@click.option("--kernels", "rows", type=Count(1, 100_000), default=15, show_default=True,
              metavar="N", help="Show at most N kernels.")  # fmt: skip
@json_option
def profile(
    what: str,
    steps: int | None,
    out: Path | None,
    name: str | None,
    fresh: bool,
    overrides: tuple[str, ...],
    rows: int,
    as_json: bool,
) -> None:
    """Show where the time of a step goes: phases, kernels, idle time by cause, synchronizations,
    copies, and the model's matrix products against what the device can do.

    Of RUN the newest trace in RUN_DIR/traces is read; where it kept none, and of CONFIG, a few
    steps are trained and traced in a temporary folder, of which nothing is left. TRACE is a Chrome
    trace of torch.profiler, of any program.
    """
    from albor_core.cli.machine.profile_text import render
    from albor_core.profile.report import report_of

    found = _read(what, steps, out, name, fresh, overrides)
    report = report_of(found.trace, found.workload)
    document = {
        "schema": "albor.profile/1",
        "source": {
            "how": found.how,
            "trace": None if found.kept_at is None else str(found.kept_at),
            "run": found.run,
        },
        **report.to_json(kernels=rows),
    }
    if as_json:
        emit(document)
        return
    print_line(_source_line(found))
    for line in render(report, kernels=rows, width=screen_width()):
        print_line(clean(line))


def _source_line(found: _Read) -> str:
    of = f" of {found.run}" if found.run else ""
    where = "not kept (-o keeps it)" if found.kept_at is None else str(found.kept_at)
    words = {
        TAKEN: f"trace taken now{of}, {where}",
        KEPT: f"trace kept by the run{of}: {where}",
        GIVEN: f"trace: {where}",
    }
    return clean(words[found.how])


def _read(
    what: str,
    steps: int | None,
    out: Path | None,
    name: str | None,
    fresh: bool,
    overrides: tuple[str, ...],
) -> _Read:
    from albor_core.profile.trace import read_trace

    path = Path(what)
    is_trace = what.endswith(_SUFFIXES) and not path.is_dir()
    is_config = not is_trace and (path.is_file() or _is_example(path))
    takes = {"--steps": steps is not None, "-o": out is not None}
    of_run = {"--trace": name is not None, "--fresh": fresh}
    if is_trace:
        _refuse(takes | of_run | {"--set": bool(overrides)}, "a trace that is there is read")
        return _Read(GIVEN, read_trace(path), path)
    if is_config:
        _refuse(of_run, "it belongs to a run")
        return _Read(TAKEN, _taken(_loaded(path, overrides), steps, out), out)
    _refuse({"--set": bool(overrides)}, "a run is profiled as it was trained")
    run = _run_of(what)
    if fresh and name is not None:
        raise UsageError("--fresh takes a trace, --trace reads one", hint="give one of them")
    if not fresh and (kept := _kept(run, name)) is not None:
        _refuse(takes, f"{run.id} kept traces, which are read; add --fresh")
        return _Read(KEPT, read_trace(kept), kept, run.id, _workload_of(run))
    return _Read(TAKEN, _of_run(run, steps, out), out, run.id)


def _refuse(given: dict[str, bool], why: str) -> None:
    for option, is_given in given.items():
        if is_given:
            raise UsageError(f"{option} means nothing here: {why}", hint="albor profile --help")


def _is_example(path: Path) -> bool:
    """Whether it names a config that comes with Albor."""
    from albor_core.config.config_file import read_config_file

    try:
        read_config_file(path, 1)
    except OSError:
        return False
    return True


def _run_of(what: str) -> RunDir:
    from albor_core.cli.common.lookup import find

    try:
        run_id, run = find(what)
    except NotFoundError:
        if "/" not in what and not what.endswith((".yaml", ".yml")):
            raise
        raise NotFoundError(f"no run, config or trace {what!r}", hint="albor runs ls") from None
    if run is None:
        raise NotFoundError(f"{run_id}: its folder is gone", hint="albor runs ls")
    return run


def _kept(run: RunDir, name: str | None) -> Path | None:
    """The trace that is meant; None where there is none to choose from."""
    from albor_core.profile.report import traces_of

    found = traces_of(run.traces)
    if name is None:
        return found[-1] if found else None
    for path in found:
        if name in (path.name, str(path), *(path.name.removesuffix(end) for end in _SUFFIXES)):
            return path
    names = ", ".join(path.name for path in found) or "none"
    raise NotFoundError(
        f"{run.id} has no trace {name!r}; it has {names}", hint=f"albor profile {run.id}"
    )


def _workload_of(run: RunDir) -> Workload | None:
    """By its config; None where that is not of `albor train`, or damaged."""
    from albor_core.config.kept_config import config_of
    from albor_core.profile.workload import workload_of

    try:
        return workload_of(config_of(run), None)
    except AlborError:
        return None


def _loaded(path: Path, overrides: tuple[str, ...]) -> LoadedConfig:
    from albor_core.andon.explain import andon_problems
    from albor_core.config.load import load_config

    return load_config(path, overrides, andon_problems)


def _of_run(run: RunDir, steps: int | None, out: Path | None) -> StepTrace:
    from albor_core.config.kept_config import config_of
    from albor_core.config.load import LoadedConfig
    from albor_core.launch.run_folder import home_of_paths

    if run.liveness().is_alive:
        raise InUseError(
            f"{run.id} is active, and has kept no trace to read",
            hint=f"albor guard stop {run.id}, then: albor profile {run.id} --fresh",
        )
    config, place = config_of(run), run.config_resolved
    loaded = LoadedConfig(place.read_bytes(), config, place.absolute())
    out = None if out is None else out.absolute()
    with chdir(home_of_paths(run)):
        return _taken(loaded, steps, out)


def _check_place(out: Path) -> None:
    if not out.name.endswith(_SUFFIXES):
        ends = " or ".join(_SUFFIXES)
        raise UsageError(f"{str(out)!r}: a trace is read by its name", hint=f"-o FILE with {ends}")
    if os.path.lexists(out):
        raise UsageError(f"{out}: exists", hint="another file after -o")


def _taken(loaded: LoadedConfig, steps: int | None, out: Path | None) -> StepTrace:
    """A trace of the config, trained here; kept at `out` if that is given."""
    from albor_core.cli.common.environment import check_environment
    from albor_core.launch.planned import plan_run
    from albor_core.launch.traced_steps import trace_steps
    from albor_core.profile.trace import read_trace

    check_environment()
    if out is not None:
        _check_place(out)
    made = plan_run(loaded)
    problems = tuple(one for one in made.problems if one.field != "training.output_dir")  # unused
    if problems:
        chosen = [word for one in loaded.overrides for word in ("--set", one)]
        again = shlex.join(["albor", "train", "plan", str(loaded.path), *chosen])
        raise ConfigError(
            f"{loaded.path}: cannot be trained: {counted(len(problems), 'problem')}",
            hint=again,
            problems=problems,
        )
    with nullcontext() if out is None else out_file(out, replace=False) as kept:
        read: list[StepTrace] = []

        def take(path: Path) -> None:
            if kept is not None and out is not None:
                whole = path.read_bytes()
                is_packed = out.name.endswith(".gz")
                kept.write(whole if is_packed else gzip.decompress(whole))
            read.append(replace(read_trace(path), path=os.fspath(out or path)))

        trace_steps(loaded, made, take, steps=steps or STEPS, tell=print_note)
    return read[0]
