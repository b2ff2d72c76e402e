"""Numbers on the command line; whole ones written as in a config: `32_768`, `32K`, `10B`."""

from __future__ import annotations

import math
from typing import Any

import click


class Count(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.3 on
    """An integer as `run.values.numbers.parse_count` reads it, from `least` to `most` if given."""

    name = "integer"

    def __init__(self, least: int | None = None, most: int | None = None) -> None:
        self.least, self.most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = value if isinstance(value, int) else _parsed(value)
        except ValueError as error:
            self.fail(f"{value!r} {error}", param, ctx)
        if self.least is not None and number < self.least:
            self.fail(f"{value} is less than {self.least:,}", param, ctx)
        if self.most is not None and number > self.most:
            self.fail(f"{value} is more than {self.most:,}", param, ctx)
        return number


def _parsed(value: str) -> int:
    from albor_core.run.values.numbers import parse_count  # 5 ms that a default need not pay

    return parse_count(value)


class FiniteRange(click.FloatRange):
    """A FloatRange without nan, which is neither below nor above anything, and without infinity."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


COUNT = Count()
