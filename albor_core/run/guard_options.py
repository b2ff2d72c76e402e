"""How patient a guard is: each time and count it decides by, named as in the config, whose defaults
these are; and read from plain JSON. Standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from albor_core.run.errors import ConfigError, Problem

_MAY_BE_NONE = ("restarts", "min_free_bytes")  # and are whole numbers


@dataclass(frozen=True)
class Options:
    """Times in seconds on the monotonic clock. Tests scale all of them down."""

    poll_s: float = 15.0
    """Between two looks at training_state.json."""
    stale_s: float = 300.0
    """Silence in phases `training` and `paused` that counts as a hang."""
    backoff_s: tuple[float, ...] = (30.0, 60.0, 120.0, 240.0, 600.0)
    """Waits before the first, second, ... restart in a row; the last one repeats."""
    stable_s: float = 3600.0
    """An attempt this long, with a newer checkpoint, starts the waits from the first again."""
    grace_s: float = 30.0
    """From SIGTERM to SIGKILL."""
    max_no_progress: int = 3
    """Restarts in a row without a newer checkpoint before the guard gives up."""
    max_restarts: int = 50
    """Restarts within one day before the guard gives up."""
    restarts: int | None = None
    """Restarts of a run in all, whatever ended it; None leaves it to the other limits."""
    start_limit_s: float = 900.0
    compile_limit_s: float = 900.0
    eval_limit_s: float = 900.0
    checkpoint_limit_s: float = 600.0
    min_free_bytes: int | None = None
    """Free disk below which nothing is started; None: room for a checkpoint."""

    @property
    def pass_s(self) -> float:
        """The longest sleep of the loop: commands are answered within a second."""
        return min(1.0, self.poll_s)


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
