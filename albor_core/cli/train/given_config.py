"""The config that a command names, with its overrides, and the command to go on with where it is
refused.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from albor_core.cli.train.text_data import packed_overrides
from albor_core.run.errors import ConfigError
from albor_core.run.program.launched_rank import LaunchedRank

if TYPE_CHECKING:
    from albor_core.config.load import LoadedConfig


def load(
    config: Path, overrides: tuple[str, ...], seed: int | None, launched: LaunchedRank | None = None
) -> LoadedConfig:
    from albor_core.andon.explain import andon_problems
    from albor_core.cli.train.launched import WORLD_SIZE, refuse_unfit
    from albor_core.config.load import load_config

    extra = () if seed is None else (f"training.seed={seed}",)
    try:
        loaded = load_config(config, (*overrides, *extra), andon_problems)
        if launched is None:
            return loaded
        refuse_unfit(launched, loaded.config, str(config))
        return load_config(config, (*loaded.overrides, f"{WORLD_SIZE}={launched.world_size}"))
    except ConfigError as error:
        if error.problems or not error.hint:
            error.hint = _way_out(error, config, overrides, seed)
        raise


def _way_out(error: ConfigError, config: Path, overrides: tuple[str, ...], seed: int | None) -> str:
    """The fix, and the command to go on with, without the overrides that were refused."""
    from albor_core.config.text.overrides import shown_override

    places = {problem.file for problem in error.problems}
    places |= {place.rpartition(":")[0] for place in places}  # less the line in a value
    right = tuple(text for text in overrides if f"--set {shown_override(text)}" not in places)
    command = command_again("validate", config, right, seed)
    is_file_right = all(problem.file.startswith("--set ") for problem in error.problems)
    if error.hint:
        return f"{error.hint}{' ' if error.hint.endswith('?') else '; '}then: {command}"
    return command if is_file_right else f"fix {config}, then: {command}"


def command_again(verb: str, config: Path, overrides: tuple[str, ...], seed: int | None) -> str:
    """The command line with the same config and overrides, for another verb."""
    chosen = [word for one in overrides for word in ("--set", one)]
    chosen += [] if seed is None else ["--seed", str(seed)]
    return shlex.join(["albor", "train", verb, str(config), *chosen])


def load_for_plan(config: Path, overrides: tuple[str, ...], seed: int | None) -> LoadedConfig:
    try:
        return load(config, overrides, seed)
    except ConfigError as error:
        error.exit_code = 1  # of plan and validate: problems were found
        raise


def with_packed_text(loaded: LoadedConfig, config: Path) -> LoadedConfig:
    """The same config, naming shards where it named text."""
    from albor_core.config.load import load_config

    more = packed_overrides(loaded.config, str(loaded.path), packs=True)
    return load_config(config, (*loaded.overrides, *more)) if more else loaded
