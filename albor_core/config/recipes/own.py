"""A recipe of one's own: `training.mode` names a class, and `recipe` is its free section.

Nothing is imported here: a config is checked where no torch is.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from albor_core.run.errors import Problem

NAME = r"[A-Za-z_][A-Za-z0-9_]*"
CLASS = rf"{NAME}(?:\.{NAME})*:{NAME}"
"""package.module:Class"""


class OwnClass(NamedTuple):
    """The module and name that a user's class is imported from."""

    module: str
    name: str

    @property
    def top(self) -> str:
        """The file or folder to look for."""
        return self.module.partition(".")[0]


def own_class(mode: str) -> OwnClass | None:
    """The class that a training.mode names; None where it is the name of a recipe of Albor."""
    return OwnClass(*mode.split(":")) if re.fullmatch(CLASS, mode) else None


def problems(sections: Mapping[str, Any]) -> Iterator[Problem]:
    """Problems in the sections of a config; some sections may be missing."""
    yield from _odd_numbers(sections.get("recipe") or {}, "recipe")


def _odd_numbers(value: Any, path: str) -> Iterator[Problem]:
    """No file of a run holds a number that JSON does not know."""
    if isinstance(value, Mapping):
        for name, one in value.items():
            yield from _odd_numbers(one, f"{path}.{name}")
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from _odd_numbers(one, f"{path}.{index}")
    elif isinstance(value, float) and not math.isfinite(value):
        yield Problem(path, f"must be a finite number, is {value}")
