"""`albor profile`: where the time of a step goes, by a profiler trace."""

from __future__ import annotations

import gzip
import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, chdir, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from albor_core.cli.plans.file_plan import Estimate, Parameters, plans, run_source
from albor_core.run.errors import AlborError, ConfigError, InUseError, NotFoundError, UsageError
from albor_core.run.rundir import RunDir
from albor_core.run.values.quantity import counted

if TYPE_CHECKING:
    from albor_core.config.load import LoadedConfig
    from albor_core.plan.plan import Plan
    from albor_core.profile.trace import StepTrace
    from albor_core.profile.workload import Workload

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
              help="Trace N steps, after some steps of warm-up.")  # fmt: skip
@click.option("-o", "--out", type=click.Path(path_type=Path, dir_okay=False), metavar="TRACE",
              help="Write the new trace to this file, gzipped if it ends in .gz.")  # fmt: skip
@click.option("--trace", "name", metavar="NAME",
              help="Read this trace of the run.  [default: the newest]")  # fmt: skip
@click.option("--fresh", is_flag=True,
              help="Record a new trace even if the run has some.")  # fmt: skip
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE",
              help="Override one field of CONFIG.")  # fmt: skip
@click.option("--kernels", "rows", type=Count(1, 100_000), default=15, show_default=True,
              metavar="N", help="Show at most N kernels.")  # fmt: skip
@json_option
@plans(
    lambda asked: _sources(asked),
    lambda asked: [*filter(None, [asked["out"]])],
    lambda *of: _planned(*of),
)
def profile(rows: int, as_json: bool, **asked: Any) -> None:
    """Show where the time of a step goes: phases, kernels, idle time by cause, synchronizations,
    copies, and the model's matrix products against what the device can do.

    Of RUN the newest trace in RUN_DIR/traces is read. If it has none, and for CONFIG, a few steps
    are trained and traced in a temporary folder, which is removed afterwards. TRACE is a Chrome
    trace of torch.profiler, of any program.
    """
    from albor_core.cli.machine.profile_text import render
    from albor_core.profile.report import report_of

    found = _read(asked)
    report = report_of(found.trace, found.workload)
    document: Any = {
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


def _read(asked: Parameters) -> _Read:
    from albor_core.profile.trace import read_trace

    how, path, run = _chosen(asked)
    if how == TAKEN:
        out = asked["out"]
        place = None if out is None else out.absolute()
        with _to_train(asked, path, run) as (loaded, made):
            trace = _taken(loaded, made, asked["steps"], place)
        return _Read(TAKEN, trace, out, None if run is None else run.id)
    assert path is not None
    of_run = None if run is None else _workload_of(run)
    return _Read(how, read_trace(path), path, None if run is None else run.id, of_run)


def _chosen(asked: Parameters) -> tuple[str, Path | None, RunDir | None]:
    """How there will be a trace; the file of it, or of the config; the run."""
    what, fresh, name = asked["what"], asked["fresh"], asked["name"]
    path = Path(what)
    takes = {"--steps": asked["steps"] is not None, "-o": asked["out"] is not None}
    of_run = {"--trace": name is not None, "--fresh": fresh}
    sets = {"--set": bool(asked["overrides"])}
    if _is_trace(path):
        _refuse(takes | of_run | sets, "a trace that is there is read")
        return GIVEN, path, None
    if _is_config(path):
        _refuse(of_run, "it belongs to a run")
        return TAKEN, path, None
    _refuse(sets, "a run is profiled as it was trained")
    run = _run_of(what)
    if fresh and name is not None:
        raise UsageError("--fresh takes a trace, --trace reads one", hint="give one of them")
    if not fresh and (kept := _kept(run, name)) is not None:
        _refuse(takes, f"{run.id} kept traces, which are read; add --fresh")
        return KEPT, kept, run
    return TAKEN, None, run


def _is_trace(path: Path) -> bool:
    return path.name.endswith(_SUFFIXES) and not path.is_dir()


def _is_config(path: Path) -> bool:
    """A file, or the name of one that comes with Albor."""
    from albor_core.config.text.config_file import packaged_config

    return path.is_file() or packaged_config(str(path)) is not None


def _sources(asked: Parameters) -> list[Path | str]:
    """The trace; the config and what it names; or the run, and what its config names where a trace
    of it is taken.
    """
    from albor_core.cli.plans.training import config_source, inputs_of, inputs_of_run
    from albor_core.profile.report import traces_of

    path = Path(asked["what"])
    if _is_trace(path) or path.suffix in (".yaml", ".yml"):
        source: Path | str = config_source(path)
    else:
        source = config_source(path) if _is_config(path) else run_source(asked["what"])
    if _is_trace(path) or isinstance(source, str):
        return [source]
    try:
        if _is_config(path):
            return [source, *inputs_of(_loaded(path, asked["overrides"]).config)]
        run = RunDir(source)
        is_taken = asked["fresh"] or not traces_of(run.traces)
        return [source, *(inputs_of_run(run) if is_taken else ())]
    except AlborError:
        return [source]


def _planned(verb: Callable[..., Any], asked: Parameters) -> Estimate:
    """How long a trace becomes is known once it is taken."""
    how, path, run = _chosen(asked)
    if how != TAKEN:
        return Estimate(0)
    with _to_train(asked, path, run) as (_, made):
        return Estimate(0 if asked["out"] is None else None, detail=made.to_json())


def _refuse(given: dict[str, bool], why: str) -> None:
    for option, is_given in given.items():
        if is_given:
            raise UsageError(f"{option} means nothing here: {why}", hint="albor profile --help")


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
    """The workload of a run's config; None if that is not of `albor train`, or damaged."""
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


@contextmanager
def _to_train(
    asked: Parameters, path: Path | None, run: RunDir | None
) -> Iterator[tuple[LoadedConfig, Plan]]:
    """The config of which a few steps are trained within, checked and planned; of a run where its
    relative paths begin.
    """
    from albor_core.cli.common.environment import check_environment
    from albor_core.config.kept_config import config_of
    from albor_core.config.load import LoadedConfig
    from albor_core.launch.planned import plan_run
    from albor_core.launch.run_folder import home_of_paths

    place: AbstractContextManager[None] = nullcontext()
    if run is None:
        assert path is not None
        loaded = _loaded(path, asked["overrides"])
    else:
        if run.liveness().is_alive:
            raise InUseError(
                f"{run.id} is active, and has kept no trace to read",
                hint=f"albor guard stop {run.id}, then: albor profile {run.id} --fresh",
            )
        kept = run.config_resolved
        loaded = LoadedConfig(kept.read_bytes(), config_of(run), kept.absolute())
        place = chdir(home_of_paths(run))
    check_environment()
    if asked["out"] is not None:
        _check_place(asked["out"])
    with place:
        made = plan_run(loaded)
        _refuse_unsound(loaded, made)
        yield loaded, made


def _check_place(out: Path) -> None:
    if not out.name.endswith(_SUFFIXES):
        ends = " or ".join(_SUFFIXES)
        raise UsageError(f"{str(out)!r}: a trace is read by its name", hint=f"-o FILE with {ends}")
    if os.path.lexists(out):
        raise UsageError(f"{out}: exists", hint="another file after -o")


def _refuse_unsound(loaded: LoadedConfig, made: Plan) -> None:
    problems = tuple(one for one in made.problems if one.field != "training.output_dir")  # unused
    if problems:
        chosen = [word for one in loaded.overrides for word in ("--set", one)]
        again = shlex.join(["albor", "train", "plan", str(loaded.path), *chosen])
        raise ConfigError(
            f"{loaded.path}: cannot be trained: {counted(len(problems), 'problem')}",
            hint=again,
            problems=problems,
        )


def _taken(loaded: LoadedConfig, made: Plan, steps: int | None, out: Path | None) -> StepTrace:
    """A trace of the config, trained here; kept at `out` if that is given."""
    from albor_core.launch.traced_steps import trace_steps
    from albor_core.profile.trace import read_trace

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
