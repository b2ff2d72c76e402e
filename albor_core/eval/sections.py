"""The common base of task sections, and their parser. No torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from albor_core.config.sections.numbers import Count
from albor_core.config.sections.section import CROSS_CHECK, Section
from albor_core.config.text.fields import LIMIT_WORDS
from albor_core.config.text.problems import shown_value, words_of
from albor_core.config.text.strict_yaml import refusal
from albor_core.run.errors import Problem

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
S = TypeVar("S", bound="TaskSection")
STDIN = Path("-")
"""As data: the text that came on stdin."""


class TaskSection(Section):
    """The section of a task: its kind, its data, and settings that affect its figures."""

    kind: str
    """What is asked of the model."""
    name: str = ""
    """What scores are called by: `eval/NAME/...`. By default the name of the file."""
    data: Path
    """The file or folder with the items, relative to the directory the command is run in."""
    limit: Count | None = None
    """Take the first items alone."""

    @property
    def title(self) -> str:
        """The task's name."""
        return self.name or ("stdin" if self.data == STDIN else name_from(self.data))


def name_from(path: Path) -> str:
    """The name of a task made from the path of its data."""
    return name_part(path.resolve().name.partition(".")[0])


def name_part(text: str) -> str:
    """Any text as a valid part of a score's name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:64] or "other"


def is_name(text: str) -> bool:
    """Whether a name is valid for a task: it becomes part of metrics and of file names."""
    return _NAME.fullmatch(text) is not None


def read_section(kind: type[S], said: Mapping[str, Any], where: str) -> S:
    """Read a section. Raises ConfigError with every problem, each located by `where`: tasks.0, or
    an option."""
    try:
        found = kind.model_validate(said)
    except ValidationError as error:
        raise refusal(section_problems(error, kind, where), file=where) from error
    if not is_name(found.title):
        what = f"{found.title!r} cannot name a task: letters, digits, '.', '_' and '-' can"
        raise refusal([Problem(f"{where}.name", what)])
    return found


def section_problems(error: ValidationError, kind: type[Section], where: str) -> list[Problem]:
    """Pydantic's errors of a section, as problems in Albor's wording."""
    found = []
    for detail in error.errors(include_url=False):
        path = ".".join(map(str, (*([where] if where else []), *detail["loc"])))
        if detail["type"] == CROSS_CHECK:
            found += [
                Problem(f"{where}.{one.field}", one.message, one.hint)
                for one in detail["ctx"]["found"]
            ]
        elif detail["type"] == "extra_forbidden":
            fields = ", ".join(name for name in kind.model_fields if name != "kind")
            found.append(Problem(path, "is not a field", f"there are {fields}"))
        else:
            found.append(Problem(path, _words(detail)))
    return found


def _words(detail: Any) -> str:
    """One of pydantic's errors in the wording of configs; for a number, with the bound that it
    violates."""
    context = detail.get("ctx", {})
    for limit, word in LIMIT_WORDS.items():
        if limit in context:
            return f"must be {word} {context[limit]}, is {shown_value(detail['input'])}"
    return words_of(detail, shown_value(detail["input"]))
