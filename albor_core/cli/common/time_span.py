"""Times on the command line: stretches as `90` or `90s`, `30m`, `12h`, `2d`, and moments."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Any

import click

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)([smhdw])")
_SECONDS = re.compile(r"\d{1,9}(?:\.\d{1,6})?")


class TimeSpan(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.3 on
    """Seconds, more than none: `90` as well as `90s`."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        text = f"{value}s" if _SECONDS.fullmatch(str(value)) else str(value)
        found = _SPAN.fullmatch(text)
        seconds = float(found[1]) * _UNITS[found[2]] if found else 0.0
        if seconds <= 0:
            self.fail(
                f"{value!r} is not a stretch of time: 90 or 90s, 30m, 12h, 2d, 1w", param, ctx
            )
        return seconds


TIME_SPAN = TimeSpan()


class Moment(click.ParamType):  # type: ignore[type-arg]
    """UTC seconds: a stretch of time before now, or a time in UTC."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, float):
            return value
        if found := _SPAN.fullmatch(str(value)):
            return time.time() - float(found[1]) * _UNITS[found[2]]
        try:
            then = datetime.fromisoformat(str(value))
            return (then if then.tzinfo else then.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            words = f"{value!r} is not a time: 90s, 30m, 12h, 2d, or in UTC 2026-01-31T08:00"
            self.fail(words, param, ctx)


MOMENT = Moment()
