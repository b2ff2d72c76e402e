"""A click group that imports a command's module only when that command runs.

`albor --help` costs one table of strings instead of every room of the house.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

import click

from albor_core.cli.common.interrupt import while_loading

Entry = tuple[str, str]
"""("package.module:attribute", one line of help)"""


class LazyGroup(click.Group):
    """Commands named in a table: `entries` maps a name to its place and its one line of help.

    `default` is the command that takes what begins with no name of the table, and nothing at all.
    """

    def __init__(
        self,
        *args: object,
        entries: Mapping[str, Entry],
        default: str = "",
        **kwargs: object,
    ) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.entries, self.default = entries, default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        first = args[0] if args else ""
        is_named = first in self.entries or first in ("-h", "--help")
        if self.default and not is_named:
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.entries:
            return None
        module, attribute = self.entries[cmd_name][0].split(":")
        with while_loading():
            command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.entries and not args[0].startswith("-"):
            import difflib

            close = difflib.get_close_matches(args[0], self.entries, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_) for name, (_, help_) in self.entries.items()])
