"""The checkpoint of another run that a config goes on from: `training.continue_from`. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from albor_core.config.clock import Clock, Place, place_in
from albor_core.config.config import Config
from albor_core.config.load import with_defaults
from albor_core.config.resume_changes import changed_fields, never_allowed
from albor_core.config.sections.model import InitializationConfig
from albor_core.run.checkpoints import newest, step_of
from albor_core.run.errors import Problem
from albor_core.run.rundir import RunDir, is_run_id, read_json

FIELD = "training.continue_from"


def run_of_checkpoint(folder: Path) -> str | None:
    """The id of the run in which a checkpoint lies; None where it lies in none."""
    parent = folder.resolve().parent
    run = RunDir(parent.parent)
    known = (read_json(run.run_json) or {}).get("id")  # the folder may be a copy of another name
    is_one = parent == run.checkpoints and isinstance(known, str) and is_run_id(known)
    return known if is_one else None


def unfit(saved: Mapping[str, Any], config: Config) -> str:
    """Why a checkpoint made with the config `saved` cannot be gone on from; "" if it can."""
    changes = never_allowed(changed_fields(with_defaults(saved), config.resolved()))
    listed = [f"{path} was {old}, is {new}" for path, old, new in changes if path != "model.path"]
    return "; ".join(listed)


def unused_start(begin: InitializationConfig, folder: Path | None) -> Iterator[str]:
    """A problem if random weights are configured without effect, since `folder` has weights."""
    if folder is not None and begin != InitializationConfig():
        yield f"model.initialization is not used: weights come from {folder}"


def continued(
    config: Config, num_sequences: int | None, file: str
) -> tuple[Place | None, tuple[Problem, ...]]:
    """The place where a config that continues from a checkpoint begins, and its problems; hashes
    are checked by the trainer.
    """
    folder = config.training.continue_from
    if folder is None:
        return None, ()
    trainer = read_json(folder / "trainer.json")
    if trainer is None or step_of(folder.resolve().name) is None:
        inside = newest(folder / "checkpoints")
        hint = f"its newest: {inside[1]}" if inside else "albor checkpoints ls RUN"
        return None, (Problem(FIELD, f"{folder} is not a checkpoint", hint, file),)
    try:
        place = place_in(trainer, seq_len=config.data.seq_len, num_sequences=num_sequences or 2**62)
        if wrong := unfit(trainer["config"], config):
            hint = "put it back as it was there"
            return None, (Problem(FIELD, f"{folder}: {wrong}", hint, file),)
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
        hint = "continue with the version that made it"
        return None, (Problem(FIELD, f"{folder}/trainer.json is not understood", hint, file),)
    problems: tuple[Problem, ...] = ()
    if num_sequences and not Clock.of(config, num_sequences, place.unit).steps_left(place):
        at = place.sequences // place.unit
        message = f"the checkpoint is at step {at:,}, and nothing is left from there"
        hint = f"max_steps counts from its beginning: {at:,} and those of this run"
        problems = (Problem("training.max_steps", message, hint, file),)
    return place, problems
