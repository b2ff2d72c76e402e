"""Maps a value of training.mode to the object that trains."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from albor_core.config.config import Config
from albor_core.config.recipes.registry import entry_of
from albor_core.recipes.own import load_recipe
from albor_core.recipes.recipe import Recipe


def recipe_of(config: Config, folder: Path | None = None) -> Recipe:
    """The recipe of a config; `folder`: where a user's class is searched, besides PYTHONPATH.
    Raises ConfigError if none fits.
    """
    entry = entry_of(config.training.mode)
    if entry is None:
        return load_recipe(config, folder)
    module, _, name = entry.recipe.partition(":")
    made: type[Recipe] = getattr(import_module(module), name)
    return made(config)
