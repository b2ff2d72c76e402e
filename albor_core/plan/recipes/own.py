"""A recipe of the user's own: where its class would come from, and what is said of it.

It is not imported: of the user's code a plan runs a file of numbers alone, where there is one
(`my_model_entry.py` beside `my_model.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

from albor_core.config.config import Config
from albor_core.config.recipes.entry import Numbers
from albor_core.config.recipes.own import OwnClass, own_class
from albor_core.config.recipes.registry import chosen
from albor_core.run.errors import Problem
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.values.quantity import counted

FIELD = "training.mode"
DECODERS_ALONE = (
    "data.input_column",
    "model.initialization",
    "training.activation_checkpointing",
    "training.parity",
    "training.residual_in_fp32",
    "training.sample_prompts",
)
"""Fields that a class of the user's own reads by `CausalLM`, which it may extend or not."""


def numbers_of(config: Config, folder: Path) -> tuple[Numbers | None, tuple[Problem, ...]]:
    """The numbers that NUMBERS of the entry file gives for the class, and its problems; `folder` is
    the config's.
    """
    own = own_class(config.training.mode)
    *packages, name = ("",) if own is None else own.module.split(".")
    places = [str(Path(place, *packages)) for place in (str(folder), *sys.path) if place]
    spec = PathFinder.find_spec(f"{name}_entry", places)
    if own is None or spec is None or spec.loader is None:
        return None, ()
    file, module = str(spec.origin), module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        found = module.NUMBERS[own.name](config) if own.name in module.NUMBERS else None
    except Exception as error:  # whatever a file of the user's raises
        what = f"cannot read what {own.name} takes: {type(error).__name__}: {error}"
        return None, (Problem(FIELD, what[:500], f"fix NUMBERS in {file}", file),)
    if found is None or isinstance(found, Numbers):
        return found, ()
    what = f"NUMBERS[{own.name!r}] gives a {type(found).__name__}, not Numbers"
    return None, (Problem(FIELD, what, "albor_core.config.recipes.entry has it", file),)


def is_there(own: OwnClass, folder: Path) -> bool:
    """Whether a module of that name would be found; `folder` is the config's."""
    places = [str(folder), *(path for path in sys.path if path)]
    return PathFinder.find_spec(own.top, places) is not None


def source_file(own: OwnClass, folder: Path) -> Path | None:
    """The file that the class is written in, if it lies below `folder`."""
    module = folder / own.module.replace(".", "/")
    found = (module.with_name(f"{module.name}.py"), module / "__init__.py")
    return next((path for path in found if path.is_file()), None)


def folder_of(run: RunDir) -> Path | None:
    """The folder of the config that a run of an own class began with; None for other runs."""
    recorded = (read_json(run.run_json) or {}).get("recipe_folder")
    return Path(recorded) if isinstance(recorded, str) else None


def problems(config: Config, folder: Path) -> Iterator[Problem]:
    """Problems of the class that can be found without importing it."""
    own = own_class(config.training.mode)
    if own is not None and not is_there(own, folder):
        what = f"no module {own.top!r} in {folder.absolute()} nor on PYTHONPATH"
        yield Problem(FIELD, what, f"write it there: {folder / own.top}.py")


def notes(config: Config, numbers: Numbers | None) -> Iterator[str]:
    """Notes on what is unknown before the run, and on the rules by which it ends."""
    own, training = config.training.mode, config.training
    alone = "it is imported in the training process alone"
    entry = f"{own.partition(':')[0].replace('.', '/')}_entry.py"
    if numbers is None:
        yield f"memory and time of {own} are not known: {alone}, and no {entry} says them"
    elif numbers.shape is None:
        yield f"memory of {own} is not known: {alone}"
    rows, per_step = counted(training.epochs, "epoch"), config.sequences_per_step
    if training.max_steps is None:
        yield f"the run takes {rows} of the rows of its source, {per_step:,} a step"
    else:
        needed = -(-training.max_steps * per_step // training.epochs)
        yield (
            f"{training.max_steps:,} steps of {per_step:,} rows need a source of about "
            f"{needed:,} rows for {rows}: with fewer the run is refused before its first step"
        )
    for field, _ in chosen(DECODERS_ALONE, dict(config)):
        yield f"{field} has no effect unless the class extends CausalLM"
