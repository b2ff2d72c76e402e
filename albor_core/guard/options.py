"""The guard's options, parsed from the launch file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from albor_core.run.errors import ConfigError, Problem
from albor_core.run.guard_options import Options as Options

_MAY_BE_NONE = ("restarts", "min_free_bytes")  # and are whole numbers


def parse_options(given: Mapping[str, Any]) -> Options:
    """Options from plain JSON; what is absent keeps its default.

    Raises ConfigError with every problem at once.
    """
    known = {field.name: field.default for field in fields(Options)}
    problems = [
        Problem(f"guard.{name}", "is not an option", "one of " + ", ".join(known))
        for name in given
        if name not in known
    ]
    values: dict[str, Any] = {}
    for name in given.keys() & known.keys():
        try:
            values[name] = _value(name, given[name], known[name])
        except ValueError as error:
            problems.append(Problem(f"guard.{name}", str(error)))
    if problems:
        raise ConfigError(str(problems[0]), problems=tuple(problems))
    return Options(**values)


def _value(name: str, value: Any, default: Any) -> Any:
    if name in _MAY_BE_NONE and value is None:
        return None
    if name == "backoff_s":
        if not isinstance(value, list | tuple) or not value:
            raise ValueError(f"must be a list of seconds, is {value!r}")
        return tuple(_at_least_0(item) for item in value)
    number = _at_least_0(value)
    if name in _MAY_BE_NONE or isinstance(default, int):
        if number != int(number):
            raise ValueError(f"must be a whole number, is {value!r}")
        return int(number)
    if number == 0:
        raise ValueError("must be above 0")
    return number


def _at_least_0(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"must be a number, is {value!r}")
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"must be a finite number of at least 0, is {value!r}")
    return float(value)
