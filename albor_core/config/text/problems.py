"""What pydantic finds in a config, in our words, with the line or the override it stands in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from albor_core.config.sections.section import CROSS_CHECK
from albor_core.config.text.fields import LIMIT_WORDS, TWINS, FieldTree
from albor_core.config.text.strict_yaml import MAX_PROBLEMS, KeyPath, YamlDocument, untold
from albor_core.run.errors import Problem
from albor_core.run.values.webhook_url import HIDDEN

SINKS = ("monitoring", "notify")


@dataclass(frozen=True)
class Places:
    """The file positions of the values of a config."""

    document: YamlDocument
    sources: Mapping[KeyPath, str]
    """Overrides by what they set."""
    file: str
    fields: FieldTree

    def of(self, field: str) -> str:
        """`file:line` or `--set KEY=VALUE` of a dotted field, or of the section it would be in."""
        return self.at(field_path(field))[0]

    def at(self, path: KeyPath) -> tuple[str, int]:
        """The file of a value, and its line, 0 for an override."""
        prefixes = [path[:length] for length in range(len(path), 0, -1)]
        for prefix in prefixes:  # an override hides whatever the file has below it
            if prefix in self.sources:
                return self.sources[prefix], 0
        lines = self.document.lines
        for prefix in prefixes:
            for name in (prefix, *self.fields.other_names(prefix)):
                if name in lines:
                    return f"{self.file}:{lines[name]}", lines[name]
        return self.file, 0


def field_problems(
    error: ValidationError,
    places: Places,
    above: KeyPath = (),
    between: Sequence[Problem] = (),
) -> list[Problem]:
    """Pydantic's findings in our words and those `between` sections, in the order of the file."""
    found: list[tuple[int, Problem]] = []

    def add(path: KeyPath, message: str, hint: str) -> None:
        where, line = places.at(path)
        if path[:2] == SINKS and "/" in str(path[-1]):
            path = (*path[:-1], HIDDEN)  # a URL where a name belongs
        dotted = ".".join(str(part) for part in path)
        found.append((line, Problem(dotted, message, hint, where)))

    details = error.errors(include_url=False)
    more = untold(len(details) - MAX_PROBLEMS if len(details) > MAX_PROBLEMS else 0, places.file)
    del details[MAX_PROBLEMS:]
    parents = {detail["loc"][:-1] for detail in details}
    for detail in details:
        if detail["type"] == "too_short" and detail["loc"] in parents:
            continue  # its items were refused one by one: it is not empty
        base = _yaml_path((*above, *detail["loc"]), places.fields)
        if detail["type"] == CROSS_CHECK:
            for item in detail["ctx"]["found"]:
                add((*base, *field_path(item.field)), item.message, item.hint)
        else:
            add(base, *_message_and_hint(detail, base, places.fields))
    for item in between:
        add(field_path(item.field), item.message, item.hint)
    found.sort(key=lambda pair: pair[0])
    unique = {(problem.field, problem.message): problem for _, problem in found}
    return [*_without_echoes(list(unique.values()), places), *more]


def _without_echoes(found: list[Problem], places: Places) -> list[Problem]:
    """One problem for a setting with two names: of the name that was written, or of the first."""

    def is_written(path: KeyPath) -> bool:
        if path in places.sources:
            name = places.sources[path].removeprefix("--set ").partition("=")[0]
            return tuple(part.strip() for part in name.split(".")) == path
        return path in places.document.lines

    def rank(problem: Problem) -> tuple[bool, int]:
        return not is_written(field_path(problem.field)), found.index(problem)

    kept = []
    for problem in found:
        path = field_path(problem.field)
        twin = next(
            (
                p
                for p in found
                if field_path(p.field) == TWINS.get(path) and p.message == problem.message
            ),
            None,
        )
        if twin is None or is_written(path) or rank(problem) < rank(twin):
            kept.append(problem)
    return kept


def field_path(field: str) -> KeyPath:
    """The path of a dotted name."""
    return tuple(int(part) if part.isdecimal() else part for part in field.split("."))


def _yaml_path(loc: tuple[str | int, ...], fields: FieldTree) -> KeyPath:
    """The location without the names pydantic adds below a field for the branches of its type."""
    path: list[str | int] = []
    leaves = fields.leaves
    for part in loc:
        if isinstance(part, str) and ".".join(map(str, path)) in leaves:
            break
        path.append(part)
    return tuple(path)


def _message_and_hint(detail: Any, path: KeyPath, fields: FieldTree) -> tuple[str, str]:
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    if path[:2] == SINKS and "/" in repr(value):
        shown = f"{'text' if isinstance(value, str) else 'data'} that may hold a URL"
    else:
        shown = shown_value(value)
    match kind:
        case "extra_forbidden":
            return "is not a field", fields.suggestion(path)
        case "greater_than" | "greater_than_equal" | "less_than" | "less_than_equal":
            return f"must be {_range(fields.bounds(path), context)}, is {shown}", ""
        case "finite_number":
            return f"must be {_range(fields.bounds(path), {})}, is {shown}", ""
    return words_of(detail, shown), ""


def shown_value(value: object) -> str:
    """A value that was refused, as messages show it."""
    whole = repr(value)
    return whole if len(whole) <= 60 else whole[:57] + "..."


def words_of(detail: Any, shown: str) -> str:
    """Pydantic's error of a value, in Albor's wording."""
    match detail["type"]:
        case "missing":
            return "is required"
        case "literal_error":
            return f"must be {detail['ctx']['expected']}, is {shown}"
        case "value":
            return f"{detail['msg']}, is {shown}"
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"must be a section with fields, is {shown}"
        case "bool_parsing" | "bool_type":
            return f"must be true or false, is {shown}"
        case "string_type" | "path_type":
            return f"must be text, is {shown}"
        case "tuple_type":
            return f"must be a list, is {shown}"
        case "too_short":
            return "must not be empty"
        case "string_too_short" | "string_too_long":
            return f"{detail['msg'].removeprefix('String ')}, is {shown}"
    return f"{detail['msg'][0].lower()}{detail['msg'][1:]}, is {shown}"


def _range(bounds: Mapping[str, float], broken: Mapping[str, Any]) -> str:
    """The allowed range of a number; the limit of the store's integers only if it is violated."""
    told = {k: v for k, v in bounds.items() if k in broken or v < 2**62}
    return " and ".join(f"{word} {told[k]:.12g}" for k, word in LIMIT_WORDS.items() if k in told)
