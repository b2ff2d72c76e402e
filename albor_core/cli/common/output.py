"""How every command speaks: data on stdout, talk on stderr, one strict JSON document, one error
shape.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import click

from albor_core.run.errors import AlborError, ConfigError, Problem, remedy
from albor_core.run.values.lenient import strict_json
from albor_core.run.values.quantity import figure, is_finite

if TYPE_CHECKING:
    from albor_core.documents import (
        alerts,
        commands,
        corpus,
        data,
        eval,
        guard,
        kernels,
        monitor,
        runs,
        train,
        transfer,
    )
    from albor_core.run.values.main_metrics import MainMetric

    # every document that a command passes to `emit` by its type, and not as Any
    Printed = (
        alerts.AlertRulesDocument | alerts.AlertsAckDocument | alerts.AlertsListDocument
        | alerts.AlertsTestDocument | alerts.AttentionChangeDocument | alerts.AttentionDocument
        | alerts.NotifyTestDocument | commands.DoctorDiskDocument | commands.DoctorDocument
        | commands.ErrorDocument | commands.FilePlanDocument | commands.GpuDocument
        | commands.HelpDocument | commands.InitDocument | commands.ReportDocument
        | commands.SchemaNamesDocument | commands.StorePathDocument | commands.StoreQueryDocument
        | corpus.DataImportDocument | corpus.MixPlanDocument | corpus.QualityProfilesDocument
        | data.BatchDocument | data.DataBuildDocument | data.DataBuildPlanDocument
        | data.DataVerifyDocument | eval.EvalCompareDocument | eval.EvalCorrelateDocument
        | eval.EvalSheetDocument | eval.EvalValidateDocument | guard.GuardCommandDocument
        | guard.GuardStatusDocument | kernels.KernelsBenchDocument | kernels.KernelsCheckDocument
        | monitor.LogLineDocument | monitor.MonitorDocument | monitor.MonitorRunsDocument
        | runs.RunsDigestDocument | runs.RunsNoteDocument | runs.RunsPinDocument
        | runs.RunsRenameDocument | runs.RunsTagDocument | runs.RunsTailDocument
        | runs.RunsWaitDocument | train.CheckpointsListDocument | train.CheckpointsPruneDocument
        | train.CheckpointsVerifyDocument | train.TrainApplyDocument | train.TrainValidateDocument
        | transfer.RunsGcDocument | transfer.RunsImportDocument | transfer.RunsMoveDocument
        | transfer.RunsPlotDocument | transfer.RunsPullDocument | transfer.RunsRemoveDocument
        | transfer.RunsRestoreDocument
    )  # fmt: skip

F = TypeVar("F", bound=Callable[..., Any])

json_option: Callable[[F], F] = click.option(
    "--json", "as_json", is_flag=True, help="Print one strict JSON document."
)


class Rehearsal:
    """A command that does all of its work, and writes and prints nothing: `rehearsed`."""

    def __init__(self) -> None:
        self.bytes = 0
        """That it would have written."""
        self.document: Mapping[str, Any] = {}
        """That it would have printed."""


_REHEARSAL: ContextVar[Rehearsal | None] = ContextVar("rehearsal", default=None)


@contextmanager
def rehearsed() -> Iterator[Rehearsal]:
    """Within it, `out_file` counts bytes, `emit` keeps the document and notes are not told."""
    token = _REHEARSAL.set(made := Rehearsal())
    try:
        yield made
    finally:
        _REHEARSAL.reset(token)


class _Counted(io.RawIOBase):
    """A file that only knows how long it became."""

    def __init__(self) -> None:
        self.size = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size

    def write(self, data: Any) -> int:
        self.size += len(data)
        return len(data)


def emit(document: Printed) -> None:
    """One document on one line of stdout, strict: NaN and Inf become null, a blob text."""
    if (rehearsal := _REHEARSAL.get()) is not None:
        rehearsal.document = document
        return
    write_stdout(_strict(document) + "\n")


def field_values(one: Any) -> Any:
    """The fields of a dataclass, as the part of a document that has the same."""
    return asdict(one)


@contextmanager
def out_file(out: Path, *, replace: bool) -> Iterator[BinaryIO]:
    """What a command was told to write to: whole when the block has ended well, or not at all.
    Raises UsageError where it is there and not to be replaced, NotFoundError without
    its folder, AlborError.
    """
    from albor_core.run.files.whole_file import already_there, no_folder, whole_file

    if not out.parent.is_dir():
        raise no_folder(out)
    if (rehearsal := _REHEARSAL.get()) is not None:
        if out.is_dir() or (not replace and os.path.lexists(out)):
            raise already_there(out)
        with io.BufferedWriter(counted := _Counted()) as file:
            yield file
        rehearsal.bytes += counted.size
        return
    try:
        with whole_file(out, replace=replace) as fd, os.fdopen(os.dup(fd), "wb") as file:
            yield file
    except OSError as error:
        raise AlborError(
            f"{out}: {error.strerror}", hint=remedy(error) or "another --out"
        ) from error


def emit_with_lists(
    document: Mapping[str, Any],
    name: str,
    lists: Iterable[tuple[str, Iterable[Sequence[Any]]]],
) -> None:
    """`document` as `emit` writes it, with one more member: an object `name` of long lists, each
    given in pages, of which one is in memory at a time.
    """
    head = _strict(document)
    write_stdout(f"{head[:-1]}{',' if document else ''}{json.dumps(name)}:{{")
    comma = ""
    for key, pages in lists:
        write_stdout(f"{comma}{json.dumps(key)}:[")
        comma, inner = ",", ""
        for page in pages:
            if page:
                write_stdout(inner + _strict({"page": page})[len('{"page":[') : -len("]}")])
                inner = ","
        write_stdout("]")
    write_stdout("}}\n")


def _strict(document: Mapping[str, Any]) -> str:
    try:
        return _dumps(document)
    except (TypeError, ValueError):  # a NaN, or a name that is a blob; the copy without costs
        return _dumps(strict_json(document))  # `runs ls` more than the text


def _dumps(document: Mapping[str, Any]) -> str:
    return json.dumps(document, allow_nan=False, separators=(",", ":"), default=_text)


def _text(value: object) -> str:
    """A value of a store that should be a text and is not."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def print_line(text: str = "") -> None:
    """A line of data for people, on stdout."""
    write_stdout(text + "\n")


class StdoutError(AlborError):
    """Whatever stdout is cannot be written."""


def write_stdout(text: str, *, is_raw: bool = False) -> None:
    """Data on stdout, now; raw to the byte, where colour codes belong to it. Raises StdoutError
    where it cannot be written, BrokenPipeError where its reader has gone.
    """
    try:
        click.echo(text, nl=False, color=is_raw or None)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StdoutError(
            f"cannot write to stdout: {error.strerror}", hint="free some space, run it again"
        ) from error


def print_note(text: str) -> None:
    """A line about the work, on stderr; silent under --quiet."""
    if _REHEARSAL.get() is None and not click.get_current_context().find_root().params.get("quiet"):
        click.echo(text, err=True)


def clean(text: object) -> str:
    """Data as one line that cannot move the cursor, colour the terminal or forge a row."""
    from albor_core.run.values.clean import clean as neutral

    return neutral(str(text))


def screen_width() -> int | None:
    """Columns to fit into: of the terminal, or as COLUMNS says. None: what is piped is not cut."""
    if "COLUMNS" not in os.environ and not sys.stdout.isatty():
        return None
    return max(40, shutil.get_terminal_size().columns)


def table(
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: str | Sequence[str] = "",
    indent: int = 0,
    limit: int | None = None,
) -> str:
    """Columns padded to their widest cell; `right` names the headers whose cells are numbers.

    `limit` is the widest line: columns of words, the last one first, lose the ends of long cells.
    """
    numbers = set(right.split() if isinstance(right, str) else right)
    cells = [[clean(head) for head in headers], *([clean(cell) for cell in row] for row in rows)]
    widths = [max(cell_width(row[column]) for row in cells) for column in range(len(headers))]
    if limit is not None:
        room = limit - indent - 2 * (len(widths) - 1)
        _shrink(widths, room, [i for i, head in enumerate(headers) if head not in numbers])
    lines = []
    for row in cells:
        padded = [
            _pad(cell, width, to_right=head in numbers)
            for head, cell, width in zip(headers, row, widths, strict=True)
        ]
        lines.append(" " * indent + "  ".join(padded).rstrip())
    return "\n".join(lines)


def _shrink(widths: list[int], room: int, columns: Sequence[int]) -> None:
    """Take what is missing from `columns`, the last one first; each keeps 16 cells if it had."""
    for column in reversed(columns):
        over = sum(widths) - room
        widths[column] -= min(max(0, over), max(0, widths[column] - 16))


def _pad(cell: str, width: int, *, to_right: bool) -> str:
    cell = cut(cell, width)
    gap = " " * (width - cell_width(cell))
    return gap + cell if to_right else cell + gap


def cut(text: str, width: int | None) -> str:
    """`text` in at most `width` cells; where it lost its end there is an ellipsis."""
    if width is None or cell_width(text) <= width:
        return text
    while text and cell_width(text) > width - 1:
        text = text[:-1]
    return text + "\u2026"


def fold(text: str, width: int | None) -> list[str]:
    """`text` over lines of at most `width` cells, between words where that is possible."""
    if width is None or cell_width(text) <= width:
        return [text]
    if text.isascii():
        import textwrap

        return textwrap.wrap(text, width)
    lines, line = [], ""
    for word in text.split(" "):
        wider = f"{line} {word}" if line else word
        if cell_width(wider) <= width:
            line = wider
            continue
        lines += [line] if line else []
        while cell_width(word) > width:
            head = _head(word, width)
            lines.append(head)
            word = word[len(head) :]
        line = word
    return [*lines, line] if line else lines


def _head(text: str, width: int) -> str:
    """As many characters as fit into `width` cells, and at least one."""
    taken = 0
    for at, character in enumerate(text):
        taken += cell_width(character)
        if taken > width:
            return text[: max(1, at)]
    return text


def cut_middle(text: str, width: int) -> str:
    """`text` in at most `width` cells; where it lost its middle there is an ellipsis."""
    if cell_width(text) <= width:
        return text
    end = text[len(text) - width // 2 :]
    while end and cell_width(end) > width // 2:
        end = end[1:]
    return cut(text, width - cell_width(end)) + end


def cell_width(text: str) -> int:
    """Cells that `text` takes on a terminal: two for a wide character, none for a mark."""
    if text.isascii():
        return len(text)
    import unicodedata  # only names beyond ASCII need the tables

    return sum(
        0
        if unicodedata.category(character) in ("Mn", "Me")
        else 1 + (unicodedata.east_asian_width(character) in "WF")
        for character in text
    )


_LARGE = 1e15  # written with an exponent from here on


def number(value: float | int | None, spec: str | None = None) -> str:
    """A figure for people, in the format `spec` or as `figure`; unknown is a dash, never 0. From
    10^15 on it has an exponent whatever `spec` says: no column is as wide as its largest number.
    """
    if spec is None or not is_finite(value):
        return figure(value)
    if abs(value) < _LARGE:
        return format(value, spec)
    return f"{value:{'+' if spec.startswith('+') else ''}.5g}"


def metric_text(one: MainMetric) -> str:
    """The name of a metric, its main value, and the direction in which it is better."""
    way = {"max": " \u2191", "min": " \u2193"}.get(one.better or "", "")
    stat = "" if one.stat == "last" else f":{one.stat}"  # as filters and columns name it
    return f"{clean(one.name)}{stat} {figure(one.last, one.name)}{way}"


def when(wall: float | None, form: str = "%Y-%m-%d %H:%M") -> str:
    """A moment in UTC, to the minute; unknown, or no moment at all, is a dash."""
    try:
        return time.strftime(form, time.gmtime(wall)) if wall is not None else "-"
    except (OverflowError, ValueError, OSError):  # a clock that was never set, a forged record
        return "-"


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


def _error_document(
    error: AlborError, hint: str, problems: Sequence[Problem]
) -> commands.ErrorDocument:
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
    for stream in (sys.stdout, sys.stderr):  # what an encoding has no sign for is escaped
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def close_stdout() -> int:
    """Flush stdout and return the exit code: a closed pipe is not an error, a full disk is."""
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
