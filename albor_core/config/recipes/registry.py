"""The recipes that come with Albor, by the values of training.mode: one file of this folder each.

A name is known by its file; what the file says is read when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from albor_core.config.recipes import own
from albor_core.config.recipes.entry import SOME_READ, RecipeEntry
from albor_core.run.errors import Problem
from albor_core.run.values.flatten import bare

if TYPE_CHECKING:
    from albor_core.config.sections.section import Section

_OTHERS = ("__init__", "entry", "own", "registry")  # files that are not recipes
DEFAULT = "causal_lm"
OWN = "package.module:Class"
NAMES = tuple(
    sorted(one.stem for one in Path(__file__).parent.glob("*.py") if one.stem not in _OTHERS)
)
"""Of the recipes."""
PATTERN = f"^(?:{'|'.join(NAMES)}|{own.CLASS})$"


@cache
def entry_of(mode: str) -> RecipeEntry | None:
    """The entry of a training mode; None for a user's class."""
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
    """Problems that the recipe `mode` finds in the sections of a config; some may be missing."""
    entry = entry_of(mode)
    yield from own.problems(sections) if entry is None else entry.problems(sections)
    yield from _unread(mode, sections)
    if entry is not None and entry.settings is None and (given := sections.get("recipe")):
        typed = [one.name for one in entries().values() if one.settings is not None]
        hint = f"leave it out, or set training.mode to {' or '.join([*typed, OWN])}"
        for name in given:
            yield Problem(f"recipe.{name}", f"is not read by {mode}, which has no settings", hint)


def _unread(mode: str, sections: Mapping[str, Any]) -> Iterator[Problem]:
    """Fields that are set and change nothing under this recipe."""
    entry = entry_of(mode)
    reads = () if entry is None else entry.reads
    for field, value in chosen((one for one in SOME_READ if one not in reads), sections):
        readers = " and ".join(one.name for one in entries().values() if field in one.reads)
        shown = bare(value) if isinstance(value, str | int | float) else "given"
        what = f"is {shown}, read by {readers} alone, and training.mode is {mode}"
        instead = f": {SOME_READ[field]}" if entry is None else ""
        yield Problem(field, what, f"leave it out{instead}")


def chosen(fields: Iterable[str], sections: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The `fields` that differ from their defaults, with their values, if their section is
    present."""
    for field in fields:
        first, *path, name = field.split(".")
        section = sections.get(first)
        for part in path if section else ():
            section = getattr(section, part)
        if not section:
            continue
        value = getattr(section, name)
        if value != type(section).model_fields[name].get_default(call_default_factory=True):
            yield field, value


def settings_type(mode: str) -> type[Section] | None:
    """The type of the section `recipe`; None: it has none, or any content is allowed."""
    entry = entry_of(mode)
    return None if entry is None else entry.settings


def settings_of(mode: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The section `recipe` with every default; as it is written, for a class of the user's own."""
    settings = settings_type(mode)
    if settings is None:
        return dict(given)
    return settings.model_validate(dict(given)).model_dump(mode="json")


def mode(value: object) -> object:
    """A training.mode as it is. Raises ValueError for a text that can be none."""
    if isinstance(value, str) and value not in NAMES and own.own_class(value) is None:
        raise ValueError(f"must be {' or '.join(NAMES)} or {OWN}")
    return value
