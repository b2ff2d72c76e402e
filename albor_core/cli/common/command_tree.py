"""`--help --json`: the command tree from a command down, as one document for programs."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from albor_core.cli.common.lazy import LazyGroup

if TYPE_CHECKING:
    from albor_core.documents.commands import (
        ArgumentHelp,
        CommandHelp,
        HelpDocument,
        OptionHelp,
        ParameterHelp,
    )

HELP = ("-h", "--help")
Named = tuple[str, click.Command]


def asked_for(root: click.Command, words: Sequence[str]) -> Named | None:
    """The command whose tree the command line asks for: help and JSON both, of a command that
    there is.
    """
    own = words[: words.index("--")] if "--" in words else words
    if "--json" not in own or not any(word in own for word in HELP):
        return None
    path, command = named_command(root, own)
    rest = [word for word in own if not word.startswith("-")][path.count(" ") :]
    is_unknown = isinstance(command, LazyGroup) and rest and not command.default
    return None if is_unknown else (path, command)


def named_command(root: click.Command, words: Sequence[str]) -> Named:
    """The command that a command line names, as far as it names one."""
    path, command = "albor", root
    for word in words:
        if not isinstance(command, click.Group):
            break
        if (child := command.get_command(click.Context(command), word)) is not None:
            path, command = f"{path} {word}", child
    return path, command


def tree_document(named: Named) -> HelpDocument:
    """The document of all commands, as `albor schema albor.help` describes it."""
    from importlib.metadata import version

    path, command = named
    first_line = (command.help or "").strip().split("\n\n")[0]
    summary = " ".join(first_line.split())
    node = _node(path, command, summary)
    return {"schema": "albor.help/1", "version": version("albor"), "command": node}


def _node(path: str, command: click.Command, summary: str) -> CommandHelp:
    context = click.Context(command, info_name=path)
    below = []
    if isinstance(command, LazyGroup):
        for name, (_, text) in command.entries.items():
            child = command.get_command(context, name)
            assert child is not None, name
            below.append(_node(f"{path} {name}", child, text))
    return {
        "path": path,
        "summary": summary,
        "help": inspect.cleandoc(command.help or "").replace("\b\n", ""),
        "arguments": [_argument(p, context) for p in command.params if not _is_option(p)],
        "options": [_option(p, context) for p in command.params if isinstance(p, click.Option)],
        "default": (command.default or None) if isinstance(command, LazyGroup) else None,
        "commands": below,
    }


def _is_option(param: click.Parameter) -> bool:
    return isinstance(param, click.Option)


def _argument(param: click.Parameter, context: click.Context) -> ArgumentHelp:
    return {"name": param.make_metavar(context).strip("[]. -"), **_taken(param)}


def _option(param: click.Option, context: click.Context) -> OptionHelp:
    default: Any = param.get_default(context, call=False)
    is_plain = type(default) in (int, float, str) or (default is True and param.is_flag)
    return {
        "flags": list(param.opts),
        "off_flags": list(param.secondary_opts),
        "is_flag": param.is_flag,
        "value": None if param.is_flag else param.make_metavar(context),
        "default": default if is_plain else None,
        "help": " ".join((param.help or "").split()),
        **_taken(param),
    }


def _taken(param: click.Parameter) -> ParameterHelp:
    """The type of a parameter, and how often it may be given."""
    choices = [str(c) for c in param.type.choices] if isinstance(param.type, click.Choice) else []
    return {
        "type": param.type.name,
        "choices": choices,
        "is_required": param.required,
        "is_repeatable": param.multiple or param.nargs != 1,
    }
