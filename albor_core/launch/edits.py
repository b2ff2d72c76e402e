"""Edits of the config.yaml of a resumed run: checked, planned and made its config."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

from albor_core.config.clock import Clock, Place, place_in
from albor_core.config.config import Config
from albor_core.config.load import LoadedConfig, with_defaults
from albor_core.config.resume_changes import change_refused, edited, never_allowed, origin
from albor_core.config.secret_urls import without_secrets
from albor_core.launch.planned import plan_run
from albor_core.launch.run_folder import home_of_paths, keep_places
from albor_core.run import checkpoints
from albor_core.run.errors import ConfigError, Problem
from albor_core.run.files.whole_file import write_bytes, write_json
from albor_core.run.journal import last_event
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.values.flatten import diff_configs
from albor_core.run.values.quantity import counted


def apply_edits(run: RunDir, resolved: dict[str, Any], *, is_allowed: bool) -> None:
    """Make the edited config.yaml of a run the config that it continues with."""
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
    with chdir(home_of_paths(run)):  # which relative paths in it are relative to
        made = plan_run(loaded, begins=is_unbegun(run), unit=place.unit or None, run=run)
    end, behind = made.max_steps, list[Problem]()
    if sequences := made.schedule.sequences:
        place = _place_in(newest, loaded.config, sequences)
        clock = Clock.of(loaded.config, sequences, place.unit)
        end, behind = clock.last_step(place), list(_behind(place, clock, loaded))
    problems = (*made.problems, *behind)
    if problems:
        raise ConfigError(
            f"{run.config_yaml}: {counted(len(problems), 'problem')}, nothing was started",
            hint=f"fix {run.config_yaml}, then: albor train resume {run.id}",
            problems=problems,
        )
    keep_places(run, loaded.config)
    if (shown := without_secrets(loaded)).raw != loaded.raw:
        write_bytes(run.config_yaml, shown.raw, durable=True)
    write_json(run.config_resolved, now, durable=True)
    about = {**run.metadata(), "max_steps": end, **origin(shown)}
    write_json(run.run_json, about, durable=True)  # last: until then the file counts as edited


def _place_in(newest: tuple[int, Path] | None, config: Config, num_sequences: int = 1) -> Place:
    """The position of the run in its newest checkpoint; if that is unreadable, the step in its
    name: the trainer reports the damage.
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
    """Problems of an edit: an end that the run has already passed, or a batch that the data does
    not fill."""
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


def is_unbegun(run: RunDir) -> bool:
    """Whether the run starts from model.path: it never had a complete checkpoint, not even a
    damaged or removed one.
    """
    if any(name.suffix != checkpoints.HALF for name, _ in checkpoints.entries(run.checkpoints)):
        return False
    return last_event(run.journal, "checkpoint.saved") is None
