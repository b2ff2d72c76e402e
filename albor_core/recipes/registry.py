"""The recipes, by the values of training.mode."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from albor_core.config.load import Config
from albor_core.recipes.causal_lm import CausalLM
from albor_core.recipes.own import load_recipe
from albor_core.recipes.recipe import Recipe

RECIPES: Mapping[str, type[Recipe]] = {"causal_lm": CausalLM}


def recipe_of(config: Config, folder: Path | None = None) -> Recipe:
    """What a config trains; `folder`: where a class of the user's own is looked for, besides
    PYTHONPATH. Raises ConfigError where there is none that fits.
    """
    made = RECIPES.get(config.training.mode)
    return load_recipe(config, folder) if made is None else made(config)
