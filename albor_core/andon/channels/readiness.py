"""Checks whether a sink could get an alert, without connecting to it or starting anything."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from albor_core.andon.channels.command import RUN_IN
from albor_core.andon.channels.sinks import Sink
from albor_core.run.errors import ConfigError


def sink_problem(sink: Sink, environment: Mapping[str, str]) -> str:
    """The reason why no alert can arrive from a process with this environment; "" if one may. The
    URL is never repeated.
    """
    if sink.kind == "webhook":
        return _webhook_problem(sink, environment)
    if sink.kind == "command" and sink.argv:
        return _program_problem(sink.argv[0], environment.get("PATH"))
    return ""


def argument_problem(sink: Sink) -> str:
    """A problem in a command's arguments, such as a file in a folder that does not exist."""
    for word in sink.argv[1:] if sink.kind == "command" else ():
        if word.startswith("/") and not os.path.isdir(os.path.dirname(word)):  # noqa: PTH112,PTH120  any text
            return f"the folder of {word[:200]!r} is not there"
    return ""


def _webhook_problem(sink: Sink, environment: Mapping[str, str]) -> str:
    from albor_core.andon.channels.webhook import literal_problem  # noqa: PLC0415  loads ssl

    try:
        url = sink.address(environment)
    except ConfigError as error:
        return error.message.removeprefix(f"{sink.name}: ")
    parts = urlsplit(url)
    if sink.format == "ntfy" and not parts.path.strip("/"):
        return "its URL ends without a topic: https://SERVER/TOPIC"
    return literal_problem(parts.hostname or "", allow_private=sink.allow_private)


def _program_problem(program: str, search: str | None) -> str:
    shown = program[:200]
    if "/" not in program:
        is_found = shutil.which(program, path=search) is not None
        return "" if is_found else f"there is no program {shown!r} on PATH"
    path = Path(RUN_IN, program)
    try:
        if not path.is_file():
            return f"there is no program {str(path)[:200]!r}"
    except (OSError, ValueError) as error:
        return f"cannot reach {str(path)[:200]!r}: {getattr(error, 'strerror', None) or error}"
    return "" if os.access(path, os.X_OK) else f"{str(path)[:200]!r} cannot be executed"
