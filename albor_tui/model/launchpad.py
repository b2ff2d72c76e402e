"""From a config file to a started run: which configs there are, what their fields mean, whether
the values fit, what the run would cost. Blocks; called from worker threads only.

The config models (pydantic, 0.1 s to import) load with the first question.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from albor_core.run.errors import ConfigError, Problem
from albor_core.run.light_dataclass import dataclass
from albor_core.run.values.flatten import bare_leaves
from albor_tui.model.command import albor
from albor_tui.model.recent import recent_configs, remember

if TYPE_CHECKING:
    from albor_core.config.reference import FieldDoc

_PLACES = ("configs", ".")  # below the working directory
_MOST = 200
_PLAN_S = 60.0
_SHAPE = "model.architecture."
_SECTION, _HEAD = re.compile(r"""^[{"' ]*(model|training)\b""", re.MULTILINE), 1 << 16


@dataclass(frozen=True)
class ConfigFile:
    """A config that could be launched, with its first comment."""

    path: Path
    about: str = ""
    launched: float | None = None  # wall time of its last launch from here


@dataclass(frozen=True)
class Checked:
    """The values of a config by dotted key, as they would be typed, and what is wrong with them."""

    values: Mapping[str, str]
    problems: tuple[Problem, ...] = ()


class LiveLaunchpad:
    """Plans and starts runs in the working directory. Every method may raise AlborError; tests hand
    in a double.
    """

    def configs(self) -> tuple[ConfigFile, ...]:
        """Configs to launch: those launched recently, then those of ./configs and of the working
        directory, then those that come with Albor."""
        from albor_core.config.text.config_file import packaged_configs

        found: dict[Path, ConfigFile] = {}
        for path, wall in recent_configs().items():
            if path.is_file():
                found[path.resolve()] = ConfigFile(_near(path), _about(path), wall)
        here = [
            sorted(folder.glob("*.yaml" if folder == Path() else "**/*.yaml"))
            for folder in map(Path, _PLACES)
        ]
        there = (path for path in chain(*here) if path.is_file() and _is_of_training(path))
        for path in chain(there, packaged_configs().values()):
            if len(found) < _MOST and path.is_file():
                found.setdefault(path.resolve(), ConfigFile(path, _about(path)))
        return tuple(found.values())

    def fields(self, values: Mapping[str, str]) -> tuple[FieldDoc, ...]:
        """Fields that apply to a config of these values, with the settings of its recipe: a user's
        class has no decoder shape, and may not read `data.train`.
        """
        from albor_core.config.recipes.own import own_class
        from albor_core.config.recipes.registry import DEFAULT
        from albor_core.config.reference import field_docs

        mode = values.get("training.mode", DEFAULT)
        if own_class(mode) is None:
            return tuple(field_docs(mode))
        shaped = any(key.startswith(_SHAPE) for key in values)
        return tuple(
            replace(one, default="none") if one.key == "data.train" else one
            for one in field_docs(mode)
            if shaped or not one.key.startswith(_SHAPE)
        )

    def check(self, path: Path, overrides: Sequence[str]) -> Checked:
        """Values with every default, or what is in the file where it is wrong. Raises NotFoundError
        where it cannot be read."""
        from albor_core.config.load import load_config

        try:
            return Checked(bare_leaves(load_config(path, overrides).config.resolved(), whole=True))
        except ConfigError as error:
            return Checked(
                _written(path, overrides), error.problems or (Problem("", error.message),)
            )

    def plan(
        self, path: Path, overrides: Sequence[str], cancelled: threading.Event
    ) -> dict[str, Any]:
        """The albor.train.plan document; a plan with problems is one, too."""
        return albor(
            "train",
            "plan",
            *_sets(overrides),
            operands=(str(path),),
            timeout_s=_PLAN_S,
            cancelled=cancelled,
            accept=(0, 1),
        )

    def start(self, path: Path, overrides: Sequence[str], name: str) -> tuple[str, str]:
        """Start detached; the run's id and folder."""
        named = ("--name", name) if name else ()
        document = albor(
            "train", "apply", "--detach", *named, *_sets(overrides), operands=(str(path),)
        )
        remember(path)
        return str(document["run"]["id"]), str(document["run"]["path"])


def _is_of_training(path: Path) -> bool:
    """Whether a YAML file has a section of a training config: recipes of data sets do not."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return bool(_SECTION.search(file.read(_HEAD)))
    except OSError:
        return True  # what is wrong with it is said where it is chosen


def _near(path: Path) -> Path:
    """A path relative to the working directory, if it is below it."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def _sets(overrides: Sequence[str]) -> list[str]:
    return [part for text in overrides for part in ("--set", text)]


def _about(path: Path) -> str:
    """The first comment of a file."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            first = file.readline(400)
    except OSError:
        return ""
    return first.lstrip("#").strip() if first.startswith("#") else ""


def _written(path: Path, overrides: Sequence[str]) -> Mapping[str, str]:
    """The values in a file that is not a valid config, if it is YAML at all."""
    from albor_core.config.text.strict_yaml import load_yaml

    try:
        data = load_yaml(path.read_bytes(), file=str(path)).data
    except (ConfigError, OSError):
        data = {}
    values = bare_leaves(data, whole=True) if isinstance(data, Mapping) else {}
    for text in overrides:
        key, _, value = text.partition("=")
        values[key] = value
    return values
