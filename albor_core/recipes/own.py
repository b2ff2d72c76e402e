"""Loads a user's class as a recipe: finds and imports it, and checks it against the interface.

A class that does not fit is refused by name before training. Errors raised inside the user's code
pass through: the user needs their tracebacks.
"""

from __future__ import annotations

import difflib
import hashlib
import sys
import traceback
from collections.abc import Mapping
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from albor_core.checkpoint.tensorfile import DTYPES
from albor_core.config.config import Config
from albor_core.config.recipes.own import OwnClass, own_class
from albor_core.recipes.batch import Batch
from albor_core.recipes.recipe import Forward, Recipe, Source
from albor_core.run.errors import ConfigError

FIELD = "training.mode"
AGAIN = "albor train resume RUN"


def refuse(what: str, hint: str = "") -> NoReturn:
    where = "docs/how-to/train-your-own-model.md has one that fits"
    raise ConfigError(f"{FIELD}: {what}", hint=f"{hint or where}; then: {AGAIN}")


def load_recipe(config: Config, folder: Path | None) -> Recipe:
    """The recipe that training.mode names; `folder` is the config's. Raises ConfigError."""
    mode = config.training.mode
    own = own_class(mode)
    assert own is not None
    module = _module(own, folder)
    found = getattr(module, own.name, None)
    if found is None:
        known = [name for name, one in vars(module).items() if isinstance(one, type)]
        near = difflib.get_close_matches(own.name, known, 1)
        meant = f"did you mean {own.module}:{near[0]}?" if near else f"write it in {_file(module)}"
        refuse(f"{_file(module)} has no class {own.name!r}", meant)
    if not (isinstance(found, type) and issubclass(found, Recipe)):
        refuse(f"{mode} is not a class of albor_core.recipes.recipe.Recipe")
    if missing := sorted(found.__abstractmethods__):
        refuse(f"{mode} has no {', no '.join(missing)}")
    made = found(config)
    vars(made).update(compiles=False)  # minutes, for code that may not compile
    return made


def source_of(recipe: Recipe) -> dict[str, str]:
    """The class, its source file and the SHA-256 of that file; empty for a recipe of Albor."""
    mode = recipe.config.training.mode
    if own_class(mode) is None:
        return {}
    file = _file(sys.modules[type(recipe).__module__])
    try:
        digest = hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except OSError:
        digest = ""
    return {"class": mode, "file": file, "sha256": digest}


# -- import ------------------------------------------------------------------------------------


def _module(own: OwnClass, folder: Path | None) -> ModuleType:
    spec = None if folder is None else PathFinder.find_spec(own.top, [str(folder)])
    if folder is not None and str(folder) not in sys.path:
        sys.path.append(str(folder))  # last: a random.py beside a config is none of Python's
    try:
        if spec is not None and spec.loader is not None:
            _take(own.top, spec)
        return import_module(own.module)
    except ModuleNotFoundError as error:
        if error.name and f"{own.module}.".startswith(f"{error.name}."):
            where = f"in {folder} nor on PYTHONPATH" if folder else "on PYTHONPATH"
            refuse(f"no module {error.name!r} {where}", "write it there")
        _broken(own, error)
    except ConfigError:
        raise
    except Exception as error:  # whatever the code of a user's file raises while it is read
        _broken(own, error)


def _take(top: str, spec: ModuleSpec) -> None:
    """Import `top` from the config's folder, even if another module on the path has that name."""
    there = sys.modules.get(top)
    if there is not None and top not in sys.stdlib_module_names:
        if there.__spec__ is not None and there.__spec__.origin == spec.origin:
            return
        refuse(f"{spec.origin}: the name {top!r} is taken by {_file(there)}", "rename the file")
    if top in sys.stdlib_module_names:
        refuse(f"{spec.origin}: {top!r} is the name of a module of Python", "rename the file")
    module = module_from_spec(spec)
    sys.modules[top] = module
    assert spec.loader is not None
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[top]
        raise


def _broken(own: OwnClass, error: Exception) -> NoReturn:
    """Raise ConfigError for a file that is not valid Python, or raises while it is imported."""
    if isinstance(error, SyntaxError) and error.filename:
        where = f"{error.filename}:{error.lineno}: "
    else:
        frames = traceback.extract_tb(error.__traceback__)
        theirs = (__file__, "importlib", "site-packages")
        mine = [f for f in frames if not any(part in f.filename for part in theirs)]
        where = f"{mine[-1].filename}:{mine[-1].lineno}: " if mine else ""
    what = f"cannot import {own.module!r}: {where}{type(error).__name__}: {error}"
    raise ConfigError(f"{FIELD}: {what}"[:1500], hint=f"fix it, then: {AGAIN}") from error


def _file(module: ModuleType) -> str:
    return getattr(module, "__file__", None) or module.__name__


# -- interface ---------------------------------------------------------------------------------


def sources_of(recipe: Recipe) -> tuple[Source, Source | None]:
    """`recipe.sources()`, checked if they are of a user's class. Raises ConfigError."""
    if own_class(recipe.config.training.mode) is None:
        return recipe.sources()
    found: Any = recipe.sources()
    name = f"{recipe.config.training.mode}.sources()"
    if not isinstance(found, tuple) or len(found) != 2:
        refuse(f"{name} is not a pair: a source to train on, and one to validate on or None")
    for source, split in zip(found, ("train", "val"), strict=True):
        if source is None and split == "val":
            continue
        _check_source(source, f"the {split} source of {recipe.config.training.mode}")
    train, val = found
    return train, val


def _check_source(source: Any, name: str) -> None:
    missing = [
        one for one in ("data_hash", "__len__", "count", "batch") if not hasattr(source, one)
    ]
    if missing:
        refuse(f"{name} ({type(source).__name__}) has no {', no '.join(missing)}")
    if not isinstance(source.data_hash, str) or not source.data_hash:
        refuse(f"{name}: data_hash is {source.data_hash!r}, not a text")
    if len(source) < 1:
        refuse(f"{name} has no rows")
    rows = np.arange(min(2, len(source)), dtype=np.int64)
    number = source.count(rows)
    if not isinstance(number, int | np.integer) or number < 0:
        refuse(f"{name}: count(rows) is {number!r}, not a whole number")
    batch = source.batch(rows)
    if not isinstance(batch, Mapping) or "ids" not in batch:
        refuse(f"{name}: batch(rows) is not a mapping with `ids`")
    for key, values in batch.items():
        if not isinstance(values, np.ndarray) or values.shape[:1] != rows.shape:
            refuse(f"{name}: {key} of batch(rows) is not an array of {len(rows)} rows")


def check_model(recipe: Recipe, model: Any) -> None:
    """Check that a checkpoint can hold the model. Raises ConfigError."""
    name = f"{recipe.config.training.mode}.model()"
    if not isinstance(model, nn.Module):
        refuse(f"{name} is not a torch.nn.Module")
    for key, value in model.state_dict().items():
        if not recipe.trains(key):
            continue
        if not isinstance(value, Tensor) or value.dtype not in DTYPES:
            kind = value.dtype if isinstance(value, Tensor) else type(value).__name__
            refuse(f"{name}: a checkpoint cannot hold {key} of its state dict: {kind}")


@torch.no_grad()
def check_objective(recipe: Recipe, model: nn.Module, forward: Forward, batch: Batch) -> None:
    """Check that loss and figures have the form that the loop adds up. Leaves model and random
    state unchanged. Raises ConfigError.
    """
    name, was_training = recipe.config.training.mode, model.training
    model.eval()
    try:
        with torch.random.fork_rng():
            found: Any = recipe.loss(forward, batch)
            figures: Any = recipe.evaluate(forward, batch, len(batch), 1)
    finally:
        model.train(was_training)
    if not isinstance(found, tuple) or len(found) != 2 or not isinstance(found[1], Mapping):
        refuse(f"{name}.loss() is not a pair: a sum, and a mapping of other sums")
    if not _is_number(found[0]):
        refuse(f"{name}.loss() is not a sum: a tensor of one floating-point number")
    if {*found[1]} != {*recipe.columns}:
        refuse(f"{name}.loss() gives {[*found[1]]}, and columns says {[*recipe.columns]}")
    if not isinstance(figures, Mapping) or "val/loss" not in figures:
        refuse(f"{name}.evaluate() has no val/loss")
    for key, value in figures.items():
        if not isinstance(value, tuple) or len(value) != 2 or not _is_number(value[0]):
            refuse(f"{name}.evaluate(): {key} is not a pair of a sum and its weight")


def _is_number(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim == 0 and value.dtype.is_floating_point
