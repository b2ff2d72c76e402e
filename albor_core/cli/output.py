"""How every command speaks: data on stdout, talk on stderr, one strict JSON document, one error
shape.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from albor_core.run.errors import AlborError, ConfigError, Problem
from albor_core.run.state import finite

F = TypeVar("F", bound=Callable[..., Any])

json_option: Callable[[F], F] = click.option(
    "--json", "as_json", is_flag=True, help="Print one strict JSON document."
)


def emit(document: Mapping[str, Any]) -> None:
    """One document on one line of stdout, strict: NaN and Inf become null."""
    put(json.dumps(finite(document), allow_nan=False, separators=(",", ":")) + "\n")


def say(text: str = "") -> None:
    """A line of data for people, on stdout."""
    put(text + "\n")


class StdoutError(AlborError):
    """Whatever stdout is cannot be written."""


def put(text: str) -> None:
    """Data on stdout, now. Raises StdoutError where it cannot be written, BrokenPipeError where
    nobody reads it any more.
    """
    try:
        click.echo(text, nl=False)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StdoutError(
            f"cannot write to stdout: {error.strerror}", hint="free some space, run it again"
        ) from error


def talk(text: str) -> None:
    """A line about the work, on stderr; silent under --quiet."""
    if not click.get_current_context().find_root().params.get("quiet"):
        click.echo(text, err=True)


def clean(text: object) -> str:
    """Data as one line that cannot move the cursor, colour the terminal or forge a row."""
    from albor_core.feed.clean import clean as neutral

    return neutral(str(text))


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, right: str = "") -> str:
    """Columns padded to their widest cell; `right` names the headers whose cells are numbers."""
    numbers = set(right.split())
    cells = [list(headers), *([clean(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headers))]
    lines = []
    for row in cells:
        padded = [
            cell.rjust(width) if head in numbers else cell.ljust(width)
            for head, cell, width in zip(headers, row, widths, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def number(value: float | int | None, spec: str = ",.4g") -> str:
    """A figure for people; unknown is a dash, never 0."""
    return "-" if value is None else format(value, spec)


def duration(seconds: float | None) -> str:
    """1d 02h, 3h 04m, 5m 06s, 7s; unknown is a dash."""
    if seconds is None or seconds != seconds or seconds < 0:
        return "-"
    whole = int(seconds)
    days, hours, minutes, rest = whole // 86400, whole // 3600 % 24, whole // 60 % 60, whole % 60
    if days:
        return f"{days}d {hours:02d}h"
    if hours:
        return f"{hours}h {minutes:02d}m"
    return f"{minutes}m {rest:02d}s" if minutes else f"{rest}s"


def wants_json() -> bool:
    """Whether the command line asks for JSON; known even when it could not be parsed."""
    arguments = sys.argv[1:]
    return "--json" in arguments[: arguments.index("--") if "--" in arguments else None]


def report(error: AlborError, *, hint: str = "") -> int:
    """Print what went wrong where the reader looks for it; returns the exit code.

    `hint` is the next command where the error names none.
    """
    problems = error.problems if isinstance(error, ConfigError) else ()
    hint = error.hint or hint
    try:
        if wants_json() and not isinstance(error, StdoutError):
            emit(_error_document(error, hint, problems))
            return error.exit_code
    except StdoutError:
        pass  # nowhere to put the document: say it in words
    if isinstance(error, StdoutError) or wants_json():
        leave_stdout()
    click.echo(f"albor: {clean(error.message)}", err=True)
    for problem in problems:
        if problem.message not in error.message:  # a single one may be the message
            click.echo(f"  - {clean(problem)}", err=True)
    if hint:
        click.echo(f"  next: {clean(hint)}", err=True)
    return error.exit_code


def _error_document(error: AlborError, hint: str, problems: Sequence[Problem]) -> dict[str, Any]:
    return {
        "schema": "albor.error/1",
        "error": {
            "code": error.code,
            "message": error.message,
            "hint": hint,
            "problems": [
                {"file": p.file, "field": p.field, "message": p.message, "hint": p.hint}
                for p in problems
            ],
        },
    }


def open_streams() -> None:
    """A stream that the caller closed becomes /dev/null, so that no command need ask."""
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  for the life of the process
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115


def close_stdout() -> int:
    """Flush; a reader that went away is no failure of ours, a full disk is. Gives the exit code."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return broken_pipe()
    except OSError as error:
        leave_stdout()
        click.echo(f"albor: cannot write to stdout: {error.strerror}", err=True)
        return 1
    return 0


def broken_pipe() -> int:
    """The exit code of a program whose reader left (128 + SIGPIPE); stdout is pointed away."""
    leave_stdout()
    return 141


def leave_stdout() -> None:
    """Point stdout away, or the interpreter fails once more when it flushes what is left."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
