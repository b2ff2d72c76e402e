"""`--require held-out/ppl<=30`: what a score must be for the command to succeed."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from albor_core.run.errors import NotFoundError, UsageError
from albor_core.run.values.lenient import parsed
from albor_core.run.values.quantity import figure

_SIGNS: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_FORM = re.compile(r"(?:eval/)?([^<>=\s]+)\s*(<=|>=|<|>)\s*(\S+)")


@dataclass(frozen=True)
class Requirement:
    name: str
    sign: str
    bound: float

    def __str__(self) -> str:
        return f"{self.name} {self.sign} {figure(self.bound)}"


def requirements(texts: Iterable[str]) -> tuple[Requirement, ...]:
    """The parsed requirements. Raises UsageError."""
    return tuple(map(_read, texts))


def _read(text: str) -> Requirement:
    match = _FORM.fullmatch(text.strip())
    bound = None if match is None else parsed(match[3])
    if match is None or bound is None:
        what = f"--require {text!r} is not SCORE<=NUMBER"
        raise UsageError(what, hint="--require 'held-out/ppl<=30'")
    return Requirement(match[1], match[2], bound)


def unmet(wanted: Iterable[Requirement], document: Mapping[str, Any]) -> Iterator[str]:
    """What a result (albor.eval/1) does not reach. A score that is not a number reaches nothing.

    Raises NotFoundError for a score that is not in it.
    """
    scores = {one["name"]: one["value"] for task in document["tasks"] for one in task["scores"]}
    for one in wanted:
        if one.name not in scores:
            hint = f"there are {', '.join(scores)}"
            raise NotFoundError(f"--require: no score {one.name!r}", hint=hint)
        value = scores[one.name]
        if value is None or not _SIGNS[one.sign](value, one.bound):
            yield f"required {one}, is {figure(value)}"
