"""The name that a user gives to a run, for people to read and for command lines."""

from __future__ import annotations

import click

MAX_CHARS = 200


class RunName(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.3 on
    """Refuses what no listing can show or no command line can say: see `wrong_with`."""

    name = "text"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if wrong := wrong_with(value):
            shown = value if len(value) <= 40 else f"{value[:40]}..."
            self.fail(f"{shown!r} {wrong}; a name is such as 'warmup-2000'", param, ctx)
        return value


def wrong_with(name: str) -> str:
    """The reason why `name` is not valid for a run; "" if it is."""
    if not name.isprintable():
        return "holds characters that cannot be shown"
    if not any(map(str.isalnum, name)):
        return "has no letter or digit"
    if name.startswith("-"):
        return "begins like an option"
    if "/" in name:
        return "is a path"
    if len(name) > MAX_CHARS:
        return f"has {len(name):,} characters, more than {MAX_CHARS}"
    return ""


RUN_NAME = RunName()
