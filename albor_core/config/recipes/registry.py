"""The recipes that come with Albor, by the values of training.mode: one file of this folder each.

A name is known by its file; what the file says is read when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from albor_core.config.recipes import own
from albor_core.config.recipes.entry import SOME_READ, RecipeEntry
from albor_core.run.errors import Problem

_OTHERS = ("__init__", "entry", "own", "registry")  # files that are no recipes
DEFAULT = "causal_lm"
NAMES = tuple(
    sorted(one.stem for one in Path(__file__).parent.glob("*.py") if one.stem not in _OTHERS)
)
"""Of the recipes."""
PATTERN = f"^(?:{'|'.join(NAMES)}|{own.CLASS})$"


@cache
def entry_of(mode: str) -> RecipeEntry | None:
    """None for a class of the user's own."""
    if mode not in NAMES:
        return None
    found: RecipeEntry = import_module(f"{__package__}.{mode}").ENTRY
    return found


def entries() -> dict[str, RecipeEntry]:
    """All of them, by name."""
    return {name: found for name in NAMES if (found := entry_of(name)) is not None}


def required(mode: str) -> tuple[str, ...]:
    """Fields that a recipe needs; a class of the user's own may do without them."""
    entry = entry_of(mode)
    return () if entry is None else entry.required


def recipe_problems(mode: str, sections: Mapping[str, Any]) -> Iterator[Problem]:
    """What `mode` finds wrong in the sections of a config; some of them may be away."""
    entry = entry_of(mode)
    yield from own.problems(sections) if entry is None else entry.problems(sections)
    yield from _unread(mode, sections)
    if entry is not None:
        yield from _settings_problems(entry, sections.get("recipe") or {})


def _unread(mode: str, sections: Mapping[str, Any]) -> Iterator[Problem]:
    """Fields that are set and that this recipe would not look at."""
    entry = entry_of(mode)
    for field in SOME_READ:
        if entry is not None and field in entry.reads:
            continue
        first, *path, name = field.split(".")
        section = sections.get(first)
        for part in path if section else ():
            section = getattr(section, part)
        if not section or getattr(section, name) == type(section).model_fields[name].default:
            continue
        readers = " and ".join(one.name for one in entries().values() if field in one.reads)
        value = getattr(section, name)
        what = f"is {value:g}, read by {readers} alone, and training.mode is {mode}"
        own_word = ": a class of your own says its loss by `head_loss`" if entry is None else ""
        yield Problem(field, what, f"leave it out{own_word}")


def _settings_problems(entry: RecipeEntry, said: Mapping[str, Any]) -> Iterator[Problem]:
    if entry.settings is None:
        if said:
            what = f"is the section of a class of your own, and training.mode is {entry.name}"
            hint = "leave it out, or set training.mode to package.module:Class"
            yield Problem("recipe", what, hint)
        return
    try:
        entry.settings.model_validate(dict(said))
    except ValidationError as error:
        for one in error.errors():
            field = ".".join(map(str, ("recipe", *one["loc"])))
            if one["type"] == "extra_forbidden":
                names = ", ".join(entry.settings.model_fields)
                yield Problem(field, f"is not a field of {entry.name}", f"it has {names}")
            else:
                yield Problem(field, one["msg"][:1].lower() + one["msg"][1:])


def settings_of(mode: str, said: Mapping[str, Any]) -> dict[str, Any]:
    """The section `recipe` with every default; as it is written, for a class of the user's own."""
    entry = entry_of(mode)
    if entry is None or entry.settings is None:
        return dict(said)
    return entry.settings.model_validate(dict(said)).model_dump(mode="json")


def mode(value: object) -> object:
    """A training.mode as it is. Raises ValueError for a text that can be none."""
    if isinstance(value, str) and value not in NAMES and own.own_class(value) is None:
        raise ValueError(f"must be {' or '.join(NAMES)} or package.module:Class")
    return value
