"""The recipes that come with Albor, by the values of training.mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from albor_core.config.recipes import causal_lm, own
from albor_core.run.errors import Problem

Check = Callable[[Mapping[str, Any]], Iterator[Problem]]
CHECKS: Mapping[str, Check] = {"causal_lm": causal_lm.problems}
"""What is wrong in a config, by its recipe; one of the user's own has own.problems."""
REQUIRED: Mapping[str, tuple[str, ...]] = {"causal_lm": causal_lm.REQUIRED}
"""Fields that a recipe needs; a class of the user's own may do without them."""
PATTERN = f"^(?:{'|'.join(CHECKS)}|{own.CLASS})$"


def recipe_problems(mode: str, sections: Mapping[str, Any]) -> Iterator[Problem]:
    """What `mode` finds wrong in the sections of a config; some of them may be away."""
    return CHECKS.get(mode, own.problems)(sections)


def mode(value: object) -> object:
    """A training.mode as it is. Raises ValueError for a text that can be none."""
    if isinstance(value, str) and value not in CHECKS and own.own_class(value) is None:
        raise ValueError(f"must be {' or '.join(CHECKS)} or package.module:Class")
    return value
