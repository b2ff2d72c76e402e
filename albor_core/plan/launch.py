"""From a config to a guarded process: plan it, make its run directory, hand it to a guard.

Runs in the command's process, so no torch here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import chdir
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from albor_core.andon.explain import andon_problems, andon_sentences
from albor_core.config.clock import Clock, Place, place_in
from albor_core.config.kept_config import config_of, read_resolved
from albor_core.config.load import Config, LoadedConfig, with_defaults
from albor_core.config.resume_changes import (
    change_refused,
    edited,
    never_allowed,
    origin,
    set_later,
)
from albor_core.guard.launch import CODE_ROOT, already_guarded, start_guard, write_launch
from albor_core.kernels.backend_override import unmet_demand
from albor_core.plan.facts import Scanned, collect_facts
from albor_core.plan.found_gpu import find_gpu
from albor_core.plan.plan import Plan
from albor_core.plan.plan import plan as make_plan
from albor_core.plan.start_weights import parent_run, start_weights, weights_notes, weights_problems
from albor_core.run import checkpoints
from albor_core.run.errors import ConfigError, InUseError, Problem
from albor_core.run.exit import read_exit
from albor_core.run.files.whole_file import write_json
from albor_core.run.guard_state import read_guard
from albor_core.run.journal import last_event
from albor_core.run.program.provenance import versions
from albor_core.run.program.recorded_code import recorded_code
from albor_core.run.rundir import RunDir, create_run, is_run_id, new_run_id, read_json
from albor_core.run.values.flatten import diff_configs
from albor_core.telemetry.peaks import peak_flops

# glibc gives every tensor above 32 MiB back to the kernel and faults it in again at each step:
# 0.56 s against 0.49 s a step of the demo's model (one core, 2.5 GHz Xeon, torch 2.13)
_ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(2 << 30)}

QUIET_GRADIENTS = 600.0  # docs/concepts/starts.md, "Quiet"


def plan_run(loaded: LoadedConfig, *, begins: bool = True, unit: int | None = None) -> Plan:
    """Collect the facts of this machine and plan; nothing is written. Without `begins` the run has
    weights of its own, and what model.path names may be gone; `unit`: the sequences of the steps
    that it counts in (config/clock.py).
    """
    config = loaded.config
    monitoring = config.resolved()["monitoring"]
    is_quiet = not config.model.initialization.residual and start_weights(config.model) is None
    facts = collect_facts(
        config,
        loaded.path,
        find_gpu=find_gpu,
        scan=_scan_without_manifest,
        peak_flops=peak_flops,
    )
    unmet = unmet_demand(os.environ, facts.device)
    return make_plan(
        config,
        facts,
        andon_notes=andon_sentences(
            monitoring,
            warmup_steps=config.training.warmup_steps,
            vocab_size=config.model.architecture.vocab_size,
            first_gradients=QUIET_GRADIENTS if begins and is_quiet else 0.0,
        ),
        extra_notes=(*weights_notes(config.model), *([unmet] if unmet else [])),
        extra_problems=(
            *andon_problems(monitoring, file=str(loaded.path)),
            *(
                weights_problems(config.model, seq_len=config.data.seq_len, file=str(loaded.path))
                if begins
                else ()
            ),
        ),
        unit=unit,
    )


def _scan_without_manifest(folder: Path, column: str) -> Scanned:
    # pyarrow costs 0.25 s and most data has a manifest
    from albor_core.data.pack.pretokenize import read_manifest  # noqa: PLC0415

    return read_manifest(folder, scan=True, column=column)


def new_run(loaded: LoadedConfig, made: Plan, *, name: str | None) -> RunDir:
    """A fresh run directory below training.output_dir, with config, code, data on record."""
    config: Config = loaded.config
    experiment = config.monitoring.tracking.experiment or loaded.path.stem
    title = name or loaded.path.stem
    if name is not None and is_run_id(name):
        run_id = name
        there = RunDir(Path(config.training.output_dir) / run_id)
        if there.path.exists():
            is_alive = there.liveness().is_alive
            way_on = "monitor" if is_alive else "train resume"
            raise InUseError(
                f"{there.path}: this run {'is active' if is_alive else 'directory exists'}",
                hint=f"albor {way_on} {run_id}, or another --name",
            )
    else:
        run_id = new_run_id(title)
    code = provenance(sys.argv)
    return create_run(
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
            "parent": parent_run(config.model),
            **origin(loaded),
            "tags": dict(config.monitoring.tracking.tags),
        },
    )


def provenance(argv: list[str]) -> dict[str, Any]:
    """`argv` and the repository here (commit, dirty, patch) for run.json, without secrets."""
    safe, _ = recorded_code(argv, None)
    return safe


def resize(run: RunDir, world_size: int) -> None:
    """Have the next life of `run` on so many ranks; its steps stay the same.

    Raises InUseError while it lives, ConfigError if they cannot share its global batch.
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
        near = sorted(config.fitting_ranks(), key=lambda n: abs(n - world_size))[:2]
        message = f"{problem.message}; {' or '.join(map(str, sorted(near)))} would do"
        raise ConfigError(
            f"{option}: {message}",
            hint=f"albor train resume {run.id} --world-size {near[0]}",
            problems=(Problem(field, message, "", option),),
        )
    set_later(run, field, str(world_size))
    write_json(run.config_resolved, resized.resolved())


def start(
    run: RunDir,
    *,
    allow_config_change: bool = False,
    forgets: bool = False,
    stop_after: int | None = None,
) -> None:
    """Hand `run` to a detached guard, which `forgets` the restarts of one that was killed. Its
    lives save and leave after step `stop_after`.

    Raises InUseError if it is guarded already, or trained by a life that `stop_after` would not
    reach, and ConfigError if its config.yaml was edited and may not have been, or is wrong, if its
    config.resolved.json is damaged, or if the weights that it begins from are gone.
    """
    alive = run.liveness()
    if alive.guard is not None:
        raise already_guarded(run, alive.guard)
    if alive.trainer is not None and stop_after is not None:
        raise InUseError(
            f"cannot stop {run.id} after step {stop_after}: already active without that limit",
            hint=f"albor train resume {run.id} to guard it again, then: albor guard stop {run.id}",
        )
    _take_edits(run, read_resolved(run), is_allowed=allow_config_change)
    config = config_of(run)
    if alive.trainer is None and _is_unbegun(run):
        _refuse_lost_weights(run, config)
    told = ["--allow-config-change"] if allow_config_change else []
    told += [] if stop_after is None else ["--stop-after", str(stop_after)]
    write_launch(
        run,
        # -P: a random.py in the user's folder is none of ours
        argv=[sys.executable, "-P", "-m", "albor_core.train", str(run.path), *told],
        cwd=_home_of_paths(run),
        env=_ALLOCATOR | ({} if _is_installed() else {"PYTHONPATH": _python_path()}),
        options=config.resolved()["guard"],
        max_steps=run.metadata().get("max_steps"),
        kind="train",
        index=config.monitoring.tracking.enabled,
    )
    start_guard(run, forgets=forgets)


def _take_edits(run: RunDir, resolved: dict[str, Any], *, is_allowed: bool) -> None:
    """Make what was edited in the run's config.yaml the config that it goes on with."""
    try:
        loaded = edited(run)
    except ConfigError as error:
        how = f" ({error.hint})" if error.hint else ""
        error.hint = f"fix {run.config_yaml}{how}, then `albor train resume {run.id}`"
        raise
    if loaded is None:
        return
    now = loaded.config.resolved()
    changes = diff_configs(with_defaults(resolved), now)
    file = str(run.config_yaml)
    newest = checkpoints.newest(run.checkpoints, is_readable=False)
    if changes and not is_allowed:
        hint = f"put it back, or: albor train resume {run.id} --allow-config-change"
        raise change_refused("edited since the run began", changes, file=file, hint=hint)
    if newest is not None and (unfit := never_allowed(changes)):
        what = "the run's checkpoints are of another config"
        hint = f"put it back; for a new run from its weights: --set model.path={newest[1]}"
        raise change_refused(what, unfit, file=file, hint=hint)
    place = _place_in(newest, loaded.config)
    with chdir(_home_of_paths(run)):  # which relative paths in it are relative to
        made = plan_run(loaded, begins=_is_unbegun(run), unit=place.unit or None)
    end, behind = made.max_steps, list[Problem]()
    if sequences := made.schedule.sequences:
        place = _place_in(newest, loaded.config, sequences)
        clock = Clock.of(loaded.config, sequences, place.unit)
        end, behind = clock.last_step(place), list(_behind(place, clock, loaded))
    problems = (*made.problems, *behind)
    if problems:
        raise ConfigError(
            f"{run.config_yaml}: {len(problems)} problem(s), nothing was started",
            hint=f"fix {run.config_yaml}, then: albor train resume {run.id}",
            problems=problems,
        )
    write_json(run.config_resolved, now, durable=True)
    about = {**run.metadata(), "max_steps": end, **origin(loaded)}
    write_json(run.run_json, about, durable=True)  # last: until then the file counts as edited


def _place_in(newest: tuple[int, Path] | None, config: Config, num_sequences: int = 1) -> Place:
    """Where the run is by its newest checkpoint; by the name of one that cannot be read, which the
    trainer will refuse in better words.
    """
    if newest is None:
        return Place()
    known = {"seq_len": config.data.seq_len, "num_sequences": num_sequences}
    try:
        return place_in(read_json(newest[1] / "trainer.json") or {}, **known)
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
        step = {"step": newest[0]}
        return place_in({"progress": step, "config": config.resolved()}, **known)


def _behind(place: Place, clock: Clock, loaded: LoadedConfig) -> Iterator[Problem]:
    """An end that the run has passed already, or a batch that the data does not fill."""
    file, training = str(loaded.path), loaded.config.training
    if place.unit and clock.batch > clock.num_sequences:
        message = (
            f"one step takes {clock.batch:,} sequences, the data holds {clock.num_sequences:,}"
        )
        hint = f"at most {clock.num_sequences:,} in all"
        yield Problem("data.batch_size", message, hint, file)
    if not clock.is_behind(place):
        return
    is_said = training.max_steps is not None
    field, what = ("max_steps", "max_steps") if is_said else ("epochs", "the last step")
    step = -(-place.sequences // clock.unit)
    message = f"the checkpoint is at step {step}, {what} {clock.planned} is below it"
    yield Problem(f"training.{field}", message, f"{step} or more", file)


def _refuse_lost_weights(run: RunDir, config: Config) -> None:
    """Raises ConfigError where a run without a checkpoint cannot begin from model.path."""
    if start_weights(config.model) is None:
        return
    with chdir(_home_of_paths(run)):
        problems = weights_problems(
            config.model,
            seq_len=config.data.seq_len,
            file=str(run.config_yaml),
            checks_hash=False,
        )
    if problems:
        first, resume = problems[0], f"albor train resume {run.id}"
        raise ConfigError(
            f"{run.id} has no checkpoint yet and cannot begin: {first.field}: {first.message}",
            hint=f"put the weights back, then: {resume}; for others edit {run.config_yaml} and add"
            " --allow-config-change",
            problems=problems,
        )


def _is_unbegun(run: RunDir) -> bool:
    """Whether it starts from model.path: there never was a whole checkpoint, not even a bad one or
    one that is gone.
    """
    if any(name.suffix != checkpoints.HALF for name, _ in checkpoints.entries(run.checkpoints)):
        return False
    return last_event(run.journal, "checkpoint.saved") is None


def _home_of_paths(run: RunDir) -> str:
    """Where the config's relative paths begin: where it was first applied, while that exists."""
    first = (read_json(run.launch) or {}).get("cwd")
    return first if isinstance(first, str) and Path(first).is_dir() else str(Path.cwd())


def _python_path() -> str:
    """Where an uninstalled checkout is found, before what the user's own PYTHONPATH holds."""
    inherited = os.environ.get("PYTHONPATH")
    return os.pathsep.join([str(CODE_ROOT), *([inherited] if inherited else [])])


def _is_installed() -> bool:
    try:
        version("albor")
    except PackageNotFoundError:
        return False
    return True


def exit_code(run: RunDir) -> int | None:
    """The code of a run that is over; None while it is not, 1 if it was lost.

    It is the guard's, or where the guard was killed before it, that of the program's last words.
    """
    if run.liveness().is_alive:
        return None
    guard, words = read_guard(run) or {}, read_exit(run) or {}
    code = guard.get("exit_code")
    is_cut_short = code is None and guard.get("child")  # it died while it watched a program
    if is_cut_short and words.get("attempt") == guard.get("attempt"):
        code = words.get("code")
    return code if isinstance(code, int) else 1
